from __future__ import annotations

from collections import Counter

from evaluated import example_table, make_doc, pairs, random_table, spans
from hypothesis import given
from hypothesis import strategies as st

from spacy_nested_ner.evaluation.page.page import compare
from spacy_nested_ner.evaluation.scores.errors import KINDS, errors, kind_of_error


def test_errors_of_an_example():
    """Gold: DNA 0-3, protein 1-2, cell_type 4-6; predicted: DNA 0-3, RNA 1-2, cell_type 4-5 and
    DNA 2-3, which overlaps only what was found."""
    found = errors(example_table())
    assert {kind: n for kind, n in found["predicted"].items() if n} == {
        "right": 1,
        "wrong label": 1,
        "wrong boundary": 1,
        "spurious": 1,
    }
    assert {kind: n for kind, n in found["gold"].items() if n} == {
        "right": 1,
        "wrong label": 1,
        "wrong boundary": 1,
    }
    assert found["confusions"] == [{"gold": "protein", "predicted": "RNA", "count": 1}]


@given(pairs())
def test_errors_are_those_of_the_page(data):
    found = errors(random_table(data))
    words = [f"w{i}" for i in range(8)]
    for side in ("gold", "predicted"):
        drawn = Counter(
            mark.kind
            for gold, predicted in data
            for each in compare(make_doc(words, gold), make_doc(words, predicted))
            for mark in getattr(each, side)
        )
        assert {kind: n for kind, n in found[side].items() if n} == drawn
        assert list(found[side]) == [kind for kind in KINDS if kind in found[side]]


@given(st.lists(spans(length=30, most=8), min_size=2, max_size=2))
def test_what_is_far_away_is_not_looked_at_and_changes_nothing(sides):
    gold, predicted = map(set, sides)
    found = errors(random_table([(list(gold), list(predicted))], length=30))
    for side, own, others, none in (
        ("predicted", predicted - gold, gold - predicted, "spurious"),
        ("gold", gold - predicted, predicted - gold, "missed"),
    ):
        kinds = Counter(kind_of_error(each, others, none) for each in own)
        kinds["right"] = len(gold & predicted)
        assert found[side] == {kind: kinds[kind] for kind in found[side]}


def test_the_most_frequent_confusion_comes_first():
    """Each missed label with each wrong label on its span."""
    data = [
        ([(0, 1, "B")], [(0, 1, "A")]),
        ([(0, 2, "A"), (0, 2, "B")], [(0, 2, "C")]),
        ([(3, 4, "B")], [(3, 4, "A")]),
    ]
    found = errors(random_table(data))["confusions"]
    assert [tuple(each.values()) for each in found] == [("B", "A", 2), ("A", "C", 1), ("B", "C", 1)]
