"""One pipeline on one data set: from raw text and on gold tokens, at its threshold and the best."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import (
    Any,
    Callable,
    Deque,
    Dict,
    Iterable,
    Iterator,
    List,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example

from spacy_nested_ner.corpora.statistics import document_of, misaligned_labels
from spacy_nested_ner.evaluation.scores.entities import (
    Entity,
    EntityTable,
    entity_table,
    is_annotated,
    no_gold,
    read_entities,
)
from spacy_nested_ner.evaluation.scores.metrics import strict
from spacy_nested_ner.evaluation.scores.own_thresholds import (
    ScoredComponent,
    lowered,
    scored_components,
    threshold_facts,
    untrained,
)
from spacy_nested_ner.evaluation.scores.raw_text import (
    gold_doc,
    raw_doc,
    raw_text,
    same_sentences,
)
from spacy_nested_ner.evaluation.scores.report import (
    WARM_UP,
    Run,
    Stopwatch,
    check_text,
    each_with,
    no_predictions,
    scores,
)
from spacy_nested_ner.pipeline.gold import keep_sure, same_tokens
from spacy_nested_ner.pipeline.sentences import has_sentences

RAW, GOLD, GIVEN = "raw text", "gold tokens", "predictions"

Progress = Callable[[Iterator[Doc], int, str], Iterable[Doc]]


@dataclass(frozen=True)
class Evaluation:
    """What a pipeline predicts, on both kinds of tokens.

    run: what all scores are of. scored_on: "raw text", or "gold tokens" where the text of a doc is
        not known or only they are asked for, or "predictions" that were given. raw: from raw text,
        None if not asked for; where the text is not known, from its words joined by blanks. gold:
        with gold tokens and sentences; the same as `raw` where no doc differs. Both are None for
        given predictions. without_text: docs of which only the words are known. other_tokens,
        other_sentences: docs whose tokens, or sentences, are not those that the pipeline makes.
        cut: docs without sentence boundaries, in which the pipeline sets some. thresholds: see
        `threshold_facts`. Of given predictions: missing: annotated docs that none is left for.
        unasked: predicted docs that are no annotated doc's. misaligned: entities by label that
        `convert` left out of them.
    """

    run: Run
    scored_on: str
    raw: Optional[EntityTable]
    gold: Optional[EntityTable]
    without_text: int = 0
    other_tokens: int = 0
    other_sentences: int = 0
    cut: int = 0
    thresholds: List[Dict[str, Any]] = field(default_factory=list)
    missing: int = 0
    unasked: int = 0
    misaligned: Dict[str, int] = field(default_factory=dict)

    def to_dict(self) -> Dict[str, Any]:
        """All numbers, ready for JSON; docs/guide/evaluation.md says what each one is."""
        return {
            "scored_on": self.scored_on,
            "raw_text": None if self.raw is None else strict(self.raw).to_dict(),
            "gold_tokens": None if self.gold is None else strict(self.gold).to_dict(),
            "documents_without_text": self.without_text,
            "documents_with_other_tokens": self.other_tokens,
            "documents_with_other_sentences": self.other_sentences,
            "documents_cut_into_sentences": self.cut,
            "documents_without_prediction": self.missing,
            "predicted_documents_left_out": self.unasked,
            "misaligned_in_predictions": self.misaligned,
            "thresholds": self.thresholds,
            **scores(self.run),
        }


def evaluate_pipeline(
    nlp: Language,
    references: Sequence[Doc],
    spans_key: str = "sc",
    ents: bool = False,
    batch_size: Optional[int] = None,
    gold_tokens: bool = False,
    progress: Progress = lambda docs, total, what: docs,
) -> Evaluation:
    """Predict from raw text, and the docs that differ again with gold tokens and sentences.

    Components predict down to a low threshold; what reaches their own is scored.

    ents: see `read_entities`. gold_tokens: predict with these alone. progress: wraps the predicted
        docs, is given how many there will be and what they are predicted from.
    RAISES (ValueError): As `run_pipeline`, and for a component that was never trained.
    """
    chosen = _annotated(references, spans_key, ents)
    components = _trained_components(nlp, chosen, spans_key, ents)
    predict = _Predictor(nlp, spans_key, ents, components, batch_size, progress)
    without_text = sum(raw_text(doc) is None for doc in chosen)
    if gold_tokens:
        first = on_gold = predict(chosen, map(partial(gold_doc, nlp.vocab), chosen), GOLD)
    else:
        first = on_gold = predict(chosen, map(partial(raw_doc, nlp), chosen), RAW)
        if first.differing:
            differing = [chosen[i] for i in first.differing]
            again = predict(differing, map(partial(gold_doc, nlp.vocab), differing), GOLD)
            on_gold = first.replaced(again)
    if not ents and spans_key not in first.keys:
        problem = no_predictions(first.keys, spans_key)
        if "ner" in nlp.pipe_names or "entity_ruler" in nlp.pipe_names:
            problem += " To score predictions in doc.ents, use --ents."
        raise ValueError(problem)
    gold = raw = _table(chosen, on_gold.found, spans_key, ents, components.get(spans_key))
    if first is not on_gold:
        raw = _table(chosen, first.found, spans_key, ents, components.get(spans_key))
    if gold_tokens or without_text:
        scored_on, scored, table = GOLD, on_gold, gold
    else:
        scored_on, scored, table = RAW, first, raw
    skipped = len(references) - len(chosen)
    return Evaluation(
        Run(table, skipped, first.seconds, first.words),
        scored_on,
        None if gold_tokens else raw,
        gold,
        without_text,
        sum(first.other_tokens),
        sum(first.other_sentences),
        first.cut,
        [
            _facts(chosen, scored.found, each, ents and key == spans_key)
            for key, each in components.items()
        ],
    )


def run_pipeline(nlp: Language, examples: Sequence[Example], spans_key: str = "sc") -> Run:
    """Predict and compare, on the docs of the examples.

    RAISES (ValueError): If no reference is annotated, the pipeline predicts nothing that could be
        compared, or a predicted doc has another text.
    """
    chosen = [eg for eg in examples if is_annotated(eg.reference, spans_key)]
    references = [eg.reference for eg in chosen]
    if not any(read_entities(doc, spans_key) for doc in references):
        raise ValueError(no_gold([eg.reference for eg in examples], spans_key))
    predict = _Predictor(nlp, spans_key, False, {}, None, lambda docs, total, what: docs)
    made = predict(references, (eg.predicted for eg in chosen), "")
    if spans_key not in made.keys:
        raise ValueError(no_predictions(made.keys, spans_key))
    table = _table(references, made.found, spans_key)
    return Run(table, len(examples) - len(chosen), made.seconds, made.words)


def evaluate_predictions(
    predictions: Sequence[Doc], references: Sequence[Doc], spans_key: str = "sc", ents: bool = False
) -> Evaluation:
    """Score predictions that are there already: of several pipelines together, of another tool, or
    of another annotator. A doc without predictions has found nothing, as with a pipeline. Of
    `nested-ner teach`, what the teacher finds at its own threshold counts.

    Docs are paired by their text, whitespace aside; of those with the same text the ones with the
    same id, then the first with the first, and so on.

    ents: see `read_entities`.
    RAISES (ValueError): If nothing is annotated, nothing is predicted, or no text is in both.
    """
    chosen = _annotated(references, spans_key, ents)
    if not any(is_annotated(doc, spans_key, ents) for doc in predictions):
        used = {key for doc in predictions for key in doc.spans}
        problem = no_predictions(used, spans_key, "There are no predictions", "the docs use")
        if any(doc.ents for doc in predictions):
            problem += " Those in doc.ents are scored with --ents."
        raise ValueError(problem)
    pairs = _paired(chosen, predictions)
    if not pairs:
        raise ValueError(
            "No text of the predictions is in the data. Predict on the texts of the data."
        )
    found: List[Dict[Entity, float]] = []
    lost: Counter = Counter()
    for doc, answer in pairs:
        keep_sure(answer, spans_key)
        found.append(read_entities(answer, spans_key, ents) or {})
        misaligned = misaligned_labels([answer])
        if misaligned != misaligned_labels([doc]):  # else it is a copy of the gold doc
            lost.update(misaligned)
    table = entity_table((doc for doc, _ in pairs), found, spans_key, ents)
    words = sum(len(doc) for doc, _ in pairs)
    return Evaluation(
        run=Run(table, len(references) - len(chosen), 0.0, words),
        scored_on=GIVEN,
        raw=None,
        gold=None,
        missing=len(chosen) - len(pairs),
        unasked=len(predictions) - len(pairs),
        misaligned=dict(lost),
    )


def _paired(references: Sequence[Doc], predictions: Sequence[Doc]) -> List[Tuple[Doc, Doc]]:
    """See `evaluate_predictions`; in the order of the references."""

    def text(doc: Doc) -> str:
        return "".join(doc.text.split())

    left = dict(enumerate(references))
    free = dict(enumerate(predictions))
    pairs: Dict[int, Tuple[Doc, Doc]] = {}
    for key in (lambda doc: (text(doc), document_of(doc.user_data)), text):
        waiting: Dict[Any, Deque[int]] = defaultdict(deque)
        for i, doc in free.items():
            waiting[key(doc)].append(i)
        for i, doc in list(left.items()):
            if mine := waiting.get(key(doc)):
                pairs[i] = left.pop(i), free.pop(mine.popleft())
    return [pairs[i] for i in sorted(pairs)]


def _annotated(references: Sequence[Doc], spans_key: str, ents: bool) -> List[Doc]:
    """RAISES (ValueError): If none of them has an entity."""
    chosen = [doc for doc in references if is_annotated(doc, spans_key, ents)]
    if not any(read_entities(doc, spans_key, ents) for doc in chosen):
        raise ValueError(no_gold(references, spans_key, "use them with --ents"))
    return chosen


def _trained_components(
    nlp: Language, references: Sequence[Doc], spans_key: str, ents: bool
) -> Dict[str, ScoredComponent]:
    """By the keys of which the data has entities. ents: `doc.ents` are read where there is no
    `spans_key`; at a lower threshold a component would put others there.

    RAISES (ValueError): For a component that was never trained.
    """
    components = {
        key: each
        for key, each in scored_components(nlp).items()
        if key == spans_key or any(doc.spans.get(key) for doc in references)
    }
    name = untrained(components)
    if name is not None:
        raise ValueError(f"Component {name!r} was never trained. Train it with `spacy train`.")
    for key, each in components.items():
        if ents and key != spans_key and each.pipe.cfg.get("set_ents"):
            each.searchable = False
    return components


@dataclass
class _Predictions:
    """What was found in each doc, by spans key, down to the lowest thresholds.

    other_tokens, other_sentences: of each doc, whether those of the reference are others. cut: docs
    that came back with sentence boundaries, which the references have not. seconds: spent on
    prediction, without tokenisation. words: tokens that were predicted on. keys: of `doc.spans`
    that were used.
    """

    found: List[Dict[str, Dict[Entity, float]]] = field(default_factory=list)
    other_tokens: List[bool] = field(default_factory=list)
    other_sentences: List[bool] = field(default_factory=list)
    cut: int = 0
    seconds: float = 0.0
    words: int = 0
    keys: Set[str] = field(default_factory=set)

    @property
    def differing(self) -> List[int]:
        """Indices of docs with other tokens or sentences than their references."""
        pairs = zip(self.other_tokens, self.other_sentences)
        return [i for i, differs in enumerate(map(any, pairs)) if differs]

    def replaced(self, again: _Predictions) -> _Predictions:
        """With what was found when the differing docs were predicted again."""
        found = list(self.found)
        for i, other in zip(self.differing, again.found, strict=True):
            found[i] = other
        return replace(self, found=found)


@dataclass
class _Predictor:
    nlp: Language
    spans_key: str
    ents: bool
    components: Dict[str, ScoredComponent]
    batch_size: Optional[int]
    progress: Progress

    def __call__(self, references: Sequence[Doc], docs: Iterable[Doc], what: str) -> _Predictions:
        """docs: to predict on, one for each reference; what has been read of them is let go.

        RAISES (ValueError): If a doc comes back with another text.
        """
        waiting = deque(docs)
        for _ in self.nlp.pipe([doc.copy() for doc in islice(waiting, WARM_UP)]):
            pass  # what a pipeline does only once is not part of its speed
        stream = (waiting.popleft() for _ in range(len(waiting)))
        clock, result = Stopwatch(), _Predictions()
        with lowered(self.components):
            timed = clock.timed(self.nlp.pipe(stream, batch_size=self.batch_size))
            made = self.progress(timed, len(references), what)
            for reference, doc in each_with(references, made):
                check_text(reference, doc)
                result.keys.update(doc.spans)
                result.found.append(self._read(doc))
                result.other_tokens.append(not same_tokens(reference, doc))
                differs = not same_sentences(reference, doc)
                in_sentences = has_sentences(reference)
                result.other_sentences.append(in_sentences and differs)
                result.cut += differs and not in_sentences
                result.words += len(doc)
        result.seconds = clock.seconds
        return result

    def _read(self, doc: Doc) -> Dict[str, Dict[Entity, float]]:
        found = {}
        for key in {self.spans_key, *self.components}:
            entities = read_entities(doc, key, self.ents and key == self.spans_key) or {}
            component = self.components.get(key)
            found[key] = component.bounded(entities, len(doc)) if component else entities
        return found


def _table(
    references: Sequence[Doc],
    found: Sequence[Dict[str, Dict[Entity, float]]],
    spans_key: str,
    ents: bool = False,
    component: Optional[ScoredComponent] = None,
) -> EntityTable:
    """component: keep what reaches its threshold."""
    entities = [each[spans_key] for each in found]
    if component is not None:
        entities = [component.kept(each) for each in entities]
    return entity_table(references, entities, spans_key, ents)


def _facts(
    references: Sequence[Doc],
    found: Sequence[Dict[str, Dict[Entity, float]]],
    component: ScoredComponent,
    ents: bool,
) -> Dict[str, Any]:
    key = component.spans_key
    pairs = [(doc, each) for doc, each in zip(references, found) if is_annotated(doc, key, ents)]
    docs, known = [doc for doc, _ in pairs], [each for _, each in pairs]
    at_threshold = _table(docs, known, key, ents, component)
    return threshold_facts(component, at_threshold, _table(docs, known, key, ents))
