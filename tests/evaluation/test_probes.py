from __future__ import annotations

import numpy as np
import pytest
import torch
from spacy.tokens import Doc

from spacy_nested_ner.evaluation.figures import probes
from spacy_nested_ner.evaluation.figures.probes import PLACES, QueryUse, nested_pipes, trajectories
from spacy_nested_ner.model.types import HeadInput
from spacy_nested_ner.pipeline.segments import cut_segments
from tests.conftest import make_examples, make_pipeline

# Nothing is trained here: with a threshold of 0 every query, seed and proposal says something.


def pipe_of(factory, model=None, **settings):
    nlp = make_pipeline(factory, model, threshold=0.0, **settings)
    (pipe,) = nested_pipes(nlp).values()
    return nlp, pipe


def docs_of(nlp):
    return list(nlp.pipe(eg.predicted for eg in make_examples(nlp)))


def places(doc: Doc):
    return {(span.start, span.end, span.label_) for span in doc.spans["sc"]}


def test_queries_and_what_they_predict():
    learned = {"query_source": "learned", "n_queries": 12, "match_anchor": 0.0}
    nlp, pipe = pipe_of("piqn_ner", learned)
    for doc in docs_of(nlp):
        use = probes.query_use(pipe, [doc])
        assert not use.from_words
        found = {
            (round(place * len(doc), 3), pipe.labels[label])
            for place, label in zip(use.location.tolist(), use.label.tolist())
        }
        assert found == {(round((s + e) / 2, 3), label) for s, e, label in places(doc)}
        assert len(set(use.query.tolist())) == len(use.query)  # a query says one thing
        assert use.query.max(initial=0) < 12


def test_queries_made_from_words():
    nlp, pipe = pipe_of("piqn_ner")
    docs = docs_of(nlp)
    use = probes.query_use(pipe, docs)
    assert use.from_words and np.abs(use.location).max() < max(map(len, docs))
    assert use.query.max() < len(PLACES)
    predicted = {label for doc in docs for _, _, label in places(doc)}
    assert {pipe.labels[i] for i in use.label.tolist()} == predicted


def test_where_the_word_of_a_query_lies():
    """A prediction's centre and the place of its query's word fit together."""
    nlp, pipe = pipe_of("piqn_ner")
    seen = set()
    for doc in docs_of(nlp):
        use = probes.query_use(pipe, [doc])
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


@pytest.mark.parametrize("pairing", ["match", "nearest"])
def test_scores_of_answers(pairing):
    """The best answer over a word, by a loop over all answers, as the pipe decodes them."""
    nlp, pipe = pipe_of("mrc_ner", {"pairing": pairing})
    doc = max(docs_of(nlp), key=len)
    scores = probes.answer_scores(pipe, doc)
    assert scores.start.shape == scores.end.shape == (len(pipe.labels), len(doc))
    if pairing == "nearest":
        assert scores.answer is None
        return
    pipe.cfg.update(overlap="any", labels_per_span=99)
    spans = pipe.model.predict(
        HeadInput([doc], cut_segments([doc], 128, 96).rows, options=pipe.cfg)
    ).spans
    best = np.zeros(scores.start.shape)
    for start, end, label, score in zip(spans.start, spans.end, spans.label, spans.score):
        best[label, start:end] = np.maximum(best[label, start:end], score)
        assert score <= min(scores.start[label, start], scores.end[label, end - 1]) + 1e-6
    # Not every answer is decoded, but the best of them all are.
    assert (scores.answer >= best - 1e-6).all()
    assert scores.answer.max(axis=1) == pytest.approx(best.max(axis=1), abs=1e-6)


def test_type_matrix():
    """Query 3 makes one of two predictions of label 0 and all of label 2."""
    use = QueryUse(np.array([3, 5, 3]), np.zeros(3), np.array([0, 0, 2]), from_words=False)
    queries, shares = use.type_matrix(4)
    assert queries.tolist() == [3, 5]
    assert shares.tolist() == [[0.5, 0, 1, 0], [0.5, 0, 0, 0]]


def test_offsets_agree_with_a_loop_over_seeds():
    nlp, pipe = pipe_of("locate_and_label_ner", filter_threshold=0.0, nms_decay=1.0)
    head = probes.head_of(pipe)
    with torch.no_grad():  # an untrained regressor moves nothing
        head.offsets.output.weight.normal_(generator=torch.Generator().manual_seed(0))
    expected = dict.fromkeys(probes.OFFSETS, 0)
    docs = docs_of(nlp)
    for doc in docs:
        predicted = {(s, e - 1) for s, e, _ in places(doc)}
        (batch,) = probes._read(pipe, [doc])
        with torch.no_grad():
            words = head.encode(batch.words, batch.mask)
            seeds = head.seeds(batch.mask)
            _, moved, legal = head.adjust(words, seeds, words.range_max(*seeds))
        for i in range(len(seeds.row)):
            end = (int(moved.start[i]), int(moved.end[i]))
            if legal[i] and end in predicted:
                for before, after in zip((seeds.start[i], seeds.end[i]), end):
                    expected[probes.OFFSETS[min(4, abs(after - int(before)))]] += 1
    assert probes.offset_counts(pipe, docs) == expected
    assert sum(expected.values()) > 0 and expected["1"] + expected["2"] > 0


def test_refinement_ends_with_the_entities():
    nlp, pipe = pipe_of("proposer_regressor_ner")
    for doc in docs_of(nlp)[:4]:
        paths = probes.refinement_paths(pipe, doc)
        assert {path.stages.shape for path in paths} == {(4, 2)}  # proposer, 2 layers, entity
        ends = {(int(p.stages[-1, 0]), int(p.stages[-1, 1]) + 1, p.label) for p in paths}
        assert ends == places(doc)


@pytest.mark.parametrize("score", ["label", "sum"])
@pytest.mark.parametrize("found_in", ["every_step", "last_step"])
def test_denoising_ends_with_the_entities(found_in, score):
    nlp, pipe = pipe_of("diffusion_ner", steps=3, found_in=found_in, score=score)
    for doc in docs_of(nlp)[:4]:
        paths = probes.denoising_paths(pipe, doc)
        assert {path.stages.shape for path in paths} <= {(4, 2)}  # noise, 3 steps
        ends = {(int(p.stages[-1, 0]), int(p.stages[-1, 1]) + 1, p.label) for p in paths}
        assert ends == places(doc)
        assert len(ends) == len(paths)  # spans that met are one path
        if score == "sum":
            assert_taken_from(paths, pipe, doc)
        assert probes.followed_words(pipe, doc) == [token.text for token in doc]


def assert_taken_from(paths, pipe, doc):
    """Each path leads to a span with the label and the score of the entity, and stays there."""
    rows = cut_segments([doc], pipe.cfg["window"], pipe.cfg["stride"]).rows[:1]
    (steps,) = trajectories(pipe.model, HeadInput([doc], rows, options=pipe.cfg))
    stages = [steps[0].noisy[0].tolist(), *(step.spans[0].tolist() for step in steps)]
    for path in paths:
        possible = []
        for number, step in enumerate(steps):
            if pipe.cfg["found_in"] == "last_step" and step is not steps[-1]:
                continue
            for k, (label, score) in enumerate(zip(step.label[0].tolist(), step.score[0].tolist())):
                if label >= 0 and pipe.labels[label] == path.label and score == path.score:
                    way = [stage[k] for stage in stages[: number + 2]]
                    possible.append(way + way[-1:] * (len(stages) - len(way)))
        assert path.stages.tolist() in possible


def test_trade_off_of_steps_and_spans():
    nlp, pipe = pipe_of("diffusion_ner", steps=2)
    before = dict(pipe.cfg)
    rows = probes.step_trade_off(nlp, pipe, make_examples(nlp), steps=(1, 3), spans=(4, 8))
    assert [(row["spans"], row["steps"]) for row in rows] == [(4, 1), (4, 3), (8, 1), (8, 3)]
    assert pipe.cfg == before and all(row["words_per_second"] > 0 for row in rows)
    pipe.cfg.update(steps=3, n_spans=8)
    assert rows[-1]["f"] == pytest.approx(nlp.evaluate(make_examples(nlp))["nested_f"])
