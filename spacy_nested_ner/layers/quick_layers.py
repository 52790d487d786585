"""Layers of torch that have a quicker form for CPUs."""

from __future__ import annotations

from typing import Dict, Type

from torch import nn

from spacy_nested_ner.layers.dropout import Dropout
from spacy_nested_ner.layers.quick_products import GRUCell, Linear

QUICK: Dict[Type[nn.Module], Type[nn.Module]] = {
    nn.Dropout: Dropout,
    nn.Linear: Linear,
    nn.GRUCell: GRUCell,
}


def with_quick_layers(module: nn.Module) -> nn.Module:
    """The module itself; each layer in it that has a quicker form has that, with its parameters and
    all that others have set on it. Subclasses stay as they are."""
    for part in module.modules():
        # A new layer would lack hooks and attributes, and others would still hold the old one.
        part.__class__ = QUICK.get(type(part), type(part))
    return module
