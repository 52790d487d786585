"""The layers of a pretrained encoder over texts that lie one after the other, without padding."""

from __future__ import annotations

from typing import Any, Iterable, List, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spacy_nested_ner.layers.attention import (
    attend,
    behind_attention,
    join_heads,
    split_heads,
    split_parts,
)
from spacy_nested_ner.layers.checkpointing import Again, run_again
from spacy_nested_ner.layers.int8 import Int8SelfAttention, runs_of
from spacy_nested_ner.layers.masks import MASKED

# Attribute of the parameter of a `PieceEmbedding` whose gradients are of its own making: None, or
# memory for the next.
SPARE = "spare_gradient"


class Packing(NamedTuple):
    """How texts of about one length attend together while all lie one after the other.

    rows: places `(rows, length)` long of the pieces of some texts among those of all, and a mask
        `(rows, length)` bool, False for padding, None without any; each text is in one of them.
        Padding repeats the text's first piece.
    back: `(pieces,)` long, where each piece stands in the flattened rows, one after the other.
    """

    rows: List[Tuple[Tensor, Optional[Tensor]]]
    back: Tensor


class PackedEncoder:
    """Hugging Face's layers of the BERT and RoBERTa family, for training. It holds no weights.

    Its linear layers and LayerNorms see the pieces of all texts at once, without padding, and so
    add to the gradients of their weights once. The attention alone sees padded rows, a few texts of
    about one length at a time. Query, key and value are one product.

    embeddings: of the encoder. layers: those that read, each with the submodules `attention.self`,
        `attention.output`, `intermediate` and `output`. again: see `run_again`.
    """

    def __init__(self, embeddings: nn.Module, layers: Iterable[Any], again: Again = None) -> None:
        self.embeddings, self.layers, self.again = embeddings, list(layers), again

    def read(self, ids: Tensor, types: Tensor, positions: Tensor, packing: Packing) -> Tensor:
        """States of the last layer, `(pieces, h)`.

        ids, types, positions: `(pieces,)` long, text after text, [CLS] and [SEP] included.
        """
        states: Tensor = self.embeddings(
            input_ids=ids.unsqueeze(0),
            token_type_ids=types.unsqueeze(0),
            position_ids=positions.unsqueeze(0),
        ).squeeze(0)
        return self.go_on(states, packing)

    def go_on(self, states: Tensor, packing: Packing) -> Tensor:
        """What the layers make of `(pieces, h)` states, in the same shape."""
        for layer in self.layers:
            states = run_again(self.again, _read, layer, states, packing)
        return states


def _read(layer: Any, states: Tensor, packing: Packing) -> Tensor:
    attended = _attend(layer.attention.self, states, packing)
    return behind_attention(layer, attended, states)


def _attend(own: Any, states: Tensor, packing: Packing) -> Tensor:
    """What pieces attend to, `(pieces, h)`. own: the attention of a layer."""
    places = [places for places, _ in packing.rows]
    # Gathered at once: each gather would have a gradient of the size of all pieces.
    cells = F.embedding(
        torch.cat([each.flatten() for each in places]), _joint_projection(own, states)
    )
    found = []
    for part, (at, mask) in zip(cells.split([each.numel() for each in places]), packing.rows):
        heads = split_parts(part.unflatten(0, at.shape), 3, own.num_attention_heads)
        found.append(_attend_in_rows(own, heads, mask).flatten(0, 1))
    return F.embedding(packing.back, torch.cat(found))


def _attend_in_rows(own: Any, heads: Tuple[Tensor, ...], mask: Optional[Tensor]) -> Tensor:
    """Attention, `(rows, length, h)`; heads: queries, which are scaled, keys and values,
    `(rows, heads, length, head width)` each."""
    query, key, value = heads
    if query.is_cuda:  # whose kernels keep no weights
        rate = own.dropout.p if own.dropout.training else 0.0
        return attend(query, key, value, mask, rate, scale=1.0)
    weights = query @ key.transpose(-1, -2)
    if mask is not None:
        weights = weights.masked_fill(~mask[:, None, None], MASKED)
    return join_heads(own.dropout(weights.softmax(-1).to(value.dtype)) @ value)


def _joint_projection(own: Any, states: Tensor) -> Tensor:
    """Query, divided by the square root of the head width, key and value side by side,
    `(pieces, 3 h)`."""
    scale = own.attention_head_size**-0.5
    weight = torch.cat([own.query.weight * scale, own.key.weight, own.value.weight])
    bias = torch.cat([own.query.bias * scale, own.key.bias, own.value.bias])
    return F.linear(states, weight, bias)


def read_rows(
    encoder: Any,
    ids: Tensor,
    real: Tensor,
    types: Optional[Tensor] = None,
    n_layers: Optional[int] = None,
) -> Tensor:
    """States of the last layer of Hugging Face's encoder, `(batch, pieces, h)`, zeros at padding:
    what the encoder itself gives without gradients. Its linear layers and LayerNorms see no
    padding, which takes less time on a CPU.

    ids, types: `(batch, pieces)` long; real: bool, False for padding, which comes last in a row.
    n_layers: so many of the lower layers alone; None for all.
    """
    states: Tensor = encoder.embeddings(input_ids=ids, token_type_ids=types)
    places = real.flatten().nonzero().squeeze(1)
    states = F.embedding(places, states.flatten(0, 1))
    layers = list(encoder.encoder.layer)[:n_layers]
    int8 = isinstance(layers[0].attention.self, Int8SelfAttention)
    runs = runs_of(real) if int8 else []
    for layer in layers:
        own = layer.attention.self
        if int8:
            attended = own.of_texts(states, runs)
        else:
            attended = _attend_in_padding(own, states, real, places)
        states = behind_attention(layer, attended, states)
    return _padded(states, real, places)


def _attend_in_padding(own: Any, states: Tensor, real: Tensor, places: Tensor) -> Tensor:
    """What the real pieces attend to, `(pieces, h)`. places: theirs among all."""
    query, key, value = (
        split_heads(_padded(project(states), real, places), own.num_attention_heads)
        for project in (own.query, own.key, own.value)
    )
    mask = None if len(places) == real.numel() else real
    return F.embedding(places, attend(query, key, value, mask).flatten(0, 1))


def _padded(states: Tensor, real: Tensor, places: Tensor) -> Tensor:
    """`(pieces, h)` states of the real pieces in their rows, `(batch, pieces, h)`."""
    if len(places) == real.numel():
        return states.view(*real.shape, -1)
    padded = states.new_zeros(real.numel(), states.shape[1])
    return padded.index_copy_(0, places, states).view(*real.shape, -1)


class PieceEmbedding(nn.Embedding):
    """`torch.nn.Embedding` for a large table of which a batch uses little.

    torch makes a gradient of the size of the table for each call, and adds them up. On a CPU, where
    that takes a while, there is one here for the whole step, to which each call adds the rows that
    it has used; hooks on the table see none. The piece of padding is not special.

    The next step uses the memory of the gradient again, see `keep_memory`, unless a prediction is
    made before: the system gives new memory of that size page by page, which takes a while, too.
    """

    def forward(self, ids: Tensor) -> Tensor:
        """`(...) long` to `(..., width)`."""
        learns = torch.is_grad_enabled() and self.weight.requires_grad
        if not learns:
            vars(self.weight).pop(SPARE, None)
        if not learns or self.weight.device.type != "cpu":
            return super().forward(ids)
        found: Tensor = _UsedRows.apply(self.weight, ids)
        return found


class _UsedRows(torch.autograd.Function):
    """Rows of a table, whose gradients are added to those of the table where they are."""

    @staticmethod
    def forward(ctx: Any, table: nn.Parameter, ids: Tensor) -> Tensor:
        ctx.table = table
        ctx.save_for_backward(ids)
        return F.embedding(ids, table.detach())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (ids,) = ctx.saved_tensors
        table = ctx.table
        if table.grad is None:
            table.grad = _zeros(table)
        table.grad.index_add_(0, ids.flatten(), gradient.flatten(0, -2).to(table.dtype))
        return None, None


def _zeros(table: nn.Parameter) -> Tensor:
    """A gradient for the table, in memory that was kept, or else in new memory."""
    spare: Optional[Tensor] = getattr(table, SPARE, None)
    setattr(table, SPARE, None)
    if spare is None or spare.device != table.device:
        return torch.zeros_like(table)
    return spare.zero_()


def keep_memory(parameter: nn.Parameter, gradient: Tensor) -> None:
    """Keep the memory of a gradient that nobody reads any more, where `PieceEmbedding` made it."""
    if hasattr(parameter, SPARE):
        setattr(parameter, SPARE, gradient)


def with_piece_embedding(encoder: Any) -> Any:
    """The encoder itself, whose embeddings of word pieces have become a `PieceEmbedding`."""
    words = encoder.embeddings.word_embeddings
    if type(words) is nn.Embedding:
        # A new layer would have to be given the parameter, the padding index and its device.
        words.__class__ = PieceEmbedding
    return encoder
