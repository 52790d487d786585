from __future__ import annotations

import sys

import numpy as np
import pytest

from spacy_nested_ner.evaluation.figures import plots
from spacy_nested_ner.evaluation.figures.probes import PLACES, AnswerScores, QueryUse, SpanPath
from spacy_nested_ner.evaluation.scores.metrics import PRF

pytest.importorskip("matplotlib")


def saved(figure, tmp_path) -> str:
    figure.savefig(tmp_path / "picture.svg", format="svg")
    return (tmp_path / "picture.svg").read_text("utf8")


def test_f1_by_length(tmp_path):
    systems = {
        "one": {"1": PRF(1, 2, 2), "3": PRF(1, 1, 1)},
        "two": {"1": PRF(2, 2, 2), "20+": PRF(0, 1, 0)},
    }
    figure = plots.plot_lengths(systems)
    scores, counts = figure.axes
    lines = {line.get_label(): line.get_ydata() for line in scores.lines}
    assert lines["one"][:3] == pytest.approx([0.5, np.nan, 1.0], nan_ok=True)
    assert lines["two"][0] == 1.0 and np.isnan(lines["two"][1:]).all()  # nothing gold: no score
    assert [bar.get_height() for bar in counts.patches][:3] == [2, 0, 1]
    assert saved(figure, tmp_path).startswith("<?xml")


def test_query_locations_and_types(tmp_path):
    rng = np.random.default_rng(0)
    location = np.concatenate([rng.normal(0.2, 0.05, 50), rng.normal(0.8, 0.05, 40), [0.5]])
    query = np.array([7] * 50 + [9] * 40 + [11])
    use = QueryUse(query, location, (query == 9).astype(int), from_words=False)
    (axes,) = plots.plot_query_locations(use, ["A", "B"]).axes
    peaks = {ln.get_label(): ln.get_xdata()[ln.get_ydata().argmax()] for ln in axes.lines}
    assert set(peaks) == {"#7 (50)", "#9 (40)"}  # one prediction makes no density
    assert peaks["#7 (50)"] == pytest.approx(0.2, abs=0.05)
    assert peaks["#9 (40)"] == pytest.approx(0.8, abs=0.05)
    heat = plots.plot_query_types(use, ["A", "B"])
    image = heat.axes[0].images[0].get_array()
    assert image.tolist() == [[50 / 51, 0, 1 / 51], [0, 1, 0]]
    words = QueryUse((query == 9) * 3, location, (query == 9).astype(int), from_words=True)
    (axes,) = plots.plot_query_locations(words, ["A", "B"]).axes
    assert [line.get_label() for line in axes.lines] == ["A (51)", "B (40)"]
    heat = plots.plot_query_types(words, ["A", "B"])
    image = heat.axes[0].images[0].get_array()
    assert image.tolist() == [[1, 0, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0]]
    assert [tick.get_text() for tick in heat.axes[0].get_xticklabels()] == list(PLACES)


def test_pictures_of_nothing(tmp_path):
    none = QueryUse(np.zeros(0, int), np.zeros(0), np.zeros(0, int), from_words=True)
    for figure in (
        plots.plot_query_locations(none, ["A"]),
        plots.plot_query_types(none, ["A"]),
        plots.plot_paths([], ["a", "b"], ["noise", "step 1"], "From noise to entities"),
        plots.plot_lengths({"one": {}}),
    ):
        saved(figure, tmp_path)


def test_offsets():
    (axes,) = plots.plot_offsets({"0": 5, "1": 2}).axes
    assert [bar.get_height() for bar in axes.patches] == [5, 2]


def test_trade_off():
    rows = [
        {"steps": s, "spans": n, "f": s * n / 100, "words_per_second": 1000 / s}
        for n in (10, 20)
        for s in (1, 5)
    ]
    quality, speed, spans = plots.plot_trade_off(rows).axes
    assert [list(line.get_ydata()) for line in quality.lines] == [[0.1, 0.5], [0.2, 1.0]]
    assert list(speed.lines[0].get_ydata()) == [1000, 200]
    assert [list(line.get_xdata()) for line in spans.lines] == [[10, 20], [10, 20]]


def test_paths_of_spans():
    path = SpanPath(np.array([[0.0, 3.0], [1.0, 2.0]]), "DNA", 0.9)
    words, stages = ["a", "b", "c", "d"], ["noise", "step 1"]
    (axes,) = plots.plot_paths([path], words, stages, "From noise to entities").axes
    spans = [list(line.get_xdata()) for line in axes.lines[:2]]
    assert spans == [pytest.approx([-0.4, 3.4]), pytest.approx([0.6, 2.4])]
    assert axes.get_legend_handles_labels()[1] == ["DNA"]


@pytest.mark.parametrize("match", [True, False])
def test_answers(match):
    """Without a score for pairs of start and end there are two pictures, not three."""
    start, end, answer = np.random.default_rng(0).random((3, 2, 4))
    scores = AnswerScores(start, end, answer if match else None)
    figure = plots.plot_answers(scores, ["a", "b", "c", "d"], ["DNA", "RNA"])
    *maps, _ = figure.axes  # the last one is the scale
    shown = [axes.images[0].get_array().tolist() for axes in maps]
    assert shown == [each.tolist() for each in (start, end, answer)][: 3 if match else 2]
    assert [tick.get_text() for tick in maps[0].get_yticklabels()] == ["DNA", "RNA"]
    assert {axes.images[0].get_clim() for axes in maps} == {(0, 1)}


def test_every_picture_has_a_title_and_whole_numbers_where_things_are_counted():
    use = QueryUse(np.zeros(9, int), np.arange(9.0), np.zeros(9, int), from_words=True)
    row = {"spans": 15, "steps": 1, "f": 0.5, "words_per_second": 10.0}
    answers = AnswerScores(*np.zeros((3, 1, 2)))
    figures = [
        plots.plot_lengths({"one": {"1": PRF(1, 2, 2)}}),
        plots.plot_query_locations(use, ["A"]),
        plots.plot_query_types(use, ["A"]),
        plots.plot_offsets({"0": 2, "1": 1}),
        plots.plot_trade_off([row, {**row, "steps": 2}]),
        plots.plot_paths([], ["a"], ["noise"], "From noise to entities"),
        plots.plot_answers(answers, ["a", "b"], ["A"]),
    ]
    for figure in figures:
        figure.canvas.draw()
        assert figure.axes[0].get_title()
    lengths, locations, _, offsets, trade_off, *_ = figures
    steps = trade_off.axes[0].xaxis
    counted = (lengths.axes[1].yaxis, locations.axes[0].xaxis, offsets.axes[0].yaxis, steps)
    for axis in counted:
        ticks = axis.get_ticklocs()
        assert len(ticks) and np.array_equal(ticks, np.round(ticks))


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"spacy_nested_ner\[plots\]"):
        plots.new_figure(1, 1)
