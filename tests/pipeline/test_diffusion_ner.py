"""What `diffusion_ner` has beside the shared pipe: run-time dials and the way of its spans."""

import pytest
from spacy.training import Example
from spacy.util import load_model_from_path

from spacy_nested_ner.evaluation.figures.view import ComponentView
from tests.conftest import NOT_FORKED, SENTENCES, make_pipeline, scores_of, spans_of

OPTIONS = {
    "threshold": 0.0,
    "steps": 2,
    "n_spans": 25,
    "found_in": "last_step",
}
TEXTS = [SENTENCES[0][0], "p53", SENTENCES[7][0]]


@pytest.fixture(scope="module")
def nlp():
    """Untrained: the spans are arbitrary, but the same for the same dials."""
    return make_pipeline("diffusion_ner", **OPTIONS)


def way(nlp, docs):
    """The denoising steps of each doc."""
    examples = [Example(doc, doc) for doc in docs]
    view = ComponentView(nlp, nlp.get_pipe("ner"), examples)
    steps = []
    for view.number in range(len(docs)):
        ((batch, _),) = view.followed()
        steps.append(view.head.trajectory(batch.words, batch.mask, view.options))
    return steps


def test_the_way_ends_with_the_predicted_spans(nlp) -> None:
    docs = [nlp.make_doc(text) for text in TEXTS]
    ways = way(nlp, docs)
    assert [len(steps) for steps in ways] == [2, 2, 2]
    for steps, doc in zip(ways, nlp.pipe(docs)):
        last = steps[-1]
        kept = (last.label[0] >= 0) & last.real[0]
        bounds, labels = last.spans[0][kept].tolist(), last.label[0][kept].tolist()
        names = nlp.get_pipe("ner").labels
        found = {(s, e + 1, names[label]) for (s, e), label in zip(bounds, labels)}
        assert found == set(spans_of(doc))


def test_dials_are_changed_on_the_pipe_and_saved(nlp, tmp_path) -> None:
    cfg, docs = nlp.get_pipe("ner").cfg, [nlp.make_doc(TEXTS[2])]
    saved = dict(cfg)
    cfg.update(steps=7, n_spans=300)
    (steps,) = way(nlp, docs)
    assert len(steps) == 7 and steps[0].spans.shape == (1, 300, 2)
    nlp.to_disk(tmp_path)
    cfg.update(saved)
    loaded = load_model_from_path(tmp_path)
    (steps,) = way(loaded, docs)
    assert len(steps) == 7 and steps[0].spans.shape == (1, 300, 2)
    assert loaded.get_pipe("ner").cfg["steps"] == 7


@pytest.mark.parametrize(("given", "made"), [(10, 10), (60, 60), (120, 120), (None, 70)])
def test_a_number_of_spans_counts_however_long_the_doc(nlp, given, made) -> None:
    cfg, doc = nlp.get_pipe("ner").cfg, nlp.make_doc("word " * 70)
    own = dict(cfg)
    cfg.update(n_spans=given)
    (steps,) = way(nlp, [doc])
    cfg.update(own)
    assert len(doc) == 70 and steps[0].spans.shape == (1, made, 2)


@pytest.mark.parametrize("n_process", [1, pytest.param(2, marks=NOT_FORKED)])
def test_dials_of_one_call_are_those_of_the_pipe_for_once(nlp, n_process) -> None:
    pipe, dials = nlp.get_pipe("ner"), {"steps": 4, "n_spans": 3, "eta": 1.0, "seed": 5}
    before = [spans_of(doc) for doc in nlp.pipe(TEXTS)]
    own = dict(pipe.cfg)
    pipe.cfg.update(dials)
    expected = [spans_of(doc) for doc in nlp.pipe(TEXTS)]
    pipe.cfg.update(own)
    component = {"ner": dials}
    found = nlp.pipe(TEXTS, component_cfg=component, n_process=n_process)
    assert [spans_of(doc) for doc in found] == expected != before
    assert [spans_of(nlp(text, component_cfg=component)) for text in TEXTS] == expected
    assert pipe.cfg == own and [spans_of(doc) for doc in nlp.pipe(TEXTS)] == before


def test_the_seed_decides_where_steps_add_noise(nlp) -> None:
    cfg, docs = nlp.get_pipe("ner").cfg, [nlp.make_doc(TEXTS[0])]

    def second_step(seed, eta):
        cfg.update(seed=seed, eta=eta)
        return way(nlp, docs)[0][1].noisy.tolist()

    assert second_step(0, 1.0) == second_step(0, 1.0) != second_step(1, 1.0)
    assert second_step(0, 0.0) == second_step(1, 0.0)
    cfg["seed"] = 0


def test_steps_out_of_range_are_refused(nlp) -> None:
    cfg = nlp.get_pipe("ner").cfg
    cfg["steps"] = 0
    with pytest.raises(ValueError, match="steps must be a whole number from 1 to 1000, got 0"):
        nlp.get_pipe("ner").predict([nlp.make_doc("a b")])
    cfg["steps"] = 2


def test_scores_of_labels_do_not_depend_on_the_batch() -> None:
    model = {"candidate_weight": 1.0, "word_weight": 1.0, "word_width": 64}
    nlp = make_pipeline("diffusion_ner", threshold=0.0, score="label", model=model)

    def scored(docs):
        return [dict(zip(spans_of(doc), scores_of(doc))) for doc in docs]

    texts = [text for text, _ in SENTENCES]
    together = scored(nlp.pipe(texts, batch_size=8))
    alone = scored(map(nlp, texts))
    assert together == [pytest.approx(each, abs=1e-5) for each in alone]
    assert sum(map(len, together)) >= 5
