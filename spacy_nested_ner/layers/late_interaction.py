"""Words that meet a question once, after each was encoded apart."""

from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor, nn

from spacy_nested_ner.layers.attention import attend, split_heads
from spacy_nested_ner.layers.cross_encoder import TransformerLayer


class LateInteraction(nn.Module):
    """One narrow layer in which words attend to the pieces of a question.

    Whatever depends on the word alone or on the question alone is computed once, by `read_words`
    and `read_questions`; per pair there are the attention and what follows it.

    word_width, question_width: of the vectors of words and of the pieces of questions.
    hidden_width, attention_heads, feedforward: of the layer, the last as a multiple of its width.
    """

    def __init__(
        self,
        word_width: int,
        question_width: int,
        hidden_width: int,
        attention_heads: int,
        feedforward: int,
    ) -> None:
        super().__init__()
        self.word, self.question = (
            nn.Sequential(nn.Linear(width, hidden_width), nn.LayerNorm(hidden_width))
            for width in (word_width, question_width)
        )
        self.layer = TransformerLayer(hidden_width, attention_heads, feedforward)
        self.dropout = nn.Dropout(0.0)

    def read_words(self, words: Tensor) -> Tensor:
        """`(words, word_width)` to `(words, 2 d)`: states, and what they ask a question for."""
        states = self.dropout(self.word(words))
        return torch.cat([states, self.layer.query(states)], dim=-1)

    def read_questions(self, pieces: Tensor) -> Tensor:
        """`(pieces, question_width)` to `(pieces, 2 d)`: keys and values."""
        key_value: Tensor = self.layer.key_value(self.dropout(self.question(pieces)))
        return key_value

    def forward(self, words: Tensor, pieces: Tensor, mask: Tensor) -> Tensor:
        """Rows of a sentence and a question each.

        words: `(rows, words, 2 d)` and pieces: `(rows, pieces, 2 d)`, as they were read. mask:
        `(rows, pieces)` bool, False for padding. Returns `(rows, words, d)`.
        """
        states, query = words.chunk(2, dim=-1)
        parts = (query, *pieces.chunk(2, dim=-1))
        query, key, value = (split_heads(part, self.layer.heads) for part in parts)
        return self.layer.after_attention(attend(query, key, value, mask), states)


class LateCrossEncoder(LateInteraction):
    """For a `CrossEncoder`'s place. question_width: None where one encoder has read both."""

    def __init__(self, width: int, question_width: Optional[int], **settings: int) -> None:
        super().__init__(width, question_width or width, **settings)
