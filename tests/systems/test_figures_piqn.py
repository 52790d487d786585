from __future__ import annotations

import numpy as np
import pytest

from spacy_nested_ner.systems.piqn.figures import (
    PLACES,
    QueryUse,
    plot_query_locations,
    plot_query_types,
    query_use,
)
from tests.systems.views import predicted, view_of, views_of_docs


def test_queries_and_what_they_predict():
    learned = {"query_source": "learned", "n_queries": 12, "match_anchor": 0.0}
    for view in views_of_docs(view_of("piqn_ner", learned)):
        use = query_use(view)
        assert not use.from_words
        length = len(view.docs[0])
        found = {
            (round(place * length, 3), view.labels[label])
            for place, label in zip(use.location.tolist(), use.label.tolist())
        }
        assert found == {(round((s + e) / 2, 3), label) for s, e, label in predicted(view)}
        assert len(set(use.query.tolist())) == len(use.query)  # a query says one thing
        assert use.query.max(initial=0) < 12


def test_queries_made_from_words():
    view = view_of("piqn_ner")
    use = query_use(view)
    assert use.from_words and np.abs(use.location).max() < max(map(len, view.docs))
    assert use.query.max() < len(PLACES)
    labels = {label for each in views_of_docs(view) for _, _, label in predicted(each)}
    assert {view.labels[i] for i in use.label.tolist()} == labels


def test_where_the_word_of_a_query_lies():
    """A prediction's centre and the place of its query's word fit together."""
    seen = set()
    for view in views_of_docs(view_of("piqn_ner")):
        use = query_use(view)
        for place, centre in zip([PLACES[i] for i in use.query], use.location.tolist()):
            seen.add(place)
            if place in ("before", "first word"):
                assert centre > 0
            elif place in ("after", "last word"):
                assert centre < 0
            elif place == "only word":
                assert centre == 0
    assert len(seen) > 3
    use = QueryUse(np.array([3, 5, 3]), np.zeros(3), np.array([0, 0, 1]), from_words=True)
    queries, shares = use.type_matrix(2)
    assert queries.tolist() == list(range(len(PLACES)))
    assert shares[3].tolist() == [0.5, 1] and shares[5].tolist() == [0.5, 0]


def test_type_matrix():
    """Query 3 makes one of two predictions of label 0 and all of label 2."""
    use = QueryUse(np.array([3, 5, 3]), np.zeros(3), np.array([0, 0, 2]), from_words=False)
    queries, shares = use.type_matrix(4)
    assert queries.tolist() == [3, 5]
    assert shares.tolist() == [[0.5, 0, 1, 0], [0.5, 0, 0, 0]]


def test_pictures():
    pytest.importorskip("matplotlib")
    rng = np.random.default_rng(0)
    location = np.concatenate([rng.normal(0.2, 0.05, 50), rng.normal(0.8, 0.05, 40), [0.5]])
    query = np.array([7] * 50 + [9] * 40 + [11])
    use = QueryUse(query, location, (query == 9).astype(int), from_words=False)
    (axes,) = plot_query_locations(use, ["A", "B"]).axes
    peaks = {ln.get_label(): ln.get_xdata()[ln.get_ydata().argmax()] for ln in axes.lines}
    assert set(peaks) == {"#7 (50)", "#9 (40)"}  # one prediction makes no density
    assert peaks["#7 (50)"] == pytest.approx(0.2, abs=0.05)
    assert peaks["#9 (40)"] == pytest.approx(0.8, abs=0.05)
    heat = plot_query_types(use, ["A", "B"])
    image = heat.axes[0].images[0].get_array()
    assert image.tolist() == [[50 / 51, 0, 1 / 51], [0, 1, 0]]
    words = QueryUse((query == 9) * 3, location, (query == 9).astype(int), from_words=True)
    (axes,) = plot_query_locations(words, ["A", "B"]).axes
    assert [line.get_label() for line in axes.lines] == ["A (51)", "B (40)"]
    heat = plot_query_types(words, ["A", "B"])
    image = heat.axes[0].images[0].get_array()
    assert image.tolist() == [[1, 0, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0]]
    assert [tick.get_text() for tick in heat.axes[0].get_xticklabels()] == list(PLACES)
