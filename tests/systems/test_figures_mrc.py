from __future__ import annotations

import numpy as np
import pytest

from spacy_nested_ner.model.types import HeadInput
from spacy_nested_ner.systems.mrc.figures import AnswerScores, answer_scores, plot_answers
from tests.systems.views import view_of


@pytest.mark.parametrize("pairing", ["match", "span", "nearest"])
def test_scores_of_answers(pairing):
    """The best answer over a word, by a loop over all answers, as the pipe decodes them."""
    view = view_of("mrc_ner", {"pairing": pairing})
    view.number = max(range(len(view.docs)), key=lambda i: len(view.docs[i]))
    doc = view.docs[view.number]
    scores = answer_scores(view)
    assert scores.start.shape == scores.end.shape == (len(view.labels), len(doc))
    if pairing == "nearest":
        assert scores.answer is None
        return
    pipe = view.pipe
    pipe.cfg.update(overlap="any", labels_per_span=99)
    segments = pipe.segments([doc]).rows
    spans = pipe.model.predict(HeadInput([doc], segments, options=pipe.options())).spans
    best = np.zeros(scores.start.shape)
    for start, end, label, score in zip(spans.start, spans.end, spans.label, spans.score):
        best[label, start:end] = np.maximum(best[label, start:end], score)
        boundaries = scores.start[label, start], scores.end[label, end - 1]
        assert min(boundaries) >= view.options.boundary_threshold
    # Not every answer is decoded, but the best of them all are.
    assert (scores.answer >= best - 1e-6).all()
    assert scores.answer.max(axis=1) == pytest.approx(best.max(axis=1), abs=1e-6)


def test_answers_are_read_in_batches():
    view = view_of("mrc_ner")
    whole = answer_scores(view)
    view.pipe.model.attrs["batch_words"] = 1
    assert len(list(view.followed())) == len(view.labels)
    for part, alone in zip(vars(whole).values(), vars(answer_scores(view)).values()):
        assert alone == pytest.approx(part, abs=1e-6)


@pytest.mark.parametrize("match", [True, False])
def test_picture(match):
    """Without a score for pairs of start and end there are two pictures, not three."""
    pytest.importorskip("matplotlib")
    start, end, answer = np.random.default_rng(0).random((3, 2, 4))
    scores = AnswerScores(start, end, answer if match else None)
    figure = plot_answers(scores, ["a", "b", "c", "d"], ["DNA", "RNA"])
    *maps, _ = figure.axes  # the last one is the scale
    shown = [axes.images[0].get_array().tolist() for axes in maps]
    assert shown == [each.tolist() for each in (start, end, answer)][: 3 if match else 2]
    assert [tick.get_text() for tick in maps[0].get_yticklabels()] == ["DNA", "RNA"]
    assert {axes.images[0].get_clim() for axes in maps} == {(0, 1)}
