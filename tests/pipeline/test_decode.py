from typing import Any, List, NamedTuple, Tuple

import numpy as np
import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st
from spacy.tokens import Doc

from spacy_nested_ner.model.types import ScoredSpans
from spacy_nested_ner.pipeline import decode

A, B = 0, 1
VOCAB = spacy.blank("en").vocab


class Found(NamedTuple):
    """One span of `ScoredSpans`."""

    start: int
    end: int
    label: int
    score: float
    doc: int = 0


OUTER = Found(0, 5, A, 0.5)
INNER = Found(1, 3, A, 0.875)
CROSSING = Found(2, 7, B, 0.75)


def columns(spans: List[Found]) -> ScoredSpans:
    """Sorted by doc, as a model gives them."""
    rows = np.array(sorted(spans, key=lambda s: s.doc), dtype=np.float64).reshape(-1, 5).T
    start, end, label, score, doc = rows
    whole = (each.astype(np.int64) for each in (doc, doc, start, end, label))
    return ScoredSpans(*whole, score.astype(np.float32))


def rows(spans: ScoredSpans) -> List[Found]:
    values = (spans.start, spans.end, spans.label, spans.score, spans.doc)
    return [Found(*row) for row in zip(*(column.tolist() for column in values))]


def select_spans(spans: List[Found], **settings: Any) -> List[Found]:
    return rows(decode.select_spans(columns(spans), **settings))


def choose_ents(spans: List[Found], policy: str) -> List[Found]:
    return rows(decode.choose_ents(columns(spans), policy))


def test_any_keeps_all_in_text_order_outer_first() -> None:
    assert select_spans([CROSSING, INNER, OUTER]) == [OUTER, INNER, CROSSING]


def test_no_crossing_drops_the_lower_score_of_a_crossing_pair() -> None:
    # CROSSING falls to INNER, which has a higher score; OUTER crosses only CROSSING, which is gone.
    assert select_spans([OUTER, INNER, CROSSING], overlap="no_crossing") == [OUTER, INNER]


def test_flat_keeps_the_highest() -> None:
    assert select_spans([OUTER, INNER, CROSSING], overlap="flat") == [INNER]


def test_duplicates_keep_the_highest_score() -> None:
    again = INNER._replace(score=0.9375)
    assert select_spans([INNER, again]) == [again]


def test_labels_per_span() -> None:
    other = Found(1, 3, B, 0.75)
    assert select_spans([INNER, other]) == [INNER, other]
    assert select_spans([INNER, other], labels_per_span=1) == [INNER]
    assert select_spans([INNER, other], overlap="flat", labels_per_span=2) == [INNER, other]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("outermost", [CROSSING]), ("innermost", [INNER]), ("highest", [INNER])],
)
def test_choose_ents(policy: str, expected: list) -> None:
    assert choose_ents([OUTER, INNER, CROSSING], policy) == expected


@pytest.mark.parametrize(
    ("span", "trimmed"),
    [((0, 4), (1, 3)), ((1, 3), (1, 3)), ((3, 4), None), ((3, 6), (5, 6)), ((2, 2), None)],
)
def test_whitespace_is_trimmed(span: Tuple[int, int], trimmed: Any) -> None:
    docs = [Doc(VOCAB, words=["a"]), Doc(VOCAB, words=[" ", "b", "c", "\n", " ", "d"])]
    found = decode.without_space(docs, columns([Found(0, 1, A, 0.5), Found(*span, B, 0.5, doc=1)]))
    kept = [] if trimmed is None else [Found(*trimmed, B, 0.5, doc=1)]
    assert rows(found) == [Found(0, 1, A, 0.5), *kept]


spans = st.lists(
    st.builds(
        lambda start, length, label, score, doc: Found(start, start + length, label, score, doc),
        st.integers(0, 12),
        st.integers(1, 6),
        st.integers(0, 2),
        st.floats(0, 1, width=32),
        st.integers(0, 1),
    ),
    max_size=25,
)
overlaps_allowed = st.sampled_from(["any", "no_crossing", "flat"])


def crosses(a: Found, b: Found) -> bool:
    first, second = sorted([a, b], key=lambda s: (s.start, -s.end))
    return first.start < second.start < first.end < second.end


def overlaps(a: Found, b: Found) -> bool:
    return bool(set(range(a.start, a.end)) & set(range(b.start, b.end)))


@given(spans, overlaps_allowed, st.sampled_from([None, 1]))
def test_selection_obeys_its_rules(found, overlap, limit) -> None:
    found = [span._replace(doc=0) for span in found]
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


@given(spans, overlaps_allowed, st.sampled_from([None, 1, 2]))
def test_docs_are_selected_each_by_itself(found, overlap, limit) -> None:
    settings = {"overlap": overlap, "labels_per_span": limit}
    alone = [select_spans([s for s in found if s.doc == doc], **settings) for doc in (0, 1)]
    assert select_spans(found, **settings) == alone[0] + alone[1]
    per_doc = decode.spans_per_doc(decode.select_spans(columns(found), **settings), 3)
    assert [rows(each) for each in per_doc] == [*alone, []]


@given(spans)
def test_ents_never_overlap(found) -> None:
    for policy in ("outermost", "innermost", "highest"):
        tokens = [(s.doc, t) for s in choose_ents(found, policy) for t in range(s.start, s.end)]
        assert len(tokens) == len(set(tokens))
        assert bool(tokens) == bool(found)


@pytest.mark.parametrize("overlap", ["flat", "no_crossing"])
def test_neighbours_do_not_overlap(overlap) -> None:
    neighbours = [Found(0, 2, A, 0.875), Found(2, 4, A, 0.75)]
    assert select_spans(neighbours, overlap=overlap) == neighbours


def test_of_two_spans_with_one_start_the_longer_one_is_first() -> None:
    short, long = Found(0, 2, A, 0.875), Found(0, 4, A, 0.75)
    assert select_spans([short, long]) == [long, short]
