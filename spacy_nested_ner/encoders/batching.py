"""Batches with little padding."""

from typing import Iterator, List, Optional, Tuple

import numpy as np
import torch
from torch import Tensor

from spacy_nested_ner.device import on_device

# Padded pieces at once. On a CPU small batches stay in its caches, a GPU wants to be filled.
BATCH_PIECES = {"cpu": 512, "cuda": 8192}


def pieces_at_once(device: torch.device) -> int:
    """Padded pieces that a pretrained encoder best sees at once on this device."""
    return BATCH_PIECES.get(device.type, BATCH_PIECES["cuda"])


def cut_batches(
    lengths: np.ndarray, budget: int, padding: Optional[int] = None
) -> List[np.ndarray]:
    """Sort sequences by length and cut them into batches of at most `budget` padded positions.

    Padding is waste: neighbours have almost one length. A sequence that is longer alone still
    makes a batch. lengths: `(sequences,)` int. padding: most positions of padding in a batch; None
    for any number. Returns arrays of indices into it, longest first.
    """
    order = np.argsort(-lengths, kind="stable")
    ordered = lengths[order]
    batches, begin = [], 0
    while begin < len(order):
        longest = int(ordered[begin])
        size = max(1, budget // max(1, longest))
        if padding is not None:
            wasted = np.cumsum(longest - ordered[begin : begin + size])
            size = int(np.searchsorted(wasted, padding, side="right"))
        batches.append(order[begin : begin + size])
        begin += size
    return batches


def equal_batches(lengths: np.ndarray, budget: int) -> List[np.ndarray]:
    """As `cut_batches`, but each batch has sequences of one length only, and so no padding."""
    batches: List[np.ndarray] = []
    for length in np.unique(lengths)[::-1]:
        (rows,) = np.nonzero(lengths == length)
        batches.extend(rows[batch] for batch in cut_batches(lengths[rows], budget))
    return batches


def begins_of(lengths: np.ndarray) -> np.ndarray:
    """Where each of some sequences that lie one after the other begins. lengths: `(n,)` int."""
    return np.cumsum(lengths) - lengths


def spread(begins: np.ndarray, lengths: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    """Places of the elements of sequences that begin at `begins`, `(n, longest)` int, and their
    bool mask, False at padding, which repeats the first element. lengths: `(n,)` int."""
    position = np.arange(lengths.max(initial=0))
    mask = position < lengths[:, None]
    return begins[:, None] + position * mask, mask


def padded_batches(
    lengths: np.ndarray, budget: int, device: torch.device | str = "cpu"
) -> Iterator[Tuple[np.ndarray, Tensor, Tensor]]:
    """Batches of sequences that lie one after the other, cut by `cut_batches`.

    lengths: `(sequences,)` int; sequences without elements are in no batch. Yields `(batch,)` int
    which sequences, and `(batch, length)` long places of their elements and bool mask, see
    `spread`.
    """
    begins = begins_of(lengths)
    (filled,) = np.nonzero(lengths)
    for batch in cut_batches(lengths[filled], budget):
        rows = filled[batch]
        places, mask = spread(begins[rows], lengths[rows])
        yield rows, on_device(places, device), on_device(mask, device)
