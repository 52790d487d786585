"""Pooling of words over spans: soft by boundary probabilities, or the exact maximum; words by their
place."""

from __future__ import annotations

from typing import Any, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable


def soft_inside(left: Tensor, right: Tensor) -> Tensor:
    """Probability that each word lies in the span that two boundary distributions describe.

    left, right: `(batch, queries, words)` probabilities of the first and the last word. Returns
    the same shape: P(first word at or before j) * P(last word at or after j), at most 1.
    """
    begun = left.cumsum(dim=-1).clamp(max=1.0)
    unfinished = right.flip(-1).cumsum(dim=-1).flip(-1).clamp(max=1.0)
    return begun * unfinished


def weighted_mean(weights: Tensor, words: Tensor) -> Tensor:
    """`(batch, queries, words)` weights over `(batch, words, width)`: `(batch, queries, width)`."""
    return weights @ words / weights.sum(dim=-1, keepdim=True).clamp(min=1e-6)


def words_at(words: Tensor, place: Tensor) -> Tensor:
    """`(batch, words, width)` words at `(batch, queries)` places: `(batch, queries, width)`."""
    n_rows, n_words = words.shape[:2]
    if n_rows > 1:
        place = place + torch.arange(0, n_rows * n_words, n_words, device=place.device)[:, None]
    # Not `gather`, which copies number by number.
    return F.embedding(place, words.flatten(0, 1))


def mean_inside(spans: Tensor, words: Tensor) -> Tensor:
    """`(B, K, 2)` spans over `(B, N, h)` words: the mean of each span's words, `(B, K, h)`."""
    place = torch.arange(words.shape[1], device=words.device)
    first, last = spans.unsqueeze(-1).unbind(2)
    inside = ((first <= place) & (place <= last)).to(words.dtype)
    return inside @ words / inside.sum(dim=-1, keepdim=True)


class Maximum(torch.autograd.Function):
    """The larger number of each pair. Of equal ones the first gets the whole gradient: torch's own
    halves it, and takes three times as long."""

    @staticmethod
    def forward(ctx: Any, first: Tensor, second: Tensor) -> Tensor:
        """Two tensors of one shape."""
        ctx.save_for_backward(first >= second)
        return torch.maximum(first, second)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tuple[Tensor, Tensor]:
        """Of the first and of the second."""
        (is_first,) = ctx.saved_tensors
        of_first = gradient * is_first
        return of_first, gradient - of_first


def larger(first: Tensor, second: Tensor) -> Tensor:
    """The larger number of each pair, with the gradient of `Maximum` where one is wanted."""
    return Maximum.apply(first, second) if torch.is_grad_enabled() else torch.maximum(first, second)


class RangeMax:
    """Maximum of the word vectors over any span, by two look-ups.

    Holds the maxima of all runs of 1, 2, 4, ... words, `(levels * batch * words, width)`, that is
    `words * log2(words)` rows; any span is the union of two runs of one such length.
    """

    def __init__(self, words: Tensor) -> None:
        """words: `(batch, words, width)`. Spans must not reach into the padding."""
        self.shape = words.shape[:2]
        levels = [words]
        step = 1
        while 2 * step <= words.shape[1]:
            runs = levels[-1]
            # No span needs a run that reaches beyond the last word: any value will do.
            further = torch.cat([runs[:, step:], runs[:, :step]], dim=1)
            levels.append(larger(runs, further))
            step *= 2
        self.runs = torch.stack(levels).flatten(0, 2)

    def __call__(self, row: Tensor, start: Tensor, end: Tensor) -> Tensor:
        """Row of the batch, first and last word of each span, `(K,)` long: `(K, width)`."""
        n_rows, n_words = self.shape
        level = torch.frexp((end + 1 - start).double()).exponent.long() - 1
        base = (level * n_rows + row) * n_words
        ends = base + start, base + end + 1 - 2**level
        return larger(*(F.embedding(place, self.runs) for place in ends))
