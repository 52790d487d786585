"""Layers that grow with the labels."""

from __future__ import annotations

import torch
from torch import nn


def grow_outputs(layer: nn.Linear, n_outputs: int, bias: float) -> nn.Linear:
    """A linear layer with the outputs of `layer` first and `n_outputs` in all.

    New outputs say `bias`, whatever comes in, until they are trained.
    """
    grown = nn.Linear(layer.in_features, n_outputs).to(layer.weight.device)
    with torch.no_grad():
        grown.weight.zero_()
        grown.bias.fill_(bias)
        grown.weight[: layer.out_features] = layer.weight
        grown.bias[: layer.out_features] = layer.bias
    return grown
