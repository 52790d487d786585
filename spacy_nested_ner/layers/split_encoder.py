"""A pretrained encoder whose lower layers read two texts apart and whose upper ones read both."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from spacy_nested_ner.layers.attention import attend, behind_attention, split_heads
from spacy_nested_ner.layers.checkpointing import Again, run_again
from spacy_nested_ner.layers.packed_encoder import read_rows


class Projected(NamedTuple):
    """States and what the attention of a layer makes of them, `(..., h)`; keys and values lie side
    by side, `(..., 2 h)`."""

    states: Tensor
    query: Tensor
    key_value: Tensor


class SplitEncoder:
    """The layers of a pretrained encoder, called one by one. It holds no weights of its own.

    What the first joint layer makes of a text before its attention does not depend on the other
    text. `read` therefore gives it once per text, and `join` begins with the attention.

    encoder: Hugging Face's `BertModel` or `RobertaModel`; read are its `embeddings`, and of each of
        `encoder.layer` the submodules `attention.self.{query,key,value}`, `attention.output`,
        `intermediate` and `output`.
    joint_layers: how many of the top layers read both texts, fewer than there are.
    first_position: position id of the first piece.
    again: see `run_again`; for gradient checkpointing.
    """

    def __init__(self, encoder: Any, joint_layers: int, first_position: int, again: Again) -> None:
        self.encoder = encoder
        layers = list(encoder.encoder.layer)
        n_lower = len(layers) - joint_layers
        self.lower, self.joint = layers[:n_lower], layers[n_lower:]
        self.heads = encoder.config.num_attention_heads
        self.first_position, self.again = first_position, again

    def read(self, ids: Tensor, types: Tensor, mask: Tensor) -> Tensor:
        """What the lower layers make of texts, each alone.

        ids, types: `(batch, pieces)` long. mask: `(batch, pieces)` bool, True for real pieces.
        Returns `(batch, pieces, h)` states.
        """
        if not (ids.is_cuda or torch.is_grad_enabled()):
            return read_rows(self.encoder, ids, mask, types, len(self.lower))
        places = torch.arange(ids.shape[1], device=ids.device) + self.first_position
        states: Tensor = self.encoder.embeddings(
            input_ids=ids, token_type_ids=types, position_ids=places.expand_as(ids)
        )
        for layer in self.lower:
            states = self._whole(layer, states, mask)
        return states

    def project(self, states: Tensor) -> Projected:
        """What the first joint layer makes of states before its attention."""
        return project(self.joint[0], states)

    def join(self, pieces: Projected, index: Tensor, mask: Tensor, wanted: Tensor) -> Tensor:
        """What the joint layers make of rows of pieces.

        pieces: `(pieces, h)` of all texts. index: `(rows, length)` long, which of them each row
        reads. mask: `(rows, length)` bool, False for padding. wanted: `(rows, n)` long, the places
        of a row that a result is wanted of. Returns `(rows, n, h)`.
        """
        first, *upper = self.joint
        asks = index if upper else index.gather(1, wanted)
        states = run_again(self.again, self._gathered, first, pieces, asks, index, mask)
        for layer in upper[:-1]:
            states = run_again(self.again, self._whole, layer, states, mask)
        if not upper:
            return states
        return run_again(self.again, self._wanted, upper[-1], states, mask, wanted)

    def _gathered(
        self, layer: Any, pieces: Projected, asks: Tensor, index: Tensor, mask: Tensor
    ) -> Tensor:
        """The layer from its attention on, for the pieces at `asks`, which attend to `index`."""
        states, query, key_value = pieces
        return self._attend(layer, states[asks], query[asks], key_value[index], mask)

    def _whole(self, layer: Any, states: Tensor, mask: Tensor) -> Tensor:
        return self._attend(layer, *project(layer, states), mask)

    def _wanted(self, layer: Any, states: Tensor, mask: Tensor, wanted: Tensor) -> Tensor:
        """As `_whole`, for some of the states only, which attend to all."""
        key_value = _key_value(layer, states)
        chosen = states.gather(1, wanted.unsqueeze(-1).expand(-1, -1, states.shape[-1]))
        return self._attend(layer, chosen, layer.attention.self.query(chosen), key_value, mask)

    def _attend(
        self, layer: Any, states: Tensor, query: Tensor, key_value: Tensor, mask: Tensor
    ) -> Tensor:
        parts = (query, *key_value.chunk(2, dim=-1))
        query, key, value = (split_heads(part, self.heads) for part in parts)
        config = self.encoder.config
        dropout = config.attention_probs_dropout_prob if self.encoder.training else 0.0
        attended = attend(query, key, value, mask, dropout=dropout)
        return behind_attention(layer, attended, states)


def project(layer: Any, states: Tensor) -> Projected:
    """What a layer makes of states before its attention."""
    return Projected(states, layer.attention.self.query(states), _key_value(layer, states))


def _key_value(layer: Any, states: Tensor) -> Tensor:
    own = layer.attention.self
    return torch.cat([own.key(states), own.value(states)], dim=-1)
