"""Rules for the spans of a record that all readers share."""

from __future__ import annotations

from collections import Counter
from typing import Dict, Iterable, List, Optional, Tuple

from spacy_nested_ner.corpora.records import CharSpan, Dropped, span_order


def clean_spans(
    text: str, spans: Iterable[CharSpan], one_label: bool = False
) -> Tuple[List[CharSpan], Dropped]:
    """Sorted spans without whitespace at their ends, each with its label once.

    one_label: of several labels on one span keep the alphabetically last.

    Also returns what was dropped: spans of whitespace only, repeated and further labels.
    """
    dropped: Counter = Counter()
    by_place: Dict[Tuple[int, int], List[str]] = {}
    for start, end, label in spans:
        place = stripped(text, start, end)
        if place is None:
            dropped["no text", label] += 1
        elif label in by_place.setdefault(place, []):
            dropped["same label twice on one span", label] += 1
        else:
            by_place[place].append(label)
    if one_label:
        dropped.update(_keep_one_label(by_place))
    found = [(*place, label) for place, labels in by_place.items() for label in labels]
    return sorted(found, key=span_order), dropped


def stripped(text: str, start: int, end: int) -> Optional[Tuple[int, int]]:
    """The span without whitespace at its ends; None if nothing is left."""
    inner = text[start:end]
    start += len(inner) - len(inner.lstrip())
    end -= len(inner) - len(inner.rstrip())
    return (start, end) if start < end else None


def _keep_one_label(by_place: Dict[Tuple[int, int], List[str]]) -> Counter:
    """Leave the alphabetically last label on each span; returns what went."""
    dropped: Counter = Counter()
    for place, labels in by_place.items():
        *others, kept = sorted(labels)
        by_place[place] = [kept]
        dropped.update(("second label on a span", f"{label} beside {kept}") for label in others)
    return dropped
