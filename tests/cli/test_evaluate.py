from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest
import spacy
from spacy.tokens import Doc, DocBin, Span
from typer.testing import CliRunner

from spacy_nested_ner.cli import evaluate, nested_ner_cli
from tests.cli.commands import page_data, run
from tests.conftest import ODD_NAMES, make_examples, make_pipeline

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "evaluation.md"


def save_rules(path: Path, label: str) -> None:
    nlp = spacy.blank("en")
    ruler = nlp.add_pipe("span_ruler", config={"spans_key": "sc"})
    ruler.add_patterns([{"label": label, "pattern": "IL-2 gene"}])
    path.parent.mkdir(parents=True)
    nlp.to_disk(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Two pipelines of rules on disk, and gold data."""
    folder = tmp_path_factory.mktemp("pipelines")
    save_rules(folder / "right" / "model", "DNA")
    save_rules(folder / "wrong" / "model", "RNA")
    untrained = spacy.blank("en")
    untrained.add_pipe("piqn_ner")
    untrained.to_disk(folder / "untrained")
    nlp = spacy.blank("en")
    doc_bin = DocBin()
    for text in ["The IL-2 gene is active.", "Nothing here.", "An IL-2 gene."] * 3:
        doc = nlp.make_doc(text)
        doc.spans["sc"] = []
        if "IL-2" in text:
            doc.spans["sc"] = [Span(doc, 1, 3, "DNA"), Span(doc, 1, 2, "protein")]
        doc_bin.add(doc)
    doc_bin.to_disk(folder / "gold.spacy")
    return folder


def test_evaluate_one_pipeline(folder, tmp_path):
    output = tmp_path / "new" / "metrics.json"
    printed = run("evaluate", folder / "right" / "model", folder / "gold.spacy", "-o", output)
    report = json.loads(output.read_text("utf8"))
    (pipeline,) = report["pipelines"]
    assert pipeline["strict"]["micro"]["f"] == pytest.approx(2 / 3)
    assert pipeline["components"] == ["span_ruler"]
    assert "strict micro 100.00 50.00 66.67 6 12" in printed
    assert "DNA 100.00 100.00 100.00 6 6" in printed
    assert "9 docs" in printed and "12 gold entities" in printed
    assert set(report["bootstrap"]["intervals"][0]) == {"p", "r", "f", "macro_f"}
    assert report["bootstrap"]["by_label"] == [{"DNA": [1.0, 1.0], "protein": [0.0, 0.0]}]
    same = "the pipeline makes the same tokens and sentences as the data."
    assert f"Scored on raw text: {same}" in printed
    assert "depth" not in printed
    lacks = "because it does not have their labels (protein)."
    assert report["warnings"] == [f"The pipeline cannot find 6 of 12 gold entities, {lacks}"]


@pytest.mark.parametrize("mark", [None, False])
def test_sentences_that_only_the_pipeline_has_are_told_of(folder, tmp_path, mark):
    nlp = spacy.load(folder / "right" / "model")
    nlp.add_pipe("sentencizer", first=True)
    nlp.to_disk(tmp_path / "cut")
    doc = nlp.make_doc("The IL-2 gene. It is active.")
    doc[1].is_sent_start = mark
    doc.spans["sc"] = [Span(doc, 1, 3, "DNA")]
    DocBin(docs=[doc]).to_disk(tmp_path / "gold.spacy")
    printed = run("evaluate", tmp_path / "cut", tmp_path / "gold.spacy")
    assert "no sentence boundaries in the data, but in the pipeline: 1." in printed


def test_a_short_summary_and_all_of_it(folder):
    arguments = ("evaluate", folder / "right" / "model", folder / "gold.spacy")
    short = CliRunner().invoke(nested_ner_cli, [str(arg) for arg in arguments])
    assert len(short.stdout.splitlines()) < 25 and not short.stderr
    printed = run(*arguments, "--verbose")
    for title in ("words", "depth", "nesting", "entities in sentence", "95% interval micro F"):
        assert title in printed
    for row in ("right 6 6", "missed 6", "Intervals over 9 docs:"):
        assert row in printed


def test_errors_and_labels_that_are_taken_for_others(folder):
    wrong = ("evaluate", folder / "wrong" / "model", folder / "gold.spacy", "--verbose")
    printed = run(*wrong)
    report = evaluate.evaluate([str(folder / "wrong" / "model")], folder / "gold.spacy")
    (pipeline,) = report["pipelines"]
    for kind, count in pipeline["errors"]["predicted"].items():
        assert f"{kind} {count}" in printed
    for each in pipeline["errors"]["confusions"]:
        assert f"{each['gold']} {each['predicted']} {each['count']}" in printed
    assert pipeline["errors"]["confusions"]
    both = run("evaluate", folder / "right" / "model", *wrong[1:])
    assert "predictions by kind right/model wrong/model" in both and "missed" not in both


def test_sentences_of_a_text_are_told_of(folder, tmp_path):
    vocab = spacy.blank("en").vocab
    docs = list(DocBin().from_disk(folder / "gold.spacy").get_docs(vocab))
    for i, doc in enumerate(docs):
        doc.user_data["doc_id"] = f"text {i % 3}"
    DocBin(docs=docs, store_user_data=True).to_disk(tmp_path / "gold.spacy")
    printed = run("evaluate", folder / "right" / "model", tmp_path / "gold.spacy")
    assert "95% interval of F over 3 texts: " in printed


def test_evaluate_from_raw_text_and_with_gold_tokens(folder, tmp_path):
    words = ["anti", "IL-2", "gene", "."]
    nlp = spacy.load(folder / "right" / "model")
    doc = Doc(nlp.vocab, words=words)
    doc.spans["sc"] = [Span(doc, 1, 3, "DNA")]
    doc.user_data["text"] = "antiIL-2 gene."
    DocBin(docs=[doc], store_user_data=True).to_disk(tmp_path / "published.spacy")
    arguments = ("evaluate", folder / "right" / "model", tmp_path / "published.spacy")
    printed = run(*arguments, "-o", tmp_path / "scores.json")
    assert "Scored on raw text: tokens and sentences are the pipeline's own." in printed
    assert "strict micro, gold tokens 100.00 100.00 100.00 1 1" in printed
    assert "F is 0.00 on raw text and 100.00 with gold tokens" in printed
    assert "The pipeline predicts no entity at all, although there are" in printed
    report = json.loads((tmp_path / "scores.json").read_text("utf8"))
    assert report["pipelines"][0]["gold_tokens"]["f"] == 1.0 and len(report["warnings"]) == 2
    page = tmp_path / "page.html"
    run("visualize", *arguments[1:], page, "--scores", tmp_path / "scores.json")
    data = page_data(page)  # of the same predictions: one token where the data has two
    assert data["facts"]["predicted from"] == "raw text"
    assert data["docs"][0]["found_words"] == ["antiIL-2 ", "gene", "."]
    known = spacy.load(folder / "right" / "model")("The IL-2 gene is active.")
    unknown = Doc(nlp.vocab, words=["An", "IL-2", "gene"])
    unknown.spans["sc"] = [Span(unknown, 1, 3, "DNA")]
    DocBin(docs=[doc, known, unknown], store_user_data=True).to_disk(tmp_path / "mixed.spacy")
    run("visualize", arguments[1], tmp_path / "mixed.spacy", page)
    data = page_data(page)
    assert data["facts"]["predicted from"] == "raw text; for 1 docs the tokens of the data"
    DocBin(docs=[unknown]).to_disk(tmp_path / "words.spacy")
    run("visualize", arguments[1], tmp_path / "words.spacy", page)
    assert page_data(page)["facts"]["predicted from"] == "the tokens of the data"
    printed = run(*arguments, "--gold-tokens")
    assert "Scored on gold tokens and sentences. " in printed
    assert "strict micro 100.00 100.00 100.00 1 1" in printed and "Nothing" not in printed


def test_a_threshold_is_shown_beside_the_best(tmp_path):
    nlp = make_pipeline("piqn_ner")
    nlp.to_disk(tmp_path / "model")
    references = [example.reference for example in make_examples(nlp)]
    DocBin(docs=references).to_disk(tmp_path / "gold.spacy")
    printed = run("evaluate", tmp_path / "model", tmp_path / "gold.spacy")
    assert "component threshold F best on this data its F" in printed and "ner 0.5" in printed
    assert "tuned on this data" not in printed  # nothing that it finds is right


def test_thresholds_are_printed_as_they_are(folder, capsys):
    """Among scores near 1 a rounded threshold is another one."""
    best = {"threshold": 0.99999994, "f": 0.8}
    each = {"component": "ner", "threshold": 0.5, "f": 0.5, "best": best}
    report = evaluate.evaluate([str(folder / "right" / "model")], folder / "gold.spacy")
    report["pipelines"][0]["thresholds"] = [each]
    evaluate.print_report(report)
    printed = " ".join(capsys.readouterr().out.split())
    assert "ner 0.5 50.00 0.99999994 80.00" in printed and "tuned on this data" in printed


def test_what_teach_wrote_is_no_gold(tmp_path):
    nlp = make_pipeline("piqn_ner")
    nlp.to_disk(tmp_path / "model")
    doc = next(iter(make_examples(nlp))).reference
    doc.spans["sc"].attrs["weights"] = [0.1] * len(doc.spans["sc"])
    DocBin(docs=[doc], store_user_data=True).to_disk(tmp_path / "taught.spacy")
    for command in (("evaluate",), ("inspect", tmp_path / "taught.spacy")):
        paths = [tmp_path / "model"] if len(command) == 1 else []
        printed = run(*command, *paths, tmp_path / "taught.spacy")
        assert "In 1 of 1 docs of" in printed and "not gold annotation" in printed
    doc.spans["other"] = doc.spans.pop("sc")
    doc.spans["sc"] = [Span(doc, 0, 1, "GPE")]
    DocBin(docs=[doc], store_user_data=True).to_disk(tmp_path / "taught.spacy")
    assert "not gold" not in run("evaluate", tmp_path / "model", tmp_path / "taught.spacy")


def test_evaluate_and_compare(folder, tmp_path):
    output = tmp_path / "metrics.json"
    models = (folder / "right" / "model", folder / "wrong" / "model")
    printed = run("evaluate", *models, folder / "gold.spacy", "--output", output, "--samples", 50)
    report = json.loads(output.read_text("utf8"))
    assert [each["name"] for each in report["pipelines"]] == ["right/model", "wrong/model"]
    assert report["bootstrap"]["samples"] == 50
    assert "wrong/model - right/model -66.67" in printed
    assert "strict micro 66.67 0.00 12" in printed


@pytest.mark.parametrize(
    "model, data, options, problem",
    [
        ("nowhere", "gold.spacy", (), "or install the package"),
        ("untrained", "gold.spacy", (), "was never trained. Train it"),
        ("right/model", "nowhere.spacy", (), "no such file"),
        ("right/model", "gold.spacy", ("--spans-key", "nest"), "The docs have: 'sc'"),
    ],
)
def test_evaluate_reports_what_it_cannot_use(folder, tmp_path, model, data, options, problem):
    output = tmp_path / "metrics.json"
    printed = run("evaluate", folder / model, folder / data, "-o", output, *options, code=1)
    assert problem in printed
    assert str(folder).split("/")[-1] in printed
    assert not output.exists()


@pytest.mark.parametrize("command", [("evaluate", "right/model"), ("inspect",)])
def test_gold_data_are_not_overwritten(folder, command):
    gold = folder / "gold.spacy"
    before = gold.read_bytes()
    name, *models = command
    models = [folder / each for each in models]
    printed = run(name, *models, gold, "--output", folder / "right" / ".." / "gold.spacy", code=1)
    assert "gold.spacy is to be read and to be written" in printed
    printed = run(name, *models, folder, "--output", gold, code=1)
    assert "gold.spacy is to be read and to be written" in printed
    assert gold.read_bytes() == before


@pytest.mark.parametrize(
    "arguments, problem",
    [
        ((), "MODEL and DATA are missing"),
        (("right/model",), "DATA is missing, a .spacy file or folder with gold annotation"),
        (("gold.spacy",), "MODEL is missing, there is only"),
        (
            ("gold.spacy", "right/model"),
            "gold.spacy is gold data, but a pipeline is expected in its place",
        ),
        (
            ("right/model", "wrong/model"),
            "wrong/model is a pipeline, but gold data is expected in its place",
        ),
    ],
)
def test_arguments_are_checked_before_anything_is_loaded(folder, arguments, problem):
    printed = run("evaluate", *(folder / each for each in arguments), code=1)
    assert problem in printed and "MODEL... DATA" in printed


def test_a_label_that_only_looks_like_a_number(tmp_path):
    save_rules(tmp_path / "in" / "model", "\u00b2")
    doc = spacy.load(tmp_path / "in" / "model")("The IL-2 gene is active.")
    DocBin(docs=[doc]).to_disk(tmp_path / "gold.spacy")
    assert "\u00b2 100.00" in run("evaluate", tmp_path / "in" / "model", tmp_path / "gold.spacy")


@pytest.fixture
def annotators(folder, tmp_path) -> Path:
    """Gold data, and what another annotator made of the same texts in another order."""
    docs = list(DocBin().from_disk(folder / "gold.spacy").get_docs(spacy.blank("en").vocab))
    for doc in docs:
        doc.spans["sc"] = [span for span in doc.spans["sc"] if span.label_ == "DNA"]
    docs[-1].user_data["misaligned"] = ["protein"]
    (tmp_path / "bob").mkdir()
    DocBin(docs=docs[::-1], store_user_data=True).to_disk(tmp_path / "bob" / "train.spacy")
    return tmp_path / "bob" / "train.spacy"


def test_another_annotator_is_scored(folder, annotators, tmp_path):
    output = tmp_path / "metrics.json"
    printed = run("evaluate", annotators, folder / "gold.spacy", "-o", output)
    assert "Predictions are scored as they are." in printed
    assert "strict micro 100.00 50.00 66.67 6 12" in printed
    assert "interval of F over 9 docs" in printed and "words per second" not in printed
    lost = "1 predicted entities begin or end inside a token, so convert left them out"
    assert lost in printed and "protein" in printed
    (found,) = json.loads(output.read_text("utf8"))["pipelines"]
    assert (found["scored_on"], found["components"]) == ("predictions", [])
    assert found["model"] == str(annotators)
    printed = run("evaluate", annotators, annotators.parent, folder / "gold.spacy")
    assert printed.count("strict micro 66.67 66.67 12") == 1 and "words per second" not in printed
    printed = run("card", folder / "right" / "model", output, code=1)
    assert "has scores of predictions, not of a pipeline. Evaluate the pipeline." in printed


def test_predictions_are_not_overwritten(folder, annotators):
    before = annotators.read_bytes()
    printed = run("evaluate", annotators, folder / "gold.spacy", "-o", annotators, code=1)
    assert "is to be read and to be written" in printed and annotators.read_bytes() == before


@pytest.mark.parametrize("first", [True, False])
def test_predictions_beside_a_pipeline(folder, annotators, first):
    pair = [annotators, folder / "right" / "model"]
    printed = run("evaluate", *(pair if first else pair[::-1]), folder / "gold.spacy", "--verbose")
    assert "Scored on raw text" in printed and "strict micro 66.67 66.67 12" in printed
    named = "train.spacy model" if first else "model train.spacy"
    assert f"F by score {named} gold" in printed
    assert ("words per second - " in printed) == first


def test_predictions_keep_their_tokens(folder, annotators):
    for scored in ([annotators], [folder / "right" / "model", annotators]):
        printed = run("evaluate", *scored, folder / "gold.spacy", "--gold-tokens", code=1)
        assert "train.spacy holds predictions, which keep their tokens" in printed


def test_predictions_of_some_docs_are_not_compared_with_others(folder, annotators):
    docs = list(DocBin().from_disk(annotators).get_docs(spacy.blank("en").vocab))
    DocBin(docs=docs[1:]).to_disk(annotators)
    printed = run("evaluate", annotators, folder / "gold.spacy")
    assert "1 annotated docs are left out: no prediction is left with their text." in printed
    pipeline = folder / "untrained"  # which is not run before
    printed = run("evaluate", pipeline, annotators, folder / "gold.spacy", code=1)
    assert "train.spacy has no predictions for 1 docs of" in printed


def test_predictions_that_are_not_there(folder, tmp_path):
    printed = run("evaluate", tmp_path / "no.spacy", folder / "gold.spacy", code=1)
    assert "no.spacy: no such file. Expected predictions, a .spacy file or folder." in printed
    printed = run("threshold", folder / "gold.spacy", folder / "gold.spacy", code=1)
    assert "gold.spacy is gold data, but a pipeline is expected in its place" in printed


def test_the_vote_of_the_guide(folder, tmp_path, monkeypatch):
    """Two rules of three find the DNA, one finds an RNA there."""
    monkeypatch.chdir(tmp_path)
    for name, model in (("piqn", "right"), ("two-stage", "wrong"), ("mrc", "right")):
        shutil.copytree(folder / model / "model", tmp_path / name / "model-best")
    shutil.copy(folder / "gold.spacy", tmp_path / "test.spacy")
    text = GUIDE.read_text("utf8")
    exec(re.search(r"```python\n(from collections import Counter.*?)```", text, re.S)[1], {})
    (command,) = re.findall(r"^python -m spacy nested-ner (evaluate vote.*)$", text, re.M)
    printed = run(*command.split())
    scores = "strict micro 66.67 66.67 0.00 66.67 12"  # the vote, then each
    assert scores in printed


def test_calibration_and_rarer_labels_are_printed(tmp_path):
    doc = Doc(spacy.blank("en").vocab, words=[f"w{i}" for i in range(25)])
    doc.spans["sc"] = [Span(doc, i, i + 1, f"L{i:02}") for i in range(25)]
    doc.spans["sc"].attrs["scores"] = [0.85] * 25
    for name in ("gold", "found"):
        DocBin(docs=[doc]).to_disk(tmp_path / f"{name}.spacy")
    args = ("evaluate", tmp_path / "found.spacy", tmp_path / "gold.spacy")
    assert "5 rarer labels are shown with --verbose" in run(*args)
    printed = run(*args, "--verbose")
    for part in ("0.8-0.9 25 85.00 100.00", "100% 100.00", "expected calibration error 15.00"):
        assert part in printed
    assert "rarer labels" not in printed


def test_flat_entities_and_a_seed(folder, tmp_path, monkeypatch):
    nlp = spacy.blank("en")
    nlp.add_pipe("entity_ruler").add_patterns([{"label": "DNA", "pattern": "IL-2 gene"}])
    nlp.to_disk(tmp_path / "flat")
    DocBin(docs=[nlp("The IL-2 gene."), nlp("Nothing.")]).to_disk(tmp_path / "gold.spacy")
    args = ("evaluate", tmp_path / "flat", tmp_path / "gold.spacy", "-o", tmp_path / "o.json")
    assert "use them with --ents" in run(*args, code=1)
    assert "strict micro 100.00" in run(*args, "--ents", "--seed", 7)
    assert json.loads((tmp_path / "o.json").read_text("utf8"))["bootstrap"]["seed"] == 7
    models = (folder / "right" / "model", folder / "wrong" / "model")
    printed = run("evaluate", *models, folder / "gold.spacy", "--samples", 0)
    assert "interval" not in printed.lower()
    given = []

    def stop(*args):
        given.append(args[4])
        raise ValueError("enough")

    where = "spacy_nested_ner.evaluation.scores.evaluate.evaluate_pipeline"
    monkeypatch.setattr(where, stop)
    run(*args, "--batch-size", 2, code=1)
    assert given == [2]


def test_an_output_that_cannot_be_is_told_of_before_anything_runs(folder, tmp_path):
    args = ("evaluate", folder / "untrained", folder / "gold.spacy", "-o", tmp_path)
    assert "is a folder" in run(*args, code=1)


def test_scores_are_shown_if_they_cannot_be_written(folder, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("spacy_nested_ner.files.write_json", fail)
    args = ("evaluate", folder / "right" / "model", folder / "gold.spacy", "-o", tmp_path / "a")
    printed = run(*args, code=1)
    assert "strict micro" in printed and "No space left on device" in printed


@ODD_NAMES
@pytest.mark.parametrize("command", ["evaluate", "inspect"])
def test_a_report_on_a_file_whose_name_is_not_utf8(folder, tmp_path, command):
    data = tmp_path / os.fsdecode(b"a\xff.spacy")
    shutil.copy(folder / "gold.spacy", data)
    models = [folder / "right" / "model"] if command == "evaluate" else []
    run(command, *models, data, "-o", tmp_path / "out.json")
    paths = json.loads((tmp_path / "out.json").read_text("utf8"))["data"].values()
    assert any(str(each).endswith(r"a\udcff.spacy") for each in paths)
    run("inspect", data, "--json")


@ODD_NAMES
def test_a_report_on_predictions_whose_name_is_not_utf8(folder, tmp_path):
    found = tmp_path / os.fsdecode(b"a\xff.spacy")
    shutil.copy(folder / "gold.spacy", found)
    run("evaluate", found, folder / "gold.spacy", "-o", tmp_path / "out.json")
    (one,) = json.loads((tmp_path / "out.json").read_text("utf8"))["pipelines"]
    assert one["name"] == r"a\udcff.spacy" and one["model"].endswith(one["name"])
