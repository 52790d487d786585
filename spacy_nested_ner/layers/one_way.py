"""One-way attention: queries read words and each other, words never see queries."""

from __future__ import annotations

from typing import Any, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spacy_nested_ner.layers.attention import behind_attention, join_heads, split_heads
from spacy_nested_ner.layers.learned import learned
from spacy_nested_ner.layers.masks import of_padding


def one_way_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    n_words: int,
    word_mask: Tensor,
    *,
    dropout: float = 0.0,
    query_interaction: bool = True,
    query_mask: Optional[Tensor] = None,
    attended_mask: Optional[Tensor] = None,
) -> Tensor:
    """Scaled dot-product attention with the one-way mask of PIQN (section 3.2, eq. 2-3).

    Words and queries are attended to separately instead of under one mask, so that the forbidden
    block words x queries is never computed. The scale is the square root of the head width.

    query, key, value: `(batch, heads, words + queries, head width)`, the words first.
    n_words: how many of the positions are words, padding included.
    word_mask: `(batch, words)` bool, True for a real word. Nothing attends to padding.
    dropout: of the attention weights; give 0 outside training.
    query_interaction: whether queries attend to each other (and themselves) beside the words.
    query_mask: `(batch, queries)` bool, False for padding among the queries; nothing attends to it.
    attended_mask: `(batch, words)` bool, the words that queries attend to; None for all real ones.

    Returns the shape of `value`: zeros where there is nothing to attend to, arbitrary but finite
    values at padding.
    """
    word_keys, word_values = key[:, :, :n_words], value[:, :, :n_words]
    words = _attention(query[:, :, :n_words], word_keys, word_values, word_mask, dropout)
    query_states = query[:, :, n_words:]
    attended = word_mask if attended_mask is None else attended_mask
    if query_interaction:
        if query_mask is None:
            query_mask = word_mask.new_ones((len(word_mask), query_states.shape[2]))
        mask = torch.cat([attended, query_mask], dim=1)
        queries = _attention(query_states, key, value, mask, dropout)
    else:
        queries = _attention(query_states, word_keys, word_values, attended, dropout)
    return torch.cat([words, queries], dim=2)


def _attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, dropout: float) -> Tensor:
    """mask: `(batch, keys)` bool. Zeros where a row of the batch has no key at all."""
    if not key.shape[2] or not query.shape[2]:
        return query.new_zeros((*query.shape[:3], value.shape[3]))
    if of_padding(mask) is None:
        return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout)
    # A softmax over nothing is NaN in some kernels: open such a row, then set its result to 0.
    empty = ~mask.any(dim=1)
    keys = (mask | empty[:, None])[:, None, None, :]
    attended = F.scaled_dot_product_attention(query, key, value, keys, dropout_p=dropout)
    return attended.masked_fill(empty[:, None, None, None], 0.0)


class InstanceQueries(nn.Module):
    """Learnable instance queries: content, position and type (PIQN section 3.1, eq. 1).

    As in the authors' code, positions and contents have a LayerNorm and dropout each, and the
    position is not added at the input: `OneWayEncoder` shows it to every layer.

    n_queries: M. width: h. with_type: one learned vector that all queries share (U^q of eq. 1).
    dropout, eps: of the dropout and the LayerNorms, best those of the encoder.
    """

    def __init__(
        self,
        n_queries: int,
        width: int,
        with_type: bool = True,
        dropout: float = 0.1,
        eps: float = 1e-12,
    ) -> None:
        super().__init__()
        self.content = learned(n_queries, width)
        self.position = learned(n_queries, width)
        self.shared = learned(width) if with_type else None
        self.content_norm = nn.LayerNorm(width, eps=eps)
        self.position_norm = nn.LayerNorm(width, eps=eps)
        self.dropout = nn.Dropout(dropout)

    def forward(self, n_rows: int) -> Tuple[Tensor, Tensor]:
        """Contents and positions for a batch of `n_rows`, both `(n_rows, M, h)`."""
        content = self.content if self.shared is None else self.content + self.shared
        normed = (self.content_norm(content), self.position_norm(self.position))
        # Expanded before the dropout: each row of the batch drops elements of its own.
        content, position = (self.dropout(t.expand(n_rows, *t.shape)) for t in normed)
        return content, position


class OneWayEncoder(nn.Module):
    """A pretrained encoder of the BERT or RoBERTa kind that queries travel through with the text.

    All its projections, feed-forward layers and LayerNorms serve words and queries alike. The
    states of the words are those of the encoder without queries (PIQN section 3.2).

    embeddings: `(ids, token_type_ids, position_ids)` to `(batch, pieces, h)`.
    layers: with the submodules of Hugging Face's `BertLayer`: `attention.self.{query,key,value}`,
        `attention.output`, `intermediate` and `output`.
    attention_heads: of each layer. attention_dropout: of the attention weights in training.
    first_position: position id of the first piece. query_interaction: queries see each other.
    """

    def __init__(
        self,
        embeddings: nn.Module,
        layers: nn.ModuleList,
        attention_heads: int,
        attention_dropout: float,
        first_position: int,
        query_interaction: bool,
    ) -> None:
        super().__init__()
        self.embeddings = embeddings
        self.layers = layers
        self.attention_heads = attention_heads
        self.attention_dropout = attention_dropout
        self.first_position = first_position
        self.query_interaction = query_interaction

    def forward(
        self,
        ids: Tensor,
        types: Tensor,
        mask: Tensor,
        attended: Tensor,
        content: Tensor,
        position: Tensor,
    ) -> Tuple[Tensor, Tensor]:
        """Encode a batch.

        ids, types: `(batch, pieces)` long. mask, attended: `(batch, pieces)` bool, the real pieces,
        and those that queries attend to. content, position: `(batch, M, h)`.
        Returns the last layer's states, `(batch, pieces, h)` and `(batch, M, h)`.
        """
        n_pieces = ids.shape[1]
        places = torch.arange(n_pieces, device=ids.device) + self.first_position
        pieces = self.embeddings(
            input_ids=ids, token_type_ids=types, position_ids=places.expand_as(ids)
        )
        states = torch.cat([pieces, content], dim=1)
        for layer in self.layers:
            states = self._layer(layer, states, position, n_pieces, mask, attended)
        return states[:, :n_pieces], states[:, n_pieces:]

    def _layer(
        self,
        layer: Any,
        states: Tensor,
        position: Tensor,
        n_pieces: int,
        mask: Tensor,
        attended: Tensor,
    ) -> Tensor:
        """Query and key projections read (content + position) / 2, values and residual content."""
        pieces, content = states[:, :n_pieces], states[:, n_pieces:]
        located = torch.cat([pieces, (content + position) / 2], dim=1)
        project = layer.attention.self
        attended = one_way_attention(
            split_heads(project.query(located), self.attention_heads),
            split_heads(project.key(located), self.attention_heads),
            split_heads(project.value(states), self.attention_heads),
            n_pieces,
            mask,
            dropout=self.attention_dropout if self.training else 0.0,
            query_interaction=self.query_interaction,
            attended_mask=attended,
        )
        return behind_attention(layer, join_heads(attended), states)
