"""The pooling of *Locate and Label* for the listeners of spacy-transformers."""

from typing import Callable, Tuple

from thinc.api import Model
from thinc.types import Floats2d, Ragged


def reduce_max() -> Model[Ragged, Floats2d]:
    """`spacy_nested_ner.reduce_max.v1`: as Thinc's `reduce_max.v1`, the maximum over the pieces of
    each word, and zeros for a token without pieces, such as a line break, which Thinc's refuses."""
    return Model("reduce_max_or_zeros", _forward)


def _forward(
    model: Model[Ragged, Floats2d], X: Ragged, is_train: bool
) -> Tuple[Floats2d, Callable[[Floats2d], Ragged]]:
    ops, shape = model.ops, X.dataXd.shape
    filled = ops.asarray1i(X.lengths).nonzero()[0]
    Y = ops.alloc2f(len(X.lengths), shape[1])
    if not len(filled):
        return Y, lambda dY: Ragged(ops.alloc2f(*shape), X.lengths)
    lengths = X.lengths[filled]
    Y[filled], which = ops.reduce_max(X.data, lengths)

    def backprop(dY: Floats2d) -> Ragged:
        return Ragged(ops.backprop_reduce_max(dY[filled], which, lengths), X.lengths)

    return Y, backprop
