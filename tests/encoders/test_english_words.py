"""Vectors of English words that come with the package."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import spacy
from safetensors.numpy import load_file, save_file
from spacy.tokens import Doc

from spacy_nested_ner.encoders.english_words import (
    PIECES,
    TENSORS,
    EnglishWords,
    english_words,
)

ASSETS = Path(__file__).parents[2] / "assets" / "english_words"
WORDS = [
    "the",
    "The",
    "gene",
    "genes",
    "IL-2",
    "NF-kappa",
    "B",
    "phosphorylation",
    "zygomorphic",
    "Dr.",
    "don't",
    "a_b",
    "(CD28)",
    "3.5",
    "1/2",
    "'",
    "Mr.Smith's",
    "\u00dcberraschung",
    "na\u00efve",
    "\u03b1-actin",
    "\ufb01ne",
    "\u2026",
    "x\u00b2",
]
GOLDEN = [
    [-1.1592, -1.5074, 0.6466],
    [-1.4194, -1.7439, -0.0519],
    [-0.9274, 0.5583, -0.038],
    [-1.161, 0.2458, -0.0978],
    [-0.8464, 0.3961, 0.0355],
    [0.0, 0.0, 0.0],
]


def vectors_of(*words: str) -> np.ndarray:
    return english_words()([Doc(spacy.blank("en").vocab, words=list(words))])


@pytest.fixture
def table(tmp_path) -> EnglishWords:
    """Of four pieces; a word of two is twice their mean."""
    (tmp_path / PIECES).write_text("gene\n##s\nil\n-\n", encoding="utf8")
    tensors = {
        "vectors": np.array([[1, 2], [3, -4], [5, 6], [0, 1]], dtype=np.int8),
        "scale": np.array([1, 0.5], dtype=np.float32),
        "mapping": 2 * np.eye(2, dtype=np.float32),
    }
    save_file(tensors, tmp_path / TENSORS)
    return EnglishWords(tmp_path)


def test_words_of_one_piece_of_several_and_of_none(table) -> None:
    vocab = spacy.blank("en").vocab
    words = ["GENE", "genes", "Génes", "\n", "il-", "il-x", "##s", "tree"]
    found = table([Doc(vocab, words=words[:3]), Doc(vocab), Doc(vocab, words=words[3:])])
    together = [4.0, -1.0]  # of gene and ##s
    expected = [[1, 1], together, together, [0, 0], [5, 3.5], [5, 3.5], [0, 0], [0, 0]]
    assert found.dtype == np.float32 and np.allclose(found, expected)
    assert table([Doc(vocab)]).shape == table([]).shape == (0, 2)


def test_a_long_word_is_read_no_more_than_by_the_encoder(table) -> None:
    assert len(table.pieces("gene" + "s" * 96)) == 97 and not table.pieces("gene" + "s" * 97)
    assert table.pieces(f"il-{'s' * 200}") == [2, 3]


def test_words_are_cut_as_the_encoder_cuts_them(tmp_path) -> None:
    transformers = pytest.importorskip("transformers")
    pieces = (ASSETS / PIECES).read_text("utf8").splitlines()
    (tmp_path / "vocab.txt").write_text("\n".join([*pieces, "[UNK]"]) + "\n", encoding="utf8")
    tokenizer = transformers.BertTokenizer(str(tmp_path / "vocab.txt"), do_lower_case=True)
    table = english_words()
    for word in WORDS:
        assert [pieces[row] for row in table.pieces(word)] == tokenizer.tokenize(word)
    # What is looked up as a whole is a piece that the encoder makes of it.
    found = table([Doc(spacy.blank("en").vocab, words=pieces)])
    for piece, whole in zip(pieces, (found == table.vectors).all(axis=1)):
        if whole:
            assert tokenizer.tokenize(piece) == [piece]
        else:
            assert tokenizer.tokenize(piece) != [piece] or not piece.isascii()


def test_the_table_is_the_one_that_pipelines_learned_with() -> None:
    """A trained pipeline does not carry it: another table needs another name."""
    pieces = (ASSETS / PIECES).read_text("utf8")
    contents = [pieces.encode("utf8"), (ASSETS / TENSORS).read_bytes()]
    found = [hashlib.sha256(content).hexdigest()[:16] for content in contents]
    assert found == ["efa5da3d114f3ed8", "796407403c8a606e"]
    assert len(pieces.splitlines()) == len(load_file(ASSETS / TENSORS)["vectors"])


def test_words_of_one_meaning_are_near() -> None:
    gene, genes, protein, capital, table = vectors_of("gene", "genes", "protein", "GENE", "table")
    assert np.array_equal(gene, capital)
    assert gene @ genes > gene @ protein > gene @ table
    known, unknown, other = vectors_of("phosphorylation", "dephosphorylations", "grandmother")
    assert unknown @ known > unknown @ other


def test_a_word_has_one_vector_wherever_it_stands() -> None:
    alone = [vectors_of(word)[0] for word in WORDS]
    together = EnglishWords(ASSETS)([Doc(spacy.blank("en").vocab, words=[*WORDS, *WORDS])])
    assert np.array_equal(together, np.stack(alone + alone))


def test_how_the_table_is_read_stays_as_it_is() -> None:
    """As pipelines learned it."""
    found = vectors_of("gene", "IL-2", "na\u00efve", "...", "dephosphorylations", "\n")
    assert np.allclose(found[:, :3], GOLDEN, atol=1e-4)
