from __future__ import annotations

import numpy as np
import pytest
import srsly
from evaluated import FOUND, GOLD, SCORES, WORDS, make_doc, table_of
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_nested_ner.evaluation.scores.metrics import strict
from spacy_nested_ner.evaluation.scores.own_thresholds import ScoredComponent, threshold_facts
from spacy_nested_ner.evaluation.scores.thresholds import (
    best_of,
    best_threshold,
    f_at,
    rates_at,
    tolerance,
)


def table_with(scores, right, missed=0):
    """One prediction per score, right where `right` is true, and `missed` gold entities more."""
    n = len(scores)
    words = [f"w{i}" for i in range(n + missed)]
    found = [(i, i + 1, "A") for i in range(n)]
    gold = [span for span, is_right in zip(found, right) if is_right]
    gold += [(i, i + 1, "A") for i in range(n, n + missed)]
    return table_of([make_doc(words, gold)], [make_doc(words, found, scores)])


def test_hand_computed_choice():
    """Right at 0.9 and 0.6, wrong at 0.2: all thresholds above 0.2 and up to 0.6 are the best."""
    choice = best_threshold(table_with([0.9, 0.6, 0.2, 0.1], [True, True, False, False]), 0.05)
    assert choice == (0.4, 1.0)
    lower = best_threshold(table_with([0.9, 0.6, 0.2], [False, True, True]), 0.1)
    assert lower is not None and lower.threshold == pytest.approx(0.15)
    assert lower.f == pytest.approx(2 * 2 / (3 + 2))


def test_a_higher_beta_weighs_recall():
    """Right at 0.9 and 0.3, wrong at 0.8 to 0.4: F1 is highest above 0.8, F2 at 0.3."""
    table = table_with([0.9, 0.8, 0.6, 0.4, 0.3], [True, False, False, False, True])
    precise, sensitive = (best_threshold(table, 0.05, beta) for beta in (1.0, 2.0))
    assert precise is not None and 0.8 < precise.threshold < 0.9
    assert precise.f == pytest.approx(2 * 1 / (1 + 2))
    assert sensitive is not None and 0.05 < sensitive.threshold < 0.3
    assert sensitive.f == pytest.approx(5 * 2 / (5 + 4 * 2))
    assert f_at(table, 0.85, 2.0) == pytest.approx(5 * 1 / (1 + 4 * 2))
    assert rates_at(table, 0.85) == (1.0, 0.5) and rates_at(table, 0.1) == (0.4, 1.0)
    assert rates_at(table, 0.95) == (0.0, 0.0)


def test_a_peak_within_chance_does_not_move_the_middle_of_a_plateau():
    """200 right predictions from 0.3 to 1 and 100 wrong ones up to 0.3; one wrong one at 0.9 makes
    a peak above it, which one false prediction of 200 entities does not outweigh."""
    right = np.full(200, 0.999)
    wrong = np.linspace(0.06, 0.3, 100)
    table = table_with([*right, *wrong, 0.9], [True] * 200 + [False] * 101)
    choice = best_threshold(table, 0.05)
    assert choice is not None and 0.5 < choice.threshold < 0.8
    assert 0 < f_at(table, 0.95) - choice.f <= tolerance(table)


@pytest.mark.parametrize(
    "table",
    [
        table_of([make_doc(WORDS, [])], [make_doc(WORDS, [(0, 1, "A")], [0.9])]),
        table_of([make_doc(WORDS, [(0, 1, "A")])], [make_doc(WORDS, [])]),
        table_of([make_doc(WORDS, [(0, 1, "A")])], [make_doc(WORDS, [(0, 2, "A")], [0.9])]),
        table_of([make_doc(WORDS, [(0, 1, "A")])], [make_doc(WORDS, [(0, 1, "A")])]),
    ],
    ids=["no gold", "nothing predicted", "nothing right", "no scores"],
)
def test_nothing_to_choose_by(table):
    assert best_threshold(table, 0.05) is None


def test_equal_scores_are_all_kept():
    choice = best_threshold(table_with([0.97, 0.97, 0.97], [True, False, True], missed=1), 0.05)
    assert choice is not None and choice.f == pytest.approx(2 * 2 / (3 + 3))
    assert choice.threshold == 0.51


def test_a_score_is_reached_by_itself_as_it_is_printed():
    """Components compare in float32: the eighth digit of a score decides nothing."""
    score = float(np.float32(0.99559635))
    assert score < 0.99559635
    assert f_at(table_with([score], [True]), 0.99559635) == 1


def test_a_choice_between_neighbours_is_the_better_one():
    """Half way between two scores next to each other there is no float32."""
    for wrong in (0.5, 0.50000006):
        right = float(np.nextafter(np.float32(wrong), np.float32(1)))
        choice = best_threshold(table_with([wrong, right], [False, True]), 0.05)
        assert choice is not None and choice.f == 1
        assert wrong < np.float32(f"{choice.threshold:.9g}") <= right  # as it is printed


graded = st.lists(st.tuples(st.integers(1, 19), st.booleans()), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(graded, st.integers(0, 3))
def test_choice_is_as_good_as_the_best_of_all_thresholds(drawn, missed):
    scores = [value / 20 for value, _ in drawn]
    table = table_with(scores, [is_right for _, is_right in drawn], missed)
    choice = best_threshold(table, 0.05)
    best = max(f_at(table, value / 20 - 0.01) for value in range(2, 20))
    if choice is None:
        assert best == 0
        return
    assert choice.threshold >= 0.05
    assert choice.f == f_at(table, choice.threshold) > 0
    assert choice.f >= best - tolerance(table)
    assert strict(table).f == pytest.approx(f_at(table, 0.0))


def test_choice_from_passes_of_their_own():
    assert best_of([0.1, 0.3, 0.5, 0.7], [0.2, 0.8, 0.8, 0.8], 0.001) == (0.5, 0.8)
    assert best_of([0.1, 0.3], [0.0, 0.0], 0.001) is None


def test_spans_without_scores_have_no_highest_score():
    component = ScoredComponent("ner", None, "sc", 0.5, False, 0.05)
    none = table_of([make_doc(WORDS, GOLD)], [make_doc(WORDS, FOUND)])
    facts = threshold_facts(component, none, none)
    assert facts["highest_score"] is None and srsly.json_dumps(facts)
    found = [make_doc(WORDS, FOUND, SCORES), make_doc(WORDS, FOUND)]
    some = table_of([make_doc(WORDS, GOLD)] * 2, found)
    assert threshold_facts(component, some, some)["highest_score"] == 0.9375
