"""Question and sentence on any token-to-vector model."""

from typing import Any, List, Tuple

import numpy as np
import pytest
import spacy
import torch
from spacy.tokens import Doc

from spacy_nested_ner.encoders.cross_encoder import build_cross_encoder, question_words
from spacy_nested_ner.encoders.pair_places import PairPlaces
from spacy_nested_ner.encoders.protocol import PairEncoderModel, PairInput
from spacy_nested_ner.model.pairs import all_pairs
from tests.conftest import small_cnn

QUESTIONS = ["Who?", "Which genes, or promoters?"]


def make_input() -> PairInput:
    vocab = spacy.blank("en").vocab
    texts = ["human T cells", "", "IL-2 gene expression in human cells", "a"]
    docs = [Doc(vocab, words=text.split()) for text in texts]
    segments = np.array([(0, 0, 3), (2, 0, 4), (2, 2, 6), (3, 0, 1)])
    return PairInput(docs, segments, QUESTIONS, all_pairs(4, 2))


def make_model(question_width: int = 0, depth: int = 2) -> PairEncoderModel:
    spacy.util.fix_random_seed(0)
    own = small_cnn(question_width) if question_width else None
    model = build_cross_encoder(small_cnn(8), own, 12, depth, attention_heads=2, feedforward=2)
    X = make_input()
    model.initialize(X=(X.docs, X.segments))
    return model


def read(model: PairEncoderModel, batch: List[int]) -> Tuple[torch.Tensor, torch.Tensor]:
    with torch.no_grad():
        return model.predict(make_input()).read(np.array(batch))


def test_words_of_a_question() -> None:
    assert question_words("Which T-cells, IL-2's genes?") == [
        *("Which", "T-cells", ",", "IL-2's", "genes", "?")
    ]
    assert question_words("?") == ["?"]


@pytest.mark.parametrize(
    "question, words",
    [
        ("哪些地点?", ["哪", "些", "地", "点", "?"]),
        ("東京はどこ?", ["東", "京", "は", "ど", "こ", "?"]),
        ("पाठ में कौन?", ["पाठ", "में", "कौन", "?"]),
        ("\u062d\u064e\u062f \u062d\u062f", ["\u062d\u064e\u062f", "\u062d\u062f"]),
        ("O\u0308rter", ["O\u0308rter"]),
        ("\u0645\u06cc\u200c\u062e\u0648", ["\u0645\u06cc\u200c\u062e\u0648"]),
    ],
)
def test_questions_in_other_scripts(question, words):
    assert question_words(question) == words


def test_a_row_is_a_question_and_a_segment() -> None:
    """Questions of 2 and 3 words come first in the pool, then docs of 4 and 5 words."""
    vocab = spacy.blank("en").vocab
    docs = [Doc(vocab, words=list("abcd")), Doc(vocab, words=list("efghi"))]
    segments = np.array([(0, 1, 3), (1, 0, 5)])
    X = PairInput(docs, segments, ["a b", "c d e"], all_pairs(2, 2))
    index, mask, words, word_mask = PairPlaces.of(X, [2, 3]).rows(np.array([(0, 1), (1, 0)]))
    assert index.tolist() == [[2, 3, 4, 6, 7, 0, 0], [0, 1, 9, 10, 11, 12, 13]]
    assert mask.sum(1).tolist() == [5, 7]
    assert words.tolist() == [[3, 4, 3, 3, 3], [2, 3, 4, 5, 6]]
    assert word_mask.sum(1).tolist() == [2, 5]


def test_places_of_a_question_and_a_segment_apart() -> None:
    places = PairPlaces(*map(np.array, ([0, 2], [2, 3], [6, 9], [2, 5])))
    words, is_word, asked, is_asked = places.apart(np.array([(0, 1), (1, 0)]))
    assert words.tolist() == [[6, 7, 6, 6, 6], [9, 10, 11, 12, 13]]
    assert asked.tolist() == [[2, 3, 4], [0, 1, 0]]
    assert is_word.sum(1).tolist() == [2, 5] and is_asked.sum(1).tolist() == [3, 2]


@pytest.mark.parametrize("depth", [2, 0])
@pytest.mark.parametrize("question_width", [0, 6])
def test_a_pair_does_not_depend_on_its_batch(question_width, depth) -> None:
    model = make_model(question_width, depth)
    together, mask = read(model, [1, 4, 6, 3])
    assert together.shape == (4, 4, 12) and model.get_dim("nO") == 12
    for row, i in enumerate([1, 4, 6, 3]):
        alone, alone_mask = read(model, [i])
        assert alone_mask.all()
        torch.testing.assert_close(together[row][mask[row]], alone[0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("depth", [2, 0])
def test_the_question_matters(depth) -> None:
    words, _ = read(make_model(depth=depth), [0, 1])
    assert (words[0] - words[1]).abs().max() > 1e-2


@pytest.mark.parametrize("depth", [2, 0])
@pytest.mark.parametrize("question_width", [0, 6])
def test_gradients_reach_what_reads_the_words(question_width, depth) -> None:
    model, X = make_model(question_width, depth), make_input()
    torch.manual_seed(0)
    goal = torch.randn(8, 4, 12)

    def loss(is_train: bool) -> Tuple[torch.Tensor, Any]:
        reading, backprop = model(X, is_train)
        words, mask = reading.read(np.arange(8))
        return (words * goal.to(words.device) * mask.unsqueeze(-1)).sum(), backprop

    with torch.enable_grad():
        value, backprop = loss(True)
        value.backward()
    backprop()
    readers = [model.get_ref("tok2vec"), model.maybe_get_ref("question_tok2vec")]
    for reader in (r for r in readers if r is not None):
        node = next(n for n in reader.walk() if n.has_param("W") and n.has_grad("W"))
        gradient, weights = node.get_grad("W").copy(), node.get_param("W").copy()
        assert np.abs(gradient).max() > 0
        step = np.sign(gradient) * 1e-3
        values = []
        for sign in (1, -1):
            node.set_param("W", weights + sign * step)
            values.append(float(loss(False)[0].detach()))
        node.set_param("W", weights)
        slope = float((gradient * step).sum())
        assert (values[0] - values[1]) / 2 == pytest.approx(slope, rel=0.05)


def test_the_layers_cannot_be_called_alone() -> None:
    with pytest.raises(ValueError, match="'cross_layers' has no input"):
        make_model().get_ref("cross").predict(None)
