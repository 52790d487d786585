"""`nested-ner vectors`: what a pretrained encoder knows of words, for a CNN to read."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import spacy
from spacy.cli.train import train
from spacy.tokens import Doc, DocBin, Span
from spacy.vectors import Vectors

from spacy_nested_ner.cli._recipe import known_words
from tests.cli.commands import run
from tests.conftest import SENTENCES, make_examples, make_pipeline

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def vectors(tiny_bert, raw_texts, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "vectors"
    run("vectors", tiny_bert, raw_texts, folder)
    return folder


def test_every_word_has_a_vector(vectors) -> None:
    nlp = spacy.load(vectors)
    assert not nlp.pipe_names
    words = {token.text for text, _ in SENTENCES for token in nlp.make_doc(text)}
    assert set(map(nlp.vocab.strings.__getitem__, nlp.vocab.vectors)) == words
    assert all(nlp.vocab[word].vector.any() for word in words)


def test_the_most_frequent_words(tiny_bert, tmp_path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text('{"body": "gene gene gene  in in T"}\n{"body": null}\n', encoding="utf8")
    options = ("--text", "body", "--words", 2, "--width", 1, "--lang", "de")
    printed = run("vectors", tiny_bert, path, tmp_path / "out", *options)
    assert "2 vectors of width 1. They cover 83.3% of the words" in printed
    assert "Left out: 1 text that" in printed and "texts.jsonl:2" in printed
    assert printed.endswith(str((tmp_path / "out").resolve()))
    nlp = spacy.load(tmp_path / "out")
    assert nlp.lang == "de" and nlp.vocab.vectors.shape == (2, 1)
    assert [nlp.vocab[word].has_vector for word in ("gene", "in", "T")] == [True, True, False]


def test_what_cannot_be_made_writes_nothing(tiny_bert, raw_texts, tmp_path) -> None:
    out = tmp_path / "out"
    printed = run("vectors", tmp_path / "none", raw_texts, out, code=1)
    assert "Cannot make vectors" in printed and "nested-ner vectors: " in printed
    assert "there is no directory" in printed
    (tmp_path / "blank.txt").write_text("\n \n")
    assert "blank.txt has no words" in run(
        "vectors", tiny_bert, tmp_path / "blank.txt", out, code=1
    )
    assert "Can't import language xyz" in run(
        "vectors", tiny_bert, raw_texts, out, "--lang", "xyz", code=1
    )
    assert not out.exists()
    out.mkdir()
    (out / "letter").write_text("kept")
    assert "already exists and has no meta.json" in run(
        "vectors", tiny_bert, raw_texts, out, code=1
    )
    assert [path.name for path in out.iterdir()] == ["letter"]


def test_a_trained_pipeline_is_not_replaced(tiny_bert, raw_texts, vectors, tmp_path) -> None:
    make_pipeline().to_disk(tmp_path / "trained")
    printed = run("vectors", tiny_bert, raw_texts, tmp_path / "trained", code=1)
    assert "trained has a pipeline with components" in printed
    assert spacy.load(tmp_path / "trained").pipe_names == ["ner"]
    meta = tmp_path / "trained" / "meta.json"
    for damaged, problem in (("[]", "does not contain a JSON object"), ("{", "is not JSON")):
        meta.write_text(damaged)
        assert problem in run("vectors", tiny_bert, raw_texts, meta.parent, code=1)
        assert meta.read_text() == damaged
    shutil.copytree(vectors, tmp_path / "out")
    run("vectors", tiny_bert, raw_texts, tmp_path / "out", "--width", 2)
    assert spacy.load(tmp_path / "out").vocab.vectors_length == 2


def test_a_long_text_and_many_marks(tiny_bert, tmp_path) -> None:
    text = "gene promoter " * 80_000 + "(" * 100_000
    (tmp_path / "texts.txt").write_text(text)
    run("vectors", tiny_bert, tmp_path / "texts.txt", tmp_path / "out")
    vocab = spacy.load(tmp_path / "out").vocab
    assert vocab["gene"].has_vector and vocab["promoter"].has_vector


def test_texts_in_the_folder_that_is_replaced_are_not_lost(tiny_bert, raw_texts, tmp_path) -> None:
    (tmp_path / "out").mkdir()
    shutil.copy(raw_texts, tmp_path / "out")
    (tmp_path / "out" / "meta.json").write_text("{}")
    inside = tmp_path / "out" / raw_texts.name
    printed = run("vectors", tiny_bert, inside, tmp_path / "out", code=1)
    assert "which is to be replaced" in printed and inside.is_file()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    docs = [eg.reference for eg in make_examples(spacy.blank("en"))]
    for doc in docs:
        doc.has_unknown_spaces = False  # else it is learned from gold tokens
    for part in ("train", "dev"):
        DocBin(docs=docs).to_disk(folder / f"{part}.spacy")
    return folder


@pytest.mark.parametrize("encoder", ["cnn", "listener"])
def test_a_cnn_reads_them(corpus, vectors, tmp_path, encoder) -> None:
    config = tmp_path / "mine.cfg"
    data = (corpus / "train.spacy", corpus / "dev.spacy", config)
    printed = run("init", *data, "--vectors", vectors, "--encoder", encoder)
    n_words = len(spacy.load(vectors).vocab.vectors)
    assert f"Vectors {vectors}: {n_words} of width " in printed
    assert "cover 100.0% of the words of the training data" in printed
    assert "has no vector for" not in printed
    train(config, tmp_path / "out", overrides={"training.max_steps": 2})
    shutil.move(vectors, tmp_path / "away")  # a trained pipeline has its own
    try:
        nlp = spacy.load(tmp_path / "out" / "model-last")
    finally:
        shutil.move(tmp_path / "away", vectors)
    assert nlp.vocab.vectors.shape[0] == n_words
    name = "tok2vec" if encoder == "listener" else "ner"
    assert any(node.name == "static_vectors" for node in nlp.get_pipe(name).model.walk())


def test_vectors_of_other_texts(corpus, tiny_bert, tmp_path) -> None:
    (tmp_path / "texts.txt").write_text("gene promoters\n")
    run("vectors", tiny_bert, tmp_path / "texts.txt", tmp_path / "other")
    data = (corpus / "train.spacy", corpus / "dev.spacy", tmp_path / "mine.cfg")
    printed = run("init", *data, "--vectors", tmp_path / "other")
    assert f"{tmp_path / 'other'} has no vector for 9" in printed


def test_what_are_no_vectors(corpus, tiny_bert, vectors, tmp_path) -> None:
    data = (corpus / "train.spacy", corpus / "dev.spacy", tmp_path / "mine.cfg")
    spacy.blank("en").to_disk(tmp_path / "blank")
    printed = run("init", *data, "--vectors", tmp_path / "blank", code=1)
    assert "blank has no static vectors. `nested-ner vectors`" in printed
    printed = run("init", *data, "--vectors", tmp_path / "none", code=1)
    assert "none: no trained pipeline there" in printed
    printed = run("init", *data, "--vectors", vectors, "--encoder", tiny_bert, code=1)
    assert "--vectors applies only to a CNN" in printed
    printed = run("init", *data, "--vectors", "", code=1)
    assert "--vectors is empty" in printed
    printed = run("init", *data, "--vectors", vectors, "--lang", "de", code=1)
    assert "vectors for language 'en', and the data are of 'de'" in printed
    nlp = spacy.blank("en")
    nlp.vocab.vectors = Vectors(shape=(0, 3))
    nlp.to_disk(tmp_path / "none")
    printed = run("init", *data, "--vectors", tmp_path / "none", code=1)
    assert "none has no static vectors" in printed
    assert not (tmp_path / "mine.cfg").exists()


@pytest.mark.parametrize(("attr", "share"), [("ORTH", 0.75), ("LOWER", 1.0)])
def test_words_are_looked_up_as_the_cnn_does(tmp_path, monkeypatch, attr, share) -> None:
    nlp = spacy.blank("en")
    # Without spaces, the gold tokens are those that are learned from.
    doc = Doc(nlp.vocab, words=["GENE", "(", "(gene)", "A/B"])
    doc.has_unknown_spaces = True
    doc.spans["sc"] = [Span(doc, 0, 1, "DNA")]
    DocBin(docs=[doc]).to_disk(tmp_path / "data.spacy")
    strings = nlp.vocab.strings
    keys = [strings.add(word) for word in ("gene", "(gene)", "A/B", "a/b", "(")]
    nlp.vocab.vectors = Vectors(strings=strings, data=np.eye(5, dtype="f"), keys=keys, attr=attr)
    # Not from a folder: spaCy does not write there which attribute it is.
    monkeypatch.setattr("spacy_nested_ner.cli.pipelines.load_pipeline", lambda name: nlp)
    found = known_words("name", "cnn", tmp_path / "data.spacy", "en")
    assert (found.shape, found.share) == ((5, 5), share)
