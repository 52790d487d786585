from __future__ import annotations

from itertools import combinations
from math import ceil

import numpy as np
import pytest
from evaluated import WORDS, example_table, make_doc, table_of
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_nested_ner.evaluation.scores.calibration import calibration, precision_at_coverage


def table_with(scores, right):
    """One prediction per score, right where `right` is true, and two gold entities more."""
    words = [f"w{i}" for i in range(len(scores) + 2)]
    found = [(i, i + 1, "A") for i in range(len(scores))]
    gold = [span for span, is_right in zip(found, right) if is_right]
    gold += [(len(scores), len(scores) + 1, "A"), (len(scores) + 1, len(scores) + 2, "A")]
    return table_of([make_doc(words, gold)], [make_doc(words, found, scores)])


def test_hand_computed_calibration():
    """One right prediction with 0.9375, three wrong ones with 0.625, 0.375 and 0.25."""
    found = calibration(example_table())
    assert found["expected_error"] == pytest.approx((0.0625 + 0.625 + 0.375 + 0.25) / 4)
    filled = {round(each["low"], 1): each for each in found["bins"] if each["predicted"]}
    assert set(filled) == {0.9, 0.6, 0.3, 0.2}
    assert filled[0.9]["mean_score"] == 0.9375 and filled[0.9]["precision"] == 1.0
    assert filled[0.6]["precision"] == 0.0
    assert len(found["bins"]) == 10 and found["bins"][0]["mean_score"] is None


def test_hand_computed_coverage():
    rows = {each["coverage"]: each for each in precision_at_coverage(example_table())}
    assert (rows[0.1]["predicted"], rows[0.1]["precision"]) == (1, 1.0)
    assert rows[0.5]["predicted"] == 2 and rows[0.5]["precision"] == 0.5
    assert rows[0.5]["lowest_score"] == 0.625
    assert rows[1.0]["precision"] == 0.25 and rows[1.0]["recall"] == pytest.approx(1 / 3)


def test_edges_of_the_bins():
    found = calibration(table_with([0.0, 0.5, 1.0], [False, True, True]))["bins"]
    assert [i for i, each in enumerate(found) if each["predicted"]] == [0, 4, 9]


def test_pipelines_without_scores():
    table = table_of([make_doc(WORDS, [(0, 1, "A")])], [make_doc(WORDS, [(0, 1, "A")])])
    assert calibration(table) is None and precision_at_coverage(table) is None
    nothing = table_of([make_doc(WORDS, [(0, 1, "A")])], [make_doc(WORDS, [])])
    assert calibration(nothing) is None


graded = st.lists(
    st.tuples(st.sampled_from([0.0, 0.125, 0.5, 0.75, 1.0]), st.booleans()), min_size=1
)


@settings(max_examples=40, deadline=None)
@given(graded)
def test_calibration_agrees_with_a_loop(predictions):
    scores, right = zip(*predictions)
    error = 0.0
    for i in range(10):
        low, high = np.linspace(0, 1, 11)[[i, i + 1]]
        inside = [(s, r) for s, r in predictions if low < s <= high or (i == 0 and s == 0)]
        if inside:
            gap = np.mean([r for _, r in inside]) - np.mean([s for s, _ in inside])
            error += len(inside) / len(predictions) * abs(gap)
    assert calibration(table_with(scores, right))["expected_error"] == pytest.approx(error)


@settings(max_examples=40, deadline=None)
@given(graded.filter(lambda predictions: len(predictions) <= 7))
def test_coverage_agrees_with_all_ways_to_cut(predictions):
    scores, right = zip(*predictions)
    for row in precision_at_coverage(table_with(scores, right)):
        size = ceil(round(row["coverage"] * len(predictions), 9))
        ways = list(combinations(predictions, size))
        top = max(sum(s for s, _ in way) for way in ways)
        best = [way for way in ways if sum(s for s, _ in way) == top]
        mean = np.mean([sum(r for _, r in way) / size for way in best])
        assert row["precision"] == pytest.approx(mean)
        assert row["recall"] == pytest.approx(mean * size / (sum(right) + 2))
        assert row["lowest_score"] == min(s for s, _ in best[0])
