"""Docs to a table of entities: everything that the numbers are computed from."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
from spacy.tokens import Doc

from spacy_nested_ner.corpora.statistics import document_of, nesting
from spacy_nested_ner.pipeline.scorer import Entity, places_of, solid_offsets
from spacy_nested_ner.pipeline.sentences import set_sentences
from spacy_nested_ner.pipeline.tokens import is_space

# Where groups of words in an entity, and of entities in a sentence, begin.
LENGTHS = (*range(1, 21), 50, 100, 200)
CROWDS = (0, 1, 2, 3, 4, 5, 10, 20)


@dataclass(frozen=True)
class EntityTable:
    """Every entity that is gold or predicted, one row each; an entity that is both has one row.

    All arrays but `text_of_doc` have the same length. doc, sentence: index, counted over the data.
    start, end: characters of the doc without its whitespace. label: index into `labels`. gold,
    predicted: bool. located: bool, its span is both gold and predicted, whatever the labels. fits:
    bool, its boundaries are token boundaries of the reference. score: of the prediction, NaN where
    there is none. length: words of the reference that it touches. depth: gold spans around it in
    the longest chain, plus 1. nested: bool, it contains a gold span or is contained in one, or its
    span is that of several gold entities. crowd: gold entities of its sentence.

    depth, nested and crowd are taken from the gold annotation alone, so that a predicted entity
    counts in the same group whatever else was predicted.

    text_of_doc: `(docs,)` int, index of the text that each doc is a part of: docs with the same
    `doc.user_data["doc_id"]` are sentences of one, a doc without one stands alone.
    """

    doc: np.ndarray
    sentence: np.ndarray
    start: np.ndarray
    end: np.ndarray
    label: np.ndarray
    gold: np.ndarray
    predicted: np.ndarray
    located: np.ndarray
    fits: np.ndarray
    score: np.ndarray
    length: np.ndarray
    depth: np.ndarray
    nested: np.ndarray
    crowd: np.ndarray
    labels: Tuple[str, ...]
    text_of_doc: np.ndarray
    docs: int
    sentences: int
    words: int

    @property
    def texts(self) -> int:
        """How many texts the docs are of."""
        return int(self.text_of_doc.max(initial=-1)) + 1

    @property
    def right(self) -> np.ndarray:
        """Bool, predicted with the span and the label of a gold entity."""
        return self.gold & self.predicted


class _Row(NamedTuple):
    doc: int
    sentence: int
    start: int
    end: int
    label: str
    gold: bool
    predicted: bool
    located: bool
    fits: bool
    score: float
    length: int
    depth: int
    nested: bool
    crowd: int


def entity_table(
    references: Iterable[Doc],
    predictions: Iterable[Dict[Entity, float]],
    spans_key: str,
    ents: bool,
) -> EntityTable:
    """Put gold and predicted entities side by side.

    references: docs with gold entities, see `read_entities` for `spans_key` and `ents`.
    predictions: what `read_entities` gave for the predicted docs, in the same order.
    """
    rows: List[_Row] = []
    texts: Dict[int | str, int] = {}
    text_of_doc: List[int] = []
    docs = sentences = words = 0
    for reference, predicted in zip(references, predictions, strict=True):
        gold = read_entities(reference, spans_key, ents) or {}
        places = _Text(reference)
        rows.extend(_rows(places, gold, predicted, docs, sentences))
        name = document_of(reference.user_data)
        text_of_doc.append(texts.setdefault(docs if name is None else name, len(texts)))
        docs += 1
        sentences += len(places.sentence_starts)
        words += len(places.word_starts)
    labels = tuple(sorted({row.label for row in rows}))
    index = {label: i for i, label in enumerate(labels)}
    columns = {name: [getattr(row, name) for row in rows] for name in _Row._fields}
    columns["label"] = [index[label] for label in columns["label"]]
    kinds = {"gold": bool, "predicted": bool, "located": bool, "fits": bool, "nested": bool}
    arrays = {
        name: np.array(values, dtype=kinds.get(name, float if name == "score" else np.int64))
        for name, values in columns.items()
    }
    arrays["text_of_doc"] = np.array(text_of_doc, dtype=np.int64)
    return EntityTable(**arrays, labels=labels, docs=docs, sentences=sentences, words=words)


def read_entities(doc: Doc, spans_key: str, ents: bool = False) -> Optional[Dict[Entity, float]]:
    """The entities of `doc.spans[spans_key]` with their scores (NaN where there is none), or None
    if the doc has no such key. Spans that occur twice count once, with the higher score; those of
    whitespace alone do not count.

    ents: read `doc.ents` where there is no such key.
    """
    if spans_key in doc.spans:
        spans = list(doc.spans[spans_key])
        scores = span_scores(doc, spans_key)
    elif ents:
        spans = list(doc.ents)
        scores = np.full(len(spans), np.nan)
    else:
        return None
    found: Dict[Entity, float] = {}
    for entity, score in zip(places_of(doc, spans), scores.tolist()):
        if entity[0] < entity[1]:
            found[entity] = float(np.fmax(score, found.get(entity, np.nan)))
    return found


def is_annotated(doc: Doc, spans_key: str, ents: bool = False) -> bool:
    """Whether a reference says what its entities are, be it that there are none."""
    return spans_key in doc.spans or (ents and doc.has_annotation("ENT_IOB"))


def no_gold(references: Sequence[Doc], spans_key: str, of_ents: str = "") -> str:
    """What to say where no reference has entities under a key, with what they have and the remedy.

    of_ents: remedy for `doc.ents`; to put them under the key where it is empty.
    """
    if not references:
        return "There are no docs."
    keys = sorted({key for doc in references for key in doc.spans})
    found = [f"No gold entities under spans key {spans_key!r}."]
    if spans_key in keys:
        found.append("That span group is empty in every doc: give other docs.")
    elif keys:
        found.append(f"The docs have: {', '.join(map(repr, keys))}. Choose with --spans-key.")
    else:
        found.append("The docs have no span groups.")
    if any(doc.ents for doc in references):
        put = f"set doc.spans[{spans_key!r}] = list(doc.ents) and save the docs again"
        found.append(f"They have doc.ents: {of_ents or put}.")
    return " ".join(found)


def span_scores(doc: Doc, spans_key: str) -> np.ndarray:
    """The scores of `doc.spans[spans_key]`, NaN where there are none.

    `spancat_singlelabel` gives them one to a row, rulers give none at all.
    """
    count = len(doc.spans[spans_key])
    values = doc.spans[spans_key].attrs.get("scores")
    if values is None or np.size(values) != count:
        return np.full(count, np.nan)
    return np.asarray(values, dtype=np.float64).reshape(-1)


class _Text:
    """Words and sentences of a reference doc, in characters without whitespace."""

    def __init__(self, doc: Doc) -> None:
        solid = solid_offsets(doc.text)
        words = [token for token, blank in zip(doc, is_space(doc)) if not blank]
        self.word_starts = solid[np.array([t.idx for t in words], dtype=np.int64)]
        self.word_ends = solid[np.array([t.idx + len(t) for t in words], dtype=np.int64)]
        self._starts, self._ends = set(self.word_starts.tolist()), set(self.word_ends.tolist())
        self.sentence_starts = solid[[doc[start].idx for start, _ in set_sentences(doc)] or [0]]

    def sentence(self, start: int) -> int:
        """Index of the sentence that a span starts in."""
        return max(0, int(np.searchsorted(self.sentence_starts, start, side="right")) - 1)

    def length(self, start: int, end: int) -> int:
        """Words that a span touches."""
        first = np.searchsorted(self.word_ends, start, side="right")
        return int(np.searchsorted(self.word_starts, end, side="left") - first)

    def fits(self, start: int, end: int) -> bool:
        """Whether the span starts where a word starts and ends where one ends."""
        return start < end and start in self._starts and end in self._ends


def _rows(
    text: _Text, gold: Dict[Entity, float], predicted: Dict[Entity, float], doc: int, sentences: int
) -> List[_Row]:
    places = [(start, end) for start, end, _ in gold]
    both = set(places) & {(start, end) for start, end, _ in predicted}
    order = GoldOrder(places)
    crowd = np.bincount([text.sentence(start) for start, _, _ in gold], minlength=1)
    rows = []
    for entity in sorted(gold.keys() | predicted.keys()):
        start, end, label = entity
        sentence = text.sentence(start)
        depth, nested = order.place(start, end)
        rows.append(
            _Row(
                doc=doc,
                sentence=sentences + sentence,
                start=start,
                end=end,
                label=label,
                gold=entity in gold,
                predicted=entity in predicted,
                located=(start, end) in both,
                fits=text.fits(start, end),
                score=predicted.get(entity, np.nan),
                length=text.length(start, end),
                depth=depth,
                nested=nested,
                crowd=int(crowd[sentence]) if sentence < len(crowd) else 0,
            )
        )
    return rows


class GoldOrder:
    """Where any span lies in the nesting of the gold spans of a doc, see `nesting`."""

    def __init__(self, gold: Iterable[Tuple[int, int]]) -> None:
        found = nesting(gold)
        self.gold, self.nested = found.depth, found.nested
        spans = np.array(list(found.depth), dtype=np.int64).reshape(-1, 2)
        self.starts, self.ends = spans.T
        self.depths = np.array(list(found.depth.values()), dtype=np.int64)

    def place(self, start: int, end: int) -> Tuple[int, bool]:
        """Depth of the span, and whether it is nested with the gold spans."""
        if (start, end) in self.gold:
            return self.gold[start, end], (start, end) in self.nested
        around = (self.starts <= start) & (self.ends >= end)
        inside = (self.starts >= start) & (self.ends <= end)
        return int(self.depths[around].max(initial=0)) + 1, bool(around.any() or inside.any())


def length_group(length: int) -> str:
    """1 to 19 words as in the table of Locate and Label (table 2), 20-49, 50-99, 100-199, 200+."""
    return _group(length, LENGTHS)


def crowd_group(crowd: int) -> str:
    """0, 1, 2, 3, 4, 5-9, 10-19, 20+ entities."""
    return _group(crowd, CROWDS)


def _group(value: int, begins: Sequence[int]) -> str:
    last = bisect_right(begins, value) - 1
    if last == len(begins) - 1:
        return f"{begins[last]}+"
    low, high = begins[last], begins[last + 1] - 1
    return str(low) if low == high else f"{low}-{high}"
