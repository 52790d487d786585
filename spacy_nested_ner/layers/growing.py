"""Layers that grow with the labels."""

from __future__ import annotations

import torch
from torch import nn


def lowest_bias(layer: nn.Linear) -> float:
    """The smallest bias of the outputs that have learned. Those whose weights are still zeros do
    not count: labels that are added one by one begin like labels that are added at once."""
    biases = layer.bias[layer.weight.any(dim=1)]
    return (biases if len(biases) else layer.bias).min().item()


def grow_outputs(layer: nn.Linear, n_outputs: int, bias: float | None = None) -> nn.Linear:
    """A linear layer with the outputs of `layer` first and `n_outputs` in all.

    Until they are trained, new outputs are `bias` for every input; without one, a number well below
    the present outputs, so that predictions stay as they are.
    """
    grown = nn.Linear(layer.in_features, n_outputs).to(layer.weight.device)
    if bias is None:
        bias = lowest_bias(layer) - 4.0
    with torch.no_grad():
        grown.weight.zero_()
        grown.bias.fill_(bias)
        grown.weight[: layer.out_features] = layer.weight
        grown.bias[: layer.out_features] = layer.bias
    return grown
