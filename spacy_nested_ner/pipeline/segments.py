"""Cut docs into the segments that a head works on: sentences, or windows that overlap."""

from __future__ import annotations

from itertools import pairwise
from typing import List, NamedTuple, Sequence, Tuple

import numpy as np
from spacy.tokens import Doc


class Segments(NamedTuple):
    """Segments of a batch of docs.

    rows: `(segments, 3)` int: index of the doc, first token, end token (exclusive).
    core: `(segments, 2)` float: where overlapping windows meet. The window whose core holds the
        middle of a span is the one that answers for it, so that no two windows contradict each
        other and no span is taken from a window that saw only a part of it.
    """

    rows: np.ndarray
    core: np.ndarray


def cut_segments(docs: Sequence[Doc], window: int, stride: int) -> Segments:
    """Sentences where sentence boundaries are set, the whole doc elsewhere; what is longer than
    `window` tokens is cut into windows that start every `stride` tokens. Empty docs give none."""
    rows: List[Tuple[int, int, int]] = []
    core: List[Tuple[float, float]] = []
    for i, doc in enumerate(docs):
        for start, end in _sentences(doc):
            windows = list(_windows(start, end, window, stride))
            meets = [(a[1] + b[0]) / 2 for a, b in pairwise(windows)]
            rows.extend((i, *bounds) for bounds in windows)
            core.extend(zip([-np.inf, *meets], [*meets, np.inf]))
    return Segments(
        np.array(rows, dtype=np.int64).reshape(-1, 3),
        np.array(core, dtype=np.float64).reshape(-1, 2),
    )


def _sentences(doc: Doc) -> List[Tuple[int, int]]:
    if not len(doc):
        return []
    if not doc.has_annotation("SENT_START"):
        return [(0, len(doc))]
    begins = np.flatnonzero(doc.to_array("SENT_START").astype(np.int64) == 1)
    starts = sorted({0, *begins.tolist()})
    return list(zip(starts, [*starts[1:], len(doc)]))


def _windows(start: int, end: int, window: int, stride: int) -> List[Tuple[int, int]]:
    """The last window ends with the text and is as long as the others."""
    if end - start <= window:
        return [(start, end)]
    begins = list(range(start, end - window, stride))
    return [(begin, begin + window) for begin in begins] + [(end - window, end)]
