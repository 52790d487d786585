"""The one Thinc model of all systems: an encoder, then a torch head over padded segments."""

from collections import defaultdict
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np
import torch
from thinc.api import Model
from torch import Tensor

from spacy_nested_ner.device import on_device
from spacy_nested_ner.encoders.batching import cut_batches
from spacy_nested_ner.encoders.by_torch import use_torch
from spacy_nested_ner.encoders.pretrained import is_pretrained
from spacy_nested_ner.encoders.protocol import (
    PairEncoderModel,
    QueryEncoderModel,
    listens,
    no_backprop,
)
from spacy_nested_ner.encoders.shim import ModuleShim, called_by_its_parent
from spacy_nested_ner.encoders.words import initialize_tok2vec
from spacy_nested_ner.layers.dropout import set_dropout
from spacy_nested_ner.model.pairs import read_pairs
from spacy_nested_ner.model.rows import Reading, Rows, read_with_queries, read_words
from spacy_nested_ner.model.shim import HeadShim
from spacy_nested_ner.model.types import (
    NO_SPANS,
    GoldEntity,
    HeadInput,
    HeadModel,
    HeadOutput,
    ScoredSpans,
    encoder_of,
    system_of,
)
from spacy_nested_ner.systems.base import ModelSettings, System
from spacy_nested_ner.systems.head import Gold, Predictions, mean_losses

Backprop = Callable[[Any], List[Any]]

# Padded words from which a further batch costs a head less than they do.
PADDING = 64
# CUDA is given so many times `batch_words` at once, however much is padding: a further batch costs
# it more than more words do.
ON_GPU = 16


def build_head_model(system: System, encoder: Model, settings: ModelSettings) -> HeadModel:
    """Compose the encoder and the head of a system."""
    use_torch(encoder)
    head: Model[Any, Any] = Model(
        f"{system.name}_head",
        called_by_its_parent,
        dims={"nI": None, "nO": None},
        attrs={"dropout_rate": 0.0},
        shims=[HeadShim(system, settings)],
    )
    model: HeadModel = Model(
        system.name,
        forward,
        init=init,
        layers=[encoder, head],
        refs={"tok2vec": encoder, "head": head},
        attrs={
            "system": system.name,
            "batch_words": settings.batch_words,
            "labels": [],
            **system.attributes(settings),
        },
        dims={"nO": None},
    )
    set_tok2vec(model)
    return model


def set_tok2vec(model: HeadModel) -> None:
    """Let the ref "tok2vec" be what spaCy expects there (`spacy pretrain`, `init_tok2vec`): a model
    from docs to the vectors of their words, also where the encoder puts a transformer over it."""
    encoder = encoder_of(model)
    own = isinstance(encoder, PairEncoderModel) and encoder.has_ref("tok2vec")
    model.set_ref("tok2vec", encoder.get_ref("tok2vec") if own else encoder)


def head_shim(model: HeadModel) -> HeadShim:
    """The shim that holds the head of a model made by `build_head_model`."""
    return model.get_ref("head").shims[0]  # type: ignore[return-value]


def head_parts(model: HeadModel) -> List[Model]:
    """The nodes that learn at the head's rate while a pretrained encoder may rest: the head, and
    the layers of an encoder that are not pretrained, such as the queries that one reads. Beside a
    listener, whose vectors are made elsewhere, these are all of its layers."""
    head, encoder = model.get_ref("head"), encoder_of(model)
    if listens(encoder) and not is_pretrained(encoder):
        return [head, encoder]
    fresh = [
        node for node in encoder.walk() if any(isinstance(shim, ModuleShim) for shim in node.shims)
    ]
    return [head, *fresh]


def init(model: HeadModel, X: Optional[HeadInput] = None, Y: Any = None) -> None:
    """Initialise the encoder on the docs and build the head for its width and `attrs["labels"]`.

    Raises ValueError for input of `spacy pretrain`, which is for an encoder.
    """
    if X is not None and not isinstance(X, HeadInput):
        raise ValueError(
            "The model of a component of spacy_nested_ner is no encoder that can be pretrained, "
            "but its part 'tok2vec' is: set layer in [pretraining] to \"tok2vec\"."
        )
    tok2vec: Any = encoder_of(model)
    head = model.get_ref("head")
    system_of(model).prepare(model)
    if X is None or not len(X.segments):
        width = initialize_tok2vec(tok2vec, [])
    elif isinstance(tok2vec, (QueryEncoderModel, PairEncoderModel)):
        sample: Any = (X.docs, X.segments)
        tok2vec.initialize(X=sample)
        width = tok2vec.get_dim("nO")
    else:
        width = initialize_tok2vec(tok2vec, X.docs)
    shim = head_shim(model)
    shim.build(width, len(model.attrs["labels"]))
    head.set_dim("nI", width, force=True)
    set_label_dim(model, len(model.attrs["labels"]))


def set_label_dim(model: HeadModel, n_labels: Optional[int]) -> None:
    """Set `nO` of the nodes. n_labels: None lets the model take weights of any number."""
    for node in (model, model.get_ref("head")):
        node.set_dim("nO", n_labels, force=True)  # type: ignore[arg-type]


def forward(model: HeadModel, X: Any, is_train: bool) -> Tuple[HeadOutput, Backprop]:
    """Encode the docs, run the head over batches of segments.

    X: a `HeadInput`; a list of docs is taken as one segment per doc. Training needs `X.gold` and
    gives losses, whose sum the callback derives (it takes anything and ignores it); it returns
    what the encoder's own callback returns.
    """
    if not isinstance(X, HeadInput):
        X = whole_docs(list(X))
    rows, backprop = encode(model, X, is_train)
    if X.gold is None:
        return HeadOutput({}, _predict(model, X, rows)), no_backprop
    head = head_shim(model).module
    head.train(is_train)
    set_dropout(head, model.get_ref("head").attrs["dropout_rate"] if is_train else 0.0)
    with torch.set_grad_enabled(is_train):
        losses = _losses(model, X, rows)
        stacked = torch.stack(list(losses.values()))
        total = stacked.sum()

    def backprop_losses(d_output: Any) -> List[Any]:
        total.backward()
        return backprop()

    values = dict(zip(losses, stacked.tolist()))  # at once: a GPU is waited for
    return HeadOutput(values, NO_SPANS), backprop_losses


def whole_docs(docs: List[Any]) -> HeadInput:
    """One segment per non-empty doc."""
    rows = [(i, 0, len(doc)) for i, doc in enumerate(docs) if len(doc)]
    return HeadInput(docs, np.array(rows, dtype=np.int64).reshape(-1, 3))


def encode(model: HeadModel, X: HeadInput, is_train: bool) -> Reading:
    """One row per segment, or per segment and label; there is one reader for each kind of encoder,
    see `encoders/protocol.py`."""
    encoder = encoder_of(model)
    if isinstance(encoder, PairEncoderModel):
        return read_pairs(model, X, is_train)
    if isinstance(encoder, QueryEncoderModel):
        return read_with_queries(encoder, X, is_train)
    return read_words(encoder, X, head_shim(model).width or 0, is_train)


def _batches(model: HeadModel, rows: Rows) -> List[np.ndarray]:
    budget: int = model.attrs["batch_words"]
    if head_shim(model).device.type == "cuda":
        return cut_batches(rows.lengths, ON_GPU * budget)
    return cut_batches(rows.lengths, budget, PADDING)


def _losses(model: HeadModel, X: HeadInput, rows: Rows) -> Dict[str, Tensor]:
    """Mean losses over all rows, the same however they are cut into batches."""
    head, entities = head_shim(model).module, _gold_of_rows(X, rows)
    parts = []
    for batch in _batches(model, rows):
        words, mask, queries = rows.read(batch)
        gold = Gold.from_lists([entities[i] for i in batch], words.device)
        parts.append(head(words, mask, gold=gold, queries=queries))
    return mean_losses(parts)


def _gold_of_rows(X: HeadInput, rows: Rows) -> List[List[GoldEntity]]:
    """The entities of the segment of each row, of its label only where it has one."""
    assert X.gold is not None
    if rows.label is None:
        return X.gold
    by_label: Dict[Tuple[int, int], List[GoldEntity]] = defaultdict(list)
    for segment, entities in enumerate(X.gold):
        for entity in entities:
            by_label[segment, entity[2]].append(entity)
    keys = zip(rows.segment.tolist(), rows.label.tolist())
    return [by_label.get(key, []) for key in keys]


@torch.no_grad()
def _predict(model: HeadModel, X: HeadInput, rows: Rows) -> ScoredSpans:
    """Run the head in evaluation mode; collect spans in tokens of their docs."""
    head = head_shim(model).module
    if head.training:  # each part of a head is told: too much for every doc
        head.eval()
    # Nobody but the pipe gives options: `spacy debug model`, for one, calls the model itself.
    options = X.options or system_of(model).options()
    found: List[Predictions] = []
    for batch in _batches(model, rows):
        words, mask, queries = rows.read(batch)
        with torch.inference_mode():  # less to do in each of many small operations
            spans = head(words, mask, options=options, queries=queries)
        label = spans.label
        if rows.label is not None:
            label = on_device(rows.label[batch], label.device)[spans.segment]
        segment = on_device(rows.segment[batch], label.device)[spans.segment]
        found.append(spans._replace(segment=segment, label=label))
    return collect_spans(found, X.segments)


def collect_spans(found: List[Predictions], segments: np.ndarray) -> ScoredSpans:
    """Join the predictions of all batches on the CPU, in a fixed order, in tokens of the docs."""
    if not found:
        return NO_SPANS
    joined = found[0] if len(found) == 1 else map(torch.cat, zip(*found))
    *places, scores = joined
    # Two copies in place of five: a GPU is waited for at each.
    segment, start, end, label = torch.stack(places).cpu().numpy()
    score = scores.cpu().numpy().astype(np.float32)
    doc, first = segments[segment, 0], segments[segment, 1]
    spans = ScoredSpans(segment, doc, start + first, end + first + 1, label, score)
    return spans.take(np.lexsort((label, end, start, segment)))
