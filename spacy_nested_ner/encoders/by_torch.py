"""What torch computes of Thinc layers on CPUs: matrix products and LayerNorms."""

from typing import Any, Callable, Optional, Tuple

import torch
import torch.nn.functional as F
from numpy import ascontiguousarray, float32, ndarray
from thinc.api import Model, NumpyOps
from thinc.layers import layernorm
from thinc.types import Floats2d
from torch import Tensor

from spacy_nested_ner.layers.quick_products import multiply, multiply_rows

EPSILON = 1e-8  # what Thinc's LayerNorm adds to the variance


class TorchProducts(NumpyOps):
    """Thinc's own operations, but products by torch: those of a CNN take a third of the time that
    they take by BLIS, and as many threads as the head."""

    def gemm(
        self,
        x: ndarray,
        y: ndarray,
        *,
        out: Optional[ndarray] = None,
        trans1: bool = False,
        trans2: bool = False,
    ) -> ndarray:
        """`x @ y` of two matrices, each transposed where that is wanted; see `Ops.gemm`."""
        if not all(is_shared(array) for array in (x, y, out) if array is not None):
            return super().gemm(x, y, out=out, trans1=trans1, trans2=trans2)
        a, b = torch.from_numpy(x), torch.from_numpy(y)
        place = None if out is None else torch.from_numpy(out)
        b = b.t() if trans2 else b
        product = multiply_rows(a, b, place) if trans1 else multiply(a, b, place)
        return product.numpy() if out is None else out


def layer_norm(
    model: Model[Floats2d, Floats2d], X: Floats2d, is_train: bool
) -> Tuple[Floats2d, Callable[[Floats2d], Floats2d]]:
    """What Thinc's LayerNorm computes, `(rows, width)`, in a quarter to an eighth of its time: that
    reads its input again for each step of the formula."""
    arrays: Any = X, model.get_param("G"), model.get_param("b")
    if not all(map(is_shared, arrays)):
        return layernorm.forward(model, X, is_train)
    tensors = [torch.from_numpy(array).requires_grad_(is_train) for array in arrays]
    inputs, scale, shift = tensors
    with torch.set_grad_enabled(is_train):
        outputs = F.layer_norm(inputs, scale.shape, scale, shift, EPSILON)

    def backprop(d_outputs: Floats2d) -> Floats2d:
        if not is_train:  # predictions keep no graph
            return layernorm.forward(model, X, True)[1](d_outputs)
        gradient = torch.from_numpy(ascontiguousarray(d_outputs, dtype=float32))
        # As often as it is called, as Thinc's.
        found = torch.autograd.grad(outputs, tensors, gradient, retain_graph=True)
        d_inputs, d_scale, d_shift = map(_as_array, found)
        model.inc_grad("G", d_scale)
        model.inc_grad("b", d_shift)
        return d_inputs

    return _as_array(outputs.detach()), backprop


def _as_array(tensor: Tensor) -> Any:
    return tensor.numpy()


def is_shared(array: Any) -> bool:
    """Whether torch can work on the memory of an array as it is."""
    return (
        isinstance(array, ndarray)
        and array.dtype == float32
        and array.flags.writeable
        and array.flags.forc
    )


def use_torch(model: Model[Any, Any]) -> None:
    """Let torch multiply and normalize in all layers of a model, where they are on the CPU."""
    for node in model.walk():
        # Subclasses are of machines that have products of their own.
        if type(node.ops) is NumpyOps:
            node.ops = TorchProducts()
        # A layer of another class may have this name.
        if node._func is layernorm.forward:
            node._func = layer_norm
