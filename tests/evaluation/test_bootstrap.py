from __future__ import annotations

import numpy as np
import pytest
from evaluated import make_doc, pairs, random_table, table_of
from hypothesis import given, settings

from spacy_nested_ner.evaluation.scores import bootstrap as module
from spacy_nested_ner.evaluation.scores.bootstrap import MEASURES, bootstrap, unit_counts
from spacy_nested_ner.evaluation.scores.metrics import by_label, macro, strict

GOLD = [[(0, 3, "A"), (1, 2, "B")], [(0, 1, "A")], [], [(2, 5, "B"), (2, 3, "B")]]
WEAK = [[(0, 3, "A"), (1, 2, "A")], [], [(0, 1, "A")], [(2, 3, "B")]]
GOOD = [[(0, 3, "A"), (1, 2, "B")], [(0, 1, "A")], [(0, 1, "A")], [(2, 3, "B")]]


@pytest.fixture(scope="module")
def tables():
    return [random_table(list(zip(GOLD, found))) for found in (WEAK, GOOD)]


def test_counts_of_docs(tables):
    """Right, predicted, gold of A and of B in each doc."""
    assert unit_counts(tables[0]).tolist() == [
        [[1, 2, 1], [0, 0, 1]],
        [[0, 0, 1], [0, 0, 0]],
        [[0, 1, 0], [0, 0, 0]],
        [[0, 0, 0], [1, 1, 2]],
    ]


def test_sentences_of_a_text_are_drawn_together(tables):
    """Docs 0 and 2 are of one text; of a single text its docs are drawn."""
    names = ["a", None, "a", 7]
    golds = [make_doc(list("wxyzvu"), spans) for spans in GOLD]
    found = [make_doc(list("wxyzvu"), spans) for spans in WEAK]
    for doc, name in zip(golds, names):
        doc.user_data["doc_id"] = name
    by_doc = unit_counts(tables[0])
    expected = np.stack([by_doc[0] + by_doc[2], by_doc[1], by_doc[3]])
    assert unit_counts(table_of(golds, found)).tolist() == expected.tolist()
    for same in ("a", ""):  # without a name each doc is a text of its own
        for doc in golds:
            doc.user_data["doc_id"] = same
        table = table_of(golds, found)
        assert unit_counts(table).tolist() == by_doc.tolist()
        assert table.texts == (4 if same == "" else 1)


def test_intervals_agree_with_scoring_every_sample(tables):
    """Each sample put together from docs and scored by the ordinary metrics."""
    drawn = bootstrap([unit_counts(table) for table in tables], samples=40, seed=3)
    weights = np.random.default_rng(3).multinomial(4, [0.25] * 4, size=40)
    values, of_labels = [], []
    for found in (WEAK, GOOD):
        rows, labels = [], []
        for row in weights:
            docs = [i for i in range(4) for _ in range(row[i])]
            table = random_table([(GOLD[i], found[i]) for i in docs])
            score = strict(table)
            mean = macro(list(by_label(table).values()))["f"]
            rows.append([score.precision or 0, score.recall or 0, score.f or 0, mean])
            each = by_label(table)
            labels.append([each[name].f if name in each else None for name in tables[0].labels])
        values.append(np.array(rows))
        of_labels.append(np.array(labels, dtype=float))
    for expected, interval in zip(values, drawn["intervals"]):
        for i, name in enumerate(MEASURES):
            assert interval[name] == pytest.approx(np.percentile(expected[:, i], [2.5, 97.5]))
    for expected, intervals in zip(of_labels, drawn["by_label"]):
        assert len(intervals) == len(tables[0].labels) > 1
        for i, interval in enumerate(intervals):
            edges = np.nanpercentile(expected[:, i], [2.5, 97.5])
            assert interval == pytest.approx(edges)
    assert np.isnan(of_labels[0]).any()  # in some samples a label does not occur
    (difference,) = drawn["differences"]
    gain = values[1][:, 2] - values[0][:, 2]
    assert (difference["from"], difference["to"]) == (0, 1)
    assert difference["f"]["interval"] == pytest.approx(np.percentile(gain, [2.5, 97.5]))
    assert difference["f"]["better"] == np.mean((gain > 0) + 0.5 * (gain == 0))
    points = [strict(table).f for table in tables]
    assert difference["f"]["difference"] == pytest.approx(points[1] - points[0])


def test_a_pipeline_is_no_better_than_itself(tables):
    drawn = bootstrap([unit_counts(tables[0])] * 2)
    assert drawn["intervals"][0] == drawn["intervals"][1]
    for measure in MEASURES:
        same = {"difference": 0.0, "interval": [0.0, 0.0], "better": 0.5}
        assert drawn["differences"][0][measure] == same


def test_what_is_drawn_depends_on_the_seed_alone(tables, monkeypatch):
    counts = [unit_counts(table) for table in tables]
    once = bootstrap(counts, seed=1, samples=50)
    monkeypatch.setattr(module, "CHUNK", 9)
    assert bootstrap(counts, seed=1, samples=50) == once
    assert bootstrap(counts, seed=2, samples=50) != once


@settings(max_examples=30, deadline=None)
@given(pairs())
def test_intervals_of_a_perfect_pipeline_and_of_one_doc(data):
    counts = unit_counts(random_table(data))
    drawn = bootstrap([counts], samples=20)["intervals"][0]
    assert all(0 <= low <= high <= 1 for low, high in drawn.values())
    one = unit_counts(random_table(data[:1]))
    score = strict(random_table(data[:1])).f or 0.0
    assert bootstrap([one], samples=5)["intervals"][0]["f"] == pytest.approx([score, score])
