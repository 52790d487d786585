"""Spans of text, and the rules for them that all readers share."""

from __future__ import annotations

from collections import Counter
from numbers import Integral
from typing import Any, Dict, Iterable, List, Optional, Tuple

CharSpan = Tuple[int, int, str]
"""First character, character after the last, label."""

WordSpan = Tuple[int, int, str]
"""First word, word after the last, label."""

Dropped = Counter
"""How often something was left out, by `(reason, detail)`."""


def span_order(span: CharSpan) -> Tuple[int, int, str]:
    """Sort key: by start, the longer first, then label."""
    return span[0], -span[1], span[2]


def check_span(start: Any, end: Any, label: Any, length: int) -> None:
    """Raise ValueError unless it is a labelled span, end exclusive, of a text of that length."""
    # Those of numpy and pandas, too.
    numbers = all(isinstance(n, Integral) and not isinstance(n, bool) for n in (start, end))
    named = isinstance(label, str) and label.strip()
    if not numbers or not 0 <= start < end <= length or not named:
        raise ValueError(
            f"expected an entity with 0 <= start < end <= {length} and a label, "
            f"not start {start!r}, end {end!r} (exclusive), label {label!r}."
        )


def clean_spans(
    text: str, spans: Iterable[CharSpan], one_label: bool
) -> Tuple[List[CharSpan], Dropped]:
    """Sorted spans without whitespace at their ends or those of labels, each with its label once.

    one_label: of several labels on one span keep the alphabetically last.

    Also returns what was dropped: spans of whitespace only, repeated and further labels.
    """
    dropped: Counter = Counter()
    by_place: Dict[Tuple[int, int], Dict[str, None]] = {}  # labels in their order
    for start, end, given in spans:
        place, label = stripped(text, start, end), given.strip()
        if place is None:
            dropped["no text", label] += 1
        elif label in by_place.setdefault(place, {}):
            dropped["same label twice on one span", label] += 1
        else:
            by_place[place][label] = None
    if one_label:
        dropped.update(_keep_one_label(by_place))
    found = [(*place, label) for place, labels in by_place.items() for label in labels]
    return sorted(found, key=span_order), dropped


def stripped(text: str, start: int, end: int) -> Optional[Tuple[int, int]]:
    """The span without whitespace at its ends; None if nothing is left."""
    inside = text[start:end]
    start += len(inside) - len(inside.lstrip())
    end = start + len(inside.strip())
    return (start, end) if start < end else None


def _keep_one_label(by_place: Dict[Tuple[int, int], Dict[str, None]]) -> Counter:
    """Leave the alphabetically last label on each span; returns what went."""
    dropped: Counter = Counter()
    for place, labels in by_place.items():
        *others, kept = sorted(labels)
        by_place[place] = {kept: None}
        dropped.update(("second label on a span", f"{label} beside {kept}") for label in others)
    return dropped
