from __future__ import annotations

import shutil

import pytest
import spacy
from spacy.tokens import DocBin, Span
from typer.testing import CliRunner

from spacy_nested_ner.cli import compress as command
from spacy_nested_ner.cli import nested_ner_cli
from tests.conftest import make_examples, make_pipeline, train

pytest.importorskip("transformers")


def run(*args, code=0) -> str:
    result = CliRunner().invoke(nested_ner_cli, [str(arg) for arg in args])
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


@pytest.fixture(scope="module")
def folder(tiny_bert, tmp_path_factory):
    """A trained pipeline on a pretrained encoder, one on a CNN, and gold data."""
    path = tmp_path_factory.mktemp("pipelines")
    tok2vec = {"@architectures": "spacy_nested_ner.SortedTransformer.v1", "name": str(tiny_bert)}
    nlp = train(make_pipeline("locate_and_label_ner", {"tok2vec": tok2vec}), 60)
    nlp.to_disk(path / "model")
    make_pipeline("locate_and_label_ner").to_disk(path / "cnn")
    docs = [eg.reference for eg in make_examples(nlp)]
    DocBin(docs=docs).to_disk(path / "dev.spacy")
    return path


def test_compress_checks_and_writes(folder, tmp_path):
    printed = run("compress", folder / "model", tmp_path / "small", "--check", folder / "dev.spacy")
    assert "nested_f" in printed and "batch 64" in printed and "times" in printed
    assert "int8 weights in 'ner'" in printed and str(tmp_path / "small") in printed
    nlp = spacy.load(tmp_path / "small")
    assert nlp.config["components"]["ner"]["model"]["tok2vec"]["int8"] is True


def test_what_loses_more_than_the_tolerance_is_refused(folder, tmp_path, monkeypatch):
    compare = command.compare

    def worse(*args):
        report = compare(*args)
        report["scores"]["after"]["nested_f"] = report["scores"]["before"]["nested_f"] - 0.5
        return report

    monkeypatch.setattr(command, "compare", worse)
    given = ("compress", folder / "model", tmp_path / "small", "--check", folder / "dev.spacy")
    printed = run(*given, code=1)
    assert "by 0.50 points; --tolerance is 0.3" in printed
    assert "docs/s, batch 8" in printed and list(tmp_path.iterdir()) == []
    run(*given, "--tolerance", "0.6")
    assert (tmp_path / "small" / "meta.json").is_file()


def test_a_score_of_0_tells_nothing(folder, tmp_path):
    doc = spacy.blank("en")("The city of Rome.")
    doc.spans["sc"] = [Span(doc, 3, 4, "PLACE")]
    DocBin(docs=[doc]).to_disk(tmp_path / "other.spacy")
    given = ("compress", folder / "model", tmp_path / "small", "--check", tmp_path / "other.spacy")
    assert "finds no right entity in DATA" in run(*given, code=1)
    assert not (tmp_path / "small").exists()


def test_slower_is_said():
    speed = [{"batch_size": 8, "before": 2.0, "after": 1.0, "ratio": 0.5}]
    scores = {"nested_f": 80.0}
    report = {"scores": {"before": scores, "after": scores}, "speed": speed}
    with pytest.MonkeyPatch.context() as patch:
        said: list[str] = []
        patch.setattr(command.msg, "warn", said.append)
        command.check(report, 0.3)
    assert said == ["On this machine int8 is not faster at batch size 8."]


def test_nothing_to_compress(folder, tmp_path):
    printed = run("compress", folder / "cnn", tmp_path / "small", code=1)
    assert "cnn: there is nothing to compress: 'ner' has no pretrained encoder" in printed
    assert not (tmp_path / "small").exists()


def test_the_model_is_kept(folder):
    assert "is MODEL" in run("compress", folder / "model", folder / "model", code=1)


def test_data_without_entities(folder, tmp_path):
    DocBin(docs=[spacy.blank("en")("Nothing here .")]).to_disk(tmp_path / "none.spacy")
    given = ("compress", folder / "model", tmp_path / "small", "--check", tmp_path / "none.spacy")
    assert "has no gold entities" in run(*given, code=1)


def test_what_is_wrong_with_the_output_is_told_of_before_anything_runs(folder, tmp_path):
    (tmp_path / "letter").touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spacy.load", lambda *_, **__: pytest.fail("it was loaded"))
        assert "has no meta.json" in run("compress", folder / "model", tmp_path, code=1)
        shutil.copytree(folder / "model", tmp_path / "out" / "model")
        (tmp_path / "out" / "meta.json").touch()
        printed = run("compress", tmp_path / "out" / "model", tmp_path / "out", code=1)
        assert "which is to be replaced" in printed


def test_data_that_are_not_gold_are_told_of(folder, monkeypatch):
    nlp = spacy.load(folder / "model")
    docs = list(DocBin().from_disk(folder / "dev.spacy").get_docs(nlp.vocab))
    docs[0].spans["sc"].attrs["weights"] = [1.0] * len(docs[0].spans["sc"])
    monkeypatch.setattr(command, "read_gold", lambda *_: docs)
    monkeypatch.setattr(command, "_speed", lambda *_: [])
    said = []
    monkeypatch.setattr(command, "warn_of", said.extend)
    command.compare(nlp, nlp, folder / "dev.spacy")
    assert len(said) == 1 and "In 1 of 10 docs of" in said[0]
