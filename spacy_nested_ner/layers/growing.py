"""Layers that grow with the labels."""

from __future__ import annotations

import torch
from torch import nn


def grow_outputs(layer: nn.Linear, n_outputs: int, bias: float | None = None) -> nn.Linear:
    """A linear layer with the outputs of `layer` first and `n_outputs` in all.

    Until they are trained, new outputs say `bias`, whatever comes in; without one, a number well
    below what the present ones say, so that what was found before still is.
    """
    grown = nn.Linear(layer.in_features, n_outputs).to(layer.weight.device)
    if bias is None:
        bias = layer.bias.min().item() - 4.0
    with torch.no_grad():
        grown.weight.zero_()
        grown.bias.fill_(bias)
        grown.weight[: layer.out_features] = layer.weight
        grown.bias[: layer.out_features] = layer.bias
    return grown
