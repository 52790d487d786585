from __future__ import annotations

import pytest

from spacy_nested_ner.systems.diffusion.figures import (
    denoising_paths,
    plot_trade_off,
    step_trade_off,
)
from tests.conftest import make_examples
from tests.systems.views import predicted, view_of, views_of_docs


@pytest.mark.parametrize("score", ["label", "sum"])
@pytest.mark.parametrize("found_in", ["every_step", "last_step"])
def test_denoising_ends_with_the_entities(found_in, score):
    for view in views_of_docs(view_of("diffusion_ner", steps=3, found_in=found_in, score=score))[
        :4
    ]:
        paths = denoising_paths(view)
        assert {path.stages.shape for path in paths} <= {(4, 2)}  # noise, 3 steps
        ends = {(int(p.stages[-1, 0]), int(p.stages[-1, 1]) + 1, p.label) for p in paths}
        assert ends == predicted(view)
        assert len(ends) == len(paths)  # spans that met are one path
        if score == "sum":
            assert_taken_from(paths, view)
        assert view.followed_words == [token.text for token in view.docs[0]]


def assert_taken_from(paths, view):
    """Each path leads to a span with the label and the score of the entity, and stays there."""
    ((batch, _),) = view.followed()
    steps = view.head.trajectory(batch.words, batch.mask, view.options)
    stages = [steps[0].noisy[0].tolist(), *(step.spans[0].tolist() for step in steps)]
    for path in paths:
        possible = []
        for number, step in enumerate(steps):
            if view.options.found_in == "last_step" and step is not steps[-1]:
                continue
            for k, (label, score) in enumerate(zip(step.label[0].tolist(), step.score[0].tolist())):
                if label >= 0 and view.labels[label] == path.label and score == path.score:
                    way = [stage[k] for stage in stages[: number + 2]]
                    possible.append(way + way[-1:] * (len(stages) - len(way)))
        assert path.stages.tolist() in possible


def test_trade_off_of_steps_and_spans():
    view = view_of("diffusion_ner", steps=2)
    view.values = {"steps": (1, 3), "n_spans": (4, 8)}
    before = dict(view.pipe.cfg)
    rows = step_trade_off(view)
    assert [(row["n_spans"], row["steps"]) for row in rows] == [(4, 1), (4, 3), (8, 1), (8, 3)]
    assert view.pipe.cfg == before and all(row["words_per_second"] > 0 for row in rows)
    view.pipe.cfg.update(steps=3, n_spans=8)
    score = view.nlp.evaluate(make_examples(view.nlp))["nested_f"]
    assert rows[-1]["f"] == pytest.approx(score)


def test_picture_of_the_trade_off():
    pytest.importorskip("matplotlib")
    rows = [
        {"steps": s, "n_spans": n, "f": s * n / 100, "words_per_second": 1000 / s}
        for n in (10, 20)
        for s in (1, 5)
    ]
    quality, speed, spans = plot_trade_off(rows).axes
    assert [list(line.get_ydata()) for line in quality.lines] == [[0.1, 0.5], [0.2, 1.0]]
    assert list(speed.lines[0].get_ydata()) == [1000, 200]
    assert [list(line.get_xdata()) for line in spans.lines] == [[10, 20], [10, 20]]
