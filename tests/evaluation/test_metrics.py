from __future__ import annotations

from collections import Counter
from itertools import chain

import numpy as np
import pytest
from evaluated import (
    FOUND,
    NLP,
    SCORES,
    WORDS,
    example_table,
    make_doc,
    pairs,
    random_table,
    table_of,
)
from hypothesis import given, settings
from spacy.scorer import Scorer
from spacy.tokens import Doc, Span
from spacy.training import Example

from spacy_nested_ner.corpora.statistics import SplitStatistics
from spacy_nested_ner.evaluation.scores import metrics
from spacy_nested_ner.evaluation.scores.entities import (
    crowd_group,
    is_annotated,
    length_group,
    read_entities,
)
from spacy_nested_ner.evaluation.scores.metrics import PRF
from spacy_nested_ner.pipeline.scorer import score_nested, span_set

QUICK = settings(max_examples=60, deadline=None)


# By hand


def test_hand_computed_scores():
    """Of `GOLD` and `FOUND`: one entity is right, one has a wrong label, two wrong boundaries."""
    table = example_table()
    assert metrics.strict(table) == PRF(1, 4, 3)
    assert metrics.strict(table).precision == 1 / 4
    assert metrics.strict(table).recall == pytest.approx(1 / 3)
    assert metrics.strict(table).f == pytest.approx(2 / 7)
    assert metrics.localisation(table) == PRF(2, 4, 3)
    assert metrics.classification(table) == PRF(1, 2, 3)
    assert metrics.partial(table) == PRF(2.5, 4, 3)
    assert metrics.type_only(table) == PRF(2, 4, 3)


def test_hand_computed_groups():
    table = example_table()
    assert metrics.by_label(table) == {
        "DNA": PRF(1, 2, 1),
        "RNA": PRF(0, 1, 0),
        "cell_type": PRF(0, 1, 1),
        "protein": PRF(0, 0, 1),
    }
    assert metrics.by_length(table) == {"1": PRF(0, 3, 1), "2": PRF(0, 0, 1), "3": PRF(1, 1, 1)}
    assert metrics.by_depth(table) == {"1": PRF(1, 1, 2), "2": PRF(0, 3, 1)}
    assert metrics.by_nesting(table) == {"flat": PRF(0, 0, 1), "nested": PRF(1, 4, 2)}
    assert metrics.by_crowd(table) == {"3": PRF(1, 4, 3)}


def test_two_labels_on_one_span_are_nested_as_in_the_report_of_a_corpus():
    spans = [(0, 3, "DNA"), (0, 3, "gene"), (4, 6, "cell_type")]
    gold = make_doc(WORDS, spans)
    counts = SplitStatistics()
    counts.add(gold, "sc", Counter())
    table = table_of([gold], [make_doc(WORDS, [(0, 3, "RNA"), (4, 6, "cell_type")])])
    groups = metrics.by_nesting(table)
    assert groups == {"flat": PRF(1, 1, 1), "nested": PRF(0, 1, 2)}
    assert groups["nested"].gold == counts.nested_entities


def test_macro_counts_undefined_scores_as_zero():
    labels = metrics.by_label(example_table())
    macro = metrics.macro(list(labels.values()))
    assert macro == {
        "p": pytest.approx((1 / 2 + 0 + 0 + 0) / 4),
        "r": pytest.approx((1 + 0 + 0 + 0) / 4),
        "f": pytest.approx((2 / 3) / 4),
        "labels": 4,
    }


def test_classification_is_the_papers():
    """Table 8 and table 1 of PIQN: precision 95.59 and recall 87.81 make F1 91.53; the recall is
    that of the whole task. 100,000 gold entities, located and right in these proportions."""
    right = 87_810
    score = PRF(right, round(right / 0.9559), 100_000)
    assert round(100 * score.precision, 2) == 95.59
    assert 100 * score.f == pytest.approx(91.53, abs=0.01)  # from rounded figures


def test_two_labels_on_one_span_are_one_place():
    both = [(0, 2, "A"), (0, 2, "B")]
    table = random_table([(both, [(0, 2, "A")])])
    assert metrics.strict(table) == PRF(1, 1, 2)
    assert metrics.localisation(table) == PRF(1, 1, 1)
    assert metrics.partial(table) == PRF(1, 1, 2)


def test_a_prediction_that_overlaps_several_entities_takes_the_best_match():
    """Greedy matching in the order of starts would give the first gold entity the second
    prediction's only partner."""
    gold = [(0, 6, "A"), (0, 2, "A")]
    table = random_table([(gold, [(0, 2, "A"), (4, 8, "B")])])
    assert metrics.partial(table) == PRF(1.5, 2, 2)
    assert metrics.type_only(table) == PRF(1, 2, 2)
    gold = [(0, 5, "B"), (1, 2, "A"), (2, 4, "A")]
    table = random_table([(gold, [(0, 2, "B"), (4, 6, "A")])])
    assert metrics.partial(table) == PRF(1.0, 2, 3)


def test_undefined_scores():
    assert PRF(0, 0, 2).precision is None and PRF(0, 0, 2).recall == 0.0
    assert PRF(0, 2, 0).recall is None and PRF(0, 2, 0).f == 0.0
    assert PRF(0, 0, 0).f is None


def test_groups_of_numbers():
    lengths = [length_group(n) for n in (1, 19, 20, 49, 50, 99, 100, 199, 200, 300)]
    longer = ["20-49", "50-99", "100-199", "200+"]
    assert lengths == ["1", "19", *(name for name in longer for _ in range(2))]
    groups = [crowd_group(n) for n in (0, 4, 5, 9, 10, 19, 20, 99)]
    assert groups == ["0", "4", "5-9", "5-9", "10-19", "10-19", "20+", "20+"]


# Sentences, tokens, texts


def test_entities_count_in_the_sentence_they_start_in():
    words = ["a", "b", ".", "c", "d", "."]
    starts = [True, False, False, True, False, False]
    gold = Doc(NLP.vocab, words=words, sent_starts=starts)
    gold.spans["sc"] = [Span(gold, 3, 4, "A"), Span(gold, 3, 5, "A")]
    table = table_of([gold, gold], [make_doc(words, [(0, 1, "A"), (3, 4, "A")])] * 2)
    assert table.sentences == 4
    assert metrics.by_crowd(table) == {"0": PRF(0, 2, 0), "2": PRF(2, 2, 4)}
    assert sorted(set(table.sentence.tolist())) == [0, 1, 2, 3]


def test_predictions_off_the_reference_tokens_are_errors():
    """spaCy's own scorer leaves such a prediction out and gives a precision of 1."""
    gold = Doc(NLP.vocab, words=["NF-kappaB", "binds"], spaces=[True, False])
    gold.spans["sc"] = [Span(gold, 0, 1, "A")]
    found = Doc(NLP.vocab, words=["NF", "-", "kappaB", "binds"], spaces=[False, False, True, False])
    found.spans["sc"] = [Span(found, 0, 3, "A"), Span(found, 2, 3, "A"), Span(found, 0, 1, "B")]
    table = table_of([gold], [found])
    assert metrics.strict(table) == PRF(1, 3, 1)
    assert int((table.predicted & ~table.fits).sum()) == 2
    assert set(table.length.tolist()) == {1}
    assert metrics.by_length(table) == {"1": PRF(1, 3, 1)}
    spacy_scores = Scorer.score_spans(
        [Example(found, gold)],
        "spans_sc",
        getter=lambda doc, _: doc.spans["sc"],
        allow_overlap=True,
    )
    assert spacy_scores["spans_sc_p"] == 1.0


def test_whitespace_does_not_count():
    gold = Doc(NLP.vocab, words=["T", "cells"], spaces=[True, False])
    gold.spans["sc"] = [Span(gold, 0, 2, "A")]
    found = Doc(NLP.vocab, words=["T", " ", "cells"], spaces=[False, False, False])
    found.spans["sc"] = [Span(found, 0, 3, "A")]
    table = table_of([gold], [found])
    assert metrics.strict(table) == PRF(1, 1, 1)
    assert table.length.tolist() == [2] and table.fits.all()


def test_reading_entities():
    doc = make_doc(WORDS, FOUND, SCORES)
    assert read_entities(doc, "sc") == {
        (0, 13, "DNA"): 0.9375,
        (5, 9, "RNA"): 0.625,
        (15, 16, "cell_type"): 0.375,
        (9, 13, "DNA"): 0.25,
    }
    assert set(read_entities(doc, "sc")) == span_set(doc, "sc")
    assert read_entities(doc, "other") is None
    doc.ents = [Span(doc, 4, 6, "cell_type")]
    assert set(read_entities(doc, "other", ents=True)) == {(15, 21, "cell_type")}
    assert is_annotated(doc, "other", ents=True) and not is_annotated(doc, "other")


def test_scores_of_any_shape():
    for scores in ([0.25, 0.75], [0.75, 0.25]):
        doubled = make_doc(WORDS, [(0, 1, "A"), (0, 1, "A")], scores)
        assert read_entities(doubled, "sc") == {(0, 5, "A"): 0.75}
    column = make_doc(WORDS, [(0, 1, "A")])
    column.spans["sc"].attrs["scores"] = np.array([[0.5]])  # as spancat_singlelabel has them
    assert read_entities(column, "sc") == {(0, 5, "A"): 0.5}
    unscored = read_entities(make_doc(WORDS, [(0, 1, "A")]), "sc")
    assert np.isnan(unscored[0, 5, "A"])


def test_no_entities_at_all():
    table = random_table([([], [])])
    assert metrics.strict(table) == metrics.partial(table) == PRF(0, 0, 0)
    assert metrics.by_label(table) == {} and metrics.macro([])["f"] == 0.0


# Against independent implementations


def overlap(a, b):
    return max(a[0], b[0]) < min(a[1], b[1])


def best_matching(gold, found, credit):
    """Every one-to-one matching there is."""
    if not gold:
        return 0.0
    first, *rest = gold
    best = best_matching(rest, found, credit)
    for i, other in enumerate(found):
        value = credit(first, other)
        if value:
            left = [*found[:i], *found[i + 1 :]]
            best = max(best, value + best_matching(rest, left, credit))
    return best


def chain_around(span, places):
    """Longest chain of gold spans around a span, itself counted."""
    around = [p for p in places if p != span and p[0] <= span[0] and p[1] >= span[1]]
    return 1 + max((chain_around(p, places) for p in around), default=0)


def contains(a, b):
    return a != b and a[0] <= b[0] and a[1] >= b[1]


@QUICK
@given(pairs())
def test_scores_agree_with_sets(data):
    table = random_table(data)
    n_gold, n_found = sum(len(g) for g, _ in data), sum(len(f) for _, f in data)
    right = sum(len(set(g) & set(f)) for g, f in data)
    assert metrics.strict(table) == PRF(right, n_found, n_gold)
    places = [({s[:2] for s in g}, {s[:2] for s in f}) for g, f in data]
    located = sum(len(g & f) for g, f in places)
    counts = (sum(len(f) for _, f in places), sum(len(g) for g, _ in places))
    assert metrics.localisation(table) == PRF(located, *counts)
    placed = sum(s[:2] in g for (g, _), (_, f) in zip(places, data) for s in f)
    assert metrics.classification(table) == PRF(right, placed, n_gold)


@QUICK
@given(pairs())
def test_groups_agree_with_sets(data):
    table = random_table(data)

    def expected(group):
        names = sorted({group(s, g) for g, f in data for s in chain(g, f)})
        return {
            name: PRF(
                sum(group(s, g) == name for g, f in data for s in set(g) & set(f)),
                sum(group(s, g) == name for g, f in data for s in f),
                sum(group(s, g) == name for g, f in data for s in g),
            )
            for name in names
        }

    def depth(span, gold):
        return str(chain_around(span[:2], {g[:2] for g in gold}))

    def nested(span, gold):
        others = [g[:2] for g in gold]
        touched = others.count(span[:2]) > 1 or any(
            contains(span[:2], o) or contains(o, span[:2]) for o in others
        )
        return "nested" if touched else "flat"

    assert metrics.by_label(table) == expected(lambda span, _: span[2])
    assert metrics.by_length(table) == expected(lambda span, _: str(span[1] - span[0]))
    assert metrics.by_depth(table) == expected(depth)
    assert metrics.by_nesting(table) == expected(nested)
    assert metrics.by_crowd(table) == expected(lambda _, gold: str(len(gold)))


@QUICK
@given(pairs())
def test_matching_agrees_with_all_matchings(data):
    table = random_table(data)

    def partial(a, b):
        return 1.0 if a[:2] == b[:2] else 0.5 if overlap(a, b) else 0.0

    def same_type(a, b):
        return float(overlap(a, b) and a[2] == b[2])

    assert metrics.partial(table).right == sum(best_matching(g, f, partial) for g, f in data)
    assert metrics.type_only(table).right == sum(best_matching(g, f, same_type) for g, f in data)


@QUICK
@given(pairs())
def test_what_always_holds(data):
    table = random_table(data)
    strict, partial = metrics.strict(table), metrics.partial(table)
    assert strict.right <= metrics.type_only(table).right
    assert strict.right <= partial.right <= min(partial.predicted, partial.gold)
    for groups in (metrics.by_depth, metrics.by_crowd, metrics.by_length, metrics.by_nesting):
        parts = groups(table).values()
        assert sum(part.right for part in parts) == strict.right
        assert sum(part.gold for part in parts) == strict.gold
    swapped = random_table([(f, g) for g, f in data])
    assert metrics.strict(swapped).f == strict.f
    assert metrics.partial(swapped).right == partial.right
    perfect = random_table([(g, g) for g, _ in data])
    everything = [
        metrics.strict(perfect),
        metrics.localisation(perfect),
        metrics.classification(perfect),
        metrics.partial(perfect),
        metrics.type_only(perfect),
    ]
    assert all(score.f in (1.0, None) for score in everything)


@QUICK
@given(pairs())
def test_scores_agree_with_spacy(data):
    words = [f"w{i}" for i in range(8)]
    examples = [Example(make_doc(words, f), make_doc(words, g)) for g, f in data]
    table = table_of([eg.reference for eg in examples], [eg.predicted for eg in examples])
    theirs, ours = score_nested(examples), metrics.strict(table)
    for prefix in ("nested", "spans_sc"):
        assert (theirs[f"{prefix}_p"] or 0.0) == pytest.approx(ours.precision or 0.0)
        assert (theirs[f"{prefix}_r"] or 0.0) == pytest.approx(ours.recall or 0.0)
        assert (theirs[f"{prefix}_f"] or 0.0) == pytest.approx(ours.f or 0.0)
        for label, score in metrics.by_label(table).items():
            assert theirs[f"{prefix}_per_type"][label]["f"] == pytest.approx(score.f)
    assert set(theirs["nested_per_type"]) == set(table.labels)
