"""What a head makes of the encoder's words first."""

import pytest
import torch

from spacy_nested_ner.layers.word_layer import WordLayer


@pytest.mark.parametrize("lstm_layers", [0, 1, 2])
def test_width_and_padding(lstm_layers: int) -> None:
    torch.manual_seed(0)
    layer = WordLayer(6, 8, lstm_layers, 0.5).eval()
    words, mask = torch.randn(2, 5, 6), torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    found = layer(words, mask)
    assert found.shape == (2, 5, 8)
    alone = layer(words[1:, :3], mask[1:, :3])
    torch.testing.assert_close(found[1, :3], alone[0])
    names = {name.split(".")[0] for name, _ in layer.named_parameters()}
    assert names == ({"lstm"} if lstm_layers else {"project"})


def test_without_a_bilstm_each_word_is_read_by_itself() -> None:
    torch.manual_seed(0)
    layer = WordLayer(6, 8, 0, 0.0)
    words, mask = torch.randn(1, 4, 6), torch.ones(1, 4, dtype=torch.bool)
    order = [2, 0, 3, 1]
    torch.testing.assert_close(layer(words[:, order], mask), layer(words, mask)[:, order])


def test_dropout_before_it() -> None:
    layer = WordLayer(6, 8, 0, 0.0).train()
    layer.dropout.p = 1.0
    words, mask = torch.randn(2, 3, 6), torch.ones(2, 3, dtype=torch.bool)
    torch.testing.assert_close(layer(words, mask), layer(0 * words, mask))
