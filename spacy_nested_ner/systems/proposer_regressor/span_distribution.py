"""The joint distribution over the first and the last word of each proposal (section 3.4).

Section and equation numbers are those of Wen et al. 2023. Shapes: B batch, N words, P proposals,
h hidden width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterator, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from spacy_nested_ner.layers.masks import of_padding
from spacy_nested_ner.systems.proposer_regressor.proposer import Proposals
from spacy_nested_ner.systems.proposer_regressor.regressor import Locator

# Cells of the joint distribution that are held at once: on a CPU 1 MiB, more do not stay in the
# cache; on a GPU, which wants to be filled, 64 MiB.
CHUNK_CELLS, CHUNK_CELLS_ON_GPU = 2**18, 2**24


Factors = Tuple[Tensor, ...]
"""start, end, start_cross, end_cross of `SpanDistribution` for some proposals: `(rows, N)` each."""


class JointPointer(nn.Module):
    """Joint distribution over first and last word (eq. 22): two pointers and a spatial weight."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, 2 * width)
        self.word = nn.Linear(width, 2 * width)
        self.locator = Locator(width)
        self.scale = width**-0.5

    def forward(self, proposals: Proposals, words: Tensor, mask: Tensor) -> SpanDistribution:
        """words: `(B, N, h)`; mask: `(B, N)` bool."""
        queries = self.query(proposals.query).chunk(2, dim=-1)
        keys = self.word(words).chunk(2, dim=-1)
        start, end = (q @ k.transpose(1, 2) * self.scale for q, k in zip(queries, keys))
        centre, shape = self.locator(proposals.query, proposals.location)
        assert shape is not None
        precision = shape @ shape.transpose(-1, -2)
        position = torch.arange(mask.shape[1], device=mask.device)
        from_start, from_end = (position - c for c in centre.split(1, dim=-1))
        start = start - precision[..., 0, :1] * from_start.square()
        end = end - precision[..., 1, 1:] * from_end.square()
        if of_padding(mask) is not None:
            padding = ~mask.unsqueeze(1)
            start, end = (side.masked_fill(padding, -torch.inf) for side in (start, end))
        return SpanDistribution(
            start=start,
            end=end,
            start_cross=-2 * precision[..., 0, 1:] * from_start,
            end_cross=from_end,
        )


@dataclass
class SpanDistribution:
    """Score r(s, e) of every span for every proposal (eq. 22), in factors.

    `r(s, e) = start[s] + end[e] + start_cross[s] * end_cross[e]` for s <= e: pointers and squares
    of the spatial weight concern one end, its mixed term is a product. All `(B, P, N)`; `start` and
    `end` are -inf at padding. A tensor of all spans, `(B, P, N, N)`, is never whole in memory.
    """

    start: Tensor
    end: Tensor
    start_cross: Tensor
    end_cross: Tensor

    def at(self, spans: Tensor) -> Tensor:
        """Scores of `(B, G, 2)` spans: `(B, P, G)`."""
        first, last = (
            spans[..., i].unsqueeze(1).expand(-1, self.start.shape[1], -1) for i in range(2)
        )
        cross = self.start_cross.gather(2, first) * self.end_cross.gather(2, last)
        return self.start.gather(2, first) + self.end.gather(2, last) + cross

    def log_partition(self) -> Tensor:
        """Logarithm of the sum of exp r(s, e) over all spans: `(B, P)`."""
        factors = self._factors()
        if torch.is_grad_enabled():
            flat = _LogPartition.apply(*factors)
        else:
            flat = torch.cat([_log_sum(span_cells(*chunk))[0] for chunk in _chunks(*factors)])
        return flat.view(self.start.shape[:2])

    def best(self, wanted: Optional[Tensor] = None) -> Tuple[Tensor, Tensor, Tensor]:
        """Probability, first and last word of the most probable span: three `(B, P)`.

        wanted: `(B, P)` bool, None for all; zeros for the others, which cost nothing.
        """
        if wanted is None:
            wanted = torch.ones(self.start.shape[:2], dtype=torch.bool, device=self.start.device)
        rows = wanted.flatten().nonzero().squeeze(1)
        chosen = (factor.index_select(0, rows) for factor in self._factors())
        found = zip(*(_best_span(*chunk) for chunk in _chunks(*chosen)))
        probability, index = (
            part[0].new_zeros(wanted.numel()).index_copy_(0, rows, torch.cat(part)).view_as(wanted)
            for part in found
        )
        n_words = self.start.shape[2]
        return probability, index // n_words, index % n_words

    def _factors(self) -> Factors:
        """The four tensors, `(B * P, N)` each."""
        columns = (self.start, self.end, self.start_cross, self.end_cross)
        return tuple(column.flatten(0, 1) for column in columns)


class _LogPartition(torch.autograd.Function):
    """Log of the sum over all spans, by rows; its gradients are expectations under their softmax.

    They are summed up along with the partition, so that backward neither keeps nor builds the
    cells again.
    """

    @staticmethod
    def forward(ctx: Any, *factors: Tensor) -> Tensor:
        """`(rows, N)` factors as in `span_cells` to `(rows,)`."""
        result = factors[0].new_empty(len(factors[0]), 1)
        slopes = tuple(torch.empty_like(factor) for factor in factors)
        # Written in place: small new tensors between the chunks would fragment the memory.
        for parts in _chunks(*factors, *slopes, result):
            chunk = parts[: len(factors)]
            log_sum, probability = _log_sum(span_cells(*chunk))
            found = (*_expectations(probability, *chunk), log_sum.unsqueeze(1))
            for part, value in zip(parts[len(factors) :], found):
                part.copy_(value)
        ctx.save_for_backward(*slopes)
        return result.squeeze(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tuple[Tensor, ...]:
        return tuple(gradient.unsqueeze(1) * slope for slope in ctx.saved_tensors)


def _expectations(
    probability: Tensor, start: Tensor, end: Tensor, start_cross: Tensor, end_cross: Tensor
) -> Factors:
    """Derivatives of the log partition by each factor, given the `(rows, N * N)` probabilities."""
    cells = probability.unflatten(1, (start.shape[1], -1))
    return (
        cells.sum(dim=2),
        cells.sum(dim=1),
        (cells @ end_cross.unsqueeze(2)).squeeze(2),
        (start_cross.unsqueeze(1) @ cells).squeeze(1),
    )


def _chunks(*factors: Tensor) -> Iterator[Factors]:
    """So many rows of the factors at a time that their cells fit the device."""
    cells = CHUNK_CELLS_ON_GPU if factors[0].is_cuda else CHUNK_CELLS
    size = max(1, cells // factors[0].shape[1] ** 2)
    return zip(*(factor.split(size) for factor in factors))


def span_cells(start: Tensor, end: Tensor, start_cross: Tensor, end_cross: Tensor) -> Tensor:
    """`(rows, N)` factors to `(rows, N * N)` scores, -inf where the end is before the start.

    All three terms of a score, and the -inf, in one matrix product: three passes less over the
    cells.
    """
    n_words = start.shape[1]
    backwards = start.new_full((n_words, n_words), -torch.inf).tril(-1)
    one = torch.ones_like(start)
    of_start = torch.stack([start, one, start_cross], dim=2)
    of_end = torch.stack([one, end, end_cross], dim=1)
    return torch.baddbmm(backwards, of_start, of_end).flatten(1)


def _best_span(
    start: Tensor, end: Tensor, start_cross: Tensor, end_cross: Tensor
) -> Tuple[Tensor, Tensor]:
    """Probability of the best span and its index, first word * N + last word."""
    scores = span_cells(start, end, start_cross, end_cross)
    best, index = scores.max(dim=1)
    return _relative(scores, best).sum(dim=1).reciprocal(), index


def _log_sum(scores: Tensor) -> Tuple[Tensor, Tensor]:
    """Logarithm of the sum of exponentials, `(rows,)`, and their softmax, in the memory of the
    `(rows, cells)` scores."""
    best = scores.amax(dim=1)
    weights = _relative(scores, best)
    total = weights.sum(dim=1)
    return best + total.log(), weights.div_(total.unsqueeze(1))


def _relative(scores: Tensor, best: Tensor) -> Tensor:
    """exp(score - best) in the memory of the `(rows, cells)` scores.

    Not below exp(-80), which is nothing beside the best: on a CPU an exponential that
    underflows takes ten times as long.
    """
    return scores.sub_(best.unsqueeze(1)).clamp_(min=-80).exp_()
