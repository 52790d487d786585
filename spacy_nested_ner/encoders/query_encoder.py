"""A pretrained encoder that instance queries travel through together with the text (PIQN)."""

from dataclasses import dataclass
from typing import Any, Callable, List, Optional, Tuple

import numpy as np
import torch
import torch.nn.functional as F
from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import Floats2d, Floats3d
from thinc.util import torch2xp, xp2torch
from torch import Tensor, nn

from spacy_nested_ner.device import on_device
from spacy_nested_ner.encoders.batching import cut_batches, equal_batches
from spacy_nested_ner.encoders.piece_windows import (
    Window,
    cut_windows,
    join_queries,
    join_words,
    lengths_of,
    pool_windows,
    vector_order,
)
from spacy_nested_ner.encoders.pretrained import PretrainedShim, Weights, first_position
from spacy_nested_ner.encoders.protocol import QueryEncoderModel
from spacy_nested_ner.encoders.shim import ModuleShim, called_by_its_parent, running
from spacy_nested_ner.layers.int8 import to_int8
from spacy_nested_ner.layers.one_way import InstanceQueries, OneWayEncoder
from spacy_nested_ner.settings import configured, setting

ARCHITECTURE = "spacy_nested_ner.QueryEncoder.v1"

EncoderInput = Tuple[List[Doc], np.ndarray]
EncoderOutput = Tuple[Floats2d, Floats3d]
Backprop = Callable[[EncoderOutput], List[Any]]


@dataclass(frozen=True)
class QueryEncoderSettings(Weights):
    """Of `QueryEncoder.v1`.

    n_queries: number of queries (M).
    context: number of words on either side of a segment that are encoded with it, as many as fit,
        and dropped afterwards. Queries do not attend to them.
    word_pooling: how the vectors of the pieces of a word are pooled.
    query_type_embedding: add one more learned vector, the same for all queries.
    query_interaction: queries attend to each other; the head must have the same setting.
    mark_segment: give the pieces of the segment token type 1; its context has 0. Off by default:
        RoBERTa has one type only and sentence encoders have never seen type 1.
    max_pieces: longest input in pieces, [CLS] and [SEP] included; null for the encoder's limit.
    batch_pieces: padded pieces and queries that the encoder sees at once; segments are sorted by
        length. It can be set in `attrs` of a trained model.
    """

    n_queries: int = setting(60, least=1, source="table 9")
    context: int = setting(32, least=0, source="authors' code has the neighbouring sentences")
    word_pooling: str = setting("max", choices=("max", "mean", "first"), source="authors' code")
    query_type_embedding: bool = setting(True, source="U^q of eq. 1")
    query_interaction: bool = setting(True, source="table 3")
    mark_segment: bool = setting(
        False, source="authors' code, where queries attend to the context, too"
    )
    max_pieces: Optional[int] = setting(None, least=3)
    batch_pieces: int = setting(1024, least=1)


@configured(ARCHITECTURE, QueryEncoderSettings)
def build_query_encoder(
    name: str, settings: QueryEncoderSettings
) -> Model[EncoderInput, EncoderOutput]:
    """`spacy_nested_ner.QueryEncoder.v1`: words and queries in one pretrained encoder with one-way
    attention (PIQN section 3.2): queries attend to the pieces of their segment and to each other,
    pieces to all pieces.

    The weights are read when the model is initialised; a saved model carries them and its
    tokenizer and needs neither the directory nor the hub. Dropout is the encoder's own.

    A segment with more pieces than the encoder takes is read without context, in windows of whole
    words that overlap by half. The vector of a word comes from the window in which the word is
    most central; a word with more pieces than a window holds is pooled from all of them. The
    queries are means over the windows, weighted by the pieces that are taken from each.
    Nothing is cut off, but a training step needs memory for all windows of its batch.

    Input and output: see `QueryEncoderModel`. A token without pieces has a vector of zeros. The
    parameters of the queries belong to the node `model.get_ref("queries")`. Raises ValueError for a
    setting out of range; when initialised, for a model that cannot be found or is not supported.

    name: directory or hub name of a model of the BERT or RoBERTa family with a fast tokenizer.
    """
    attrs = settings.to_dict()
    query_shim = QueryShim(settings.n_queries, attrs.pop("query_type_embedding"))
    shim = EncoderShim(
        name, attrs.pop("max_pieces"), attrs.pop("int8"), attrs.pop("query_interaction")
    )
    queries: Model[Any, Any] = Model("instance_queries", called_by_its_parent, shims=[query_shim])
    return QueryEncoderModel(
        "query_encoder",
        forward,
        init=init,
        layers=[queries],
        refs={"queries": queries},
        dims={"nO": None},
        attrs=attrs,
        shims=[shim],
    )


def init(
    model: Model[EncoderInput, EncoderOutput], X: Optional[EncoderInput] = None, Y: Any = None
) -> None:
    """Read the pretrained weights and draw fresh queries."""
    shim = encoder_shim(model)
    shim.load()
    config = shim.config
    if model.attrs["mark_segment"] and config["type_vocab_size"] < 2:
        raise ValueError(
            f"{ARCHITECTURE}: '{shim.name}' knows one token type only: set mark_segment to false."
        )
    width = config["hidden_size"]
    query_shim(model).build(
        width=width, dropout=config["hidden_dropout_prob"], eps=config["layer_norm_eps"]
    )
    model.set_dim("nO", width, force=True)


def encoder_shim(model: Model[EncoderInput, EncoderOutput]) -> "EncoderShim":
    """The shim that holds the pretrained encoder and its tokenizer."""
    return model.shims[0]  # type: ignore[return-value]


def query_shim(model: Model[EncoderInput, EncoderOutput]) -> "QueryShim":
    """The shim that holds the parameters of the queries."""
    return model.layers[0].shims[0]  # type: ignore[return-value]


# Forward pass


def forward(
    model: Model[EncoderInput, EncoderOutput], X: EncoderInput, is_train: bool
) -> Tuple[EncoderOutput, Backprop]:
    """Encode segments; see `build_query_encoder` for input and output."""
    docs, segments = X
    shim, tables = encoder_shim(model), query_shim(model)
    encoder, queries = shim.module, tables.module
    pieces = shim.pieces_of_segments(docs, segments)
    windows, joints = cut_windows(
        pieces, segments, model.attrs["context"], room=shim.max_pieces - 2
    )
    with running(is_train, encoder, queries):
        words, query_states = _encode(model, windows)
        if joints:
            n_words = segments[:, 2] - segments[:, 1]
            how = model.attrs["word_pooling"]
            words = join_words(words, n_words, joints, how)
            query_states = join_queries(query_states, len(segments), joints)

    def backprop(d_output: EncoderOutput) -> List[Any]:
        if len(windows):
            d_words, d_queries = (xp2torch(d, device=words.device) for d in d_output)
            torch.autograd.backward([words, query_states], [d_words, d_queries])
        return []

    return (torch2xp(words.detach()), torch2xp(query_states.detach())), backprop  # type: ignore[return-value]


def _encode(
    model: Model[EncoderInput, EncoderOutput], windows: List[Window]
) -> Tuple[Tensor, Tensor]:
    """Vectors and queries in the order of the windows."""
    shim, queries = encoder_shim(model), query_shim(model).module
    n_queries, width = queries.content.shape
    device = queries.content.device
    if not windows:
        empty = queries.content.new_zeros
        return empty((0, width)), empty((0, n_queries, width))
    words, query_states = [], []
    lengths = lengths_of(windows) + n_queries
    # In int8 the smallest difference, such as padding makes, would show: see `layers.int8`.
    budget = model.attrs["batch_pieces"]
    batches = equal_batches(lengths, budget) if shim.int8 else cut_batches(lengths, budget)
    for batch in batches:
        chosen = [windows[i] for i in batch]
        ids, mask, own = (on_device(t, device) for t in shim.pad_windows(chosen))
        types = own.long() * model.attrs["mark_segment"]
        states, of_queries = shim.module(ids, types, mask, own, *queries(len(chosen)))
        words.append(pool_windows(states, chosen, model.attrs["word_pooling"]))
        query_states.append(of_queries)
    index = on_device(vector_order(batches, windows), device)
    back = on_device(np.argsort(np.concatenate(batches)), device)
    return F.embedding(index, torch.cat(words)), torch.cat(query_states)[back]


# Weights and their serialisation


class QueryShim(ModuleShim):
    """Holds the tables of the queries, which do not exist before the encoder's width is known."""

    what = "query table"

    def __init__(self, n_queries: int, with_type: bool) -> None:
        super().__init__(InstanceQueries, {"n_queries": n_queries, "with_type": with_type})


class EncoderShim(PretrainedShim):
    """Holds the encoder that words and queries travel through, and its tokenizer.

    query_interaction: whether queries see each other. The rest: see `PretrainedShim`.
    """

    def __init__(
        self, name: str, max_pieces: Optional[int], int8: bool, query_interaction: bool
    ) -> None:
        settings = {"query_interaction": query_interaction}
        super().__init__(ARCHITECTURE, name, max_pieces, int8, settings)

    def with_int8(self, module: nn.Module) -> nn.Module:
        """As in the base; the one-way attention stays."""
        to_int8(module, attention=False)
        return module

    def wrap(self, pretrained: Any) -> OneWayEncoder:
        """The pretrained layers under one-way attention."""
        encoder: Any = super().wrap(pretrained)
        return OneWayEncoder(
            encoder.embeddings,
            encoder.encoder.layer,
            attention_heads=self.config["num_attention_heads"],
            attention_dropout=self.config["attention_probs_dropout_prob"],
            first_position=first_position(self.config),
            query_interaction=self.settings["query_interaction"],
        )
