"""Matrix products of Thinc layers on CPUs."""

from typing import Any, Optional

import torch
from numpy import float32, ndarray
from thinc.api import Model, NumpyOps

from spacy_nested_ner.layers.quick_products import multiply, multiply_rows


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


def is_shared(array: ndarray) -> bool:
    """Whether torch can work on the memory of an array as it is."""
    return array.dtype == float32 and array.flags.writeable and array.flags.forc


def use_torch_products(model: Model[Any, Any]) -> None:
    """Let all layers of a model multiply with torch where they are on the CPU."""
    for node in model.walk():
        # Subclasses are of machines that have products of their own.
        if type(node.ops) is NumpyOps:
            node.ops = TorchProducts()
