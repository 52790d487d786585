"""The pooling of *Locate and Label* for the listeners of spacy-transformers."""

from typing import Any, Callable, Tuple

from thinc.api import Model
from thinc.types import Floats2d, Ragged


def reduce_max() -> Model[Ragged, Floats2d]:
    """`spacy_nested_ner.reduce_max.v1`: as Thinc's `reduce_max.v1`, the maximum over the pieces of
    each word, and zeros for a token without pieces, such as a line break, which Thinc's refuses."""
    return Model("reduce_max_or_zeros", _forward)


def _forward(
    model: Model[Ragged, Floats2d], X: Ragged, is_train: bool
) -> Tuple[Floats2d, Callable[[Floats2d], Ragged]]:
    ops: Any = model.ops
    pieces: Any = X.dataXd  # (pieces, width), also of no piece
    lengths: Any = X.lengths  # (words,)
    filled = lengths.nonzero()[0]
    Y: Any = ops.alloc2f(len(lengths), pieces.shape[1])
    if not len(filled):
        return Y, lambda dY: Ragged(ops.alloc2f(*pieces.shape), lengths)
    Y[filled], which = ops.reduce_max(pieces, lengths[filled])

    def backprop(dY: Any) -> Ragged:
        return Ragged(ops.backprop_reduce_max(dY[filled], which, lengths[filled]), lengths)

    return Y, backprop
