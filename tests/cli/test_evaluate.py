from __future__ import annotations

import json
from pathlib import Path

import pytest
import spacy
from spacy.tokens import DocBin, Span
from typer.testing import CliRunner

from spacy_nested_ner.cli import nested_ner_cli


def run(*args, code=0) -> str:
    result = CliRunner().invoke(nested_ner_cli, [str(arg) for arg in args])
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


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
        ("nowhere", "gold.spacy", (), "no trained pipeline there"),
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
