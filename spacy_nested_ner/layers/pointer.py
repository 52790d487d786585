"""Pointers: a score of each word of a sentence for each query."""

from __future__ import annotations

from typing import Callable, Dict, Optional, Union

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spacy_nested_ner.layers.masks import MASKED


class AdditivePointer(nn.Module):
    """`w . ReLU(W_q q + W_w x) + b` for every query and word (PIQN eq. 4-5).

    Builds a `(batch, queries, words, width)` tensor, which dominates the cost of a head.
    width: of the queries. words: of the words; None is the same.
    """

    def __init__(self, width: int, words: Optional[int] = None) -> None:
        super().__init__()
        self.query = nn.Linear(width, width)
        self.word = nn.Linear(words or width, width, bias=False)
        self.score = nn.Linear(width, 1)

    def forward(self, queries: Tensor, words: Tensor) -> Tensor:
        """`(batch, queries, width)` and `(batch, words, width)` to `(batch, queries, words)`."""
        return self.point(queries, self.read(words))

    def read(self, words: Tensor) -> Tensor:
        """What `point` needs of the words."""
        return self.word(words)

    def point(self, queries: Tensor, projected: Tensor) -> Tensor:
        """As `forward`, on `self.read(words)`, for several calls with the same words."""
        fused = torch.relu(self.query(queries).unsqueeze(2) + projected.unsqueeze(1))
        return self.score(fused).squeeze(-1)


class BilinearPointer(nn.Module):
    """Scaled product of a projected query and a projected word: one matrix product per side.

    Not from a paper: it takes the place of eq. 4 of PIQN without the four-dimensional tensor.
    width: of the queries. words: of the words; None is the same.
    """

    def __init__(self, width: int, words: Optional[int] = None) -> None:
        super().__init__()
        self.query = nn.Linear(width, width)
        self.word = nn.Linear(words or width, width)
        self.bias = nn.Parameter(torch.zeros(1))
        self.scale = width**-0.5

    def forward(self, queries: Tensor, words: Tensor) -> Tensor:
        """`(batch, queries, width)` and `(batch, words, width)` to `(batch, queries, words)`."""
        return self.point(queries, self.read(words))

    def read(self, words: Tensor) -> Tensor:
        """What `point` needs of the words."""
        return (self.word(words) * self.scale).transpose(1, 2)

    def point(self, queries: Tensor, projected: Tensor) -> Tensor:
        """As `forward`, on `self.read(words)`, for several calls with the same words."""
        return self.query(queries) @ projected + self.bias


# How much faster than other numbers those of a distance learn. An optimizer moves each number by
# about its rate; logits that began at 0 and moved so slowly told near from far after a thousand
# steps.
OFFSET_SPEED = 10.0


class OffsetBias(nn.Module):
    """A learned bias for each distance between a query's anchor word and the word it points at.

    reach: distances beyond it share the bias of the largest. slope: by how much the bias falls for
    each word, before training.
    """

    def __init__(self, reach: int, slope: float = 0.0) -> None:
        super().__init__()
        self.reach = reach
        distance = torch.arange(-reach, reach + 1).abs()
        self.bias = nn.Parameter(-slope / OFFSET_SPEED * distance)

    def forward(self, anchors: Tensor, n_words: int) -> Tensor:
        """anchors: `(batch, queries)` long word index; returns `(batch, queries, words)`."""
        # A row for each word that can be an anchor: rows are copied much faster than numbers.
        return F.embedding(anchors, self.rows(n_words))

    def rows(self, n_words: int) -> Tensor:
        """`(words, words)`, the bias of each word for each anchor, a row for each anchor."""
        position = torch.arange(n_words, device=self.bias.device)
        offset = (position - position.unsqueeze(1)).clamp(-self.reach, self.reach)
        return (OFFSET_SPEED * self.bias)[offset + self.reach]


Pointer = Union[AdditivePointer, BilinearPointer]
POINTERS: Dict[str, Callable[[int, Optional[int]], Pointer]] = {
    "additive": AdditivePointer,
    "bilinear": BilinearPointer,
}


def make_pointer(kind: str, width: int, words: Optional[int] = None) -> Pointer:
    """A pointer by name.

    width: of the queries. words: of the words; None is the same.
    """
    return POINTERS[kind](width, words)


def mask_words(logits: Tensor, mask: Optional[Tensor]) -> Tensor:
    """Give padding a probability of 0.

    logits: `(batch, queries, words)`; mask: `(batch, words)` bool.
    """
    return logits if mask is None else logits.masked_fill(~mask.unsqueeze(1), MASKED)


def word_probability(logits: Tensor, kind: str) -> Tensor:
    """Probability of each word, in the shape of the `(..., words)` logits.

    kind: "sigmoid", each word by itself, or "softmax", one choice among the words.
    """
    return logits.sigmoid() if kind == "sigmoid" else logits.softmax(dim=-1)
