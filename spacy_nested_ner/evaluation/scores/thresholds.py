"""Which threshold would have been best, from the scores of one prediction at a low threshold.

That takes spans whose scores do not depend on the threshold, and of which a lower scored one never
removes a higher scored one: then what is found at any higher threshold is what reaches it.
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Sequence, Tuple

import numpy as np

from spacy_nested_ner.evaluation.scores.entities import EntityTable
from spacy_nested_ner.evaluation.scores.metrics import PRF

LEAST, MOST = 0.001, 0.01


class ThresholdChoice(NamedTuple):
    """A threshold, and the strict micro F, or F-beta, that the data gives at it."""

    threshold: float
    f: float


def f_at(table: EntityTable, threshold: float, beta: float = 1.0) -> float:
    """Strict micro F-beta of the predictions whose score reaches a threshold."""
    return float(_f(table, np.array([threshold]), beta)[0])


def rates_at(table: EntityTable, threshold: float) -> Tuple[float, float]:
    """Strict micro precision and recall of these predictions; 0 where they are not defined."""
    found, right = _reaching(table, np.array([threshold]))
    score = PRF(int(right[0]), int(found[0]), int(table.gold.sum()))
    return score.precision or 0.0, score.recall or 0.0


def tolerance(table: EntityTable) -> float:
    """The difference in F that is taken for none: that of half an entity, 0.001 to 0.01."""
    return min(MOST, max(LEAST, 0.5 / max(1, int(table.gold.sum()))))


def best_threshold(table: EntityTable, low: float, beta: float = 1.0) -> Optional[ThresholdChoice]:
    """The middle of the thresholds around the best one whose F is as good, see `tolerance`.

    Where F is ragged, its very maximum is chance; where it is flat, the middle is safest.

    table: predictions with all scores from `low` on. low: the lowest threshold to choose. beta: how
        many times as much recall weighs as precision (van Rijsbergen 1979).
    RETURNS: None if there is nothing to choose by: no gold entity, no prediction that is right, or
        predictions without scores.
    """
    score = table.score[table.predicted]
    if not np.isfinite(score).all():
        return None
    # F is the same for all thresholds above one score and up to the next: these are the upper ends.
    upper = np.unique(score[score >= low])
    f = _f(table, upper, beta)
    if not f.max(initial=0.0):
        return None
    lower = np.concatenate([[low], upper[:-1]])
    first, last = _run(f, float(f.max()) - tolerance(table))
    threshold = _rounded(float(lower[first]), float(upper[last]))
    return ThresholdChoice(threshold, f_at(table, threshold, beta))


def best_of(
    thresholds: Sequence[float], scores: Sequence[float], tolerance: float
) -> Optional[ThresholdChoice]:
    """The same from F at some thresholds, in rising order, each of a prediction of its own. None if
    F is 0 at all of them."""
    f = np.array(scores)
    if not f.max(initial=0.0):
        return None
    first, last = _run(f, float(f.max()) - tolerance)
    middle = (first + last) // 2
    return ThresholdChoice(float(thresholds[middle]), float(f[middle]))


def _f(table: EntityTable, thresholds: np.ndarray, beta: float) -> np.ndarray:
    """Strict micro F-beta at each of the thresholds; 0 where nothing is predicted and nothing
    gold."""
    found, right = _reaching(table, thresholds)
    weighted = (1 + beta**2) * right
    whole = found + beta**2 * int(table.gold.sum())
    return np.divide(weighted, whole, out=np.zeros(len(thresholds)), where=right > 0)


def _reaching(table: EntityTable, thresholds: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    """How many predictions, and how many right ones, reach each of the thresholds. As float32, in
    which the components compare."""
    thresholds = thresholds.astype(np.float32)
    found = np.sort(table.score[table.predicted].astype(np.float32))
    right = np.sort(table.score[table.right].astype(np.float32))
    n_found = len(found) - np.searchsorted(found, thresholds, side="left")
    n_right = len(right) - np.searchsorted(right, thresholds, side="left")
    return n_found, n_right


def _run(f: np.ndarray, enough: float) -> tuple[int, int]:
    """First and last index of the unbroken run of high enough scores around the best one."""
    best, low = int(f.argmax()), np.flatnonzero(f < enough)
    at = int(np.searchsorted(low, best))
    return (int(low[at - 1]) + 1 if at else 0), (int(low[at]) if at < len(low) else len(f)) - 1


def _rounded(lower: float, upper: float) -> float:
    """The middle of an interval, with as few digits (two at least) as stay well within it; above
    its lower end as float32, too."""
    middle = (lower + upper) / 2
    for digits in range(2, 7):
        value = round(middle, digits)
        if abs(value - middle) <= (upper - lower) / 4 and np.float32(value) > np.float32(lower):
            return value
    nearest = np.float32(middle)
    return float(nearest if nearest > np.float32(lower) else np.float32(upper))
