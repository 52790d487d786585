"""The one Thinc model of all systems: an encoder, then a torch head over padded segments."""

from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np
import torch
from thinc.api import Model
from torch import Tensor

from spacy_nested_ner.architectures.batching import cut_batches
from spacy_nested_ner.architectures.shim import HeadShim
from spacy_nested_ner.architectures.types import (
    NO_SPANS,
    HeadInput,
    HeadModel,
    HeadOutput,
    SpanScores,
    Tok2VecModel,
)
from spacy_nested_ner.architectures.words import encode_words, gradient_of, to_torch
from spacy_nested_ner.heads.base import Gold, Head, Predictions, mean_losses

Backprop = Callable[[Any], List[Any]]


def build_head_model(
    name: str,
    tok2vec: Tok2VecModel,
    head_class: Callable[..., Head],
    settings: Dict[str, Any],
    batch_words: int = 512,
) -> HeadModel:
    """Compose an encoder and a head.

    name: of the model's node. tok2vec: any token-to-vector model, or one that reads queries along
    with the words (`attrs["n_queries"]`). settings: keyword arguments of the head's constructor,
    JSON-serialisable. batch_words: padded words that the head sees at once.
    """
    if batch_words < 1:
        raise ValueError(f"{name}: batch_words must be positive, got {batch_words}.")
    head: Model[Any, Any] = Model(
        f"{name}_head",
        _head_is_called_by_its_parent,
        dims={"nI": None, "nO": None},
        attrs={"dropout_rate": 0.0},
        shims=[HeadShim(head_class, settings)],
    )
    model: HeadModel = Model(
        name,
        forward,
        init=init,
        layers=[tok2vec, head],
        refs={"tok2vec": tok2vec, "head": head},
        attrs={"batch_words": batch_words, "labels": []},
        dims={"nO": None},
    )
    return model


def head_shim(model: HeadModel) -> HeadShim:
    """The shim that holds the head of a model made by `build_head_model`."""
    return model.get_ref("head").shims[0]  # type: ignore[return-value]


def head_parts(model: HeadModel) -> List[Model]:
    """The nodes that learn at the head's rate while a pretrained encoder may rest: the head, and
    what encoders mark with `attrs["from_scratch"]`, such as the queries that one reads."""
    encoder = model.get_ref("tok2vec")
    fresh = [node for node in encoder.walk() if node.attrs.get("from_scratch")]
    return [model.get_ref("head"), *fresh]


def annotation_read(model: HeadModel) -> List[str]:
    """Token attributes ("tag", "pos") that the encoder reads and another component has to set."""
    encoder = model.get_ref("tok2vec")
    return sorted({node.attrs["reads"] for node in encoder.walk() if node.attrs.get("reads")})


def reads_queries(model: HeadModel) -> bool:
    """Whether the encoder reads queries along with the words."""
    return "n_queries" in model.get_ref("tok2vec").attrs


def init(model: HeadModel, X: Optional[HeadInput] = None, Y: Any = None) -> None:
    """Initialise the encoder on the docs and build the head for its width and `attrs["labels"]`."""
    tok2vec, head = model.get_ref("tok2vec"), model.get_ref("head")
    if X is None or not len(X.segments):
        tok2vec.initialize()
        width = _declared_width(tok2vec)
    elif reads_queries(model):
        tok2vec.initialize(X=(X.docs, X.segments))
        width = tok2vec.get_dim("nO")
    else:
        docs = [doc for doc in X.docs if len(doc)]
        tok2vec.initialize(X=docs)
        width = tok2vec.predict(docs)[0].shape[1]
    shim = head_shim(model)
    shim.build(width, model.attrs["labels"])
    head.set_dim("nI", width, force=True)
    set_label_dim(model)


def set_label_dim(model: HeadModel) -> None:
    """Keep `nO` of the nodes in step with the labels of the head."""
    n_labels = len(head_shim(model).labels)
    model.set_dim("nO", n_labels, force=True)
    model.get_ref("head").set_dim("nO", n_labels, force=True)


def _declared_width(tok2vec: Tok2VecModel) -> int:
    if not tok2vec.has_dim("nO"):
        raise ValueError(
            "Cannot tell the width of the encoder without examples: call nlp.initialize with a "
            "get_examples callback that returns at least one non-empty doc."
        )
    return tok2vec.get_dim("nO")


def _head_is_called_by_its_parent(model: Model, X: Any, is_train: bool) -> Any:
    raise ValueError("The head works on padded segments: call the model it belongs to.")


def forward(model: HeadModel, X: Any, is_train: bool) -> Tuple[HeadOutput, Backprop]:
    """Encode the docs, run the head over batches of segments.

    X: a `HeadInput`; a list of docs is taken as one segment per doc. Training needs `X.gold` and
    gives losses, whose sum the callback derives (it takes anything and ignores it); it returns
    what the encoder's own callback returns.
    """
    if not isinstance(X, HeadInput):
        X = whole_docs(list(X))
    words, queries, offsets, backprop = encode(model, X, is_train)
    lengths = X.segments[:, 2] - X.segments[:, 1]
    batches = cut_batches(lengths, model.attrs["batch_words"])
    if X.gold is None:
        return HeadOutput({}, _predict(model, X, words, queries, offsets, batches)), _no_backprop
    head = head_shim(model).module
    head.train(is_train)
    head.set_dropout(model.get_ref("head").attrs["dropout_rate"] if is_train else 0.0)
    with torch.set_grad_enabled(is_train):
        losses = _losses(head, X, words, queries, offsets, batches)
        total = torch.stack(list(losses.values())).sum()

    def backprop_losses(d_output: Any) -> List[Any]:
        total.backward()
        return backprop(words.grad, None if queries is None else queries.grad)

    values = {name: float(loss.detach()) for name, loss in losses.items()}
    return HeadOutput(values, NO_SPANS), backprop_losses


def whole_docs(docs: List[Any]) -> HeadInput:
    """One segment per non-empty doc."""
    rows = [(i, 0, len(doc)) for i, doc in enumerate(docs) if len(doc)]
    return HeadInput(docs, np.array(rows, dtype=np.int64).reshape(-1, 3))


def encode(
    model: HeadModel, X: HeadInput, is_train: bool
) -> Tuple[Tensor, Optional[Tensor], np.ndarray, Callable[..., List[Any]]]:
    """Flat word vectors `(all words, width)`, queries `(segments, M, width)` if any, where each
    segment's words begin, and the way back for both gradients."""
    tok2vec = model.get_ref("tok2vec")
    if reads_queries(model):
        (flat, asked), backprop_queries = tok2vec((X.docs, X.segments), is_train)
        words, queries = to_torch(flat, is_train), to_torch(asked, is_train)
        lengths = X.segments[:, 2] - X.segments[:, 1]

        def back_with_queries(d_words: Tensor, d_queries: Tensor) -> List[Any]:
            return backprop_queries((gradient_of(d_words, words), gradient_of(d_queries, queries)))

        return words, queries, np.cumsum(lengths) - lengths, back_with_queries

    encoded = encode_words(tok2vec, X.docs, head_shim(model).width or 0, is_train)
    starts = np.cumsum(encoded.lengths) - encoded.lengths
    offsets = starts[X.segments[:, 0]] + X.segments[:, 1]

    def back(d_words: Optional[Tensor], d_queries: Optional[Tensor]) -> List[Any]:
        return encoded.backprop(d_words)

    return encoded.words, None, offsets, back


def pad(
    words: Tensor, segments: np.ndarray, offsets: np.ndarray, batch: np.ndarray
) -> Tuple[Tensor, Tensor]:
    """Gather a batch of segments: `(batch, words, width)` vectors and `(batch, words)` bool mask.

    Padding repeats the segment's first word; the mask keeps it out of everything.
    """
    lengths = torch.from_numpy(segments[batch, 2] - segments[batch, 1])
    position = torch.arange(int(lengths.max()))
    mask = position < lengths.unsqueeze(1)
    index = torch.from_numpy(offsets[batch]).unsqueeze(1) + position * mask
    return words[index.to(words.device)], mask.to(words.device)


def _losses(
    head: Head,
    X: HeadInput,
    words: Tensor,
    queries: Optional[Tensor],
    offsets: np.ndarray,
    batches: List[np.ndarray],
) -> Dict[str, Tensor]:
    """Mean losses over all segments, the same however they are cut into batches."""
    assert X.gold is not None
    parts = []
    for batch in batches:
        padded, mask = pad(words, X.segments, offsets, batch)
        gold = Gold.from_lists([X.gold[i] for i in batch], words.device)
        asked = None if queries is None else queries[torch.from_numpy(batch).to(words.device)]
        parts.append(head(padded, mask, gold=gold, queries=asked))
    return mean_losses(parts)


@torch.no_grad()
def _predict(
    model: HeadModel,
    X: HeadInput,
    words: Tensor,
    queries: Optional[Tensor],
    offsets: np.ndarray,
    batches: List[np.ndarray],
) -> SpanScores:
    """Run the head in evaluation mode; collect spans in tokens of their docs."""
    head = head_shim(model).module
    head.eval()
    found: List[Predictions] = []
    for batch in batches:
        padded, mask = pad(words, X.segments, offsets, batch)
        rows = torch.from_numpy(batch).to(words.device)
        asked = None if queries is None else queries[rows]
        spans = head(padded, mask, options=X.options, queries=asked)
        found.append(spans._replace(segment=rows[spans.segment]))
    return collect_spans(found, X.segments)


def collect_spans(found: List[Predictions], segments: np.ndarray) -> SpanScores:
    """Join the predictions of all batches on the CPU, in a fixed order, in tokens of the docs."""
    if not found:
        return NO_SPANS
    columns = [torch.cat(column).cpu().numpy() for column in zip(*found)]
    segment, start, end, label, score = columns
    order = np.lexsort((label, end, start, segment))
    segment = segment[order]
    first = segments[segment, 1]
    return SpanScores(
        segment=segment,
        start=start[order] + first,
        end=end[order] + first + 1,
        label=label[order],
        score=score[order].astype(np.float32),
    )


def _no_backprop(d_output: Any) -> List[Any]:
    return []
