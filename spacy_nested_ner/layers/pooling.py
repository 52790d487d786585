"""Soft pooling of words by boundary probabilities."""

from __future__ import annotations

from torch import Tensor


def soft_inside(left: Tensor, right: Tensor) -> Tensor:
    """How surely each word lies in the span that two boundary distributions describe.

    left, right: `(batch, queries, words)` probabilities of the first and the last word. Returns
    the same shape: P(first word at or before j) * P(last word at or after j), at most 1.
    """
    begun = left.cumsum(dim=-1).clamp(max=1.0)
    unfinished = right.flip(-1).cumsum(dim=-1).flip(-1).clamp(max=1.0)
    return begun * unfinished


def weighted_mean(weights: Tensor, words: Tensor) -> Tensor:
    """`(batch, queries, words)` weights over `(batch, words, width)`: `(batch, queries, width)`."""
    return weights @ words / weights.sum(dim=-1, keepdim=True).clamp(min=1e-6)
