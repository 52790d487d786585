"""`nested-ner adapt`: an encoder that reads raw text before it learns entities."""

from __future__ import annotations

import itertools
import re
import shutil
from pathlib import Path

import pytest
import spacy
import torch

from spacy_nested_ner.training import adapt as training
from spacy_nested_ner.training.adapt import Losses, cut_parts
from tests.cli.commands import run
from tests.conftest import SENTENCES, make_examples, make_pipeline, train

pytest.importorskip("transformers")


class Blanks:
    """A tokenizer for which a blank alone ends a word, as for that of XLM-R; a piece a letter."""

    cls_token_id, sep_token_id = 0, 2

    def __call__(self, text: str, **settings) -> Blanks:
        self.text = text
        return self

    def __getitem__(self, name: str) -> list:
        return list(map(ord, self.text.replace(" ", "")))

    def word_ids(self) -> list:
        return [i for i, word in enumerate(self.text.split()) for _ in word]


def test_text_without_blanks_is_cut_into_words() -> None:
    (part,) = cut_parts(Blanks(), "gene promoter 有机化合物的抑制作用 x", 256)
    words = part.words.tolist()
    assert words[0] == words[-1] == -1
    lengths = [len(list(group)) for _, group in itertools.groupby(words[1:-1])]
    assert lengths == [4, 8, 4, 4, 2, 1] and words[-2] == len(lengths) - 1


def weights(folder: Path) -> dict:
    """Of the file, without the layer over [CLS], which is not used."""
    from safetensors.torch import load_file

    found = load_file(folder / "model.safetensors")
    return {name: value for name, value in found.items() if not name.startswith("pooler.")}


def test_it_guesses_words_and_can_be_taken_for_training(tiny_bert, raw_texts, tmp_path) -> None:
    before = weights(tiny_bert)
    printed = run("adapt", tiny_bert, raw_texts, tmp_path / "out", "--passes", 60, "--rate", 0.003)
    first, last = map(float, re.findall(r"(\d+\.\d+) at", printed))
    assert last < 0.8 * first
    assert str((tmp_path / "out").resolve()) in printed
    after = weights(tmp_path / "out")
    assert after.keys() == before.keys()
    layer = "encoder.layer.0.attention.self.query.weight"
    assert not torch.equal(after[layer], before[layer])
    assert all(torch.equal(weights(tiny_bert)[name], before[name]) for name in before)
    tok2vec = {
        "@architectures": "spacy_nested_ner.SortedTransformer.v1",
        "name": str(tmp_path / "out"),
        "mixed_precision": False,
    }
    nlp = train(make_pipeline("locate_and_label_ner", {"tok2vec": tok2vec}), 60)
    assert nlp.evaluate(make_examples(nlp))["nested_f"] > 0.5
    nlp.to_disk(tmp_path / "trained")
    assert spacy.load(tmp_path / "trained").evaluate(make_examples(nlp))["nested_f"] > 0.5


def test_the_same_texts_give_the_same_encoder(tiny_bert, raw_texts, tmp_path) -> None:
    for name in ("one", "two"):
        run("adapt", tiny_bert, raw_texts, tmp_path / name, "--passes", 1)
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    assert len(one) > 10 and all(torch.equal(value, two[name]) for name, value in one.items())


def test_what_cannot_be_adapted_writes_nothing(tiny_bert, raw_texts, tmp_path) -> None:
    out = tmp_path / "out"
    printed = run("adapt", tmp_path / "none", raw_texts, out, code=1)
    assert "Cannot adapt" in printed and "there is no directory" in printed
    assert "--rate must be above 0, got 0." in run(
        "adapt", tiny_bert, raw_texts, out, "--rate", 0, code=1
    )
    (tmp_path / "blank.txt").write_text("\n \n")
    assert "no text" in run("adapt", tiny_bert, tmp_path / "blank.txt", out, code=1)
    assert "too high" in run("adapt", tiny_bert, raw_texts, out, "--rate", 1e30, code=1)
    assert not out.exists()
    assert "the encoder itself" in run("adapt", tiny_bert, raw_texts, tiny_bert, code=1)
    out.mkdir()
    (out / "letter").write_text("kept")
    assert "already exists and has no model.safetensors" in run(
        "adapt", tiny_bert, raw_texts, out, code=1
    )
    assert [path.name for path in out.iterdir()] == ["letter"]


def test_texts_that_cannot_be_used_are_told_of(tiny_bert, tmp_path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": null}\n{"text": "IL-2 gene promoter in human T cells"}\n')
    printed = run("adapt", tiny_bert, path, tmp_path / "out", "--passes", 5)
    assert "Left out: 1 text that" in printed and "texts.jsonl:1" in printed


def test_a_loss_that_does_not_fall_is_told_of(tiny_bert, raw_texts, tmp_path, monkeypatch) -> None:
    losses = Losses(1.0, 1.0)
    monkeypatch.setattr("spacy_nested_ner.training.adapt.adapt", lambda *_: losses)
    assert "The loss has not fallen" in run("adapt", tiny_bert, raw_texts, tmp_path / "a")
    losses = Losses(1.0, 0.9)
    assert "has not fallen" not in run("adapt", tiny_bert, raw_texts, tmp_path / "b")


@pytest.mark.parametrize("where", ["", "texts"])
def test_texts_in_the_folder_that_is_replaced_are_not_lost(tiny_bert, raw_texts, tmp_path, where):
    folder = tmp_path / "out" / where
    folder.mkdir(parents=True)
    shutil.copy(raw_texts, folder)
    (tmp_path / "out" / "model.safetensors").touch()
    printed = run("adapt", tiny_bert, folder, tmp_path / "out", code=1)
    assert "which is to be replaced" in printed and (folder / raw_texts.name).is_file()


def test_the_rate_follows_its_schedule(tiny_bert, tmp_path, monkeypatch) -> None:
    asked = []

    def at_rest(rate, warmup, steps):
        asked.append((rate, warmup, steps))
        return itertools.repeat(0.0)

    monkeypatch.setattr(training, "warmup_linear", at_rest)
    sentences = [text for text, _ in SENTENCES]
    training.adapt(str(tiny_bert), sentences, tmp_path, passes=2, rate=0.003)
    assert asked[0][:2] == (0.003, training.WARMUP)
    before, after = weights(tiny_bert), weights(tmp_path)
    same = [torch.equal(after[k], v) for k, v in before.items() if not k.startswith("pooler.")]
    assert same and all(same)


def test_texts_of_which_no_word_is_hidden(tiny_bert, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(training, "HIDDEN", 0.0)
    sentences = [text for text, _ in SENTENCES]
    with pytest.raises(ValueError, match=r"In 1 passes over .* no word was masked"):
        training.adapt(str(tiny_bert), sentences, tmp_path, 1, 0.001)
