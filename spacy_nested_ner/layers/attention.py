"""What the layers of a transformer have in common."""

from __future__ import annotations

from typing import Any, Optional, Tuple

import torch.nn.functional as F
from torch import Tensor, nn


def split_heads(states: Tensor, heads: int) -> Tensor:
    """`(batch, n, width)` states to `(batch, heads, n, width / heads)`."""
    return states.unflatten(-1, (heads, -1)).transpose(1, 2)


def split_parts(states: Tensor, parts: int, heads: int) -> Tuple[Tensor, ...]:
    """`(batch, n, parts * width)` states, such as queries, keys and values of one layer, to
    `(batch, heads, n, width / heads)` each."""
    return states.unflatten(-1, (parts, heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)


def join_heads(states: Tensor) -> Tensor:
    """Inverse of `split_heads`."""
    return states.transpose(1, 2).flatten(2)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Optional[Tensor],
    dropout: float = 0.0,
    scale: Optional[float] = None,
) -> Tensor:
    """Scaled dot-product attention of split heads, which are joined: `(batch, queries, width)`.

    query: `(batch, heads, queries, head width)`. key, value: `(batch, heads, keys, head width)`.
    mask: `(batch, keys)` bool, False for padding; None for no padding. dropout: of the attention
    weights; 0 outside training. scale: of the products; None for one by the square root of the
    head width.
    """
    keys = None if mask is None else mask[:, None, None, :]
    attended = F.scaled_dot_product_attention(query, key, value, keys, dropout, scale=scale)
    return join_heads(attended)


def behind_attention(layer: Any, attended: Tensor, states: Tensor) -> Tensor:
    """The rest of a Hugging Face layer of the BERT and RoBERTa family, `(..., h)`.

    attended: what its attention gives for the states, both `(..., h)`.
    """
    states = layer.attention.output(attended, states)
    result: Tensor = layer.output(layer.intermediate(states), states)
    return result


def make_feedforward(width: int, factor: int) -> nn.Sequential:
    """The feed-forward part of a layer: inner width `factor * width`, GELU."""
    inner = factor * width
    return nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))
