"""How far the scores of predictions can be trusted."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

import numpy as np

from spacy_nested_ner.evaluation.scores.entities import EntityTable

BINS = 10
COVERAGES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def calibration(table: EntityTable) -> Optional[Dict[str, Any]]:
    """Reliability by score and expected calibration error (Guo et al. 2017, equations 2, 3 and 5).

    RETURNS: "bins", each with its edges (`low < score <= high`, the first with its lower edge),
        the number of predictions, their mean score and their precision, both None in an empty bin;
        "expected_error", the mean of |precision - mean score| over predictions. None if there are
        no predictions or one of them has no score. Scores outside of 0 to 1 count in the last or
        the first bin.
    """
    score, right = _scored(table)
    if score is None:
        return None
    edges = np.linspace(0, 1, BINS + 1)
    place = np.clip(np.searchsorted(edges, score, side="left") - 1, 0, BINS - 1)
    counts = np.bincount(place, minlength=BINS)
    scores = np.bincount(place, weights=score, minlength=BINS)
    rights = np.bincount(place, weights=right, minlength=BINS)
    rows: List[Dict[str, Any]] = [
        {
            "low": float(edges[i]),
            "high": float(edges[i + 1]),
            "predicted": int(counts[i]),
            "mean_score": float(scores[i] / counts[i]) if counts[i] else None,
            "precision": float(rights[i] / counts[i]) if counts[i] else None,
        }
        for i in range(BINS)
    ]
    return {"bins": rows, "expected_error": float(np.abs(rights - scores).sum() / len(score))}


def precision_at_coverage(table: EntityTable) -> Optional[List[Dict[str, float]]]:
    """Precision and recall of the best-scored part of the predictions (selective prediction,
    El-Yaniv and Wiener 2010).

    Coverage is the part of the predictions that is kept, rounded up to whole predictions. Where
    the cut falls among equal scores, the number of right ones is the mean over all ways to cut.
    None as in `calibration`.
    """
    score, right = _scored(table)
    if score is None:
        return None
    values, group = np.unique(-score, return_inverse=True)
    sizes = np.bincount(group, minlength=len(values))
    kept = np.concatenate([[0], np.cumsum(sizes)])
    rights = np.concatenate([[0], np.cumsum(np.bincount(group, weights=right))])
    gold = int(table.gold.sum())
    rows = []
    for coverage in COVERAGES:
        count = int(np.ceil(round(coverage * len(score), 9)))
        found = float(np.interp(count, kept, rights))
        last = int(np.searchsorted(kept, count, side="left")) - 1
        rows.append(
            {
                "coverage": coverage,
                "predicted": count,
                "lowest_score": float(-values[last]),
                "precision": found / count,
                "recall": found / gold if gold else 0.0,
            }
        )
    return rows


def _scored(table: EntityTable) -> tuple[Optional[np.ndarray], np.ndarray]:
    score, right = table.score[table.predicted], table.right[table.predicted].astype(np.float64)
    return (score if len(score) and np.isfinite(score).all() else None), right
