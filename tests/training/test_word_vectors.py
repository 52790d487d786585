"""Static vectors of words that a pretrained encoder reads alone."""

from __future__ import annotations

import numpy as np
import pytest
import spacy
import torch

from spacy_nested_ner.training.vectors import add_vectors, principal_components

WORDS = ["IL-2", "gene", "promoter", "\u200b", "human"]


def test_principal_components_are_damped() -> None:
    rng = np.random.default_rng(0)
    sizes = np.array([0.1, 16.0, 1.0, 4.0])
    states = rng.standard_normal((5000, 4)) * sizes + 3
    found = principal_components(states.astype("f"), 3)
    assert found.shape == (5000, 3) and found.dtype == np.float32
    deviations = found.std(axis=0)
    # Of 16, 4 and 1 the square roots.
    assert np.allclose(deviations / deviations[2], [4, 2, 1], rtol=0.05)
    assert np.allclose(np.corrcoef(found.T), np.eye(3), atol=1e-3)
    assert np.allclose(found.mean(axis=0), 0, atol=1e-3)
    assert np.isclose(np.mean(found**2), 1)
    # Which components they are.
    for column, place in enumerate((1, 3, 2)):
        assert abs(np.corrcoef(found[:, column], states[:, place])[0, 1]) > 0.999


def test_few_words_have_narrow_vectors() -> None:
    found = principal_components(np.eye(3, dtype="f"), 3)
    assert found.shape == (3, 2)
    # As far from one another as the words were.
    assert np.allclose(found @ found.T, 1.5 * 2 * np.eye(3) - 1, atol=1e-3)
    found = principal_components(np.eye(3, dtype="f")[:2], 3)
    assert np.allclose(np.abs(found), 1) and found.sum() == 0


def test_words_that_are_read_alike() -> None:
    assert not principal_components(np.ones((3, 4), dtype="f"), 3).any()


def test_a_vector_is_of_the_pieces_of_its_word_alone(tiny_bert) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_bert)
    encoder = transformers.AutoModel.from_pretrained(tiny_bert).eval()
    read = [word for word in WORDS if tokenizer.tokenize(word)]
    assert len(read) == 4
    states = []
    for word in read:
        with torch.inference_mode():
            pieces = tokenizer(word, return_tensors="pt")
            states.append(encoder(**pieces).last_hidden_state[0, 1:-1].mean(0).numpy())
    nlp = spacy.blank("en")
    add_vectors(nlp, str(tiny_bert), WORDS, 3)
    assert nlp.vocab.vectors.shape == (4, 3) and nlp.vocab.vectors.name == tiny_bert.name
    expected = principal_components(np.stack(states), 3)
    found = np.stack([nlp.vocab[word].vector for word in read])
    # A component may point either way.
    assert np.allclose(found @ found.T, expected @ expected.T, atol=1e-3)
    assert not nlp.vocab["\u200b"].has_vector and not nlp.vocab["promoters"].has_vector


def test_words_that_the_encoder_cannot_read(tiny_bert) -> None:
    nlp = spacy.blank("en")
    with pytest.raises(ValueError, match="at least two words, and the encoder reads 1 of 2"):
        add_vectors(nlp, str(tiny_bert), ["gene", "\u200b"], 3)
    with pytest.raises(ValueError, match="reads 0 of 0"):
        add_vectors(nlp, str(tiny_bert), [], 3)
