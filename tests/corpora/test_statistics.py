from __future__ import annotations

import time
from collections import Counter

import pytest
import spacy
from hypothesis import given, settings
from hypothesis import strategies as st
from spacy.tokens import Span

from spacy_nested_ner.corpora.statistics import SplitStatistics, nesting, parents

PLACES = st.tuples(st.integers(0, 8), st.integers(1, 5)).map(lambda p: (p[0], p[0] + p[1]))


def contains(outer, inner):
    return outer != inner and outer[0] <= inner[0] and inner[1] <= outer[1]


def brute_depth(span, spans):
    return 1 + max((brute_depth(s, spans) for s in spans if contains(s, span)), default=0)


def brute_crossing(spans):
    pairs = [(a, b) for a in spans for b in spans if a < b]
    touching = [(a, b) for a, b in pairs if a[0] < b[1] and b[0] < a[1]]
    return sum(not contains(a, b) and not contains(b, a) for a, b in touching)


@settings(max_examples=300, deadline=None)
@given(st.lists(PLACES, max_size=9))
def test_nesting_agrees_with_brute_force(spans):
    found = nesting(spans)
    distinct = set(spans)
    assert found.nested == {
        a
        for a in distinct
        if spans.count(a) > 1 or any(contains(a, b) or contains(b, a) for b in distinct)
    }
    assert found.depth == {span: brute_depth(span, distinct) for span in distinct}
    assert found.crossing == brute_crossing(distinct)


@settings(max_examples=300, deadline=None)
@given(st.lists(PLACES, max_size=9))
def test_parents_agree_with_brute_force(spans):
    around = {span: [other for other in spans if contains(other, span)] for span in spans}
    assert parents(spans) == {
        span: min(others, key=lambda other: (other[1] - other[0], other[0]))
        for span, others in around.items()
        if others
    }


@pytest.mark.parametrize(
    "spans",
    [
        [(i, 80_000 - i) for i in range(40_000)],
        [(2 * i, 2 * i + 1 + i % 2) for i in range(40_000)],
        [(i, 40_000 + i) for i in range(40_000)],
        [(i, 40_000 + 2 * i) for i in range(40_000)],
    ],
    ids=["in one another", "side by side", "crossing", "crossing and growing"],
)
def test_parents_of_many_spans(spans):
    began = time.perf_counter()
    found = parents(spans)
    assert time.perf_counter() - began < 5  # pairs would take minutes
    assert len(found) == (len(spans) - 1 if contains(spans[0], spans[1]) else 0)


def doc_with(spans, starts=(0,)):
    words = list("abcdefgh")
    doc = spacy.blank("en").tokenizer(" ".join(words))
    for token in doc:
        token.is_sent_start = token.i in starts
    doc.spans["sc"] = [Span(doc, start, end, label=label) for start, end, label in spans]
    return doc


def test_counts_of_a_doc_with_two_sentences():
    spans = [(0, 4, "X"), (1, 3, "Y"), (1, 2, "X"), (2, 4, "Y"), (5, 6, "X"), (5, 6, "Y")]
    counts = SplitStatistics()
    counts.add(doc_with(spans, (0, 4)), "sc", {("why", "X"): 2})  # type: ignore[arg-type]
    assert (counts.documents, counts.sentences, counts.tokens) == (1, 2, 8)
    assert (counts.entities, counts.nested_entities, counts.nested_sentences) == (6, 6, 2)
    assert counts.labels == {"X": 3, "Y": 3}
    assert counts.depths == {1: 3, 2: 2, 3: 1}
    assert counts.lengths == {1: 3, 2: 2, 4: 1} and counts.per_sentence == {4: 1, 2: 1}
    assert (counts.max_depth, counts.max_length, counts.most_in_sentence) == (3, 4, 4)
    assert counts.crossing_pairs == 1
    assert counts.same_span == {"X + Y": 1}
    assert counts.dropped_by_reason() == {"why": 2}
    assert counts.nested_percent == pytest.approx(100)


def test_no_entities():
    counts = SplitStatistics()
    counts.add(spacy.blank("en")("a b"), "sc", {})  # type: ignore[arg-type]
    assert (counts.sentences, counts.max_depth, counts.max_length) == (1, 0, 0)
    assert counts.nested_percent == 0


def test_pairs_of_very_many_labels_on_one_span_are_counted_together():
    doc = spacy.blank("en")("Rome is old")
    doc.spans["sc"] = [Span(doc, 0, 1, label=f"L{i}") for i in range(1000)]
    counts = SplitStatistics()
    counts.add(doc, "sc", Counter())
    assert counts.same_span == {"pairs of more than 20 labels": 499_500}
