from __future__ import annotations

import json
import re

import pytest
import spacy
from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.training import Example

from spacy_nested_ner.evaluation.scores import report
from spacy_nested_ner.evaluation.scores.evaluate import evaluate_pipeline, run_pipeline
from spacy_nested_ner.evaluation.scores.metrics import PRF
from spacy_nested_ner.evaluation.scores.remarks import remark
from spacy_nested_ner.evaluation.scores.report import compare_runs, data_facts, scores

TEXTS = ["The IL-2 gene is active.", "Nothing here.", "Another IL-2 gene."]


def rules(spans_key="sc", label="DNA"):
    nlp = spacy.blank("en")
    ruler = nlp.add_pipe("span_ruler", config={"spans_key": spans_key})
    ruler.add_patterns([{"label": label, "pattern": "IL-2 gene"}])
    return nlp


def examples_for(nlp, spans_key="sc"):
    made = []
    for text in TEXTS:
        doc = nlp.make_doc(text)
        doc.spans[spans_key] = []
        if "IL-2" in text:
            start = [token.text for token in doc].index("IL-2")
            doc.spans[spans_key] = [
                Span(doc, start, start + 2, "DNA"),
                Span(doc, start, start + 1, "protein"),
            ]
        made.append(Example(nlp.make_doc(text), doc))
    return made


def test_run_and_scores():
    nlp = rules()
    run = run_pipeline(nlp, examples_for(nlp))
    found = scores(run)
    assert found["strict"]["micro"] == {
        "p": 1.0,
        "r": 0.5,
        "f": pytest.approx(2 / 3),
        "right": 2,
        "predicted": 2,
        "gold": 4,
    }
    assert found["strict"]["by_nesting"] == {"nested": found["strict"]["micro"]}
    assert found["calibration"] is None and found["misaligned_predictions"] == 0
    assert found["speed"]["words"] == sum(len(nlp.make_doc(text)) for text in TEXTS)
    assert found["speed"]["seconds"] > 0
    assert data_facts(run)["entities"] == 4 and data_facts(run)["documents"] == 3
    assert json.loads(json.dumps(found)) == found


def test_docs_without_annotation_are_left_out():
    nlp = rules()
    unknown = Example(nlp.make_doc("IL-2 gene"), nlp.make_doc("IL-2 gene"))
    run = run_pipeline(nlp, [*examples_for(nlp), unknown])
    assert data_facts(run)["documents_without_annotation"] == 1
    assert scores(run)["strict"]["micro"]["predicted"] == 2


def test_pipelines_on_the_same_data_are_compared():
    runs = [run_pipeline(nlp, examples_for(nlp)) for nlp in (rules(), rules(label="RNA"))]
    compared = compare_runs(runs, samples=20)
    assert compared["differences"][0]["f"]["difference"] == pytest.approx(-2 / 3)
    assert compare_runs(runs, samples=0) is None
    nlp = rules()
    other = run_pipeline(nlp, examples_for(nlp)[1:])
    with pytest.raises(ValueError, match="not been run on the same gold"):
        compare_runs([runs[0], other])
    assert compare_runs([run_pipeline(nlp, examples_for(nlp)[:1])]) is None  # one doc


def test_flat_entities_where_asked_for():
    nlp = spacy.blank("en")
    nlp.add_pipe("entity_ruler").add_patterns([{"label": "DNA", "pattern": "IL-2 gene"}])
    references = [example.reference for example in examples_for(nlp)]
    with pytest.raises(ValueError, match=r"predictions in doc\.ents, use --ents"):
        evaluate_pipeline(nlp, references)
    with pytest.raises(ValueError, match=r"it uses: none\..*from the same one\.$"):
        run_pipeline(nlp, examples_for(nlp))
    found = evaluate_pipeline(nlp, references, ents=True)
    assert found.to_dict()["strict"]["micro"]["right"] == 2


def test_gold_in_doc_ents():
    nlp = rules()
    made = []
    for text in TEXTS:
        doc = nlp.make_doc(text)
        doc.ents = [Span(doc, 1, 3, "DNA")] if "IL-2" in text else []
        made.append(Example(nlp.make_doc(text), doc))
    references = [example.reference for example in made]
    with pytest.raises(ValueError, match=r"have doc\.ents: use them with --ents"):
        evaluate_pipeline(nlp, references)
    with pytest.raises(ValueError, match=r"have doc\.ents: set doc\.spans\['sc'\]"):
        run_pipeline(nlp, made)
    found = evaluate_pipeline(nlp, references, ents=True)
    assert found.to_dict()["strict"]["micro"]["f"] == 1.0


def test_keys_are_named():
    nlp = rules("other")
    with pytest.raises(ValueError, match=r"'nest'.* have: 'sc'"):
        run_pipeline(nlp, examples_for(nlp), "nest")
    with pytest.raises(ValueError, match="under spans key 'sc'; it uses: 'other'"):
        run_pipeline(nlp, examples_for(nlp))


@Language.component("shouting")
def shouting(doc):
    changed = Doc(doc.vocab, words=[token.text.upper() for token in doc])
    changed.spans["sc"] = []
    return changed


def test_another_text_is_an_error():
    nlp = spacy.blank("en")
    nlp.add_pipe("shouting")
    with pytest.raises(ValueError, match="is not the text of the data"):
        run_pipeline(nlp, examples_for(nlp))


@Language.factory("tests_returns")
class Returns:
    """Leaves out the last doc, or gives the last one twice."""

    def __init__(self, nlp, name, twice: bool = False):
        self.twice = twice

    def __call__(self, doc):
        return doc

    def pipe(self, stream, batch_size):
        docs = list(stream)
        return iter([*docs, docs[-1]] if self.twice else docs[:-1])


@pytest.mark.parametrize("twice, number", [(False, 2), (True, 4)])
def test_a_pipeline_that_returns_other_docs_is_told_of(twice, number):
    nlp = rules()
    nlp.add_pipe("tests_returns", config={"twice": twice})
    examples = examples_for(nlp)
    problem = f"given 3 docs and returns {number}: a component drops docs, or adds some"
    with pytest.raises(ValueError, match=problem):
        run_pipeline(nlp, examples)
    with pytest.raises(ValueError, match=problem):
        evaluate_pipeline(nlp, [eg.reference for eg in examples])


def test_only_the_time_that_docs_take_to_come_counts(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(report, "perf_counter", lambda: now[0])

    def docs():
        for name in "ab":
            now[0] += 2
            yield name

    clock = report.Stopwatch()
    for _ in clock.timed(docs()):
        now[0] += 10
    assert clock.seconds == 4


@pytest.mark.parametrize(
    "best, highest, says",
    [
        (
            {"threshold": 0.3, "f": 0.6},
            0.4,
            r"the highest is 0\.40\. .* Or set a lower threshold: F is 60\.00 at 0\.3\.",
        ),
        (
            None,
            0.4999999,
            r"the highest is 0\.4999999\. .* The predictions below the threshold are wrong\.",
        ),
    ],
)
def test_what_helps_where_no_score_reaches_the_threshold(best, highest, says):
    own = {"component": "ner", "threshold": 0.5, "lowest": 0.05, "best": best}
    assert re.search(says, remark({"A": PRF(0, 0, 3)}, {**own, "highest_score": highest}))
