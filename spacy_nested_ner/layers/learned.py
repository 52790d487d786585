"""Vectors that are learned, such as embeddings of places."""

import torch
from torch import nn


def learned(*shape: int) -> nn.Parameter:
    """They begin near zero, as those of BERT do."""
    return nn.Parameter(torch.randn(*shape) * 0.02)
