import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spacy_nested_ner.pipeline.decode import ScoredSpan, choose_ents, select_spans

A, B = 0, 1
OUTER = ScoredSpan(0, 5, A, 0.6)
INNER = ScoredSpan(1, 3, A, 0.9)
CROSSING = ScoredSpan(2, 7, B, 0.7)


def test_any_keeps_all_in_text_order_outer_first() -> None:
    assert select_spans([CROSSING, INNER, OUTER]) == [OUTER, INNER, CROSSING]


def test_no_crossing_drops_the_lower_score_of_a_crossing_pair() -> None:
    # CROSSING (0.7) falls to INNER (0.9); OUTER crosses only CROSSING, which is gone.
    assert select_spans([OUTER, INNER, CROSSING], overlap="no_crossing") == [OUTER, INNER]


def test_flat_keeps_the_highest() -> None:
    assert select_spans([OUTER, INNER, CROSSING], overlap="flat") == [INNER]


def test_duplicates_keep_the_highest_score() -> None:
    again = INNER._replace(score=0.95)
    assert select_spans([INNER, again]) == [again]


def test_labels_per_span() -> None:
    other = ScoredSpan(1, 3, B, 0.8)
    assert select_spans([INNER, other]) == [INNER, other]
    assert select_spans([INNER, other], labels_per_span=1) == [INNER]
    assert select_spans([INNER, other], overlap="flat", labels_per_span=2) == [INNER, other]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("outermost", [CROSSING]), ("innermost", [INNER]), ("highest", [INNER])],
)
def test_choose_ents(policy: str, expected: list) -> None:
    assert choose_ents([OUTER, INNER, CROSSING], policy) == expected


spans = st.lists(
    st.builds(
        lambda start, length, label, score: ScoredSpan(start, start + length, label, score),
        st.integers(0, 12),
        st.integers(1, 6),
        st.integers(0, 2),
        st.floats(0, 1, width=32),
    ),
    max_size=25,
)


def crosses(a: ScoredSpan, b: ScoredSpan) -> bool:
    first, second = sorted([a, b], key=lambda s: (s.start, -s.end))
    return first.start < second.start < first.end < second.end


def overlaps(a: ScoredSpan, b: ScoredSpan) -> bool:
    return bool(set(range(a.start, a.end)) & set(range(b.start, b.end)))


@given(spans, st.sampled_from(["any", "no_crossing", "flat"]), st.sampled_from([None, 1]))
def test_selection_obeys_its_rules(found, overlap, limit) -> None:
    kept = select_spans(found, overlap=overlap, labels_per_span=limit)
    assert set(kept) <= set(found)
    places = [(s.start, s.end, s.label) for s in kept]
    assert len(places) == len(set(places))
    if limit:
        assert len({s[:2] for s in kept}) == len(kept)
    for i, a in enumerate(kept):
        for b in kept[i + 1 :]:
            same_place = a[:2] == b[:2]
            assert overlap != "no_crossing" or not crosses(a, b)
            assert overlap != "flat" or same_place or not overlaps(a, b)
    if found:
        assert max(s.score for s in kept) == max(s.score for s in found)


@given(spans)
def test_ents_never_overlap(found) -> None:
    for policy in ("outermost", "innermost", "highest"):
        tokens = [t for s in choose_ents(found, policy) for t in range(s.start, s.end)]
        assert len(tokens) == len(set(tokens))
        assert bool(tokens) == bool(found)


def test_scores_stay_float() -> None:
    assert np.float32(select_spans([OUTER])[0].score) == np.float32(0.6)
