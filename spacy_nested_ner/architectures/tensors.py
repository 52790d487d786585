"""Between the arrays of Thinc and the tensors of torch."""

from typing import Any, Callable, List, Tuple

import numpy as np
import torch
from thinc.api import Ops, get_torch_default_device
from thinc.types import Floats2d
from thinc.util import torch2xp, xp2torch
from torch import Tensor


def to_torch(array: Any, is_train: bool) -> Tensor:
    """An array on the device in use; in training a leaf that collects a gradient."""
    return xp2torch(array, requires_grad=is_train, device=get_torch_default_device())


def gradient_of(leaf: Tensor) -> Any:
    """As an array of the ops in use; zeros where the loss did not reach."""
    return torch2xp(torch.zeros_like(leaf) if leaf.grad is None else leaf.grad)


def flat_leaf(
    ops: Ops,
    vectors: List[Floats2d],
    backprop: Callable[[List[Floats2d]], Any],
    is_train: bool,
    width: int = 0,
) -> Tuple[Tensor, Callable[[], Any]]:
    """What a token-to-vector model gave, as one leaf `(all words, width)`, and the way back for its
    gradient.

    vectors, backprop: of the model. width: where there is no vector to tell it.
    """
    # A transformer listener gives an empty doc an array of width 0: keep it out of the flat one.
    real = [array for array in vectors if array.shape[0]]
    leaf = to_torch(ops.flatten(real) if real else ops.alloc2f(0, width), is_train)
    lengths = [array.shape[0] for array in vectors]
    starts = np.cumsum(lengths) - lengths

    def back() -> Any:
        gradient = gradient_of(leaf)
        return backprop(
            [
                gradient[start : start + len(array)] if len(array) else array
                for start, array in zip(starts, vectors)
            ]
        )

    return leaf, back
