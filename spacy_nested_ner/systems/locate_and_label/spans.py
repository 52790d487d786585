"""Spans of Locate and Label: their vectors, their overlaps, soft-NMS.

Section and equation numbers are those of Shen et al. 2021. Shapes: B batch, N words, S spans of all
rows in one flat list, h hidden width.
"""

from __future__ import annotations

from typing import Callable, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spacy_nested_ner.layers.growing import grow_outputs
from spacy_nested_ner.layers.pooling import RangeMax
from spacy_nested_ner.systems.head import Gold


class Spans(NamedTuple):
    """Spans of a batch, flat: row of the batch, first and last word, `(S,)` long."""

    row: Tensor
    start: Tensor
    end: Tensor

    def pick(self, index: Tensor) -> Spans:
        """The spans at a `(K,)` index or bool mask."""
        if index.dtype == torch.bool:  # which is searched once, not once for each column
            index = torch.nonzero(index).squeeze(1)
        return Spans(*(column[index] for column in self))

    def join(self, others: Spans) -> Spans:
        """These spans, then the others."""
        return Spans(*(torch.cat(pair) for pair in zip(self, others)))

    def distinct(self, n_words: int) -> Spans:
        """Each span once, in order. n_words: of the padded batch."""
        key = torch.unique((self.row * n_words + self.start) * n_words + self.end)
        return Spans(key // n_words**2, key // n_words % n_words, key % n_words)


class WordStates:
    """Word states of a batch, and the table in which the maximum over any span is looked up.

    states: `(B, N, h)`. mask: `(B, N)` bool. neighbours: the vectors of a `SpanGrid` for row, first
    and last word of spans, `(S, d)`, or None.
    """

    def __init__(
        self,
        states: Tensor,
        mask: Tensor,
        neighbours: Optional[Callable[[Tensor, Tensor, Tensor], Tensor]] = None,
    ) -> None:
        self.states, self.mask, self.neighbours = states, mask, neighbours
        self.range_max = RangeMax(states)

    def outside(self, edges: Tensor) -> Tensor:
        """`(B, N + 2, h)`: the words between the two `(2, h)` edges."""
        left, right = edges
        words = torch.where(self.mask.unsqueeze(-1), self.states, right)
        n_rows = len(words)
        return torch.cat([left.expand(n_rows, 1, -1), words, right.expand(n_rows, 1, -1)], dim=1)


class SpanMLP(nn.Module):
    """Two linear layers with GELU on [pooled; left word; right word] of a span (eq. 3, 5, 10).

    The first layer reads words before they are gathered into spans: a word that bounds many spans
    is multiplied once.
    neighbours: width of the vectors of a `SpanGrid` that the outputs read, too; 0 for none.
    """

    def __init__(self, width: int, n_outputs: int, neighbours: int = 0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.0)
        self.pooled = nn.Linear(width, width)
        self.bounds = nn.Linear(width, 2 * width, bias=False)
        self.output = nn.Linear(width, n_outputs)
        self.neighbours = nn.Linear(neighbours, n_outputs) if neighbours else None
        if self.neighbours is not None:  # begins without them
            nn.init.zeros_(self.neighbours.weight)
            nn.init.zeros_(self.neighbours.bias)

    def inside(self, words: WordStates, spans: Spans, pooled: Optional[Tensor] = None) -> Tensor:
        """With the first and the last word of each span, and its neighbours: `(S, outputs)`.

        pooled: `(S, h)` maximum over its words, where it is known.
        """
        pooled = words.range_max(*spans) if pooled is None else pooled
        outputs = self.at(words.states, pooled, *spans)
        if self.neighbours is None or words.neighbours is None:
            return outputs
        return outputs + self.neighbours(words.neighbours(*spans))

    def at(self, words: Tensor, pooled: Tensor, row: Tensor, left: Tensor, right: Tensor) -> Tensor:
        """words: `(B, N, h)`; pooled: `(S, h)`; row, left, right: `(S,)` place of both words."""
        # Rows of one half for each word: as words that come before, and as those that come after.
        halves = self.bounds(self.dropout(words)).view(-1, words.shape[-1])
        base = 2 * words.shape[1] * row
        before, after = base + 2 * left, base + 2 * right + 1
        hidden = self.pooled(self.dropout(pooled))
        hidden = hidden + F.embedding(before, halves) + F.embedding(after, halves)
        return self.output(F.gelu(hidden))

    def grow(self, n_outputs: int) -> None:
        """Rows for new outputs; they start low, so that what was found before still is."""
        self.output = grow_outputs(self.output, n_outputs)
        if self.neighbours is not None:
            self.neighbours = grow_outputs(self.neighbours, n_outputs, bias=0.0)


def best_entity(spans: Spans, gold: Gold) -> Tuple[Tensor, Tensor]:
    """IoU with the entity that overlaps most, `(S,)` float, 0 where there is none, and its index
    (section 2.2)."""
    if not gold.mask.shape[1]:
        return torch.zeros(len(spans.row), device=spans.row.device), torch.zeros_like(spans.row)
    start, end = (column[spans.row] for column in gold.spans.unbind(-1))
    value = iou(spans.start.unsqueeze(1), spans.end.unsqueeze(1), start, end)
    best = value.masked_fill(~gold.mask[spans.row], 0.0).max(dim=1)
    return best.values, best.indices


def iou(start: Tensor, end: Tensor, other_start: Tensor, other_end: Tensor) -> Tensor:
    """Intersection over union of spans of words, both bounds inclusive; tensors broadcast."""
    shared = torch.minimum(end, other_end) + 1 - torch.maximum(start, other_start)
    union = (end + 1 - start) + (other_end + 1 - other_start) - shared.clamp(min=0)
    return shared.clamp(min=0) / union


@torch.no_grad()
def soft_nms(spans: Spans, score: Tensor, threshold: float, decay: float) -> Tensor:
    """Factor of each span's score, `(S,)` (algorithm 1, eq. 18).

    The highest score that is left is taken, and every span behind it that overlaps it by an IoU of
    at least `threshold` falls by `decay`; then the order is looked at again. All rows at once.
    """
    factor = torch.ones_like(score)
    if not len(score):
        return factor
    order = torch.argsort(spans.row, stable=True)
    row = spans.row[order]
    _, row, sizes = torch.unique_consecutive(row, return_inverse=True, return_counts=True)
    place = torch.arange(len(row), device=row.device) - (sizes.cumsum(0) - sizes)[row]
    shape = len(sizes), int(sizes.max())

    def padded(values: Tensor, fill: float) -> Tensor:
        table = values.new_full(shape, fill)
        table[row, place] = values[order]
        return table

    start, end, left = padded(spans.start, -1), padded(spans.end, -1), padded(score, -1.0)
    result = torch.ones_like(left)
    for _ in range(shape[1] - 1):
        top = left.argmax(dim=1, keepdim=True)
        left.scatter_(1, top, -1.0)  # an index would make the host wait for a GPU
        near = iou(start, end, start.gather(1, top), end.gather(1, top)) >= threshold
        fall = torch.ones_like(left).masked_fill(near & (left > 0), decay)
        left, result = left * fall, result * fall
    factor[order] = result[row, place]
    return factor
