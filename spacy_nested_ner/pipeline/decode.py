"""From scored spans to the spans of docs: whitespace, duplicates, labels per span, overlap policy.

All functions work on the spans of a whole batch of docs at once.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Iterator, List, Optional, Sequence, Set, Tuple

import numpy as np
from spacy.tokens import Doc

from spacy_nested_ner.model.types import ScoredSpans
from spacy_nested_ner.pipeline.tokens import is_space


def without_space(docs: Sequence[Doc], spans: ScoredSpans) -> ScoredSpans:
    """Spans without whitespace tokens at their ends; those of whitespace alone are left out."""
    if not len(spans.doc):
        return spans
    spaces = [is_space(doc) for doc in docs]
    if not any(each.any() for each in spaces):
        return spans
    words = np.flatnonzero(~np.concatenate(spaces))
    begin = np.cumsum([0, *map(len, docs)])[spans.doc]
    first = np.searchsorted(words, begin + spans.start)
    stop = np.searchsorted(words, begin + spans.end)
    kept = first < stop
    start, end = words[first[kept]] - begin[kept], words[stop[kept] - 1] + 1 - begin[kept]
    return spans.take(kept)._replace(start=start, end=end)


def select_spans(
    spans: ScoredSpans, *, overlap: str = "any", labels_per_span: Optional[int] = None
) -> ScoredSpans:
    """The spans to keep, doc by doc in the order of the text, outer ones first.

    Of equal span and label the highest score stays. overlap: "any"; "no_crossing" drops a span
    that crosses one of a higher score (nesting is allowed); "flat" drops any that overlaps one.
    labels_per_span: how many labels one span may carry, None for any number.
    """
    if len(spans.doc) < 2:  # as for most single docs
        return spans
    order = np.lexsort((spans.label, spans.end, spans.start, -spans.score, spans.doc))
    ranked = spans.take(order)
    places = (ranked.doc, ranked.start, ranked.end)
    ranked = ranked.take(_equals_before(*places, ranked.label) == 0)
    if labels_per_span is not None:
        places = (ranked.doc, ranked.start, ranked.end)
        ranked = ranked.take(_equals_before(*places) < labels_per_span)
    if overlap != "any":
        ranked = ranked.take(_without_collisions(ranked, overlap))
    return ranked.take(np.lexsort((ranked.label, -ranked.end, ranked.start, ranked.doc)))


def _equals_before(*columns: np.ndarray) -> np.ndarray:
    """How many of the rows before each row are equal to it, `(rows,)` int."""
    order = np.lexsort(columns)
    place = np.arange(len(order))
    is_new = np.ones(len(order), dtype=bool)
    is_new[1:] = np.any([column[order][1:] != column[order][:-1] for column in columns], axis=0)
    before = np.empty_like(order)
    before[order] = place - np.maximum.accumulate(np.where(is_new, place, 0))
    return before


def _without_collisions(ranked: ScoredSpans, overlap: str) -> List[int]:
    """Indices of the spans that may stand beside those before them, doc by doc."""
    chosen: List[int] = []
    places = np.stack([ranked.start, ranked.end], axis=1)
    starts = np.flatnonzero(np.diff(ranked.doc, prepend=-1))
    for first, stop in zip(starts, [*starts[1:], len(places)]):
        kept = np.zeros((stop - first, 2), dtype=np.int64)
        n_kept = 0
        for i in range(first, stop):
            if not _collides(kept[:n_kept], places[i], overlap):
                kept[n_kept] = places[i]
                n_kept += 1
                chosen.append(i)
    return chosen


def _collides(kept: np.ndarray, place: np.ndarray, overlap: str) -> bool:
    """Whether a span may not stand beside those kept, `(kept, 2)` int. Equal spans never collide
    by themselves: how many labels they carry is another rule."""
    start, end = place
    starts, ends = kept[:, 0], kept[:, 1]
    touching = (starts < end) & (start < ends)
    if overlap == "flat":
        return bool((touching & ~((starts == start) & (ends == end))).any())
    inside = ((starts <= start) & (end <= ends)) | ((start <= starts) & (ends <= end))
    return bool((touching & ~inside).any())


def choose_ents(spans: ScoredSpans, policy: str) -> ScoredSpans:
    """A flat choice for `doc.ents`: "outermost", "innermost" or "highest" score first."""
    length = spans.end - spans.start
    order = {
        "outermost": (spans.label, spans.start, -spans.score, -length),
        "innermost": (spans.label, spans.start, -spans.score, length),
        "highest": (spans.label, spans.end, spans.start, -spans.score),
    }[policy]
    taken: Set[Tuple[int, int]] = set()
    chosen = []
    for i in np.lexsort(order).tolist():
        doc = int(spans.doc[i])
        tokens = [(doc, token) for token in range(spans.start[i], spans.end[i])]
        if taken.isdisjoint(tokens):
            taken.update(tokens)
            chosen.append(i)
    return spans.take(sorted(chosen))


def spans_per_doc(spans: ScoredSpans, n_docs: int) -> Iterator[ScoredSpans]:
    """The spans of each doc; they come doc by doc."""
    bounds = np.searchsorted(spans.doc, np.arange(n_docs + 1))
    return (spans.take(slice(*pair)) for pair in pairwise(bounds))
