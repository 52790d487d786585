from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import spacy
import srsly
from spacy.cli.package import package
from spacy.tokens import DocBin

from spacy_nested_ner.evaluation.scores import card
from spacy_nested_ner.evaluation.scores.card import in_steps
from spacy_nested_ner.evaluation.scores.metrics import PRF
from tests.cli.commands import run
from tests.conftest import make_examples, make_pipeline, train

ABOUT = {
    "description": "Courts and countries.",
    "license": "CC BY 4.0",
    "sources": [{"name": "Own sentences", "author": "us"}],
    "notes": "### Limits\n\nIt knows two sentences.",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A pipeline with its scores, and what there is to say about its data."""
    folder = tmp_path_factory.mktemp("card")
    nlp = train(make_pipeline("locate_and_label_ner"), 60)
    nlp.to_disk(folder / "model")
    DocBin(docs=[eg.reference for eg in make_examples(nlp)]).to_disk(folder / "test.spacy")
    run("evaluate", folder / "model", folder / "test.spacy", "--output", folder / "metrics.json")
    srsly.write_json(folder / "about.json", ABOUT)
    return folder


def test_a_packaged_pipeline_has_a_model_card(folder):
    model, metrics = folder / "model", srsly.read_json(folder / "metrics.json")
    printed = run("card", model, folder / "metrics.json", "--about", folder / "about.json")
    assert str((model / "meta.json").resolve()) in printed
    (folder / "packages").mkdir()
    package(model, folder / "packages", name="courts", create_sdist=False)
    (readme,) = folder.glob("packages/*/README.md")
    text = readme.read_text(encoding="utf8")
    for part in ("Courts and countries.", "CC BY 4.0", "Own sentences (us)", "It knows two"):
        assert part in text
    strict = metrics["pipelines"][0]["strict"]
    assert len(strict["by_label"]) > 1
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    for group in ("by_label", "by_depth"):
        for name, scores in strict[group].items():
            cells = [f"{100 * scores[part]:.1f}" for part in "prf"]
            assert [name, *cells, str(scores["gold"])] in rows
    short = [scores for length, scores in strict["by_length"].items() if int(length) <= 2]
    gold = str(sum(scores["gold"] for scores in short))
    recall = sum(scores["right"] for scores in short) / sum(scores["gold"] for scores in short)
    assert next(row[2:] for row in rows if row[:1] == ["1-2"])[::2] == [f"{100 * recall:.1f}", gold]
    assert "Expected calibration error" in text and "words per second" in text
    performance = srsly.read_json(model / "meta.json")["performance"]
    assert performance["spans_sc_f"] == strict["micro"]["f"]
    label = next(iter(strict["by_label"]))
    assert performance["spans_sc_per_type"][label]["p"] == strict["by_label"][label]["p"]


def test_a_card_is_written_anew(folder):
    for _ in range(2):
        run("card", folder / "model", folder / "metrics.json", "--about", folder / "about.json")
    notes = srsly.read_json(folder / "model" / "meta.json")["notes"]
    assert notes.count("### Test scores") == notes.count("### Limits") == 1


def test_thresholds_that_are_not_those_of_the_pipeline(folder, tmp_path):
    """A fitted one that was changed since is not told of; one that is not scored is warned of."""
    report = srsly.read_json(folder / "metrics.json")
    (used,) = report["pipelines"][0]["thresholds"]
    shutil.copytree(folder / "model", tmp_path / "model")
    path = tmp_path / "model" / "meta.json"
    told = {}
    for scored, fitted in ((0, 0), (0, 0.1), (0.1, 0)):
        fits = {"ner": {"threshold": used["threshold"] + fitted, "f": 0.5}}
        srsly.write_json(path, {**srsly.read_json(path), "thresholds": fits})
        (other,) = report["pipelines"][0]["thresholds"] = [{**used}]
        other["threshold"] += scored
        srsly.write_json(tmp_path / "metrics.json", report)
        printed = run("card", tmp_path / "model", tmp_path / "metrics.json")
        has_fit = srsly.read_json(path)["thresholds"] == fits
        told[scored, fitted] = (has_fit, "at another threshold than that of ner" in printed)
    assert told == {(0, 0): (True, False), (0, 0.1): (False, False), (0.1, 0): (True, True)}


def test_a_copy_has_the_card(folder):
    model, copy = folder / "model", folder / "copy"
    before = (model / "meta.json").read_bytes()
    about = ("--about", folder / "about.json")
    for _ in range(2):
        run("card", model, folder / "metrics.json", *about, "--output", copy)
        assert (model / "meta.json").read_bytes() == before
        assert "It knows two" in srsly.read_json(copy / "meta.json")["notes"]
    files = {path.relative_to(model) for path in model.rglob("*")}
    assert files == {path.relative_to(copy) for path in copy.rglob("*")}
    inside = ("--output", model / "packages")
    assert "is inside" in run("card", model, folder / "metrics.json", *inside, code=1)
    assert "already exists and has no meta.json" in run(
        "card", model, folder / "metrics.json", "--output", folder, code=1
    )


def test_scores_of_a_package(folder, monkeypatch):
    """They are of the folder that the package was made of, not of a copy with another threshold."""
    model, metrics = folder / "model", folder / "metrics.json"
    package = srsly.read_json(metrics)
    package["pipelines"][0]["model"] = "en_courts"  # as of `spacy package --name courts`
    srsly.write_json(folder / "package.json", package)
    write = ("card", model, folder / "package.json", "--output", folder / "carded")
    assert "has scores of en_courts. If that is not" in run(*write)
    installed = folder / "installed" / "en_courts-1.2.0"
    shutil.copytree(model, installed)
    (installed / "README.md").write_text("made by spacy package", encoding="utf8")
    (model / "notes.txt").write_text("mine", encoding="utf8")
    monkeypatch.setattr(card, "is_package", lambda name: name == "en_courts")
    monkeypatch.setattr(card, "get_package_path", lambda name: installed.parent)
    assert "has scores of" not in run(*write)
    assert "has scores of" not in run("card", installed, *write[2:])
    (installed / "config.cfg").write_text("[nlp]\n", encoding="utf8")
    assert "has scores of en_courts" in run(*write)
    (model / "notes.txt").unlink()


def test_scores_of_a_folder_whose_name_is_not_utf8(folder, tmp_path):
    model = tmp_path / os.fsdecode(b"model\xff")
    shutil.copytree(folder / "model", model)
    metrics = tmp_path / "metrics.json"
    run("evaluate", model, folder / "test.spacy", "--output", metrics)
    assert "has scores of" not in run("card", model, metrics)
    printed = run("card", folder / "model", metrics, "--output", tmp_path / "other")
    assert "has scores of" in printed


def test_scores_of_another_pipeline(folder):
    model, metrics = folder / "model", folder / "metrics.json"
    before = (model / "meta.json").read_bytes()
    assert "has scores of" not in run("card", model, metrics, "--output", folder / "same")
    moved = folder / "moved"
    printed = run("card", folder / "same", metrics, "--output", moved)
    assert f"has scores of {model}. If that is not {folder / 'same'}, evaluate" in printed
    assert "### Test scores" in srsly.read_json(moved / "meta.json")["notes"]
    package = srsly.read_json(metrics)
    package["pipelines"][0]["model"] = str(moved)
    strict = package["pipelines"][0]["strict"]
    scores = next(iter(strict["by_label"].values()))
    strict["by_label"] = {"gene|protein": scores, "<a>\n& b": scores}
    srsly.write_json(folder / "bar.json", package)
    run("card", moved, folder / "bar.json", "--output", folder / "bar")
    notes = srsly.read_json(folder / "bar" / "meta.json")["notes"]
    assert "| gene\\|protein |" in notes and "| &lt;a&gt; &amp; b |" in notes
    strict["by_label"] = {"species": scores}
    package["pipelines"][0]["model"] = "en_other"
    srsly.write_json(folder / "species.json", package)
    printed = run("card", model, folder / "species.json", "--output", folder / "none", code=1)
    problem = f"has scores of en_other (species), but {model} has other labels"
    assert f"species.json: {problem}" in printed
    assert not (folder / "none").exists()
    assert (model / "meta.json").read_bytes() == before


def test_what_is_wrong_is_named_and_nothing_is_written(folder):
    model, metrics = folder / "model", folder / "metrics.json"
    before = (model / "meta.json").read_bytes()
    assert "has no meta.json" in run("card", folder, metrics, code=1)
    assert "gone.json: no such file" in run("card", model, folder / "gone.json", code=1)
    (folder / "broken.json").write_text("{")
    assert "broken.json is not JSON" in run("card", model, folder / "broken.json", code=1)
    srsly.write_json(folder / "other.json", {"f": 1})
    assert "Evaluate again" in run("card", model, folder / "other.json", code=1)
    srsly.write_json(folder / "wrong.json", {"licence": "none"})
    printed = run("card", model, metrics, "--about", folder / "wrong.json", code=1)
    assert "wrong.json: unknown field 'licence'" in printed and "license" in printed
    for field, value in (("description", 3), ("notes", ["x"]), ("sources", "x")):
        srsly.write_json(folder / "wrong.json", {field: value})
        printed = run("card", model, metrics, "--about", folder / "wrong.json", code=1)
        assert f"wrong.json: {field} must be" in printed
    two = srsly.read_json(metrics)
    two["pipelines"] *= 2
    srsly.write_json(folder / "two.json", two)
    assert "scores of 2 pipelines" in run("card", model, folder / "two.json", code=1)
    assert (model / "meta.json").read_bytes() == before


def test_lengths_come_in_ranges() -> None:
    names = ("1", "2", "5", "9", "10", "19", "20-49", "50-99", "200+", "20+")  # the last: older
    joined = in_steps({name: PRF(1, 2, 3).to_dict() for name in names})
    counts = {name: each["gold"] for name, each in joined.items()}
    longer = {"20-49": 3, "50-99": 3, "200+": 3, "20+": 3}
    assert counts == {"1-2": 6, "3-5": 3, "6-9": 3, "10-19": 6, **longer}


def test_a_card_of_rules_on_one_doc(tmp_path):
    """No scores to calibrate, no second doc to draw."""
    nlp = spacy.blank("en")
    ruler = nlp.add_pipe("span_ruler", config={"spans_key": "sc"})
    ruler.add_patterns([{"label": "DNA", "pattern": "IL-2 gene"}])
    nlp.to_disk(tmp_path / "model")
    DocBin(docs=[nlp("The IL-2 gene is active.")]).to_disk(tmp_path / "test.spacy")
    run("evaluate", tmp_path / "model", tmp_path / "test.spacy", "-o", tmp_path / "metrics.json")
    run("card", tmp_path / "model", tmp_path / "metrics.json")
    notes = srsly.read_json(tmp_path / "model" / "meta.json")["notes"]
    assert "### Test scores" in notes and "alibration" not in notes and "interval" not in notes


@pytest.mark.parametrize("text", ["{", "[]"])
@pytest.mark.parametrize("name", ["meta.json", "ner/cfg"])
def test_a_damaged_pipeline_is_not_blamed_on_the_scores(folder, tmp_path, name, text):
    shutil.copytree(folder / "model", tmp_path / "model")
    (tmp_path / "model" / name).write_text(text)
    printed = run("card", tmp_path / "model", folder / "metrics.json", code=1)
    assert name in printed and "metrics.json" not in printed


def test_what_a_card_is_made_from_is_not_replaced(folder, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(folder / "model", out)
    shutil.copytree(folder / "model", out / "model")
    printed = run("card", out / "model", folder / "metrics.json", "--output", out, code=1)
    assert "which is to be replaced" in printed and (out / "model" / "meta.json").is_file()
    shutil.copy(folder / "metrics.json", out)
    printed = run("card", folder / "model", out / "metrics.json", "--output", out, code=1)
    assert "which is to be replaced" in printed and (out / "metrics.json").is_file()


def test_damaged_thresholds_are_told_of(folder, tmp_path):
    shutil.copytree(folder / "model", tmp_path / "model")
    path = tmp_path / "model" / "meta.json"
    srsly.write_json(path, {**srsly.read_json(path), "thresholds": {"ner": 0.5}})
    printed = run("card", tmp_path / "model", folder / "metrics.json", code=1)
    assert "its thresholds are damaged" in printed and "metrics.json" not in printed
