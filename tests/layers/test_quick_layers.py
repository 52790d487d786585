"""Layers of torch that get a quicker form."""

import pytest
import torch
from torch import nn

from spacy_nested_ner.layers.dropout import Dropout
from spacy_nested_ner.layers.quick_layers import with_quick_layers
from spacy_nested_ner.layers.quick_products import GRUCell, Linear


@pytest.mark.parametrize(
    "layer, quick",
    [(nn.Dropout(0.2), Dropout), (nn.Linear(3, 2), Linear), (nn.GRUCell(3, 2), GRUCell)],
)
def test_a_layer_keeps_what_it_has(layer, quick) -> None:
    layer.fixed, before = True, layer.state_dict()
    module = nn.Sequential(nn.ReLU(), nn.Sequential(layer)).eval()
    assert with_quick_layers(module) is module
    found = module[1][0]
    assert found is layer and type(found) is quick and found.fixed and not found.training
    assert all(torch.equal(before[name], value) for name, value in found.state_dict().items())
    assert type(with_quick_layers(module)[1][0]) is quick
    if quick is Dropout:
        assert found.p == 0.2


def test_layers_of_other_classes_stay() -> None:
    class Own(nn.Linear):
        pass

    module = with_quick_layers(nn.Sequential(Own(2, 2), nn.Bilinear(2, 2, 2), Dropout(0.4)))
    assert [type(part) for part in module] == [Own, nn.Bilinear, Dropout]
