"""Cut docs into the segments that a head works on: sentences, or windows that overlap."""

from __future__ import annotations

from itertools import pairwise
from typing import List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
from spacy.tokens import Doc

from spacy_nested_ner.model.types import ScoredSpans
from spacy_nested_ner.pipeline.sentences import rule_sentences, set_sentences


class Segments(NamedTuple):
    """Segments of a batch of docs.

    rows: `(segments, 3)` int: index of the doc, first token, end token (exclusive).
    core: `(segments, 2)` float: where overlapping windows meet. The window whose core holds the
        middle of a span is the one that answers for it, so that no two windows contradict each
        other and no span is taken from a window that saw only a part of it.
    """

    rows: np.ndarray
    core: np.ndarray


def cut_segments(
    docs: Sequence[Doc], window: int, stride: int, whole: Optional[int] = None
) -> Segments:
    """Sentences where sentence boundaries are set, the whole doc elsewhere; what is longer than
    `window` tokens is cut into windows that start every `stride` tokens. Empty docs give none.

    whole: docs without boundaries that are longer than so many tokens are cut into sentences by
        rule; the doc's own boundaries stay as they are. What is still more than twice as long,
        as in a language without punctuation, is read in windows of so many tokens. None for no
        such cut.
    """
    rows: List[Tuple[int, int, int]] = []
    core: List[Tuple[float, float]] = []
    for i, doc in enumerate(docs):
        by_rule = whole is not None and lacks_sentences(doc, whole)
        for start, end in rule_sentences(doc) if by_rule else set_sentences(doc):
            size, step = window, stride
            if by_rule and whole is not None and end - start > 2 * whole:
                size = min(window, whole)
                step = max(1, size * stride // window)
            windows = _windows(start, end, size, step)
            meets = [(a[1] + b[0]) / 2 for a, b in pairwise(windows)]
            rows.extend((i, *bounds) for bounds in windows)
            core.extend(zip([-np.inf, *meets], [*meets, np.inf]))
    return Segments(
        np.array(rows, dtype=np.int64).reshape(-1, 3),
        np.array(core, dtype=np.float64).reshape(-1, 2),
    )


def docs_of_their_own(docs: Sequence[Doc], rows: np.ndarray) -> Tuple[List[Doc], np.ndarray]:
    """Each segment as a doc, and the segments of these docs, in the same order.

    rows: see `Segments`.
    """
    parts = [docs[i][start:end].as_doc() for i, start, end in rows.tolist()]
    return parts, np.array([(i, 0, len(part)) for i, part in enumerate(parts)], dtype=np.int64)


def in_whole_docs(spans: ScoredSpans, rows: np.ndarray, read: np.ndarray) -> ScoredSpans:
    """Spans of the segments that were read as spans of the docs.

    rows: of `Segments`. read: the same segments as they were read, see `docs_of_their_own`.
    """
    doc, moved = rows[spans.segment, 0], (rows - read)[spans.segment, 1]
    return spans._replace(doc=doc, start=spans.start + moved, end=spans.end + moved)


def own_spans(spans: ScoredSpans, core: np.ndarray) -> ScoredSpans:
    """Only the spans whose middle lies in the core of their segment, see `Segments`."""
    if not len(spans.doc):
        return spans
    middle = (spans.start + spans.end) / 2
    low, high = core[spans.segment].T
    return spans.take((low <= middle) & (middle < high))


def lacks_sentences(doc: Doc, whole: int) -> bool:
    """Whether a doc is longer than `whole` tokens and has no sentence boundaries."""
    return len(doc) > whole and not doc.has_annotation("SENT_START")


def _windows(start: int, end: int, window: int, stride: int) -> List[Tuple[int, int]]:
    """The last window ends with the text and is as long as the others."""
    if end - start <= window:
        return [(start, end)]
    begins = list(range(start, end - window, stride))
    return [(begin, begin + window) for begin in begins] + [(end - window, end)]
