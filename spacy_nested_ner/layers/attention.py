"""What the layers of a transformer have in common."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


def split_heads(states: Tensor, heads: int) -> Tensor:
    """`(batch, n, width)` states to `(batch, heads, n, width / heads)`."""
    return states.unflatten(-1, (heads, -1)).transpose(1, 2)


def join_heads(states: Tensor) -> Tensor:
    """Inverse of `split_heads`."""
    return states.transpose(1, 2).flatten(2)


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, dropout: float = 0.0) -> Tensor:
    """Scaled dot-product attention of split heads, which are joined: `(batch, queries, width)`.

    query: `(batch, heads, queries, head width)`. key, value: `(batch, heads, keys, head width)`.
    mask: `(batch, keys)` bool, False for padding. dropout: of the attention weights; 0 outside
    training.
    """
    keys = mask[:, None, None, :]
    return join_heads(F.scaled_dot_product_attention(query, key, value, keys, dropout_p=dropout))


def make_feedforward(width: int, factor: int) -> nn.Sequential:
    """The feed-forward part of a layer: inner width `factor * width`, GELU."""
    inner = factor * width
    return nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))
