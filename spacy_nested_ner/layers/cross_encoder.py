"""A small transformer that reads a question and a sentence in one row."""

from __future__ import annotations

from typing import Optional

from torch import Tensor, nn

from spacy_nested_ner.layers.attention import attend, make_feedforward, split_heads
from spacy_nested_ner.layers.learned import learned


class CrossEncoder(nn.Module):
    """What a pretrained encoder does with `[CLS] question [SEP] sentence [SEP]`, on word vectors.

    It adds no positions: the vectors come from an encoder that has seen the neighbours.

    width: of the sentence's vectors. question_width: of the question's, where another encoder made
    them, None where it is the same. hidden_width: h, of the layers. depth: number of layers.
    attention_heads, feedforward: of each layer, the latter as a multiple of h.
    """

    def __init__(
        self,
        width: int,
        question_width: Optional[int],
        hidden_width: int,
        depth: int,
        attention_heads: int,
        feedforward: int,
    ) -> None:
        super().__init__()
        self.sentence = nn.Linear(width, hidden_width)
        self.question = None
        if question_width is not None:
            self.question = nn.Linear(question_width, hidden_width)
        # What token types are to BERT: question first, sentence second.
        self.part = learned(2, hidden_width)
        self.norm = nn.LayerNorm(hidden_width)
        self.layers = nn.ModuleList(
            TransformerLayer(hidden_width, attention_heads, feedforward) for _ in range(depth)
        )
        self.dropout = nn.Dropout(0.0)

    def read_questions(self, vectors: Tensor) -> Tensor:
        """`(words, width)` vectors of questions to `(words, h)`."""
        return self._embed(self.sentence if self.question is None else self.question, vectors, 0)

    def read_words(self, vectors: Tensor) -> Tensor:
        """`(words, width)` vectors of sentences to `(words, h)`."""
        return self._embed(self.sentence, vectors, 1)

    def _embed(self, layer: nn.Module, vectors: Tensor, part: int) -> Tensor:
        return self.dropout(self.norm(layer(vectors) + self.part[part]))

    def forward(self, states: Tensor, mask: Tensor, places: Tensor) -> Tensor:
        """Read rows of embedded words, each a question and a sentence.

        states: `(rows, length, h)`. mask: `(rows, length)` bool, True for real words. places:
        `(rows, words)` long, where in its row each word of the sentence stands.
        Returns the words of the sentences, `(rows, words, h)`.
        """
        *lower, last = self.layers
        for layer in lower:
            states = layer(states, states, mask)
        # Only the words of the sentence are returned: the last layer leaves the question out.
        index = places.unsqueeze(-1).expand(-1, -1, states.shape[-1])
        return last(states.gather(1, index), states, mask)


class TransformerLayer(nn.Module):
    """Attention and a feed-forward network, each with a residual and a LayerNorm after it."""

    def __init__(self, width: int, heads: int, feedforward: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.output = nn.Linear(width, width)
        self.attention_norm = nn.LayerNorm(width)
        self.feedforward = make_feedforward(width, feedforward)
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(0.0)

    def forward(self, query_states: Tensor, states: Tensor, mask: Tensor) -> Tensor:
        """`(rows, n, h)` states that attend to all `(rows, length, h)` states of their row."""
        key, value = (split_heads(t, self.heads) for t in self.key_value(states).chunk(2, dim=-1))
        attended = attend(split_heads(self.query(query_states), self.heads), key, value, mask)
        return self.after_attention(attended, query_states)

    def after_attention(self, attended: Tensor, states: Tensor) -> Tensor:
        """The rest of the layer for what states attended to, `(rows, n, h)` both."""
        states = self.attention_norm(states + self.dropout(self.output(attended)))
        return self.norm(states + self.dropout(self.feedforward(states)))
