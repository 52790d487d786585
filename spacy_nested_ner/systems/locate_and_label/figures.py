"""How far the boundaries of seed spans are moved (Shen et al. 2021, figure 3)."""

from __future__ import annotations

from typing import Any, Dict, Mapping

import numpy as np
import torch
from torch import Tensor

from spacy_nested_ner.systems.base import FigureInput
from spacy_nested_ner.systems.drawing import new_figure, whole_numbers

OFFSETS = ("0", "1", "2", "3", "4+")


def draw(view: FigureInput) -> Dict[str, Any]:
    """The figure "offsets"."""
    return {"offsets": plot_offsets(offset_counts(view))}


@torch.no_grad()
def offset_counts(view: FigureInput) -> Dict[str, int]:
    """How many words the boundaries of seed spans are moved.

    Counts both boundaries of each seed that passes the filter and ends on a predicted entity.
    """
    head, options = view.head, view.options
    counts = np.zeros(len(OFFSETS), dtype=np.int64)
    for batch, _ in view.batches():
        words = head.encode(batch.words, batch.mask)
        seeds, pooled = head.proposals(words, options.filter_threshold)
        _, moved, legal = head.adjust(words, seeds, pooled)
        found = head.predict(batch, options)
        size = batch.mask.shape[1]
        ends = _places(moved.row, moved.start, moved.end, size)
        taken = legal & torch.isin(ends, _places(found.segment, found.start, found.end, size))
        moves = torch.stack([moved.start - seeds.start, moved.end - seeds.end])[:, taken].abs()
        counts += np.bincount(moves.clamp(max=len(OFFSETS) - 1).flatten().cpu(), minlength=5)
    return dict(zip(OFFSETS, counts.tolist()))


def _places(row: Tensor, start: Tensor, end: Tensor, size: int) -> Tensor:
    return (row * size + start) * size + end


def plot_offsets(counts: Mapping[str, int]) -> Any:
    """A bar for each number of words."""
    figure, axes = new_figure(5, 3.5)
    bars = axes.bar(list(counts), list(counts.values()))
    axes.bar_label(bars)
    axes.margins(y=0.1)
    axes.set(title="How far the boundaries of seed spans are moved")
    axes.set(xlabel="words", ylabel="boundaries")
    whole_numbers(axes.yaxis)
    return figure
