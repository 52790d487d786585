"""Cut docs into the segments that a head works on: sentences, or windows that overlap."""

from __future__ import annotations

from collections import ChainMap
from itertools import pairwise
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
from spacy.attrs import (
    DEP,
    ENT_ID,
    ENT_IOB,
    ENT_KB_ID,
    ENT_TYPE,
    LEMMA,
    MORPH,
    NORM,
    POS,
    SENT_START,
    TAG,
)
from spacy.tokens import Doc
from thinc.api import get_array_module

from spacy_nested_ner.model.types import ScoredSpans
from spacy_nested_ner.pipeline.sentences import (
    after_empty_lines,
    between,
    has_sentences,
    rule_sentences,
    rule_starts,
    set_sentences,
)
from spacy_nested_ner.pipeline.tokens import is_space

# What an embedding layer is given of a token beside its text.
READ = [NORM, LEMMA, POS, TAG, MORPH, DEP, ENT_TYPE, ENT_KB_ID, ENT_ID, ENT_IOB, SENT_START]
# Of these two what a token has depends on the one before it.
IOB, START = READ.index(ENT_IOB), READ.index(SENT_START)
INSIDE, BEGINS = 1, 3  # values of ENT_IOB


class Readable(NamedTuple):
    """What an encoder may read of a doc beside its words.

    array: `(tokens, READ)` uint64. shared: user data of the doc. extensions: names and values of
        the extensions that tokens have, by the token's first character.
    """

    array: np.ndarray
    shared: Dict[Any, Any]
    extensions: Dict[int, List[Tuple[str, Any]]]


class Segments(NamedTuple):
    """Segments of a batch of docs.

    rows: `(segments, 3)` int: index of the doc, first token, end token (exclusive).
    core: `(segments, 2)` float: where overlapping windows meet. The window whose core holds the
        middle of a span is the one that answers for it, so that no two windows contradict each
        other and no span is taken from a window that saw only a part of it.
    """

    rows: np.ndarray
    core: np.ndarray


class AsRead(NamedTuple):
    """Docs and segments as the model reads them.

    rows: as in `Segments`, but of these docs. places: for each of these docs where its tokens stand
        in the doc that they come from, `(tokens,)` int; None where docs are read as they are.
    """

    docs: List[Doc]
    rows: np.ndarray
    places: Optional[List[np.ndarray]]


def cut_segments(
    docs: Sequence[Doc],
    window: int,
    stride: int,
    usual_length: Optional[int] = None,
    words_alone: bool = False,
) -> Segments:
    """Sentences where sentence boundaries are set, the whole doc elsewhere; what is longer than
    `window` tokens is cut into windows that start every `stride` tokens. Empty docs give none.

    usual_length: of a sentence. Docs without boundaries that are longer are cut into sentences by
        rule; the doc's own boundaries stay as they are. What is still more than twice as long,
        as in a language without punctuation, is read in windows of so many tokens. None for no
        such cut.
    words_alone: only words count, and what holds none is left out. With a `usual_length` sentences
        end at empty lines, too.
    """
    rows: List[Tuple[int, int, int]] = []
    core: List[Tuple[float, float]] = []
    for i, doc in enumerate(docs):
        places = _kept(doc, words_alone)
        is_longer = usual_length is not None and len(places) > usual_length
        by_rule = is_longer and not has_sentences(doc)
        for start, end in _sentences(doc, places, by_rule, empty_lines=usual_length is not None):
            size, step = window, stride
            if by_rule and usual_length is not None and end - start > 2 * usual_length:
                size = min(window, usual_length)
                step = max(1, size * stride // window)
            windows = [
                (int(places[first]), int(places[last - 1]) + 1)
                for first, last in _windows(start, end, size, step)
            ]
            meets = [(a[1] + b[0]) / 2 for a, b in pairwise(windows)]
            rows.extend((i, *bounds) for bounds in windows)
            core.extend(zip([-np.inf, *meets], [*meets, np.inf]))
    return Segments(
        np.array(rows, dtype=np.int64).reshape(-1, 3),
        np.array(core, dtype=np.float64).reshape(-1, 2),
    )


def _sentences(
    doc: Doc, places: np.ndarray, by_rule: bool, empty_lines: bool
) -> List[Tuple[int, int]]:
    """First and end of each sentence among the tokens at these places, `(tokens,)` int."""
    if len(places) == len(doc):
        return rule_sentences(doc) if by_rule else set_sentences(doc)
    if by_rule:
        starts = rule_starts(doc, places)
    else:
        starts = np.searchsorted(places, [start for start, _ in set_sentences(doc)]).tolist()
    if empty_lines:
        starts += np.searchsorted(places, after_empty_lines(doc)).tolist()
    return between(starts, len(places))


def read_as(
    docs: Sequence[Doc], rows: np.ndarray, *, apart: bool = False, words_alone: bool = False
) -> AsRead:
    """The docs and segments to read.

    rows: see `Segments`. apart: each segment is a doc of its own. words_alone: tokens of whitespace
        are left out; no segment may hold nothing else.
    """
    kept = {i: _kept(docs[i], words_alone) for i in set(rows[:, 0].tolist())}
    if not apart and all(len(kept[i]) == len(docs[i]) for i in kept):
        return AsRead(list(docs), rows, None)
    if apart:
        parts = [(i, _within(kept[i], start, end)) for i, start, end in rows.tolist()]
        own = np.array([(n, 0, len(places)) for n, (_, places) in enumerate(parts)], dtype=np.int64)
    else:
        parts = [(i, kept.get(i, np.arange(len(doc)))) for i, doc in enumerate(docs)]
        own = rows.copy()
        for i, places in kept.items():
            mine = rows[:, 0] == i
            own[mine, 1:] = np.searchsorted(places, rows[mine, 1:])
    known = {i: _readable(docs[i]) for i in kept}
    read = [_part(docs[i], places, known[i]) if i in kept else docs[i] for i, places in parts]
    return AsRead(read, own, [places for _, places in parts])


def _kept(doc: Doc, words_alone: bool) -> np.ndarray:
    """Places of the tokens that are read."""
    return np.flatnonzero(~is_space(doc)) if words_alone else np.arange(len(doc))


def _within(places: np.ndarray, start: int, end: int) -> np.ndarray:
    """Those of the places, which rise, from start to end (exclusive)."""
    first, last = np.searchsorted(places, (start, end))
    return places[first:last]


def _readable(doc: Doc) -> Readable:
    shared: Dict[Any, Any] = {}
    extensions: Dict[int, List[Tuple[str, Any]]] = {}
    for key, value in doc.user_data.items():
        if not (isinstance(key, tuple) and len(key) == 4 and key[0] == "._."):
            shared[key] = value
            continue
        _, name, start, end = key
        if start is None:
            shared[key] = value
        elif end is None:
            extensions.setdefault(start, []).append((name, value))
    return Readable(doc.to_array(READ), shared, extensions)


def _part(doc: Doc, places: np.ndarray, known: Readable) -> Doc:
    """A doc of some tokens of another, with what an encoder may read of them. (`Span.as_doc` copies
    more, in a time that grows with the doc.)"""
    if len(places) == len(doc):
        return doc
    tokens = [doc[i] for i in places.tolist()]
    ends = np.diff(places, append=places[-1:] + 1) > 1  # what stood between was whitespace
    spaces = [bool(token.whitespace_) or bool(end) for token, end in zip(tokens, ends)]
    part = Doc(doc.vocab, words=[token.text for token in tokens], spaces=spaces)
    # The types of spaCy are narrower than what it takes, such as what its own to_array gives.
    part.from_array(READ, _without_gaps(known.array, places))  # type: ignore[arg-type]
    own: Dict[Any, Any] = {}
    if known.extensions:
        for old, new in zip(tokens, part):
            for name, value in known.extensions.get(old.idx, ()):
                own["._.", name, new.idx, None] = value
    # No copy: there may be a part for each of many sentences.
    part.user_data = ChainMap(own, known.shared)  # type: ignore[assignment]
    if len(doc.tensor) == len(doc):
        part.tensor = doc.tensor[get_array_module(doc.tensor).asarray(places)]
    return part


def _without_gaps(array: np.ndarray, places: np.ndarray) -> np.ndarray:
    """`READ` of the tokens at these places. What a token between them begins, the next one that is
    kept begins in its place: a sentence, an entity. So does the first one in any case."""
    found = array[places]
    begins = np.zeros(len(places), dtype=bool)
    begins[:1] = True
    for i in (np.flatnonzero(np.diff(places) > 1) + 1).tolist():
        gap = array[places[i - 1] + 1 : places[i]]
        if (gap[:, START] == 1).any():
            found[i, START] = 1
        begins[i] = (gap[:, IOB] == BEGINS).any()
    if found[:, START].any():  # boundaries are set
        found[0, START] = 1
    found[begins & (found[:, IOB] == INSIDE), IOB] = BEGINS
    return found


def in_given_docs(spans: ScoredSpans, rows: np.ndarray, read: AsRead) -> ScoredSpans:
    """Spans of the docs that were read as spans of the docs that were given.

    rows: of `Segments`, before `read_as`.
    """
    if read.places is None or not len(spans.doc):
        return spans
    places = np.concatenate(read.places)
    begin = np.cumsum([0, *map(len, read.places)])[spans.doc]
    start, end = places[begin + spans.start], places[begin + spans.end - 1] + 1
    return spans._replace(doc=rows[spans.segment, 0], start=start, end=end)


def own_spans(spans: ScoredSpans, core: np.ndarray) -> ScoredSpans:
    """Only the spans whose middle lies in the core of their segment, see `Segments`."""
    if not len(spans.doc):
        return spans
    middle = (spans.start + spans.end) / 2
    low, high = core[spans.segment].T
    return spans.take((low <= middle) & (middle < high))


def _windows(start: int, end: int, window: int, stride: int) -> List[Tuple[int, int]]:
    """The last window ends with the text and is as long as the others."""
    if end - start <= window:
        return [(start, end)]
    begins = list(range(start, end - window, stride))
    return [(begin, begin + window) for begin in begins] + [(end - window, end)]
