"""The trainable pipe that all systems share."""

import math
from collections import Counter
from functools import partial
from itertools import islice
from numbers import Integral
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Optional,
    Sequence,
    Tuple,
)

import numpy as np
import torch
from spacy.errors import Errors
from spacy.language import Language
from spacy.tokens import Doc, Span, SpanGroup
from spacy.training import Example, validate_examples
from spacy.vocab import Vocab
from thinc.api import Model, Optimizer, set_dropout_rate

from spacy_nested_ner.device import own_draws
from spacy_nested_ner.encoders.curated import check_listeners, feed_listeners
from spacy_nested_ner.encoders.listeners import listeners_in, unheard, upstream_models
from spacy_nested_ner.encoders.pretrained import (
    has_int8,
    learns_too_fast,
    needs_transformers,
)
from spacy_nested_ner.encoders.protocol import (
    has_annotation,
    missing_annotation,
    needed_annotation,
    reads_words_alone,
)
from spacy_nested_ner.encoders.shim import CANNOT_LEARN
from spacy_nested_ner.encoders.word_features import missing_vectors
from spacy_nested_ner.forks import in_forked_processes
from spacy_nested_ner.model.head_model import head_parts, head_shim, set_label_dim
from spacy_nested_ner.model.types import (
    NO_SPANS,
    GoldEntity,
    HeadInput,
    ScoredSpans,
    encoder_of,
    system_of,
)
from spacy_nested_ner.msgpack import ask_packages_once
from spacy_nested_ner.pipeline.annotation import annotated_docs
from spacy_nested_ner.pipeline.decode import choose_ents, select_spans, spans_per_doc, without_space
from spacy_nested_ner.pipeline.factories import require_transformers
from spacy_nested_ner.pipeline.gold import (
    GoldSegments,
    gold_elsewhere,
    gold_keys,
    gold_segments,
    one_sided_labels,
)
from spacy_nested_ner.pipeline.saved import SavedPipe
from spacy_nested_ner.pipeline.scorer import WRITTEN_BY
from spacy_nested_ner.pipeline.segments import (
    AsRead,
    Segments,
    cut_segments,
    in_given_docs,
    own_spans,
    read_as,
)
from spacy_nested_ner.pipeline.sentences import (
    NOTHING_SEEN,
    faded,
    has_sentences,
    is_cut,
    knows_one_at_a_time,
    knows_whole_docs,
    knows_words_alone,
    remember,
    rule_starts,
    set_sentences,
    usual_length,
)
from spacy_nested_ner.pipeline.tokens import is_space
from spacy_nested_ner.training.adversarial import NotAdversarial, learn_twice
from spacy_nested_ner.training.optimizer import GroupedOptimizer

ask_packages_once()  # before spaCy reads docs to train on

# Memory grows with the words of a batch, and with a small CNN larger ones take longer.
MOST_WORDS = 10_000

WHOLE_DOC = (
    "it learned from single sentences and now reads docs of more than {usual} words without "
    "sentence boundaries, where it may find little. Set split_sentences to true, or put a "
    "sentencizer, parser or senter before it"
)

CUT_DOC = (
    "it learned from whole docs and now reads them sentence by sentence, so that it misses "
    "entities across sentence boundaries. Put it before the sentencizer, parser or senter; or, if "
    "no entity crosses a boundary, name that component in training.annotating_components and train "
    "again"
)

ACROSS_SENTENCES = (
    "{count} of {total} entities of the training data ({labels}) cross the end of a sentence. "
    "Because most of its training docs are single sentences, it will read docs of more than "
    "{usual} words without sentence boundaries sentence by sentence, where such entities cannot be "
    "found. If your docs are longer, train on whole docs"
)
MANY_ACROSS = 0.02

TOO_FAST = (
    "its pretrained encoder has a learning rate of {rate:g}, so high that it forgets what it "
    "knows. Use the optimizer of a shipped config, `spacy_nested_ner.AdamW.v1` with a learn_rate "
    "of 0.0001 or less for the encoder and a head_learn_rate of 0.001"
)

NOT_LEARNING = (
    "its learning rate has been 0 for two updates, and it learns nothing. In your own training "
    "loop, call optimizer.step_schedules() after each nlp.update, or give the optimizer a number, "
    "not a schedule; in a config, compare total_steps of the schedule with max_steps of [training]"
)


class NestedNER(SavedPipe):
    """Trainable pipe for entities that nest, cross or share a span.

    Predicts `doc.spans[spans_key]` with one float32 score per span in `attrs["scores"]`. Gold is
    read from `reference.spans[spans_key]`. A head works on one segment of a doc at a time, see
    `cut_segments`; the encoder sees the whole doc.
    """

    _standstill = 0  # successive updates at a rate of 0
    _may_listen = True  # until it is known
    # A vocab and the vectors in it that the encoder can read.
    _checked: Optional[Tuple[Vocab, Any]] = None

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

        details: What the system takes beside the name, such as a question that asks for it; also
            for a label that was there already. They take effect at once, without training.
        RETURNS (int): 0 if the label was there already, else 1.
        RAISES (ValueError): For details that the system does not take.
        """
        if not self._added(label, **details):
            return 0
        if head_shim(self.model).is_built:
            system_of(self.model).labels_added(self.model, [label])
        return 1

    def _added(self, label: str, **details: Any) -> bool:
        """As `add_label`, but its system is not told. Returns whether the label is new."""
        if not isinstance(label, str):
            raise ValueError(Errors.E187)
        if not label:
            raise ValueError(self._says("a label must have a name, got ''"))
        with self._named():
            system_of(self.model).describe_label(self.model, label, **details)
        if label in self.labels:
            return False
        self.cfg["labels"].append(label)
        self.vocab.strings.add(label)
        if head_shim(self.model).is_built:
            head_shim(self.model).add_labels(len(self.labels))
            self._sync_labels()
        return True

    def _sync_labels(self) -> None:
        self.model.attrs["labels"] = list(self.labels)
        set_label_dim(self.model, len(self.labels))

    def initialize(
        self,
        get_examples: Callable[[], Iterable[Example]],
        *,
        nlp: Optional[Language] = None,
        labels: Optional[Sequence[str]] = None,
    ) -> None:
        """Collect the labels, build the model.

        get_examples (Callable): Returns a representative sample of examples.
        labels (Optional[Sequence[str]]): Labels to use, typically from `spacy init labels`; without
            them every label of the examples is added. Warns of docs without a group of spans.
        RAISES (ValueError): If there are no labels; says which span keys the examples have.
        RAISES (TypeError): For what is no `Example`.
        """
        with self._named():
            check_listeners(self.model)
        if isinstance(labels, str):
            raise ValueError(self._says(f"labels must be a list of texts, got {labels!r}"))
        examples = list(get_examples())  # once: to read a corpus takes 2 ms a doc
        validate_examples(examples, f"{type(self).__name__}.initialize")
        self._warned.clear()  # of other data and weights
        self._standstill, self._practised = 0, None
        sample = list(islice((eg for eg in examples if len(eg.reference)), 10))
        found = gold_keys(examples, self.key)
        for label in found.labels if labels is None else labels:
            self._added(label)
        if not self.labels:
            raise ValueError(
                self._says(
                    f"no labels to initialize with: {found.problem(self.key)}. Or give labels to "
                    "initialize or add_label"
                    if labels is None
                    else "the list of labels given to initialize is empty"
                )
            )
        # Where there are no examples spaCy gives one of its own.
        if (found.docs or found.total > 1) and self.key not in found.docs:
            self._warn_once("key", found.problem(self.key))
        elif missing := found.without_key(self.key):
            self._warn_once("missing", missing)
        if found.only_ents:
            self._warned.add("elsewhere")  # told already
        for problem in one_sided_labels((eg.reference for eg in examples), self.key):
            self._warn_once(problem, problem)
        head_shim(self.model).fit(self._look_at_entities(examples))
        docs = self._annotated([eg.x for eg in sample], nlp)
        rows = self._segments_as_given(docs).rows
        self.cfg["learned_from"] = dict(NOTHING_SEEN)
        if nlp is not None:  # what was chosen for other weights
            nlp.meta.get("thresholds", {}).pop(self.name, None)
        self.model.attrs["labels"] = list(self.labels)
        if docs:
            self._check_vectors(docs)
        with self._named():
            self.model.initialize(X=HeadInput(docs, rows) if docs else None)
        if nlp is not None and any(map(needs_transformers, upstream_models(self.model, nlp))):
            require_transformers(nlp)

    def _annotated(self, docs: List[Doc], nlp: Optional[Language]) -> List[Doc]:
        """The docs as the encoder needs them; see `annotated_docs`."""
        wanted = needed_annotation(encoder_of(self.model))
        if not wanted or not docs:
            return docs
        if nlp is not None:
            docs = annotated_docs(docs, self, nlp)
        for attr in wanted:
            if not has_annotation(docs, attr):
                raise ValueError(self._says(missing_annotation(attr)))
        return docs

    def _look_at_entities(self, examples: List[Example]) -> int:
        """Words of the longest entity of the whole sample. Warns of gold spans that cannot be
        learned from, and of those that can, but not be found in docs that are split."""
        docs = [eg.predicted for eg in examples]
        rows, starts = self._segments_as_given(docs).rows, [*map(rule_starts, docs)]
        with self._named():
            placed = self._place(examples, rows)
        longest = total = 0
        across: Counter[str] = Counter()
        for (i, begin, _), entities in zip(rows.tolist(), placed.entities):
            total += len(entities)
            for start, end, label in entities:
                longest = max(longest, end - start + 1)
                if is_cut(starts[i], begin + start, begin + end + 1):
                    across[self.labels[label]] += 1
        self._warn_lost(placed, "the training data")
        if across.total() > MANY_ACROSS * total:
            self._warn_across(docs, across, total)
        return longest

    def _warn_across(self, docs: List[Doc], across: Counter[str], total: int) -> None:
        settings = self._settings()
        usual = usual_length(remember(NOTHING_SEEN, docs, settings.window))
        if usual is None or not settings.split_sentences:
            return
        most = ", ".join(f"{label} {count}" for label, count in across.most_common(3))
        problem = ACROSS_SENTENCES.format(
            count=across.total(), total=total, labels=most, usual=usual
        )
        self._warn_once("across", problem)

    def __call__(self, doc: Doc, *, batch_size: int = 1, **options: Any) -> Doc:
        """Apply the pipe to one doc. options: see `pipe`.

        batch_size is ignored. `nlp.pipe` adds one to `component_cfg`, so that a dictionary used
        there before can be given to `nlp`, too.
        """
        self._check_settings(**options)
        list(self._one_by_one([doc], options))
        return doc

    def _check_ready(self) -> None:
        """Raise ValueError for a pipe without weights, and for what was set by hand since."""
        if not head_shim(self.model).is_built:
            raise ValueError(
                self._says(
                    "it has no weights yet. Call nlp.initialize, or load a trained pipeline. "
                    "nlp.initialize resets all other components. To keep trained ones, call "
                    f"nlp.get_pipe('{self.name}').initialize(lambda: examples, nlp=nlp) instead"
                )
            )
        self._check_labels()
        words = self.model.attrs["batch_words"]
        if not isinstance(words, Integral) or words < 1:
            whole = "must be a whole number of at least 1"
            raise ValueError(self._says(f"model.attrs['batch_words'] {whole}, got {words!r}"))

    def predict(self, docs: Iterable[Doc], **options: Any) -> ScoredSpans:
        """Find spans without setting them. options: see `pipe`.

        RETURNS (ScoredSpans): For `set_annotations`.
        """
        docs = list(docs)
        chosen = self.options(**options)
        segments = self.segments(docs)
        if not len(segments.rows):
            return NO_SPANS
        self._check_ready()
        read = self.as_read(docs, segments.rows)
        self._check_vectors(read.docs)
        if self._may_listen and "unheard" not in self._warned:
            self._warn_unheard(read.docs)
        with self._named():
            spans = self.model.predict(HeadInput(read.docs, read.rows, options=chosen)).spans
        if not np.isfinite(spans.score).all():
            raise ValueError(
                self._says(
                    "the scores are not finite numbers: the weights or the encoder's vectors hold "
                    "NaN. Training has diverged; train again with a lower learning rate"
                )
            )
        return own_spans(in_given_docs(spans, segments.rows, read), segments.core)

    def _check_vectors(self, docs: List[Doc]) -> None:
        """Raise ValueError where the encoder reads static vectors that the docs do not have."""
        vocab = docs[0].vocab
        known, vectors = self._checked or (None, None)
        if vocab is not known or vocab.vectors is not vectors:  # to look for layers takes time
            if problem := missing_vectors(self.model, vocab):
                raise ValueError(self._says(problem))
            self._checked = vocab, vocab.vectors

    def _warn_unheard(self, docs: List[Doc]) -> None:
        """Warn where a listener gets nothing. To look for listeners takes time, which a model that
        has none spends once: none are added to a model."""
        listeners = list(listeners_in(self.model))
        self._may_listen = bool(listeners)
        if problem := unheard(listeners, docs):
            self._warn_once("unheard", problem)

    def segments(self, docs: Iterable[Doc]) -> Segments:
        """What the head reads of these docs to predict; see `cut_segments`.

        A pipe that learned from single sentences reads longer docs without sentence boundaries
        sentence by sentence, unless `split_sentences` is off; one that learned from no whitespace
        leaves out what is nothing else.
        """
        docs, settings = list(docs), self._settings()
        usual = usual_length(self.cfg["learned_from"])
        if usual is not None and not settings.split_sentences:
            if any(len(doc) > usual and not has_sentences(doc) for doc in docs):
                self._warn_once("sentences", WHOLE_DOC.format(usual=usual))
            usual = None
        is_new = "cut" not in self._warned and knows_whole_docs(self.cfg["learned_from"])
        if is_new and any(len(set_sentences(doc)) > 1 for doc in docs):
            self._warn_once("cut", CUT_DOC)
        return cut_segments(
            docs, settings.window, settings.stride, usual, self._leaves_out_whitespace(docs)
        )

    def _leaves_out_whitespace(self, docs: List[Doc]) -> bool:
        """Whether tokens of whitespace are left out, if the docs have any."""
        return (
            knows_words_alone(self.cfg["learned_from"])
            # Most docs have none, which is faster to see than what an encoder is made of.
            and any(is_space(doc).any() for doc in docs)
            and reads_words_alone(self._reader())
        )

    def _reader(self) -> Model:
        """The part of the encoder that reads docs, not questions."""
        reader: Model = self.model.get_ref("tok2vec")
        return reader

    def as_read(self, docs: List[Doc], rows: np.ndarray) -> AsRead:
        """Docs and rows of `Segments` as the model reads them to predict.

        A pipe that learned from texts without tokens of whitespace is not given any: the vectors
        of these would be those of words it has never seen.

        An encoder that learned from single sentences has never seen words around one: it gets each
        segment as a doc of its own, unless `split_sentences` is off.
        """
        lengths = np.array([len(doc) for doc in docs])
        apart = (
            bool((rows[:, 2] - rows[:, 1] < lengths[rows[:, 0]]).any())
            and self._settings().split_sentences
            and knows_one_at_a_time(self.cfg["learned_from"])
            and reads_words_alone(self._reader())
        )
        return read_as(docs, rows, apart=apart, words_alone=self._leaves_out_whitespace(docs))

    def _segments_as_given(self, docs: List[Doc]) -> Segments:
        settings = self._settings()
        return cut_segments(docs, settings.window, settings.stride)

    def set_annotations(self, docs: Iterable[Doc], found: ScoredSpans) -> None:
        """Set `doc.spans[spans_key]` and its scores, and `doc.ents` if `set_ents` asks for it."""
        docs, settings = list(docs), self._settings()
        spans = select_spans(
            without_space(docs, found),
            overlap=settings.overlap,
            labels_per_span=settings.labels_per_span,
        )
        for doc, of_doc in zip(docs, spans_per_doc(spans, len(docs))):
            self._report_replaced(doc, settings.set_ents is not None)
            attrs = {"scores": of_doc.score.astype(np.float32), WRITTEN_BY: self.name}
            doc.spans[self.key] = SpanGroup(
                doc, name=self.key, attrs=attrs, spans=self._spans(doc, of_doc)
            )
            if settings.set_ents is not None:
                doc.set_ents(self._spans(doc, choose_ents(of_doc, settings.set_ents)))

    def _spans(self, doc: Doc, spans: ScoredSpans) -> List[Span]:
        columns = (spans.start.tolist(), spans.end.tolist(), spans.label.tolist())
        return [Span(doc, s, e, label=self.cfg["labels"][label]) for s, e, label in zip(*columns)]

    def _report_replaced(self, doc: Doc, sets_ents: bool) -> None:
        """Warn of spans under the same key, and of `doc.ents` where they are set, that are not of
        this component."""
        group = doc.spans.get(self.key)
        writer = None if group is None else group.attrs.get(WRITTEN_BY)
        if writer == self.name:
            return
        if writer is not None or group:
            whose = "that were there before" if writer is None else f"of component '{writer}'"
            self._warn_once(
                "replaced",
                f"it replaces spans {whose} under spans_key '{self.key}'. If another component set "
                "these spans (rather than the input docs), give each component its own spans_key",
            )
        if sets_ents and doc.ents:
            self._warn_once(
                "ents",
                "it replaces the doc.ents that were there before, because set_ents is set. To keep "
                "them, move the component that sets them, such as an entity_ruler, after this one, "
                "or set set_ents to null",
            )

    def pipe(
        self, stream: Iterable[Doc], *, batch_size: int = 128, **options: Any
    ) -> Iterator[Doc]:
        """Apply the pipe to a stream of docs.

        A batch that fails is tried again doc by doc, so that the error handler only gets the docs
        that cannot be processed.

        batch_size (int): Most docs at once. A batch also ends when it has 10,000 words, so that
            long docs do not need memory for all of them.

        options: Run-time settings of the head (thresholds) for this call alone, else those of
            `pipe.cfg`: `nlp.pipe(texts, component_cfg={"ner": {"threshold": 0.6}})`.
        """
        self._check_settings(**options)
        for docs in _batches(stream, batch_size):
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
        RAISES (ValueError): If the loss is not a finite number, or the encoder has int8 weights.
        """
        if has_int8(self.model):
            raise ValueError(self._says(CANNOT_LEARN))
        losses = {} if losses is None else losses
        losses.setdefault(self.name, 0.0)
        examples = list(examples)
        validate_examples(examples, f"{type(self).__name__}.update")
        docs = [eg.predicted for eg in examples]
        size, segments = self._settings().adversarial, self._segments_as_given(docs)
        if not len(segments.rows):
            return losses
        self._check_ready()
        self._check_vectors(docs)
        set_dropout_rate(self.model, drop)
        with self._named():
            feed_listeners(self.model, docs)
        gold = self._gold(examples, segments, draw=True)
        labels = {label for entities in gold for _, _, label in entities}
        longest = max((end - start + 1 for each in gold for start, end, _ in each), default=0)
        head_shim(self.model).extend(longest)
        self._practised = labels | (self._practised or set())
        batch = HeadInput(docs, segments.rows, gold=gold)
        losses[self.name] += self._learn_twice(batch, size) if size else self._learn(batch)
        if self._continues:
            self.cfg["learned_from"], self._continues = faded(self.cfg["learned_from"]), False
        self.cfg["learned_from"] = remember(self.cfg["learned_from"], docs, self._settings().window)
        if sgd is not None and sgd is not False:
            self.finish_update(sgd)
        return losses

    @property
    def unpractised(self) -> List[str]:
        """Labels without any gold in the updates since the pipe was initialised or loaded, which
        have been unlearned if they were known; none before the first update."""
        if self._practised is None:
            return []
        return [label for i, label in enumerate(self.labels) if i not in self._practised]

    def _learn(self, batch: HeadInput) -> float:
        """Add the gradients of a batch; its loss."""
        with self._named():
            output, backprop = self.model.begin_update(batch)
        loss = sum(output.losses.values())
        self._check_loss(loss, output.losses)
        backprop(output)
        return loss

    def _learn_twice(self, batch: HeadInput, size: float) -> float:
        """As `_learn`, and again with perturbed embeddings; see `learn_twice`."""
        try:
            return learn_twice(self.model, partial(self._learn, batch), size)
        except NotAdversarial as err:
            raise ValueError(self._says(str(err))) from err

    def get_loss(self, examples: Iterable[Example], scores: Any) -> Tuple[float, Any]:
        """Mean loss of the examples without dropout and without learning.

        What a head draws at random, such as noise, is the same at each call. scores is ignored: the
        gold entities take part in the head's forward pass.
        RETURNS (Tuple[float, None]): The loss; there is no gradient to hand on.
        """
        examples = list(examples)
        docs = [eg.predicted for eg in examples]
        segments = self._segments_as_given(docs)
        if not len(segments.rows):
            return 0.0, None
        self._check_ready()
        gold = self._gold(examples, segments)
        # A training around it goes on as without it.
        with own_draws(head_shim(self.model).device), self._named():
            output = self.model.predict(HeadInput(docs, segments.rows, gold=gold))
        return sum(output.losses.values()), None

    def _gold(
        self, examples: List[Example], segments: Segments, draw: bool = False
    ) -> List[List[GoldEntity]]:
        with self._named():
            gold = self._place(examples, segments.rows, draw)
        self._warn_lost(gold, "this batch")
        if elsewhere := gold_elsewhere(examples, self.key):
            self._warn_once("elsewhere", elsewhere)
        return gold.entities

    def _place(self, examples: List[Example], rows: np.ndarray, draw: bool = False) -> GoldSegments:
        label_index = {label: i for i, label in enumerate(self.labels)}
        return gold_segments(examples, rows, self.key, label_index, draw)

    def _warn_lost(self, gold: GoldSegments, where: str) -> None:
        for reason, problem in gold.problems(where).items():
            self._warn_once(reason, problem)

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
        """Update the weights; see `GroupedOptimizer`."""
        rate = getattr(sgd, "learn_rate", None)  # which a function that takes its place lacks
        if rate is not None:
            if learns_too_fast(encoder_of(self.model), rate):
                self._warn_once("rate", TOO_FAST.format(rate=rate))
            self._warn_standstill(sgd)
        if isinstance(sgd, GroupedOptimizer):
            for part in head_parts(self.model):
                sgd.set_head(part)
        super().finish_update(sgd)
        if isinstance(sgd, GroupedOptimizer):
            sgd.flush()

    def _warn_standstill(self, sgd: Optimizer) -> None:
        """Warn of a rate that stays 0. Once is usual: a schedule may begin or end with it."""
        if sgd.learn_rate or getattr(sgd, "head_learn_rate", None):
            self._standstill = 0
            return
        self._standstill += 1
        if self._standstill >= 2:
            self._warn_once("standstill", NOT_LEARNING)


def _batches(stream: Iterable[Doc], size: int) -> Iterator[List[Doc]]:
    docs, words = [], 0
    for doc in stream:
        docs.append(doc)
        words += len(doc)
        if len(docs) >= size or words >= MOST_WORDS:
            yield docs
            docs, words = [], 0
    if docs:
        yield docs


def _single_thread() -> None:
    torch.set_num_threads(1)


# A forked process (nlp.pipe with n_process > 1) inherits torch's thread pool without its threads
# and would wait for them for ever. With one thread the pool is not used.
in_forked_processes(_single_thread)
