"""Batches with little padding."""

from typing import List

import numpy as np


def cut_batches(lengths: np.ndarray, budget: int) -> List[np.ndarray]:
    """Sort sequences by length and cut them into batches of at most `budget` padded positions.

    Padding is waste: neighbours have almost one length. A sequence that is longer alone still
    makes a batch. lengths: `(sequences,)` int. Returns arrays of indices into it, longest first.
    """
    order = np.argsort(-lengths, kind="stable")
    batches, begin = [], 0
    while begin < len(order):
        size = max(1, budget // max(1, int(lengths[order[begin]])))
        batches.append(order[begin : begin + size])
        begin += size
    return batches
