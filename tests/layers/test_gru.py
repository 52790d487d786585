import pytest
import torch
from torch import nn

from spacy_nested_ner.layers.gru import gru_states

pytestmark = pytest.mark.no_gpu("this loop is for CPUs alone")


@pytest.mark.parametrize(("batch", "n_words"), [(3, 7), (1, 1), (2, 40)])
def test_equals_pytorchs_layers_with_all_gradients(batch: int, n_words: int) -> None:
    torch.manual_seed(0)
    layers = [nn.GRU(5, 4, batch_first=True, dtype=torch.float64) for _ in range(2)]
    inputs = [
        torch.randn(batch, n_words, 5, dtype=torch.float64, requires_grad=True) for _ in layers
    ]
    learned = [parameter for layer in layers for parameter in layer.parameters()]
    slope = torch.randn(2, batch, n_words, 4, dtype=torch.float64)
    expected = torch.stack([layer(words)[0] for layer, words in zip(layers, inputs)])
    expected_gradients = torch.autograd.grad((expected * slope).sum(), [*inputs, *learned])
    found = torch.stack(gru_states(layers, inputs))
    torch.testing.assert_close(found, expected)
    gradients = torch.autograd.grad((found * slope).sum(), [*inputs, *learned])
    torch.testing.assert_close(gradients, expected_gradients)


@pytest.mark.parametrize(("batch", "n_words"), [(3, 7), (1, 1), (2, 40)])
def test_predicts_what_it_has_learned(batch: int, n_words: int) -> None:
    torch.manual_seed(0)
    layers = [nn.GRU(5, 4, batch_first=True) for _ in range(2)]
    inputs = [3 * torch.randn(batch, n_words, 5) for _ in layers]
    kept = [words.clone() for words in inputs]
    with torch.no_grad():
        found = gru_states(layers, inputs)
        for words, states, layer, before in zip(inputs, found, layers, kept):
            torch.testing.assert_close(states, layer(words)[0])
            assert torch.equal(words, before)


def test_nothing_to_read() -> None:
    layer = nn.GRU(5, 4, batch_first=True)
    (states,) = gru_states([layer], [torch.zeros(0, 3, 5)])
    assert states.shape == (0, 3, 4)
    with torch.no_grad():
        assert gru_states([layer], [torch.zeros(0, 3, 5)])[0].shape == (0, 3, 4)
