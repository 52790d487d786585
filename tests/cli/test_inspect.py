from __future__ import annotations

import json
from pathlib import Path

import pytest
import spacy
from spacy.tokens import DocBin, Span
from typer.testing import CliRunner

from spacy_nested_ner.cli import nested_ner_cli

CONFIG = Path(__file__).parents[2] / "configs" / "locate_and_label_cnn.cfg"


def run(*args, code=0) -> str:
    result = CliRunner().invoke(nested_ner_cli, [str(arg) for arg in args])
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("data") / "train.spacy"
    nlp = spacy.blank("en")
    doc_bin = DocBin()
    for text in ["The IL-2 gene is active.", "Nothing here.", "An IL-2 gene."]:
        doc = nlp.make_doc(text)
        doc.spans["sc"] = []
        if "IL-2" in text:
            doc.spans["sc"] = [Span(doc, 1, 3, "DNA"), Span(doc, 1, 2, "protein")]
        doc_bin.add(doc)
    doc_bin.to_disk(path)
    return path


def test_inspect(data, tmp_path):
    printed = " ".join(run("inspect", data, data, "-o", tmp_path / "report.json").split())
    assert "Label 'DNA' has 2 entities in train, fewer than 50." in printed
    assert "3 sentences (100.0 %) and 4 entities (100.0 %, by text and label)" in printed
    for name in ("piqn_ner queries", "mrc_ner none", "locate_and_label_ner seed lengths"):
        assert name in printed
    report = json.loads((tmp_path / "report.json").read_text("utf8"))
    assert report["train"]["nested_entities"] == 4 and report["dev"]["entities"] == 4


def test_inspect_against_a_config_as_json(data):
    report = json.loads(run("inspect", data, "--config", CONFIG, "--json"))
    assert report["dev"] is None and report["overlap"] is None
    assert [row["factory"] for row in report["limits"]] == ["locate_and_label_ner"]
    assert report["limits"][0]["component"] == "ner"


@pytest.mark.parametrize(
    "options, problem",
    [
        (("--spans-key", "nest"), "the docs have: 'sc'"),
        (("--config", "nowhere.cfg"), "nowhere.cfg: no such file"),
    ],
)
def test_inspect_reports_what_it_cannot_use(data, options, problem):
    assert problem in " ".join(run("inspect", data, *options, code=1).split())
    run("inspect", data.with_name("other.spacy"), code=1)
