"""One HTML page with the gold and the predicted nested spans of sentences, side by side.

What stands on it is worked out here and goes into the page as JSON; the files in `files` draw
it. The page is one file and asks for nothing from the network.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from html import escape
from importlib.resources import files
from itertools import pairwise
from typing import (
    Any,
    Collection,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Set,
    Tuple,
)

import numpy as np
from spacy.tokens import Doc, Span
from spacy.training import Example
from spacy.vocab import Vocab

from spacy_nested_ner.corpora.statistics import document_of, nesting
from spacy_nested_ner.evaluation.scores.entities import (
    Entity,
    GoldOrder,
    no_gold,
    read_entities,
)
from spacy_nested_ner.evaluation.scores.errors import KINDS, kind_of_error
from spacy_nested_ner.evaluation.scores.metrics import PRF
from spacy_nested_ner.evaluation.scores.remarks import remark
from spacy_nested_ner.pipeline.gold import without_space_around
from spacy_nested_ner.pipeline.scorer import places_of, solid_offsets
from spacy_nested_ner.pipeline.sentences import set_sentences
from spacy_nested_ner.pipeline.tokens import is_space

MANY_LANGUAGES = ("xx", "mul", "")


@dataclass(frozen=True)
class Mark:
    """A span to be drawn. start, end: tokens of its doc, end exclusive. kind: one of `KINDS`.
    depth: in the gold annotation, 1 is outermost. score: None where the pipeline gives none."""

    start: int
    end: int
    label: str
    kind: str
    depth: int
    score: Optional[float] = None


@dataclass(frozen=True)
class Comparison:
    """Gold and predicted entities of one sentence.

    name: of its doc, and its number there if the doc has several. words, predicted_words: with the
    space after them, of the two docs. direction: see `direction_of`.
    """

    name: str
    words: List[str]
    predicted_words: List[str]
    gold: List[Mark]
    predicted: List[Mark]
    direction: str = "ltr"


def direction_of(vocab: Vocab) -> str:
    """In which direction words follow each other, as HTML's `dir` has it: "ltr" or "rtl", or, of a
    pipeline of many languages, "auto", by the first letter of a sentence."""
    if vocab.lang in MANY_LANGUAGES:
        return "auto"
    return str(vocab.writing_system.get("direction", "ltr"))


def choose_examples(
    examples: Iterable[Example], limit: int, spans_key: str = "sc", seed: int = 0
) -> List[Example]:
    """At most `limit` annotated examples, in their order: all if these are so few; else drawn at
    random (`seed`) from those with nested entities, then from those with others, then the rest.

    Raises ValueError if there are no gold entities under `spans_key`, and says under which keys
    there are some.
    """
    groups: Tuple[List[Tuple[int, Example]], ...] = ([], [], [])
    references: List[Doc] = []
    for i, example in enumerate(examples):
        references.append(example.reference)
        if spans_key in example.reference.spans:
            spans = [(s.start, s.end) for s in example.reference.spans[spans_key]]
            groups[0 if nesting(spans).nested else 1 if spans else 2].append((i, example))
    if not groups[0] and not groups[1]:
        raise ValueError(no_gold(references, spans_key))
    rng = random.Random(seed)
    chosen: List[Tuple[int, Example]] = []
    for group in groups:
        chosen += rng.sample(group, min(limit - len(chosen), len(group)))
    return [example for _, example in sorted(chosen, key=lambda pair: pair[0])]


def compare(gold_doc: Doc, predicted_doc: Doc, spans_key: str = "sc") -> List[Comparison]:
    """Compare by characters and labels; the texts may differ in whitespace.

    RETURNS: One comparison for each sentence of the gold doc, or one in all where it has no
        sentence boundaries. Sentences that an entity or a predicted token spans stay together.
    """
    gold, found = _placed(gold_doc, spans_key), _placed(predicted_doc, spans_key)
    missed, wrong = gold.keys() - found.keys(), found.keys() - gold.keys()
    order = GoldOrder((start, end) for start, end, _ in gold)

    def marks(
        doc: Doc,
        entities: Dict[Entity, Tuple[Span, Optional[float]]],
        others: Set[Entity],
        none: str,
    ) -> List[Mark]:
        spaces = is_space(doc)  # a sentence may begin with one that is at the end of a span
        return [
            Mark(
                *without_space_around(spaces, span.start, span.end),
                span.label_,
                kind_of_error(entity, others, none) if entity in missed | wrong else "right",
                order.place(*entity[:2])[0],
                score,
            )
            for entity, (span, score) in sorted(entities.items(), key=lambda item: item[0])
        ]

    gold_marks = marks(gold_doc, gold, wrong, "missed")
    predicted = marks(predicted_doc, found, missed, "spurious")
    name = document_of(gold_doc.user_data) or ""
    parts = list(_parts(gold_doc, predicted_doc, [*gold, *found]))
    return [
        Comparison(
            name if len(parts) == 1 else f"{name} {number}".strip(),
            [token.text_with_ws for token in gold_doc[first:last]],
            [token.text_with_ws for token in predicted_doc[other_first:other_last]],
            _inside(gold_marks, first, last),
            _inside(predicted, other_first, other_last),
            direction_of(gold_doc.vocab),
        )
        for number, (first, last, other_first, other_last) in enumerate(parts, start=1)
    ]


def _parts(
    gold_doc: Doc, predicted_doc: Doc, entities: Sequence[Entity]
) -> Iterator[Tuple[int, int, int, int]]:
    """First and end token of each sentence in both docs, cut where nothing is cut through."""
    starts, other_starts = (
        solid_offsets(doc.text)[np.array([token.idx for token in doc], dtype=np.int64)]
        for doc in (gold_doc, predicted_doc)
    )
    crossed = np.zeros(int(starts[-1]) + 2 if len(starts) else 1, dtype=np.int64)
    for start, end, _ in entities:
        crossed[start + 1 : end] += 1
    cuts = [i for i, _ in set_sentences(gold_doc) if not crossed[starts[i]]] or [0]
    other = np.searchsorted(other_starts, starts[cuts]) if len(starts) else np.zeros(1, np.int64)
    # Behind the last of the other starts is the inside of a token.
    fits = [
        i == 0 or (o < len(other_starts) and other_starts[o] == starts[i])
        for i, o in zip(cuts, other.tolist())
    ]
    ends = [(i, o) for i, o, fit in zip(cuts, other.tolist(), fits) if fit]
    for (first, low), (last, high) in pairwise([*ends, (len(gold_doc), len(predicted_doc))]):
        yield first, last, low, high


def _inside(marks: Sequence[Mark], first: int, last: int) -> List[Mark]:
    """Marks of one sentence, their tokens counted from its first."""
    return [
        replace(mark, start=mark.start - first, end=mark.end - first)
        for mark in marks
        if first <= mark.start < last
    ]


def _placed(doc: Doc, spans_key: str) -> Dict[Entity, Tuple[Span, Optional[float]]]:
    """Spans by their characters without whitespace, with their scores: those that are scored, see
    `read_entities`."""
    group = doc.spans.get(spans_key, [])
    spans = dict(zip(places_of(doc, group), group))
    return {
        entity: (spans[entity], None if np.isnan(score) else round(score, 4))
        for entity, score in (read_entities(doc, spans_key) or {}).items()
    }


# The page


def page_remark(comparisons: Sequence[Comparison], known: Collection[str] = ()) -> Optional[str]:
    """The `remark` on what a page shows."""
    scores = {label: _prf_of(comparisons, label) for label in _labels(comparisons)}
    return remark(scores, known=known)


def _labels(comparisons: Sequence[Comparison]) -> List[str]:
    return sorted({mark.label for each in comparisons for mark in [*each.gold, *each.predicted]})


def render_page(
    comparisons: Sequence[Comparison],
    title: str,
    facts: Mapping[str, str],
    corpus_scores: Optional[Mapping[str, Optional[float]]] = None,
    known: Collection[str] = (),
) -> str:
    """The page as HTML, with its `page_remark` on top.

    comparisons: one per sentence shown. title: heading, such as the system and the data.
    facts: name and value of what stands below the heading.
    corpus_scores: "p", "r" and "f" (0 to 1, or None) of a whole evaluation set, if known.
    known: the labels of the pipeline, see `known_labels`.
    """
    data = page_data(comparisons, facts, corpus_scores, known)
    # No "<" in the JSON: whatever a text holds, it cannot end the script element it stands in.
    content = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    parts = {
        "TITLE": escape(title),
        "STYLE": _page_file("spans.css") + _page_file("page.css"),
        "SCRIPT": _page_file("spans.js") + _page_file("page.js"),
        "DATA": content,
    }
    pieces = _page_file("page.html").split("@@")
    return "".join(parts[piece] if i % 2 else piece for i, piece in enumerate(pieces))


def page_data(
    comparisons: Sequence[Comparison],
    facts: Mapping[str, str],
    corpus_scores: Optional[Mapping[str, Optional[float]]] = None,
    known: Collection[str] = (),
) -> Dict[str, Any]:
    """What the page draws, as plain values. Labels and kinds of spans are indices."""
    labels = _labels(comparisons)
    index = {label: i for i, label in enumerate(labels)}
    corpus = {part: _percent(corpus_scores.get(part)) for part in "prf"} if corpus_scores else None
    return {
        "facts": dict(facts),
        "remark": page_remark(comparisons, known),
        "corpus": corpus,
        "labels": labels,
        "kinds": KINDS,
        "scores": [_score_row(_prf_of(comparisons, label)) for label in (None, *labels)],
        "docs": [_doc(each, index) for each in comparisons],
    }


def _doc(comparison: Comparison, index: Mapping[str, int]) -> Dict[str, Any]:
    def spans(marks: Sequence[Mark]) -> List[List[Any]]:
        return [
            [m.start, m.end, index[m.label], KINDS.index(m.kind), m.depth, m.score] for m in marks
        ]

    words = comparison.words
    return {
        "id": comparison.name,
        "dir": comparison.direction,
        "words": words,
        "found_words": None if comparison.predicted_words == words else comparison.predicted_words,
        "gold": spans(comparison.gold),
        "found": spans(comparison.predicted),
        **_score_row(_prf(comparison.gold, comparison.predicted)),
    }


def _prf_of(comparisons: Sequence[Comparison], label: Optional[str]) -> PRF:
    """label: None for all."""

    def of_label(marks: Sequence[Mark]) -> List[Mark]:
        return [mark for mark in marks if label is None or mark.label == label]

    gold = of_label([mark for each in comparisons for mark in each.gold])
    return _prf(gold, of_label([mark for each in comparisons for mark in each.predicted]))


def _score_row(score: PRF) -> Dict[str, Any]:
    return {
        "p": _percent(score.precision),
        "r": _percent(score.recall),
        "f": _percent(score.f),
        "n_right": score.right,
        "n_found": score.predicted,
        "n_gold": score.gold,
    }


def _prf(gold: Sequence[Mark], predicted: Sequence[Mark]) -> PRF:
    return PRF(sum(mark.kind == "right" for mark in predicted), len(predicted), len(gold))


def _percent(value: Optional[float]) -> str:
    return "\N{EN DASH}" if value is None else f"{100 * value:.1f}"


def _page_file(name: str) -> str:
    return (files("spacy_nested_ner.evaluation.page") / "files" / name).read_text(encoding="utf8")
