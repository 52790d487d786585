"""One-way attention: queries read words and each other, words never see queries."""

from __future__ import annotations

from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor


def one_way_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    n_words: int,
    word_mask: Tensor,
    *,
    dropout: float = 0.0,
    query_interaction: bool = True,
    query_mask: Optional[Tensor] = None,
) -> Tensor:
    """See PIQN section 3.2, eq. 2-3."""
    wm = word_mask[:, None, None, :]
    words = F.scaled_dot_product_attention(query[:, :, :n_words], key[:, :, :n_words], value[:, :, :n_words], attn_mask=wm, dropout_p=dropout)
    if query_interaction:
        qm = query_mask if query_mask is not None else word_mask.new_ones(key.shape[0], key.shape[2] - n_words)
        mask = torch.cat([word_mask, qm], 1)[:, None, None, :]
        queries = F.scaled_dot_product_attention(query[:, :, n_words:], key, value, attn_mask=mask, dropout_p=dropout)
    else:
        queries = F.scaled_dot_product_attention(query[:, :, n_words:], key[:, :, :n_words], value[:, :, :n_words], attn_mask=wm, dropout_p=dropout)
    return torch.cat([words, queries], dim=2)
