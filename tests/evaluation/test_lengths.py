from __future__ import annotations

import numpy as np
import pytest

from spacy_nested_ner.evaluation.figures.lengths import plot_lengths
from spacy_nested_ner.evaluation.scores.metrics import PRF

pytest.importorskip("matplotlib")


def test_f1_by_length(tmp_path):
    systems = {
        "one": {"1": PRF(1, 2, 2), "3": PRF(1, 1, 1)},
        "two": {"1": PRF(2, 2, 2), "200+": PRF(0, 1, 0)},
    }
    figure = plot_lengths(systems)
    scores, counts = figure.axes
    lines = {line.get_label(): line.get_ydata() for line in scores.lines}
    assert lines["one"][:3] == pytest.approx([0.5, np.nan, 1.0], nan_ok=True)
    assert lines["two"][0] == 1.0 and np.isnan(lines["two"][1:]).all()  # nothing gold: no score
    assert [bar.get_height() for bar in counts.patches][:3] == [2, 0, 1]
    figure.savefig(tmp_path / "picture.svg", format="svg")
    assert (tmp_path / "picture.svg").read_text("utf8").startswith("<?xml")
