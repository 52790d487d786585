"""The label of a span, from soft and from certain boundaries."""

import pytest
import torch
import torch.nn.functional as F

from spacy_nested_ner.layers.pooling import mean_inside
from spacy_nested_ner.layers.span_classifier import SpanClassifier

SPANS = torch.tensor([[[0, 0], [1, 3], [4, 4]], [[0, 4], [2, 3], [1, 1]]])


@pytest.mark.parametrize("answer_pooling", [True, False])
def test_certain_boundaries_are_certain_probabilities(answer_pooling) -> None:
    torch.manual_seed(0)
    classifier = SpanClassifier(4, 6, 2, answer_pooling).eval()
    states, words = torch.randn(2, 3, 6), torch.randn(2, 5, 4)
    read = classifier.read(words)
    left, right = (F.one_hot(side, 5).float() for side in SPANS.unbind(-1))
    logits = classifier(states, read, left, right)
    assert logits.shape == (2, 3, 3)  # two labels and None
    torch.testing.assert_close(classifier.at(states, read, SPANS), logits)
    # Words outside a span count for nothing; without pooling those inside do not, either.
    words[0, 1:4] += 1.0
    other = classifier.at(states, classifier.read(words), SPANS)
    same = torch.isclose(other, logits).all(-1).tolist()
    assert same == [[True, not answer_pooling, True], [True, True, True]]


def test_the_mean_of_the_words_inside() -> None:
    words = torch.arange(10.0).reshape(2, 5, 1)
    assert mean_inside(SPANS, words).squeeze(-1).tolist() == [[0.0, 2.0, 4.0], [7.0, 7.5, 6.0]]
