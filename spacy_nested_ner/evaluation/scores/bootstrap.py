"""Confidence intervals by the paired bootstrap over texts (Efron and Tibshirani 1993; for pairs of
systems Koehn 2004). The sentences of a text are drawn together: they are alike, and drawn one by
one they would give intervals that are too narrow."""

from __future__ import annotations

from itertools import combinations
from typing import Any, Dict, Iterator, List, Optional, Sequence

import numpy as np

from spacy_nested_ner.evaluation.scores.entities import EntityTable

MEASURES = ("p", "r", "f", "macro_f")
LEVEL = 0.95
"""Of the intervals."""
CHUNK = 4_000_000
"""Weights drawn at a time, a limit to memory; what is drawn does not depend on it."""


def unit_counts(table: EntityTable) -> np.ndarray:
    """`(units, labels, 3)` int: right, predicted and gold entities of each text, or of each doc
    where all are of one text."""
    unit = table.text_of_doc if table.texts > 1 else np.arange(table.docs)
    units = int(unit.max(initial=-1)) + 1
    cell = unit[table.doc] * len(table.labels) + table.label
    size = units * len(table.labels)
    counts = [
        np.bincount(cell[chosen], minlength=size)
        for chosen in (table.right, table.predicted, table.gold)
    ]
    return np.stack(counts, axis=1).reshape(units, len(table.labels), 3)


def bootstrap(
    counts: Sequence[np.ndarray], samples: int = 1000, seed: int = 0
) -> Dict[str, List[Any]]:
    """Draw units with replacement, the same ones for all pipelines, and score each sample.

    counts: of each pipeline, see `unit_counts`; all on the same docs.
    RETURNS: "intervals", for each pipeline and measure (`MEASURES`) the `[low, high]` percentiles;
        "by_label", for each pipeline and label those of F, of the samples in which it is defined;
        "differences", for each pair and measure how much better the second is than the first,
        its percentiles, and the share of samples in which it is better (a draw counts half).
    """
    results = [np.concatenate(parts) for parts in zip(*_samples(counts, samples, seed))]
    drawn, labels = zip(*(np.split(each, [len(MEASURES)], axis=1) for each in results))
    points = [_measures(np.ones((1, len(each))), each)[0] for each in counts]
    tail = 50 * (1 - LEVEL)

    def interval(values: np.ndarray) -> Dict[str, List[float]]:
        edges = np.percentile(values, [tail, 100 - tail], axis=0).T.tolist()
        return dict(zip(MEASURES, edges))

    def of_label(values: np.ndarray) -> Optional[List[float]]:
        defined = values[~np.isnan(values)]
        return np.percentile(defined, [tail, 100 - tail]).tolist() if len(defined) else None

    differences = []
    for a, b in combinations(range(len(drawn)), 2):
        values = drawn[b] - drawn[a]
        better = ((values > 0) + 0.5 * (values == 0)).mean(axis=0)
        edges = interval(values)
        measures = {
            name: {
                "difference": float(points[b][i] - points[a][i]),
                "interval": edges[name],
                "better": float(better[i]),
            }
            for i, name in enumerate(MEASURES)
        }
        differences.append({"from": a, "to": b, **measures})
    return {
        "intervals": [interval(values) for values in drawn],
        "by_label": [[of_label(values) for values in each.T] for each in labels],
        "differences": differences,
    }


def _samples(counts: Sequence[np.ndarray], samples: int, seed: int) -> Iterator[List[np.ndarray]]:
    rng = np.random.default_rng(seed)
    units = len(counts[0])
    values = [each.astype(np.float64) for each in counts]
    size = max(1, CHUNK // units)
    for first in range(0, samples, size):
        rows = min(size, samples - first)
        weights = rng.multinomial(units, np.full(units, 1 / units), size=rows).astype(np.float64)
        yield [_measures(weights, each) for each in values]


def _measures(weights: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """`(samples, measures + labels)` float; a measure that is not defined is 0. Labels that do not
    occur in a sample are left out of its macro mean, and their F is NaN."""
    units, labels, _ = counts.shape
    totals = (weights @ counts.reshape(units, 3 * labels)).reshape(len(weights), labels, 3)
    right, predicted, gold = np.moveaxis(totals.sum(axis=1), -1, 0)
    both = totals[..., 1] + totals[..., 2]
    occur = np.maximum((both > 0).sum(axis=1), 1)
    per_label = _ratio(2 * totals[..., 0], both)
    measures = [
        _ratio(right, predicted),
        _ratio(right, gold),
        _ratio(2 * right, predicted + gold),
        per_label.sum(axis=1) / occur,
    ]
    return np.column_stack([*measures, np.where(both > 0, per_label, np.nan)])


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return part / np.where(whole > 0, whole, 1)
