"""From scored spans to the spans of a doc: duplicates, labels per span, overlap policy."""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Sequence

import numpy as np

OVERLAPS = ("any", "no_crossing", "flat")
ENTS = ("outermost", "innermost", "highest")


class ScoredSpan(NamedTuple):
    """Tokens `start` to `end` (exclusive), label index, score in [0, 1]."""

    start: int
    end: int
    label: int
    score: float


def select_spans(
    spans: Sequence[ScoredSpan], *, overlap: str = "any", labels_per_span: Optional[int] = None
) -> List[ScoredSpan]:
    """The spans to keep, in the order of the text, outer ones first.

    Of equal span and label the highest score stays. overlap: "any"; "no_crossing" drops a span
    that crosses one of a higher score (nesting is allowed); "flat" drops any that overlaps one.
    labels_per_span: how many labels one span may carry, None for any number.
    """
    ranked = sorted(spans, key=lambda s: (-s.score, s.start, s.end, s.label))
    kept: List[ScoredSpan] = []
    seen = set()
    n_labels: dict[tuple[int, int], int] = {}
    bounds = np.zeros((len(ranked), 2), dtype=np.int64)
    for span in ranked:
        place = (span.start, span.end)
        if (place, span.label) in seen or _is_full(n_labels.get(place, 0), labels_per_span):
            continue
        if overlap != "any" and _collides(bounds[: len(kept)], place, overlap):
            continue
        seen.add((place, span.label))
        n_labels[place] = n_labels.get(place, 0) + 1
        bounds[len(kept)] = place
        kept.append(span)
    return sorted(kept, key=lambda s: (s.start, -s.end, s.label))


def _is_full(count: int, limit: Optional[int]) -> bool:
    return limit is not None and count >= limit


def _collides(kept: np.ndarray, place: tuple[int, int], overlap: str) -> bool:
    """Whether a span may not stand beside those kept, `(kept, 2)` int. Equal spans never collide
    by themselves: how many labels they carry is another rule."""
    start, end = place
    starts, ends = kept[:, 0], kept[:, 1]
    touching = (starts < end) & (start < ends)
    if overlap == "flat":
        return bool((touching & ~((starts == start) & (ends == end))).any())
    inside = ((starts <= start) & (end <= ends)) | ((start <= starts) & (ends <= end))
    return bool((touching & ~inside).any())


def choose_ents(spans: Sequence[ScoredSpan], policy: str) -> List[ScoredSpan]:
    """A flat choice for `doc.ents`: "outermost", "innermost" or "highest" score first."""
    order = {
        "outermost": lambda s: (s.start - s.end, -s.score, s.start, s.label),
        "innermost": lambda s: (s.end - s.start, -s.score, s.start, s.label),
        "highest": lambda s: (-s.score, s.start, s.end, s.label),
    }[policy]
    taken: set[int] = set()
    chosen = []
    for span in sorted(spans, key=order):
        tokens = range(span.start, span.end)
        if taken.isdisjoint(tokens):
            taken.update(tokens)
            chosen.append(span)
    return sorted(chosen)
