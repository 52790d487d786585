"""The instance queries of PIQN (section 3.1): made from the words, learned, or from the encoder.

Shapes: B batch, N words, M queries, h hidden width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

import torch
from torch import Tensor, nn

from spacy_nested_ner.layers.learned import learned
from spacy_nested_ner.layers.one_way import InstanceQueries
from spacy_nested_ner.layers.pooling import words_at
from spacy_nested_ner.layers.rounds import word_rounds
from spacy_nested_ner.systems.piqn.settings import MIN_QUERIES, PIQNSettings


@dataclass
class Queries:
    """Queries of a batch.

    content, position: `(B, M, h)`. mask: `(B, M)` bool or None where all are real.
    anchors: `(B, M)` long, the word a query was made from, or None.
    """

    content: Tensor
    position: Tensor
    mask: Optional[Tensor] = None
    anchors: Optional[Tensor] = None

    @property
    def real(self) -> Tensor:
        """`(B, M)` bool: False for padding."""
        if self.mask is not None:
            return self.mask
        return self.content.new_ones(self.content.shape[:2], dtype=torch.bool)


def make_queries(width: int, settings: PIQNSettings) -> nn.Module:
    """The queries of a `query_source`. width: of the words, and of the encoder's queries."""
    h = settings.hidden_width
    if settings.query_source == "words":
        return WordQueries(h, settings.queries_per_word)
    if settings.query_source == "learned":
        return LearnedQueries(h, settings.n_queries)
    return EncodedQueries(width, h, settings.n_queries)


class WordQueries(nn.Module):
    """Queries made from the words: content and position are projections of a word's own state.

    Queries come in rounds, one query for each word of the sentence. A round has a learned vector
    of its own, so that two queries of one word can say different things.
    """

    def __init__(self, width: int, per_word: int) -> None:
        super().__init__()
        self.per_word = per_word
        self.project = nn.Linear(width, 2 * width)
        n_rounds = max(per_word, MIN_QUERIES)
        self.kind = learned(n_rounds, width)
        self.norm = nn.LayerNorm(width)
        self.position_norm = nn.LayerNorm(width)

    def forward(self, words: Tensor, mask: Tensor, encoded: Optional[Tensor]) -> Queries:
        """`(B, N, h)` words to queries, round by round."""
        real, anchors, rounds = word_rounds(mask, self.per_word, MIN_QUERIES)
        content, position = self.project(words).chunk(2, dim=-1)
        content = words_at(content, anchors) + self.kind[rounds]
        position = words_at(self.position_norm(position), anchors)
        return Queries(self.norm(content), position, mask=real, anchors=anchors)


class LearnedQueries(nn.Module):
    """The paper's queries: tables of content and position, one shared type vector (eq. 1)."""

    def __init__(self, width: int, n_queries: int) -> None:
        super().__init__()
        self.tables = InstanceQueries(n_queries, width, dropout=0.0)

    def forward(self, words: Tensor, mask: Tensor, encoded: Optional[Tensor]) -> Queries:
        """The same M queries for every sentence."""
        content, position = self.tables(len(words))
        return Queries(content=content, position=position)


class EncodedQueries(nn.Module):
    """Queries that the encoder has read along with the words; positions are learned here."""

    def __init__(self, width: int, hidden: int, n_queries: int) -> None:
        super().__init__()
        self.project = nn.Linear(width, hidden) if width != hidden else nn.Identity()
        self.position = learned(n_queries, hidden)
        self.position_norm = nn.LayerNorm(hidden)
        self.dropout = nn.Dropout(0.0)

    def forward(self, words: Tensor, mask: Tensor, encoded: Optional[Tensor]) -> Queries:
        """encoded: `(B, M, width)` query vectors of the encoder."""
        assert encoded is not None  # the system has seen that the encoder gives queries
        position = self.dropout(self.position_norm(self.position))
        position = position.expand(encoded.shape[0], -1, -1)
        return Queries(content=self.project(encoded), position=position)
