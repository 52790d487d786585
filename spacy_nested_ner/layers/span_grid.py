"""Spans of a sentence that see their neighbours."""

from __future__ import annotations

from typing import List, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class SpanGrid(nn.Module):
    """Vectors of all spans of some lengths. They lie in a grid, by their first word and their
    length, and convolutions over it let each see those that begin or end beside it, that it
    contains and that contain it.

    words: width of the words. width: of the vectors. lengths: of the spans, in words, rising.
    depth: convolutions; each sees one cell further to all sides.
    """

    ends: Tensor
    column: Tensor

    def __init__(self, words: int, width: int, lengths: List[int], depth: int = 2) -> None:
        super().__init__()
        self.first_and_last = nn.Linear(words, 2 * width)
        self.dropout = nn.Dropout(0.0)
        self.layers = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.register_buffer("ends", first_to_last(lengths), persistent=False)
        self.register_buffer("column", _columns(lengths), persistent=False)

    def set_lengths(self, lengths: List[int]) -> None:
        """Take other lengths, rising; those that stay keep their neighbours if longer ones alone
        are added."""
        device = self.ends.device
        self.ends, self.column = first_to_last(lengths).to(device), _columns(lengths).to(device)

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        """`(B, N, h)` words and their bool mask `(B, N)`: `(B, N, lengths, width)`, zeros where no
        span is."""
        end, inside = ends_from_each_word(mask, self.ends)
        first, last = self.first_and_last(self.dropout(words)).chunk(2, dim=-1)
        both = first.unsqueeze(2) + last[:, end.clamp(max=words.shape[1] - 1)]
        inside = inside.unsqueeze(1)
        grid = F.gelu(both).permute(0, 3, 1, 2) * inside
        for layer in self.layers:
            grid = (grid + F.gelu(layer(grid))) * inside
        return grid.permute(0, 2, 3, 1)

    def at(self, grid: Tensor, row: Tensor, start: Tensor, end: Tensor) -> Tensor:
        """The vectors of spans, `(S, width)`; zeros for one of another length.

        grid: from `forward`. row, start, end: `(S,)` long, row of the batch, first and last word.
        """
        length = (end - start + 1).clamp(max=len(self.column) - 1)
        column = self.column[length]
        return grid[row, start, column.clamp(min=0)] * (column >= 0).unsqueeze(1)


def first_to_last(lengths: List[int]) -> Tensor:
    """`(lengths,)` long: how far the last word of a span of each length is from the first."""
    return torch.tensor(lengths) - 1


def _columns(lengths: List[int]) -> Tensor:
    """The place of each length in words, or -1; one more at the end."""
    column = torch.full((max(lengths) + 2,), -1)
    column[torch.tensor(lengths)] = torch.arange(len(lengths))
    return column


def ends_from_each_word(mask: Tensor, reach: Tensor) -> Tuple[Tensor, Tensor]:
    """The last words of the spans that begin at each word, `(N, lengths)` long, and which of them
    lie within their sentence, `(B, N, lengths)` bool.

    mask: `(B, N)` bool, real words. reach: `(lengths,)` long, from the first word to the last.
    """
    end = torch.arange(mask.shape[1], device=mask.device).unsqueeze(1) + reach
    return end, end < mask.sum(dim=1)[:, None, None]
