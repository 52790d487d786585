"""Word vectors joined from several sources (the torch half of the hybrid encoder)."""

from __future__ import annotations

from typing import List, Optional

import torch
from torch import Tensor, nn

from spacy_nested_ner.layers.dropout import set_dropout
from spacy_nested_ner.layers.recurrent import BiRNN, last_states

# Printable ASCII has 95 characters, from the space on.
FIRST_CHARACTER, N_PRINTABLE = 32, 95
UNKNOWN, END = N_PRINTABLE, N_PRINTABLE + 1
TAG_ROWS, TAG_HASHES = 512, 4


class CharacterEncoder(nn.Module):
    """A vector for each word form from its characters, by a bidirectional recurrent layer.

    embedding: width of a character. width: of the result, half per direction. cell: "lstm" or
    "gru". pooling: "mean" over the characters, the end mark included, or the "last" state of each
    direction.
    """

    def __init__(self, embedding: int, width: int, cell: str, pooling: str) -> None:
        super().__init__()
        self.embedding = nn.Embedding(N_PRINTABLE + 2, embedding)
        self.rnn = BiRNN(embedding, width, cell=cell)
        self.pooling = pooling

    def forward(self, characters: Tensor, mask: Tensor) -> Tensor:
        """characters: `(forms, characters)` long; mask: the same shape, bool, at least one real
        character each. Returns `(forms, width)`."""
        states = self.rnn(self.embedding(characters), mask)
        if self.pooling == "last":
            return last_states(states, mask)
        real = mask.unsqueeze(-1)
        return states.masked_fill(~real, 0.0).sum(dim=1) / real.sum(dim=1)


class HashedEmbedding(nn.Module):
    """Embedding of an open set of symbols: the sum of the rows that a symbol's hashes point to.

    That two of a few hundred symbols share all hashes is very unlikely.
    """

    def __init__(self, rows: int, hashes: int, width: int) -> None:
        super().__init__()
        self.rows = nn.Embedding(rows, width)
        # The sum then has variance 1, as an ordinary embedding.
        nn.init.normal_(self.rows.weight, std=hashes**-0.5)

    def forward(self, keys: Tensor) -> Tensor:
        """keys: `(symbols, hashes)` long, any non-negative number. Returns `(symbols, width)`."""
        return self.rows(keys % self.rows.num_embeddings).sum(dim=1)


class HybridWords(nn.Module):
    """Contextual vectors, static vectors, tags, characters and embeddings as one vector per word.

    Locate and Label, section 2.1; proposer-regressor paper, section 3.1. tok2vec_width: of the
    contextual vectors, 0 for none. vectors_width: of the static ones, 0 for none; static_width:
    what a learned projection makes of it, None for no projection. pos_width, char_width: 0 for
    none. embed_width: of the embeddings, 0 for none. dropout: on static vectors, tags and
    characters; None for that of `set_dropout`.
    The other settings: see `spacy_nested_ner.encoders.hybrid_encoder`.
    """

    def __init__(
        self,
        tok2vec_width: int,
        vectors_width: int,
        static_width: Optional[int],
        pos_width: int,
        char_width: int,
        char_embedding_width: int,
        char_cell: str,
        char_pooling: str,
        dropout: Optional[float],
        word_rnn: Optional[str],
        rnn_width: Optional[int],
        rnn_layers: int,
        tok2vec_in_rnn: bool,
        width: Optional[int],
        embed_width: int = 0,
    ) -> None:
        super().__init__()
        self.projection: Optional[nn.Linear] = None
        self.tags: Optional[HashedEmbedding] = None
        self.characters: Optional[CharacterEncoder] = None
        self.rnn: Optional[BiRNN] = None
        self.linear: Optional[nn.Linear] = None
        if vectors_width and static_width is not None:
            # Without bias: a word without a vector keeps zeros.
            self.projection = nn.Linear(vectors_width, static_width, bias=False)
        if pos_width:
            self.tags = HashedEmbedding(TAG_ROWS, TAG_HASHES, pos_width)
        if char_width:
            self.characters = CharacterEncoder(
                char_embedding_width, char_width, char_cell, char_pooling
            )
        self.dropout = nn.Dropout(dropout or 0.0)
        if dropout is not None:
            set_dropout(self.dropout, dropout, fixed=True)
        static = vectors_width if static_width is None or not vectors_width else static_width
        own = static + pos_width + char_width + embed_width
        self.tok2vec_in_rnn = tok2vec_in_rnn
        joined = tok2vec_width + own
        if word_rnn is not None:
            read = joined if tok2vec_in_rnn else own
            hidden = tok2vec_width if rnn_width is None else rnn_width
            self.rnn = BiRNN(read, hidden, rnn_layers, cell=word_rnn)
            joined = hidden if tok2vec_in_rnn else hidden + tok2vec_width
        if width is not None:
            self.linear = nn.Linear(joined, width)
        self.width = joined if width is None else width

    def own_parts(
        self, static: Optional[Tensor], tags: Optional[Tensor], characters: Optional[Tensor]
    ) -> List[Tensor]:
        """Static vectors, tags and characters of the same words, with dropout.

        static: `(words, vectors_width)`. tags: `(words, hashes)` long keys. characters: `(words,
        char_width)`, from `self.characters`. None for a part that is switched off.
        """
        parts = []
        if static is not None:
            parts.append(static if self.projection is None else self.projection(static))
        if self.tags is not None and tags is not None:
            parts.append(self.tags(tags))
        if characters is not None:
            parts.append(characters)
        return [self.dropout(part) for part in parts]

    def forward(
        self, contextual: Optional[Tensor], own: List[Tensor], mask: Optional[Tensor] = None
    ) -> Tensor:
        """Join the parts.

        contextual, own: `(words, width)`, or `(batch, words, width)` with a mask `(batch, words)`
        where a recurrent layer reads along the words. Returns the same shape with `self.width`.
        """
        context = [] if contextual is None else [contextual]
        if self.rnn is None:
            joined = torch.cat([*context, *own], dim=-1)
        else:
            assert mask is not None
            read = [*context, *own] if self.tok2vec_in_rnn else own
            states = self.rnn(torch.cat(read, dim=-1), mask)
            joined = states if self.tok2vec_in_rnn else torch.cat([*context, states], dim=-1)
        return joined if self.linear is None else self.linear(joined)
