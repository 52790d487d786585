"""Which texts are picked, with scores made by hand."""

from __future__ import annotations

import gc
import weakref
from typing import Dict, List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spacy_nested_ner.evaluation.data.picking import (
    SHORTLIST,
    Candidate,
    candidate,
    greedy,
    pick,
    stretched,
)

Spans = List[Tuple[str, str, float]]


def candidates(*texts: Spans, threshold: float = 0.5) -> List[Candidate]:
    """Called "0", "1", ..."""
    return [candidate(str(i), spans, threshold) for i, spans in enumerate(texts)]


def picked(*texts: Spans, n: int = 10, threshold: float = 0.5) -> List[str]:
    return [each.text for each in pick(candidates(*texts, threshold=threshold), n)]


@pytest.mark.parametrize(
    "score, threshold, expected",
    [
        (0.5, 0.5, 0.5),
        (0.2, 0.5, 0.2),
        (0.9, 0.5, 0.9),
        (0.1, 0.2, 0.25),
        (0.2, 0.2, 0.5),
        (0.6, 0.2, 0.75),
        (0.0, 0.0, 0.5),
        (1.0, 0.0, 1.0),
        (0.5, 1.0, 0.25),
        (1.0, 1.0, 0.5),
    ],
)
def test_the_threshold_is_the_middle(score, threshold, expected):
    assert stretched(score, threshold) == pytest.approx(expected)


def test_a_gain_by_hand():
    spans = [("DNA", "IL-2", 0.4), ("DNA", "il-2", 0.7), ("PROT", "IL-2", 0.9)]
    [each] = candidates(spans)
    # Uncertain by 0.4 and 0.1; two entities are expected.
    assert each.gain({}) == pytest.approx((0.4 + 0.1) / 3)
    assert each.gain({("DNA", "il-2"): 2}) == pytest.approx((0.4 / 4 + 0.1) / 3)
    assert each.gain({("CELL", "il-2"): 2}) == each.gain({})
    assert candidates([])[0].gain({}) == 0


def test_uncertain_before_certain():
    texts = [[("A", "x", 0.95)], [("A", "y", 0.5)], [], [("A", "z", 0.7)], [("A", "w", 0.05)]]
    assert picked(*texts) == ["1", "3", "4", "0", "2"]


def test_what_is_uncertain_depends_on_the_threshold():
    texts = [[("A", "x", 0.5)], [("A", "y", 0.2)]]
    assert picked(*texts, threshold=0.5) == ["0", "1"]
    assert picked(*texts, threshold=0.2) == ["1", "0"]


def test_other_forms_come_first():
    """The second and third text are as uncertain as the first. After it another form, be it only
    another label, is worth more."""
    same: Spans = [("A", "The cell", 0.5)]
    texts: List[Spans] = [same, [("A", "the Cell", 0.5)], same, [("A", "p53", 0.25)]]
    assert picked(*texts, [("B", "the cell", 0.3)]) == ["0", "4", "3", "1", "2"]


def test_what_makes_much_work_is_worth_less():
    """Both have the same uncertainty; in the first there are many entities to mark beside."""
    sure: Spans = [("A", f"w{i}", 1.0) for i in range(8)]
    assert picked([*sure, ("A", "x", 0.5)], [("A", "y", 0.5)], n=1) == ["1"]
    assert picked([*sure, ("A", "x", 0.5)], [("A", "y", 0.1)], n=1) == ["1"]
    assert picked([*sure, ("A", "x", 0.5)], [("A", "y", 0.01)], n=1) == ["0"]


def test_the_first_of_equal_ones_and_each_text_once():
    one, other = [("A", "x", 0.5)], [("A", "y", 0.5)]
    assert picked(other, one, n=1) == ["0"]
    twice = [*candidates(one, other), *candidates(one, other)]
    assert [each.text for each in pick(twice, 10)] == ["0", "1"]


def test_all_where_there_are_not_enough():
    assert picked([("A", "x", 0.5)], [], n=100) == ["0", "1"]
    assert picked(n=3) == []


scores = st.sampled_from([0.05, 0.2, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 1.0])
spans = st.tuples(st.sampled_from("AB"), st.sampled_from(["x", "y", "z"]), scores)


@given(st.lists(st.lists(spans, max_size=4), max_size=12), st.integers(1, 14), scores)
def test_greedy_is_exact(texts, n, threshold):
    """Against computing every gain anew each time."""
    pool = candidates(*texts, threshold=threshold)
    left, seen, expected = list(pool), {}, []  # type: ignore[var-annotated]
    for _ in range(min(n, len(pool))):
        best = max(left, key=lambda each: each.gain(seen))
        left.remove(best)
        expected.append(best)
        for form in best.uncertain:
            seen[form] = seen.get(form, 0) + 1
    assert greedy(pool, n) == expected
    assert pick(iter(pool), n) == expected


def test_few_gains_are_computed(monkeypatch):
    """Where forms hardly repeat, each pick looks at few of the others."""
    calls = 0
    gain = Candidate.gain

    def counted(self: Candidate, seen: Dict) -> float:
        nonlocal calls
        calls += 1
        return gain(self, seen)

    monkeypatch.setattr(Candidate, "gain", counted)
    pool = candidates(*([("A", f"w{i}", i / 5000)] for i in range(2000)))
    assert len(greedy(pool, 500)) == 500
    assert calls < 2000 + 2 * 500


def test_few_of_many_candidates_are_held():
    """The best ones, which come at any place, are not lost."""
    alive: weakref.WeakSet[Candidate] = weakref.WeakSet()
    most = 0

    class Tracked(Candidate):
        __hash__ = object.__hash__

    def many():
        nonlocal most
        for i in range(200_000):
            score = 0.5 if i % 50_000 == 7 else 0.01 + i % 1000 / 1e4
            each = Tracked(str(i), {("A", f"w{i}"): score}, 1.0)
            alive.add(each)
            most = max(most, len(alive))
            yield each
            del each

    assert [each.text for each in pick(many(), 4)] == ["7", "50007", "100007", "150007"]
    gc.collect()
    assert most <= 4 * SHORTLIST + 3
