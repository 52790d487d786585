"""Texts that a pretrained encoder reads one after the other, without padding, while it learns."""

from typing import Any, List

import numpy as np
import torch
from torch import Tensor

from spacy_nested_ner.encoders.batching import padded_batches
from spacy_nested_ner.encoders.piece_windows import Window, on_device
from spacy_nested_ner.encoders.pretrained import PretrainedShim, first_position
from spacy_nested_ner.layers.checkpointing import Again
from spacy_nested_ner.layers.packed_encoder import PackedEncoder, Packing

# Padded pieces in one batch of the attention.
ATTENDING = {"cpu": 512, "cuda": 8192}


def read_packed(
    shim: PretrainedShim,
    layers: Any,
    windows: List[Window],
    of_type: int = 0,
    again: Again = None,
) -> Tensor:
    """States of the pieces of all windows, `(pieces, h)`, window after window, [CLS] and [SEP]
    included.

    layers: of the encoder, those that read. of_type: token type of the windows. again: see
        `run_again`.
    """
    device = shim.piece_embeddings.device
    lengths = np.array([len(window.ids) for window in windows], dtype=np.int64) + 2
    begins = np.cumsum(lengths) - lengths
    ids = np.empty(lengths.sum(), dtype=np.int64)
    for window, begin, length in zip(windows, begins, lengths):
        ids[begin + 1 : begin + length - 1] = window.ids
    ids[begins], ids[begins + lengths - 1] = shim.special["cls"], shim.special["sep"]
    positions = np.arange(len(ids)) - np.repeat(begins, lengths) + first_position(shim.config)
    there = on_device(ids, device)
    types = torch.full_like(there, of_type)
    encoder = PackedEncoder(shim.module.embeddings, layers, again)
    return encoder.read(there, types, on_device(positions, device), packing(lengths, device))


def packing(lengths: np.ndarray, device: torch.device) -> Packing:
    """Rows of texts of about one length. lengths: `(texts,)` int, of texts that lie one after the
    other, at least one of them."""
    rows, back, cells = [], torch.empty(int(lengths.sum()), dtype=torch.long), 0
    # On the host, which would wait for a device.
    for _, places, mask in padded_batches(lengths, ATTENDING.get(device.type, ATTENDING["cuda"])):
        back[places[mask]] = cells + mask.flatten().nonzero().squeeze(1)
        cells += mask.numel()
        real = None if mask.all() else mask.to(device, non_blocking=True)
        rows.append((places.to(device, non_blocking=True), real))
    return Packing(rows, back.to(device, non_blocking=True))
