"""Precision, recall and F of an `EntityTable`, as a whole and in groups.

A prediction counts as right if a gold entity has its span and its label (strict evaluation, PIQN
section 4.3). Predictions that fit no token of the reference are in the table and count as wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from spacy_nested_ner.evaluation.scores.entities import EntityTable, crowd_group, length_group


@dataclass(frozen=True)
class PRF:
    """Counts, and what follows from them.

    right: right predictions, with halves where a match in part counts half.
    """

    right: float
    predicted: int
    gold: int

    @property
    def precision(self) -> Optional[float]:
        """Right among the predicted; None if nothing is predicted."""
        return self.right / self.predicted if self.predicted else None

    @property
    def recall(self) -> Optional[float]:
        """Right among the gold; None if nothing is gold."""
        return self.right / self.gold if self.gold else None

    @property
    def f(self) -> Optional[float]:
        """Harmonic mean of precision and recall; None if nothing is predicted and nothing gold."""
        both = self.predicted + self.gold
        return 2 * self.right / both if both else None

    def to_dict(self) -> Dict[str, Optional[float]]:
        """Ready for JSON."""
        scores = {"p": self.precision, "r": self.recall, "f": self.f}
        return {**scores, "right": self.right, "predicted": self.predicted, "gold": self.gold}


def strict(table: EntityTable) -> PRF:
    """Micro scores: span and label."""
    return PRF(int(table.right.sum()), int(table.predicted.sum()), int(table.gold.sum()))


def macro(scores: Sequence[PRF]) -> Dict[str, float]:
    """Means over labels; a score that is not defined for a label counts as 0."""
    means = {
        "p": np.mean([score.precision or 0.0 for score in scores] or [0.0]),
        "r": np.mean([score.recall or 0.0 for score in scores] or [0.0]),
        "f": np.mean([score.f or 0.0 for score in scores] or [0.0]),
    }
    return {**{name: float(mean) for name, mean in means.items()}, "labels": len(scores)}


def localisation(table: EntityTable) -> PRF:
    """Spans without labels: right if both boundaries are (PIQN section 4.3). A span with several
    labels counts once."""
    spans = np.stack([table.doc, table.start, table.end], axis=1)

    def count(chosen: np.ndarray) -> int:
        return len(np.unique(spans[chosen], axis=0))

    return PRF(count(table.located), count(table.predicted), count(table.gold))


def classification(table: EntityTable) -> PRF:
    """Labels of the entities that were located: precision is over the predictions with right
    boundaries, recall over all gold entities.

    PIQN section 4.3 says "based on the accurately localized entities"; that recall is over all gold
    entities is read from its tables: in table 8 the recall of classification is the recall of the
    whole task (87.81, tables 1 and 9).
    """
    located = table.predicted & table.located
    return PRF(int(table.right.sum()), int(located.sum()), int(table.gold.sum()))


def by_label(table: EntityTable) -> Dict[str, PRF]:
    """Strict scores of each label that is gold or predicted."""
    return grouped(table, table.label, lambda index: table.labels[index])


def by_length(table: EntityTable) -> Dict[str, PRF]:
    """Strict scores by number of words (Locate and Label, table 2)."""
    return grouped(table, table.length, length_group)


def by_depth(table: EntityTable) -> Dict[str, PRF]:
    """Strict scores by nesting depth in the gold annotation; 1 is outermost."""
    return grouped(table, table.depth, str)


def by_nesting(table: EntityTable) -> Dict[str, PRF]:
    """Strict scores of entities that contain a gold span or lie in one, and of all others."""
    return grouped(table, table.nested.astype(np.int64), lambda nested: ("flat", "nested")[nested])


def by_crowd(table: EntityTable) -> Dict[str, PRF]:
    """Strict scores by number of gold entities in the sentence."""
    return grouped(table, table.crowd, crowd_group)


def grouped(table: EntityTable, values: np.ndarray, name: Callable[[int], str]) -> Dict[str, PRF]:
    """Strict scores of the rows of each group.

    values: `(rows,)` int. name: the group that a value belongs to; neighbouring values may share
        one. Groups come in the order of their values.
    """
    groups: Dict[str, PRF] = {}
    for value in np.unique(values).tolist():
        rows = values == value
        old = groups.get(name(value), PRF(0, 0, 0))
        groups[name(value)] = PRF(
            old.right + int((table.right & rows).sum()),
            old.predicted + int((table.predicted & rows).sum()),
            old.gold + int((table.gold & rows).sum()),
        )
    return groups


def partial(table: EntityTable) -> PRF:
    """Partial match, labels aside: 1 for the same boundaries, 1/2 for an overlap (SemEval-2013
    task 9, "partial"), each entity matched at most once, in the best way there is."""

    def credit(gold: _Spans, found: _Spans) -> np.ndarray:
        return np.where(_same(gold, found), 1.0, np.where(_overlap(gold, found), 0.5, 0.0))

    return _matched(table, credit)


def type_only(table: EntityTable) -> PRF:
    """Type match: 1 for an overlap with the same label (SemEval-2013 task 9, "type"), each entity
    matched at most once, in the best way there is."""

    def credit(gold: _Spans, found: _Spans) -> np.ndarray:
        same_label = gold.label[:, None] == found.label
        return (_overlap(gold, found) & same_label).astype(np.float64)

    return _matched(table, credit)


@dataclass(frozen=True)
class _Spans:
    start: np.ndarray
    end: np.ndarray
    label: np.ndarray


def _same(gold: _Spans, found: _Spans) -> np.ndarray:
    return (gold.start[:, None] == found.start) & (gold.end[:, None] == found.end)


def _overlap(gold: _Spans, found: _Spans) -> np.ndarray:
    return (gold.start[:, None] < found.end) & (found.start < gold.end[:, None])


def _matched(table: EntityTable, credit: Callable[[_Spans, _Spans], np.ndarray]) -> PRF:
    """The largest sum of credits of a one-to-one matching.

    Where spans nest, a prediction overlaps several gold entities; taking the first that fits, as
    token-wise scorers do, makes the score depend on their order.
    """
    right = 0.0
    for rows in _clusters(table):
        gold, found = (
            _Spans(table.start[chosen], table.end[chosen], table.label[chosen])
            for chosen in (rows[table.gold[rows]], rows[table.predicted[rows]])
        )
        values = credit(gold, found)
        if values.any():
            pairs = linear_sum_assignment(values, maximize=True)
            right += float(values[pairs].sum())
    return PRF(right, int(table.predicted.sum()), int(table.gold.sum()))


def _clusters(table: EntityTable) -> Iterator[np.ndarray]:
    """Rows whose spans hang together by overlaps; no span overlaps one of another cluster."""
    order = np.lexsort((table.end, table.start, table.doc))
    cuts: List[int] = []
    reach: Tuple[int, int] = (-1, -1)
    for place, row in enumerate(order.tolist()):
        doc, start, end = int(table.doc[row]), int(table.start[row]), int(table.end[row])
        if (doc, start) >= reach:
            cuts.append(place)
        reach = max(reach, (doc, end))
    return iter(np.split(order, cuts[1:]) if cuts else [])
