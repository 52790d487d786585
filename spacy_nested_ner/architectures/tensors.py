"""Between the arrays of Thinc and the tensors of torch."""

from typing import Any

import torch
from thinc.api import get_torch_default_device
from thinc.util import torch2xp, xp2torch
from torch import Tensor


def to_torch(array: Any, is_train: bool) -> Tensor:
    """An array on the device in use; in training a leaf that collects a gradient."""
    return xp2torch(array, requires_grad=is_train, device=get_torch_default_device())


def gradient_of(leaf: Tensor) -> Any:
    """As an array of the ops in use; zeros where the loss did not reach."""
    return torch2xp(torch.zeros_like(leaf) if leaf.grad is None else leaf.grad)
