"""What all figures have in common, and what several systems draw."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from spacy_nested_ner.evaluation.figures.lengths import plot_lengths
from spacy_nested_ner.evaluation.scores.metrics import PRF
from spacy_nested_ner.systems.diffusion.figures import plot_trade_off
from spacy_nested_ner.systems.drawing import SpanPath, new_figure, plot_paths
from spacy_nested_ner.systems.locate_and_label.figures import plot_offsets
from spacy_nested_ner.systems.mrc.figures import AnswerScores, plot_answers
from spacy_nested_ner.systems.piqn.figures import QueryUse, plot_query_locations, plot_query_types

pytest.importorskip("matplotlib")


def test_words_and_labels_are_no_formulas() -> None:
    """`$a_$` of code is a word, and a legend leaves out what begins with "_"."""
    paths = [SpanPath(np.array([[0, 1]]), label, 0.9) for label in ("_PER", "$x_$")]
    figure = plot_paths(paths, ["s/$a_$b/", "$\\alpha{$"], ["noise"], "From noise to entities")
    figure.canvas.draw()
    (axes,) = figure.axes
    assert [text.get_text().strip() for text in axes.get_legend().get_texts()] == [
        "_PER",
        r"\$x_\$",
    ]


def saved(figure, tmp_path) -> str:
    figure.savefig(tmp_path / "picture.svg", format="svg")
    return (tmp_path / "picture.svg").read_text("utf8")


def test_pictures_of_nothing(tmp_path):
    none = QueryUse(np.zeros(0, int), np.zeros(0), np.zeros(0, int), from_words=True)
    for figure in (
        plot_query_locations(none, ["A"]),
        plot_query_types(none, ["A"]),
        plot_paths([], ["a", "b"], ["noise", "step 1"], "From noise to entities"),
        plot_lengths({"one": {}}),
    ):
        assert saved(figure, tmp_path).startswith("<?xml")


def test_paths_of_spans():
    path = SpanPath(np.array([[0.0, 3.0], [1.0, 2.0]]), "DNA", 0.9)
    words, stages = ["a", "b", "c", "d"], ["noise", "step 1"]
    (axes,) = plot_paths([path], words, stages, "From noise to entities").axes
    spans = [list(line.get_xdata()) for line in axes.lines[:2]]
    assert spans == [pytest.approx([-0.4, 3.4]), pytest.approx([0.6, 2.4])]
    assert axes.get_legend_handles_labels()[1] == ["DNA"]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == words


def test_every_picture_has_a_title_and_whole_numbers_where_things_are_counted():
    use = QueryUse(np.zeros(9, int), np.arange(9.0), np.zeros(9, int), from_words=True)
    row = {"n_spans": 15, "steps": 1, "f": 0.5, "words_per_second": 10.0}
    answers = AnswerScores(*np.zeros((3, 1, 2)))
    figures = [
        plot_lengths({"one": {"1": PRF(1, 2, 2)}}),
        plot_query_locations(use, ["A"]),
        plot_query_types(use, ["A"]),
        plot_offsets({"0": 2, "1": 1}),
        plot_trade_off([row, {**row, "steps": 2}]),
        plot_paths([], ["a"], ["noise"], "From noise to entities"),
        plot_answers(answers, ["a", "b"], ["A"]),
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
        new_figure(1, 1)
