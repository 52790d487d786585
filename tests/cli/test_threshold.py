from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import spacy
from spacy.tokens import Doc, DocBin, Span

from tests.cli.commands import run
from tests.conftest import make_examples, make_pipeline, train


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A pipeline whose threshold is too high, and gold data."""
    tmp_path = tmp_path_factory.mktemp("pipelines")
    nlp = train(make_pipeline("locate_and_label_ner", threshold=0.999), 60)
    nlp.add_pipe("sentencizer")
    nlp.to_disk(tmp_path / "model")
    docs = [eg.reference for eg in make_examples(nlp)]
    DocBin(docs=docs).to_disk(tmp_path / "dev.spacy")
    train(make_pipeline("locate_and_label_ner"), 12).to_disk(tmp_path / "half")
    return tmp_path


def threshold_of(path: Path) -> float:
    return spacy.load(path).get_pipe("ner").cfg["threshold"]


def test_threshold_is_shown_and_saved(folder):
    model, data = folder / "model", folder / "dev.spacy"
    printed = run("threshold", model, data)
    assert "'ner': threshold 0." in printed and "at 0.999" in printed
    assert "'sentencizer': it has no threshold" in printed and "Nothing is saved" in printed
    assert threshold_of(model) == 0.999
    for output in (folder / "new" / "model", model):
        assert str(output.resolve()) in run("threshold", model, data, "--output", output)
        nlp = spacy.load(output)
        fit = nlp.meta["thresholds"]["ner"]
        assert threshold_of(output) == fit["threshold"] < 0.99
        assert nlp.evaluate(make_examples(nlp))["nested_f"] == pytest.approx(fit["f"])
    assert {path.name for path in folder.iterdir() if path.name.startswith(".")} == set()


def test_recall_can_weigh_more(folder, tmp_path):
    found = {}
    for beta in (0.1, 10):
        output = tmp_path / str(beta)
        printed = run(
            "threshold", folder / "half", folder / "dev.spacy", "-o", output, "--beta", beta
        )
        fit = found[beta] = spacy.load(output).meta["thresholds"]["ner"]
        assert f"F{beta} {100 * fit['f']:.1f}, P {100 * fit['precision']:.1f}" in printed
        assert f"R {100 * fit['recall']:.1f}" in printed
    assert found[10]["threshold"] < found[0.1]["threshold"]
    assert found[10]["recall"] > found[0.1]["recall"]
    assert found[10]["precision"] < found[0.1]["precision"]
    printed = run("threshold", folder / "half", folder / "dev.spacy", "--beta", 0, code=1)
    assert "beta must be a number above 0, at most 1000, not 0.0" in printed


def test_thresholds_are_those_for_raw_text_where_it_is_known(folder):
    """Each letter is a token of the data, of which the pipeline knows none."""
    nlp = spacy.load(folder / "model")
    docs = []
    for eg in make_examples(nlp):
        text = eg.reference.text
        places = [i for i, letter in enumerate(text) if letter != " "]
        doc = Doc(nlp.vocab, words=[text[i] for i in places], user_data={"text": text})
        doc.has_unknown_spaces = True
        doc.spans["sc"] = [
            Span(doc, places.index(s.start_char), places.index(s.end_char - 1) + 1, s.label)
            for s in eg.reference.spans["sc"]
        ]
        docs.append(doc)
    DocBin(docs=docs, store_user_data=True).to_disk(folder / "known.spacy")
    DocBin(docs=docs).to_disk(folder / "unknown.spacy")
    assert "'ner': threshold 0." in run("threshold", folder / "model", folder / "known.spacy")
    printed = run("threshold", folder / "model", folder / "unknown.spacy", code=1)
    assert "For 10 docs only the words are known" in printed and "no right entity" in printed


def test_what_cannot_be_used_is_named_and_nothing_is_written(folder):
    model, data, output = folder / "model", folder / "dev.spacy", folder / "none"
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    nlp.to_disk(folder / "rules")
    printed = run("threshold", folder / "rules", data, "-o", output, code=1)
    assert "No threshold of" in printed and "'sentencizer': it has no threshold" in printed
    printed = run("threshold", model, folder / "gone.spacy", "-o", output, code=1)
    assert "gone.spacy" in printed and not output.exists()
    (folder / "letters").mkdir()
    (folder / "letters" / "one.txt").write_text("kept")
    printed = run("threshold", model, data, "-o", folder / "letters", code=1)
    assert "already exists and has no meta.json" in printed
    assert (folder / "letters" / "one.txt").read_text() == "kept"


def test_data_in_the_folder_of_the_pipeline_are_not_lost(folder, tmp_path):
    shutil.copytree(folder / "model", tmp_path / "model")
    data = tmp_path / "model" / "dev.spacy"
    shutil.copy(folder / "dev.spacy", data)
    printed = run("threshold", tmp_path / "model", data, "-o", tmp_path / "model", code=1)
    assert "which is to be replaced" in printed and data.is_file()


def test_a_folder_that_may_not_be_replaced_is_told_of_before_anything_runs(folder, tmp_path):
    (tmp_path / "letter").touch()
    args = ("threshold", folder / "half", folder / "dev.spacy", "-o", tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spacy.load", lambda *_, **__: pytest.fail("it was loaded"))
        assert "has no meta.json" in run(*args, code=1)


def test_only_the_first_docs_and_no_gold(folder, tmp_path):
    docs = [eg.reference for eg in make_examples(spacy.blank("en"))]
    docs.sort(key=lambda doc: len(doc.spans["sc"]))
    docs[-1].spans["sc"].attrs["weights"] = [1.0] * len(docs[-1].spans["sc"])
    DocBin(docs=docs).to_disk(tmp_path / "dev.spacy")
    args = ("threshold", folder / "model", tmp_path / "dev.spacy")
    assert "no entity under its key 'sc'" in run(*args, "--limit", 1, code=1)
    assert "In 1 of 10 docs of" in run(*args)
