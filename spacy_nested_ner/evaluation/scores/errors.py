"""Kinds of errors: how wrong predictions and missed gold entities lie to one another."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from typing import Any, Dict, Iterable, List

import numpy as np

from spacy_nested_ner.evaluation.scores.entities import EntityTable
from spacy_nested_ner.pipeline.scorer import Entity

KINDS = (
    "right",
    "wrong label",
    "wrong boundary",
    "wrong label and boundary",
    "spurious",
    "missed",
)
"""right; wrong label on the span of a missed gold entity; right label on a span that overlaps one;
neither, but overlapping one; a prediction that overlaps none; a gold entity that no wrong
prediction overlaps. Gold entities that were not found have the kind of their best prediction."""


def kind_of_error(entity: Entity, others: Iterable[Entity], none: str) -> str:
    """How an error compares with the errors of the other side. none: its kind if it overlaps none
    of them."""
    start, end, label = entity
    near = [other for other in others if other[0] < end and start < other[1]]
    if any(other[:2] == (start, end) for other in near):
        return "wrong label"
    if any(other[2] == label for other in near):
        return "wrong boundary"
    return "wrong label and boundary" if near else none


class _Errors:
    """Of one side in one doc; finds those near an entity without a look at all."""

    def __init__(self) -> None:
        self.entities: List[Entity] = []
        self.longest = 0

    def sort(self) -> None:
        self.entities.sort()
        self.longest = max((end - start for start, end, _ in self.entities), default=0)

    def near(self, entity: Entity) -> List[Entity]:
        """All that overlap it, and some others."""
        first = bisect_left(self.entities, (entity[0] - self.longest, 0, ""))
        return self.entities[first : bisect_left(self.entities, (entity[1], 0, ""))]


def errors(table: EntityTable) -> Dict[str, Any]:
    """How many there are of each of `KINDS`, "predicted" and "gold", and "confusions": which label
    was predicted on the span of a missed gold entity, the most frequent first."""
    wrong: Dict[int, _Errors] = defaultdict(_Errors)
    missed: Dict[int, _Errors] = defaultdict(_Errors)
    for i in np.flatnonzero(~table.right).tolist():
        label = table.labels[table.label[i]]
        side = missed if table.gold[i] else wrong
        entity = (int(table.start[i]), int(table.end[i]), label)
        side[int(table.doc[i])].entities.append(entity)
    for each in [*wrong.values(), *missed.values()]:
        each.sort()
    right = int(table.right.sum())
    predicted, gold = Counter(right=right), Counter(right=right)
    confusions: Counter[tuple] = Counter()
    for doc, found in wrong.items():
        for entity in found.entities:
            near = missed[doc].near(entity)
            predicted[kind_of_error(entity, near, "spurious")] += 1
            same = (other for other in near if other[:2] == entity[:2])
            confusions.update((other[2], entity[2]) for other in same)
    for doc, lost in missed.items():
        for entity in lost.entities:
            gold[kind_of_error(entity, wrong[doc].near(entity), "missed")] += 1
    ranked = sorted(confusions.items(), key=lambda item: (-item[1], item[0]))
    return {
        "predicted": {kind: predicted[kind] for kind in KINDS if kind != "missed"},
        "gold": {kind: gold[kind] for kind in KINDS if kind != "spurious"},
        "confusions": [{"gold": a, "predicted": b, "count": count} for (a, b), count in ranked],
    }
