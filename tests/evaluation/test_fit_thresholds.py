"""Thresholds chosen on data, for each system, by what it really predicts there."""

from __future__ import annotations

import warnings
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, Dict, List

import numpy as np
import pytest
import spacy
from spacy.language import Language
from spacy.tokens import Doc, Span, SpanGroup
from spacy.training import Example
from spacy.util import filter_spans

from spacy_nested_ner.evaluation.scores import fit_thresholds as fitting
from spacy_nested_ner.evaluation.scores.entities import entity_table, read_entities
from spacy_nested_ner.evaluation.scores.fit_thresholds import (
    PASSES,
    Fit,
    _tell_of_strange_labels,
    describe,
    fit_thresholds,
    with_thresholds,
)
from spacy_nested_ner.evaluation.scores.own_thresholds import is_searchable
from spacy_nested_ner.evaluation.scores.thresholds import ThresholdChoice
from tests.conftest import SMALL_CNN, make_example, make_examples, make_pipeline, train

SYSTEMS: Dict[str, Dict[str, Any]] = {
    "piqn_ner": {},
    "locate_and_label_ner": {},
    "proposer_regressor_ner": {},
    "diffusion_ner": {"found_in": "every_step"},
    "mrc_ner": {},
}
STEPS = {"diffusion_ner": 60}


def found_at(nlp: Language, threshold: float) -> List[dict]:
    pipe: Any = nlp.get_pipe("ner")
    own, pipe.cfg["threshold"] = pipe.cfg["threshold"], threshold
    docs = nlp.pipe([eg.predicted for eg in make_examples(nlp)])
    found = [read_entities(doc, "sc") or {} for doc in docs]
    pipe.cfg["threshold"] = own
    return found


@pytest.fixture(scope="module", params=SYSTEMS)
def half_trained(request) -> Language:
    """A pipeline with scores of all sizes. Not to be changed by a test."""
    nlp = make_pipeline(request.param, **SYSTEMS[request.param])
    return train(nlp, STEPS.get(request.param, 25))


@pytest.mark.parametrize(
    ("overlap", "labels_per_span"), [("any", None), ("no_crossing", 1), ("flat", None)]
)
def test_lower_scores_never_remove_higher_ones(
    half_trained, overlap, labels_per_span, monkeypatch
) -> None:
    cfg = half_trained.get_pipe("ner").cfg
    monkeypatch.setitem(cfg, "overlap", overlap)
    monkeypatch.setitem(cfg, "labels_per_span", labels_per_span)
    every = found_at(half_trained, 0.05)
    assert any(every)
    for threshold in (0.15, 0.35, 0.6):
        expected = [{e: s for e, s in each.items() if s >= threshold} for each in every]
        assert found_at(half_trained, threshold) == [pytest.approx(each) for each in expected]


def test_what_is_chosen_is_what_it_scores(half_trained) -> None:
    pipe = half_trained.get_pipe("ner")
    old = pipe.cfg["threshold"]
    fits, reasons = fit_thresholds(half_trained, make_examples(half_trained))
    assert set(fits) == {"ner"} and not reasons and pipe.cfg["threshold"] == old
    fit, saved = fits["ner"], with_thresholds(half_trained, fits)
    assert saved.get_pipe("ner").cfg["threshold"] == fit.threshold
    assert pipe.cfg["threshold"] == fit.old_threshold == old
    for nlp, f in ((half_trained, fit.old_f), (saved, fit.f)):
        assert nlp.evaluate(make_examples(nlp))["nested_f"] == pytest.approx(f)
    assert fit.f >= fit.old_f


def test_nearest_ends_are_predicted_at_each_threshold() -> None:
    """Where a start takes the nearest end, a lower threshold finds other spans."""
    nlp = train(make_pipeline("mrc_ner", decoding="flat"), 35)
    found = [found_at(nlp, threshold) for threshold in (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)]
    assert any(
        set(few) - set(many) for every, some in pairwise(found) for few, many in zip(some, every)
    )
    fits, _ = fit_thresholds(nlp, make_examples(nlp))
    saved = with_thresholds(nlp, fits)
    f = saved.evaluate(make_examples(saved))["nested_f"]
    assert f == pytest.approx(fits["ner"].f) and f >= fits["ner"].old_f


def test_a_fitted_pipeline_is_saved_and_loaded(tmp_path) -> None:
    nlp = train(make_pipeline("diffusion_ner", threshold=0.99), 40)
    fits, _ = fit_thresholds(nlp, make_examples(nlp))
    assert fits["ner"].threshold < 0.99 and fits["ner"].f > fits["ner"].old_f
    with_thresholds(nlp, fits).to_disk(tmp_path)
    loaded = spacy.load(tmp_path)
    assert loaded.get_pipe("ner").cfg["threshold"] == pytest.approx(fits["ner"].threshold)
    assert loaded.meta["thresholds"]["ner"] == pytest.approx(fits["ner"]._asdict())
    again, _ = fit_thresholds(loaded, make_examples(loaded))
    assert again["ner"].threshold == pytest.approx(
        fits["ner"].threshold
    )  # as good as the best: it stays


def test_labels_that_dev_lacks_are_told_of_if_they_raise_the_threshold() -> None:
    vocab = spacy.blank("en").vocab
    references = [Doc(vocab, words=["a", "b"]) for _ in range(30)]
    for doc in references:
        doc.spans["sc"] = [Span(doc, 0, 1, "A")]
    # In characters without whitespace.
    found = [{(0, 1, "A"): 0.9, (1, 2, "B"): 0.3}] * 30
    table = entity_table(references, found, "sc", ents=False)
    pipe = SimpleNamespace(name="ner", labels=["A", "B", "C"], cfg={"threshold": 0.2})

    def tell(chosen: float) -> None:
        _tell_of_strange_labels(pipe, table, ThresholdChoice(chosen, 1.0))

    with pytest.warns(UserWarning, match=r"'ner': .* have no entity with the labels B, C\."):
        tell(0.6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tell(0.2)  # it is kept
        pipe.cfg["threshold"] = 0.4  # where there are none any more
        tell(0.6)


def test_new_weights_have_no_chosen_threshold() -> None:
    nlp = make_pipeline()
    nlp.meta["thresholds"] = {"ner": {"threshold": 0.3}, "other": {"threshold": 0.4}}
    nlp.initialize(lambda: make_examples(nlp))
    assert nlp.meta["thresholds"] == {"other": {"threshold": 0.4}}


def test_spancat_and_components_without_a_threshold() -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    model = {"tok2vec": SMALL_CNN}
    suggester = {"@misc": "spacy.ngram_suggester.v1", "sizes": [1, 2, 3]}
    nlp.add_pipe("spancat", config={"model": model, "suggester": suggester})
    nlp.initialize(lambda: make_examples(nlp))
    fits, reasons = fit_thresholds(train(nlp, 40), make_examples(nlp))
    assert set(fits) == {"spancat"} and fits["spancat"].f > 0.5
    assert reasons == {"sentencizer": "it has no threshold for scored spans"}


def test_spans_that_a_ruler_is_among_are_predicted_at_each_threshold() -> None:
    """What it adds has no score, and so takes the scores of all spans of the doc."""
    nlp = train(make_pipeline("locate_and_label_ner", threshold=0.99), 40)
    [first, *_] = make_examples(nlp)
    ruler = nlp.add_pipe("span_ruler", config={"spans_key": "sc", "overwrite": False})
    ruler.add_patterns([{"label": "RULE", "pattern": first.reference[0].text}])
    fits, _ = fit_thresholds(nlp, make_examples(nlp))
    assert fits["ner"].threshold in PASSES and fits["ner"].f > fits["ner"].old_f


@Language.component("longest_spans")
def longest_spans(doc: Doc) -> Doc:
    """Flat entities, with their scores."""
    group = doc.spans["sc"]
    scores = {(s.start, s.end): score for s, score in zip(group, group.attrs["scores"])}
    kept = filter_spans(group)
    attrs = {"scores": np.array([scores[s.start, s.end] for s in kept], dtype="float32")}
    doc.spans["sc"] = SpanGroup(doc, name="sc", spans=kept, attrs=attrs)
    return doc


def test_what_later_components_make_of_the_spans_is_scored() -> None:
    """Where lower scored spans displace others one prediction does not show them all."""
    nlp = train(make_pipeline("locate_and_label_ner"), 25)
    nlp.add_pipe("longest_spans")
    fits, _ = fit_thresholds(nlp, make_examples(nlp))
    fit, pipe = fits["ner"], nlp.get_pipe("ner")
    assert fit.threshold in (*PASSES, fit.old_threshold)
    for threshold, f in ((fit.threshold, fit.f), (fit.old_threshold, fit.old_f)):
        pipe.cfg["threshold"] = threshold
        assert nlp.evaluate(make_examples(nlp))["nested_f"] == pytest.approx(f)


def test_nothing_to_choose_by() -> None:
    nlp = make_pipeline("locate_and_label_ner")
    fits, reasons = fit_thresholds(nlp, make_examples(nlp, "other"))
    assert not fits and "no entity under its key 'sc'" in reasons["ner"]
    flat = Example.from_dict(nlp.make_doc("the US"), {"entities": [(4, 6, "GPE")]})
    assert "key 'sc'. Set doc.spans['sc'] = list(doc.ents)" in fit_thresholds(nlp, [flat])[1]["ner"]
    fits, reasons = fit_thresholds(nlp, [make_example(nlp, "no such", [(0, 2, "FOREIGN")])])
    assert not fits and "no right entity" in reasons["ner"]


def test_two_components_with_one_key() -> None:
    nlp = train(make_pipeline("locate_and_label_ner"), 60)
    config = {"spans_key": "sc", "model": nlp.get_pipe_config("ner")["model"]}
    nlp.add_pipe("locate_and_label_ner", name="last", config=config)
    nlp.get_pipe("last").initialize(lambda: make_examples(nlp), nlp=nlp)
    _, reasons = fit_thresholds(nlp, make_examples(nlp))
    assert reasons["ner"] == "'last' writes to its key 'sc' after it"


def test_a_threshold_that_is_as_good_stays(half_trained, monkeypatch) -> None:
    """One below `LOWEST`, too, at which the old F counts all that is found there."""
    examples = make_examples(half_trained)
    monkeypatch.setitem(half_trained.get_pipe("ner").cfg, "threshold", 0.01)
    fit = fit_thresholds(half_trained, examples)[0]["ner"]
    assert fit.old_f == pytest.approx(half_trained.evaluate(examples)["nested_f"])
    for gain, stays in ((fit.f - fit.old_f, True), (fit.f - fit.old_f - 0.001, False)):
        monkeypatch.setattr(fitting, "tolerance", lambda table, gain=gain: gain)
        again = fit_thresholds(half_trained, examples)[0]["ner"]
        assert (again.threshold == 0.01) == stays


def test_a_span_ruler_on_the_same_key_hides_what_lower_thresholds_find() -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("spancat", name="found", config={"spans_key": "sc"})
    nlp.add_pipe("span_ruler", name="other", config={"spans_key": "rules"})
    assert is_searchable(nlp, "found")
    nlp.add_pipe("span_ruler", name="same", config={"spans_key": "sc"})
    assert not is_searchable(nlp, "found")
    nlp.remove_pipe("same")
    nlp.add_pipe("span_finder", config={"spans_key": "sc"})
    assert not is_searchable(nlp, "found")


def test_a_choice_in_words():
    kept = describe(Fit(0.5, 0.8, 0.5, 0.8))
    assert kept == "threshold 0.5 is kept, none is better (F 80.0)"
    better = describe(Fit(0.3, 0.8, 0.5, 0.7, 1.0, 0.5, beta=2))
    assert better == "threshold 0.3 (F2 80.0, P 100.0, R 50.0; at 0.5 F2 70.0)"
