"""The trainable pipe that all systems share."""

import math
import os
import warnings
from itertools import islice, takewhile
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Set,
    Tuple,
    Type,
)

import numpy as np
import torch
from spacy.errors import Errors
from spacy.language import Language
from spacy.pipeline import TrainablePipe
from spacy.tokens import Doc, Span, SpanGroup
from spacy.training import Example, validate_examples
from spacy.util import minibatch
from spacy.vocab import Vocab
from thinc.api import Optimizer, set_dropout_rate

from spacy_nested_ner.encoders.protocol import (
    has_annotation,
    listens,
    missing_annotation,
    needed_annotation,
)
from spacy_nested_ner.model.head_model import (
    encoder_of,
    head_parts,
    head_shim,
    set_label_dim,
    set_tok2vec,
    system_of,
)
from spacy_nested_ner.model.types import NO_SPANS, Entity, HeadInput, HeadModel, SpanScores
from spacy_nested_ner.pipeline.decode import ScoredSpan, choose_ents, select_spans
from spacy_nested_ner.pipeline.gold import GoldSegments, gold_segments, trim_space
from spacy_nested_ner.pipeline.scorer import WRITTEN_BY
from spacy_nested_ner.pipeline.segments import Segments, cut_segments, lacks_sentences
from spacy_nested_ner.pipeline.sentences import NOTHING_SEEN, remember, usual_length
from spacy_nested_ner.pipeline.settings import PipeSettings
from spacy_nested_ner.systems.base import Options
from spacy_nested_ner.systems.settings import S, defaults_of, names_of, take, unknown_name
from spacy_nested_ner.training.adversarial import embedding_tables, moved, new_gradients
from spacy_nested_ner.training.optimizer import AdamW

# What `pipe.cfg` holds beside settings.
STATE = ("labels", "learned_from")
WHOLE_DOC = (
    "it learned from single sentences and now reads docs of more than {whole} words without "
    "sentence boundaries, where it may find little. Set split_sentences to true, or put a "
    "sentencizer, parser or senter before it"
)
LOST_REMEDY = {
    "empty": "they hold no word; check the annotation",
    "misaligned": "their boundaries fall inside tokens; check the tokenizer or the annotation",
    "unknown label": "add the labels at initialize or with add_label",
    "across segments": "no sentence or window holds them; check the sentence boundaries or set a "
    "larger window and a smaller stride",
}


class SegmentSpans(NamedTuple):
    """What `predict` gives to `set_annotations`."""

    segments: Segments
    spans: SpanScores


class NestedNER(TrainablePipe):
    """Trainable pipe for entities that nest, cross or share a span.

    Predicts `doc.spans[spans_key]` with one float32 score per span in `attrs["scores"]`. Gold is
    read from `reference.spans[spans_key]`. A head works on one segment of a doc at a time, see
    `cut_segments`; the encoder sees the whole doc.
    """

    def __init__(
        self,
        vocab: Vocab,
        model: HeadModel,
        name: str,
        *,
        scorer: Optional[Callable] = None,
        **settings: Any,
    ) -> None:
        """Create the pipe.

        settings: Any of `PipeSettings` and of the system's options; defaults for the others. They
            live in `pipe.cfg` and are checked whenever they are used.
        RAISES (ValueError): For a setting that is not known or out of its range, by name.
        """
        self.vocab, self.model, self.name = vocab, model, name
        self.scorer = scorer
        self._options = system_of(model).options
        self._warned: Set[str] = set()
        self.cfg: Dict[str, Any] = {
            "labels": [],
            "learned_from": dict(NOTHING_SEEN),
            **defaults_of(PipeSettings),
            **defaults_of(self._options),
            **settings,
        }
        self._check_settings()

    def _check_settings(self) -> None:
        self._settings()
        self.options()

    def _settings(self) -> PipeSettings:
        """Those of `pipe.cfg` that all components share, checked."""
        known = [*names_of(PipeSettings), *names_of(self._options)]
        problem = unknown_name([name for name in self.cfg if name not in STATE], known)
        if problem is not None:
            raise ValueError(self._says(problem))
        return self._take(PipeSettings, self.cfg)

    def options(self, **changed: Any) -> Options:
        """The head's run-time options, checked: those of one call before those of `pipe.cfg`."""
        names = names_of(self._options)
        unknown = ", ".join(sorted(set(changed) - set(names)))
        if unknown:
            known = ", ".join(names) or "none"
            raise ValueError(
                self._says(f"{unknown} cannot be set for one call, only {known}; see pipe.cfg")
            )
        return self._take(self._options, {**self.cfg, **changed})

    def _take(self, kind: Type[S], values: Mapping[str, Any]) -> S:
        try:
            return take(kind, values)
        except ValueError as err:
            raise ValueError(self._says(str(err))) from err

    def _says(self, problem: str) -> str:
        return f"Component '{self.name}': {problem}."

    def _warn_once(self, key: str, problem: str) -> None:
        if key not in self._warned:
            self._warned.add(key)
            warnings.warn(self._says(problem), stacklevel=3)

    @property
    def key(self) -> str:
        """RETURNS (str): Key of `doc.spans`."""
        return self.cfg["spans_key"]

    @property
    def labels(self) -> Tuple[str, ...]:
        """RETURNS (Tuple[str, ...]): The labels, in the order of the head's outputs."""
        return tuple(self.cfg["labels"])

    @property
    def label_data(self) -> List[str]:
        """RETURNS (List[str]): What `spacy init labels` saves and `initialize` takes."""
        return list(self.labels)

    def add_label(self, label: str, **details: Any) -> int:
        """Add a label; a trained head grows and keeps what it learned.

        details: What the system takes beside the name, such as the `question` of `mrc_ner`; also
            for a label that was there already. It counts at once, without training.
        RETURNS (int): 0 if the label was there already, else 1.
        RAISES (ValueError): For details that the system does not take.
        """
        if not isinstance(label, str):
            raise ValueError(Errors.E187)
        try:
            system_of(self.model).describe_label(self.model, label, **details)
        except ValueError as err:
            raise ValueError(self._says(str(err))) from err
        if label in self.labels:
            return 0
        self.cfg["labels"].append(label)
        self.vocab.strings.add(label)
        if head_shim(self.model).is_built:
            head_shim(self.model).add_labels(list(self.labels))
            self._sync_labels()
            system_of(self.model).labels_added(self.model, [label])
        return 1

    def _sync_labels(self) -> None:
        self.model.attrs["labels"] = list(self.labels)
        set_label_dim(self.model)

    def initialize(
        self,
        get_examples: Callable[[], Iterable[Example]],
        *,
        nlp: Optional[Language] = None,
        labels: Optional[List[str]] = None,
    ) -> None:
        """Collect the labels, build the model.

        get_examples (Callable): Returns a representative sample of examples.
        labels (Optional[List[str]]): Labels to use, typically from `spacy init labels`; without
            them every label of the examples is added.
        RAISES (ValueError): If there are no labels; says which span keys the examples have.
        """
        sample = list(islice((eg for eg in get_examples() if len(eg.reference)), 10))
        found, keys = self._scan_gold(get_examples(), collect=labels is None)
        for label in found if labels is None else labels:
            self.add_label(label)
        if not self.labels:
            raise ValueError(
                self._no_labels(keys)
                if labels is None
                else self._says("the list of labels given to initialize is empty")
            )
        if keys and self.key not in keys:
            self._warn_once("key", self._other_keys(keys))
        self._report_lost(get_examples())
        docs = self._annotated([eg.x for eg in sample], nlp)
        rows = self._segments_as_given(docs).rows
        self.cfg["learned_from"] = dict(NOTHING_SEEN)
        self.model.attrs["labels"] = list(self.labels)
        self.model.initialize(X=HeadInput(docs, rows) if docs else None)

    def _annotated(self, docs: List[Doc], nlp: Optional[Language]) -> List[Doc]:
        """The docs; where the encoder reads tags, copies that the components before this one have
        annotated.

        RAISES (ValueError): If the encoder reads tags and no token has one.
        """
        wanted = needed_annotation(encoder_of(self.model))
        if not wanted or not docs:
            return docs
        if nlp is not None:
            annotating = nlp.config.get("training", {}).get("annotating_components", [])
            docs = [doc.copy() for doc in docs]
            for name, pipe in takewhile(lambda item: item[1] is not self, nlp.components):
                # Frozen components are disabled while the others are initialised.
                if name in nlp.pipe_names or name in annotating:
                    docs = [pipe(doc) for doc in docs]
        for attr in wanted:
            if not has_annotation(docs, attr):
                raise ValueError(self._says(missing_annotation(attr)))
        return docs

    def _scan_gold(
        self, examples: Iterable[Example], collect: bool
    ) -> Tuple[Dict[str, None], Dict[str, int]]:
        """Labels in the order of their appearance, and how many docs have spans per key."""
        labels: Dict[str, None] = {}
        keys: Dict[str, int] = {}
        for eg in examples:
            for key in eg.reference.spans:
                keys[key] = keys.get(key, 0) + 1
            if collect:
                labels.update(dict.fromkeys(s.label_ for s in eg.reference.spans.get(self.key, [])))
        return labels, keys

    def _report_lost(self, examples: Iterable[Example]) -> None:
        """Count the gold spans of the whole sample that cannot be learned from."""
        lost: Dict[str, int] = {}
        for eg in examples:
            rows = self._segments_as_given([eg.predicted]).rows
            for reason, count in self._place([eg], rows).lost.items():
                lost[reason] = lost.get(reason, 0) + count
        self._warn_lost(lost, "the training data")

    def _other_keys(self, keys: Dict[str, int]) -> str:
        have = ", ".join(f"'{key}'" for key in sorted(keys)) or "no spans at all"
        return (
            f"no training doc has spans under spans_key '{self.key}'; the docs have {have}. Set "
            "spans_key to the key of your annotation"
        )

    def _no_labels(self, keys: Dict[str, int]) -> str:
        problem = (
            self._other_keys(keys)
            if self.key not in keys
            else f"the training docs have no entity under spans_key '{self.key}'"
        )
        return self._says(
            f"no labels to initialize with: {problem}, or give labels at initialize or by add_label"
        )

    def __call__(self, doc: Doc, *, batch_size: int = 1, **options: Any) -> Doc:
        """Apply the pipe to one doc. options: see `pipe`.

        batch_size is ignored: `nlp.pipe` writes its own into the `component_cfg` that it is given,
        and the same dictionary is welcome here.
        """
        self._check_call(options)
        list(self._one_by_one([doc], options))
        return doc

    def _check_call(self, options: Mapping[str, Any]) -> None:
        """Wrong settings are no fault of a doc: the error handler is not asked about them."""
        self._settings()
        self.options(**options)

    def predict(self, docs: Iterable[Doc], **options: Any) -> SegmentSpans:
        """Find spans without setting them. options: see `pipe`.

        RETURNS (SegmentSpans): For `set_annotations`.
        """
        docs = list(docs)
        chosen = self.options(**options)
        segments = self.segments(docs)
        if not len(segments.rows):
            return SegmentSpans(segments, NO_SPANS)
        output = self.model.predict(HeadInput(docs, segments.rows, options=chosen))
        if not np.isfinite(output.spans.score).all():
            raise ValueError(
                self._says(
                    "the scores are not finite numbers: the weights or the encoder's vectors hold "
                    "NaN. Training has diverged; train again with a lower learning rate"
                )
            )
        return SegmentSpans(segments, output.spans)

    def segments(self, docs: Iterable[Doc]) -> Segments:
        """What the head reads of these docs to predict; see `cut_segments`.

        A pipe that learned from single sentences reads longer docs without sentence boundaries
        sentence by sentence, unless `split_sentences` is off.
        """
        docs, settings = list(docs), self._settings()
        whole = usual_length(self.cfg["learned_from"])
        if whole is not None and not settings.split_sentences:
            if any(lacks_sentences(doc, whole) for doc in docs):
                self._warn_once("sentences", WHOLE_DOC.format(whole=whole))
            whole = None
        return cut_segments(docs, settings.window, settings.stride, whole)

    def _segments_as_given(self, docs: List[Doc]) -> Segments:
        settings = self._settings()
        return cut_segments(docs, settings.window, settings.stride)

    def set_annotations(self, docs: Iterable[Doc], found: SegmentSpans) -> None:
        """Set `doc.spans[spans_key]` and its scores, and `doc.ents` if `set_ents` asks for it."""
        docs, settings = list(docs), self._settings()
        for doc, spans in zip(docs, self._spans_per_doc(len(docs), found)):
            chosen = select_spans(
                _without_space(doc, spans),
                overlap=settings.overlap,
                labels_per_span=settings.labels_per_span,
            )
            self._report_replaced(doc)
            doc.spans[self.key] = self._span_group(doc, chosen)
            if settings.set_ents is not None:
                ents = choose_ents(chosen, settings.set_ents)
                doc.set_ents([self._span(doc, span) for span in ents])

    def _report_replaced(self, doc: Doc) -> None:
        """Warn if another component of this kind has written under the same key."""
        if self.key in doc.spans:
            other = doc.spans[self.key].attrs.get(WRITTEN_BY, self.name)
            if other != self.name:
                self._warn_once(
                    "replaced",
                    f"it replaces the spans that component '{other}' has set under spans_key "
                    f"'{self.key}'. Give each component a spans_key of its own",
                )

    def _spans_per_doc(self, n_docs: int, found: SegmentSpans) -> List[List[ScoredSpan]]:
        """Only the spans whose middle lies in their window's core, see `Segments`."""
        (rows, core), spans = found
        middle = (spans.start + spans.end) / 2
        low, high = core[spans.segment].T if len(spans.segment) else (middle, middle)
        own = (low <= middle) & (middle < high)
        columns = (c[own].tolist() for c in (spans.start, spans.end, spans.label, spans.score))
        per_doc: List[List[ScoredSpan]] = [[] for _ in range(n_docs)]
        for doc_index, *values in zip(rows[spans.segment[own], 0].tolist(), *columns):
            per_doc[doc_index].append(ScoredSpan(*values))
        return per_doc

    def _span(self, doc: Doc, span: ScoredSpan) -> Span:
        return Span(doc, span.start, span.end, label=self.cfg["labels"][span.label])

    def _span_group(self, doc: Doc, spans: List[ScoredSpan]) -> SpanGroup:
        scores = np.array([span.score for span in spans], dtype=np.float32)
        return SpanGroup(
            doc,
            name=self.key,
            attrs={"scores": scores, WRITTEN_BY: self.name},
            spans=[self._span(doc, span) for span in spans],
        )

    def pipe(
        self, stream: Iterable[Doc], *, batch_size: int = 128, **options: Any
    ) -> Iterator[Doc]:
        """Apply the pipe to a stream of docs.

        A batch that fails is tried again doc by doc, so that the error handler only gets the docs
        that cannot be processed.

        options: Run-time settings of the head (thresholds) for this call alone, else those of
            `pipe.cfg`: `nlp.pipe(texts, component_cfg={"ner": {"threshold": 0.6}})`.
        """
        self._check_call(options)
        for docs in minibatch(stream, size=batch_size):
            try:
                self.set_annotations(docs, self.predict(docs, **options))
            except Exception:  # whatever it is: the second try hands it to the error handler
                yield from self._one_by_one(docs, options)
            else:
                yield from docs

    def _one_by_one(self, docs: List[Doc], options: Dict[str, Any]) -> Iterator[Doc]:
        handle = self.get_error_handler()
        for doc in docs:
            try:
                self.set_annotations([doc], self.predict([doc], **options))
            except Exception as error:
                handle(self.name, self, [doc], error)
            else:
                yield doc

    def update(
        self,
        examples: Iterable[Example],
        *,
        drop: float = 0.0,
        sgd: Optional[Optimizer] = None,
        losses: Optional[Dict[str, float]] = None,
    ) -> Dict[str, float]:
        """Learn from a batch of examples.

        drop (float): Dropout rate of the encoder, and of the head unless its config sets one.
        RETURNS (Dict[str, float]): `losses`, with the mean loss of the batch added to the
            component's name.
        RAISES (ValueError): If the loss is not a finite number.
        """
        losses = {} if losses is None else losses
        losses.setdefault(self.name, 0.0)
        examples = list(examples)
        validate_examples(examples, f"{type(self).__name__}.update")
        docs = [eg.predicted for eg in examples]
        size, segments = self._settings().adversarial, self._segments_as_given(docs)
        if not len(segments.rows):
            return losses
        set_dropout_rate(self.model, drop)
        batch = HeadInput(docs, segments.rows, gold=self._gold(examples, segments))
        losses[self.name] += self._learn_twice(batch, size) if size else self._learn(batch)
        self.cfg["learned_from"] = remember(self.cfg["learned_from"], docs)
        if sgd is not None and sgd is not False:
            self.finish_update(sgd)
        return losses

    def _learn(self, batch: HeadInput) -> float:
        """Add the gradients of a batch; its loss."""
        output, backprop = self.model.begin_update(batch)
        loss = sum(output.losses.values())
        self._check_loss(loss, output.losses)
        backprop(output)
        return loss

    def _learn_twice(self, batch: HeadInput, size: float) -> float:
        """Add the gradients of a batch, and those where the embeddings are moved against it by a
        step of this length; its loss before. After an error no gradient of the batch is left."""
        if listens(self.model):
            raise ValueError(
                self._says(
                    "adversarial training needs an encoder of the component's own: a listener "
                    "would hand the gradients of the first pass on twice. Set adversarial to 0 or "
                    "give the component its own tok2vec (nlp.replace_listeners)"
                )
            )
        with new_gradients(self.model):
            loss = self._learn(batch)
            tables = embedding_tables(self.model)
            if not tables:
                raise ValueError(
                    self._says(
                        "adversarial training finds no embeddings that learn: the encoder must not "
                        "be frozen, and either be a pretrained one of this package or have spaCy's "
                        "hashed embeddings. Set adversarial to 0 or change the encoder"
                    )
                )
            with moved(tables, size):
                self._learn(batch)
        return loss

    def get_loss(self, examples: Iterable[Example], scores: Any) -> Tuple[float, Any]:
        """Mean loss of the examples without dropout and without learning.

        scores is ignored: the gold entities take part in the head's forward pass.
        RETURNS (Tuple[float, None]): The loss; there is no gradient to hand on.
        """
        examples = list(examples)
        docs = [eg.predicted for eg in examples]
        segments = self._segments_as_given(docs)
        if not len(segments.rows):
            return 0.0, None
        gold = self._gold(examples, segments)
        output = self.model.predict(HeadInput(docs, segments.rows, gold=gold))
        return sum(output.losses.values()), None

    def _gold(self, examples: List[Example], segments: Segments) -> List[List[Entity]]:
        gold = self._place(examples, segments.rows)
        self._warn_lost(gold.lost, "this batch")
        return gold.entities

    def _place(self, examples: List[Example], rows: np.ndarray) -> GoldSegments:
        label_index = {label: i for i, label in enumerate(self.labels)}
        return gold_segments(examples, rows, self.key, label_index)

    def _warn_lost(self, lost: Dict[str, int], where: str) -> None:
        for reason, count in lost.items():
            if count:
                self._warn_once(
                    reason,
                    f"{count} gold span(s) of {where} cannot be learned from ({reason}): "
                    f"{LOST_REMEDY[reason]}. Further cases are not reported",
                )

    def _check_loss(self, loss: float, parts: Dict[str, float]) -> None:
        if not math.isfinite(loss):
            values = ", ".join(f"{name} {value}" for name, value in parts.items())
            raise ValueError(
                self._says(
                    f"the loss is not a finite number ({values}). Training has diverged, or the "
                    "encoder's vectors are not finite: lower the learning rate, use warm-up or "
                    "gradient clipping, and check the encoder"
                )
            )

    def finish_update(self, sgd: Optimizer) -> None:
        """Update the weights. An optimizer with parameter groups learns which are the head's."""
        if isinstance(sgd, AdamW):
            for part in head_parts(self.model):
                sgd.set_group("head", part)
        super().finish_update(sgd)
        if isinstance(sgd, AdamW):
            sgd.flush()

    def from_bytes(self, bytes_data: bytes, *, exclude: Iterable[str] = ()) -> "NestedNER":
        """Load the pipe; see `from_disk`."""
        super().from_bytes(bytes_data, exclude=exclude)
        self._after_loading("the bytes")
        return self

    def from_disk(self, path: Any, *, exclude: Iterable[str] = ()) -> "NestedNER":
        """Load the pipe. Saved settings win over those of the config, as in spaCy's own
        components: change them in `pipe.cfg`, and how many words the head sees at once in
        `pipe.model.attrs["batch_words"]`.

        RAISES (ValueError): If the weights belong to other labels than the saved ones.
        """
        super().from_disk(path, exclude=exclude)
        self._after_loading(str(path))
        return self

    def _after_loading(self, source: str) -> None:
        self._check_settings()
        set_tok2vec(self.model)  # what was saved may point elsewhere
        shim = head_shim(self.model)
        if shim.is_built and shim.labels != list(self.labels):
            raise ValueError(
                self._says(
                    f"the weights in {source} were trained for the labels {shim.labels}, but the "
                    f"component has {list(self.labels)}. Load cfg and model of one and the same "
                    "training"
                )
            )
        for label in self.labels:
            self.vocab.strings.add(label)


def _without_space(doc: Doc, spans: List[ScoredSpan]) -> List[ScoredSpan]:
    """Spans trimmed at both ends; those of whitespace alone are left out."""
    trimmed = []
    for span in spans:
        start, end = trim_space(doc, span.start, span.end)
        if start < end:
            trimmed.append(span._replace(start=start, end=end))
    return trimmed


def _single_thread() -> None:
    torch.set_num_threads(1)


# A forked process inherits torch's thread pool without its threads and waits for them for ever
# (nlp.pipe with n_process > 1); with one thread the pool is never asked.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_single_thread)
