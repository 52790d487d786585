"""A pretrained encoder as a plain tok2vec that wastes little on padding."""

from dataclasses import dataclass
from typing import Any, Callable, List, Optional, Tuple

import numpy as np
import torch
import torch.nn.functional as F
from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import Floats2d
from thinc.util import torch2xp, xp2torch
from torch import Tensor

from spacy_nested_ner.device import on_device
from spacy_nested_ner.encoders.batching import begins_of, cut_batches, pieces_at_once
from spacy_nested_ner.encoders.packed import read_packed
from spacy_nested_ner.encoders.piece_windows import (
    Window,
    cut_windows,
    join_words,
    lengths_of,
    pool_flat,
    pool_windows,
    vector_order,
)
from spacy_nested_ner.encoders.pretrained import FineTuning, PretrainedShim
from spacy_nested_ner.encoders.protocol import no_backprop
from spacy_nested_ner.encoders.shim import running
from spacy_nested_ner.settings import configured, setting

ARCHITECTURE = "spacy_nested_ner.SortedTransformer.v1"

SortedTransformer = Model[List[Doc], List[Floats2d]]


@dataclass(frozen=True)
class SortedTransformerSettings(FineTuning):
    """Of `SortedTransformer.v1`.

    word_pooling: how the vectors of the pieces of a word are pooled.
    max_pieces: longest input in pieces, [CLS] and [SEP] included; null for the encoder's limit. A
        longer doc is read in windows that overlap by half; a word's vector comes from the window in
        which it is most central. Nothing is cut off.
    batch_pieces: padded pieces that the encoder sees at once in prediction, for speed and memory
        only; null for 512 on a CPU and 8192 on a GPU. It can be set in `attrs` of a trained model.
    """

    word_pooling: str = setting("mean", choices=("max", "mean", "first"))
    max_pieces: Optional[int] = setting(None, least=3)
    batch_pieces: Optional[int] = setting(None, least=1)


@configured(ARCHITECTURE, SortedTransformerSettings)
def build_sorted_transformer(name: str, settings: SortedTransformerSettings) -> SortedTransformer:
    """`spacy_nested_ner.SortedTransformer.v1`: the last layer of a pretrained encoder, pooled to
    words, for any component that takes a tok2vec, spaCy's own included.

    Prediction sorts docs by length and cuts them into batches of few padded pieces: on a CPU small
    batches of one length are faster than large ones. The vectors of a doc do not depend on the docs
    beside it. Training reads all docs of a step at once, without padding. The weights are read when
    the model is initialised; a saved model carries them and its tokenizer and needs neither the
    directory nor the hub. Dropout is the encoder's own.

    Takes docs, returns `(words, h) float` for each. A token without pieces, such as a space, has a
    vector of zeros. Raises ValueError for a setting out of range; when initialised, for a model
    that cannot be found or is not supported.

    name: directory or hub name of a model of the BERT or RoBERTa family with a fast tokenizer.
    """
    attrs = settings.to_dict()
    shim = PretrainedShim(ARCHITECTURE, name, attrs.pop("max_pieces"), attrs.pop("int8"))
    return Model(
        "sorted_transformer", forward, init=init, dims={"nO": None}, attrs=attrs, shims=[shim]
    )


def init(model: SortedTransformer, X: Optional[List[Doc]] = None, Y: Any = None) -> None:
    """Read the pretrained weights."""
    shim = encoder_shim(model)
    shim.load()
    model.set_dim("nO", shim.config["hidden_size"], force=True)


def encoder_shim(model: SortedTransformer) -> PretrainedShim:
    """The shim that holds the pretrained encoder and its tokenizer."""
    return model.shims[0]  # type: ignore[return-value]


def forward(
    model: SortedTransformer, docs: List[Doc], is_train: bool
) -> Tuple[List[Floats2d], Callable[[List[Floats2d]], List[Doc]]]:
    """Encode whole docs."""
    shim, how = encoder_shim(model), model.attrs["word_pooling"]
    frozen = shim.frozen_layers(model.attrs)
    learns = is_train and frozen < shim.n_layers
    encoder = shim.module
    n_words = np.array([len(doc) for doc in docs], dtype=np.int64)
    segments = np.array([(i, 0, n) for i, n in enumerate(n_words.tolist()) if n], dtype=np.int64)
    if not len(segments):
        width = shim.config["hidden_size"]
        return [model.ops.alloc2f(0, width) for _ in docs], no_backprop
    windows, joints = cut_windows(
        shim.pieces_of_segments(docs, segments), segments, context=0, room=shim.max_pieces - 2
    )
    with running(learns, encoder, mixed_precision=model.attrs["mixed_precision"]):
        if learns:
            words = _encode_to_learn(shim, windows, how, frozen)
        elif is_train:
            words = _encode_once(shim, windows, how, model.attrs["batch_pieces"])
        else:
            words = _encode(shim, windows, how, model.attrs["batch_pieces"])
        if joints:
            words = join_words(words, n_words[n_words > 0], joints, how)

    def backprop(d_vectors: List[Floats2d]) -> List[Doc]:
        if learns:
            gradient = model.ops.flatten([d for d, n in zip(d_vectors, n_words) if n])
            words.backward(xp2torch(gradient, device=words.device))
        return []

    vectors = torch2xp(words.detach())
    ends = np.cumsum(n_words)
    return [vectors[end - n : end] for end, n in zip(ends, n_words)], backprop  # type: ignore[misc]


def _encode_to_learn(shim: PretrainedShim, windows: List[Window], how: str, frozen: int) -> Tensor:
    """The same as `_encode` gives, all at once. frozen: layers that do not learn."""
    states = read_packed(shim, shim.module.encoder.layer, windows, frozen)
    lengths = lengths_of(windows)
    return pool_flat(states.float(), begins_of(lengths), windows, how)


def _encode_once(
    shim: PretrainedShim, windows: List[Window], how: str, batch_pieces: Optional[int]
) -> Tensor:
    """The same as `_encode` gives, but a window that an earlier step had is not read again."""

    def read(indices: List[int]) -> List[Tensor]:
        chosen = [windows[i] for i in indices]
        vectors = _encode(shim, chosen, how, batch_pieces)
        return [each.clone() for each in vectors.split([len(window.counts) for window in chosen])]

    keys = [(w.ids.tobytes(), w.first, w.counts.tobytes()) for w in windows]
    return shim.frozen_states.read(how, keys, read)


def _encode(
    shim: PretrainedShim, windows: List[Window], how: str, batch_pieces: Optional[int]
) -> Tensor:
    """Vectors in the order of the windows, `(vectors, h)`."""
    device = shim.device
    budget = batch_pieces or pieces_at_once(device)
    batches = cut_batches(lengths_of(windows), budget)
    pooled = []
    for batch in batches:
        chosen = [windows[i] for i in batch]
        padded = shim.pad_windows(chosen)[:2]
        ids, mask = (on_device(each, device) for each in padded)
        pooled.append(pool_windows(shim.read(ids, mask).float(), chosen, how))
    order = on_device(vector_order(batches, windows), device)
    return F.embedding(order, torch.cat(pooled))
