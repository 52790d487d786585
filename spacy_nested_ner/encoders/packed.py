"""Texts that a pretrained encoder reads one after the other, without padding, while it learns."""

from typing import Any, List, Tuple

import numpy as np
import torch
from torch import Tensor

from spacy_nested_ner.device import on_device
from spacy_nested_ner.encoders.batching import begins_of, padded_batches, pieces_at_once
from spacy_nested_ner.encoders.piece_windows import Window, lengths_of, ranges
from spacy_nested_ner.encoders.pretrained import PretrainedShim, first_position
from spacy_nested_ner.layers.checkpointing import Again
from spacy_nested_ner.layers.packed_encoder import PackedEncoder, Packing


def read_packed(
    shim: PretrainedShim,
    layers: Any,
    windows: List[Window],
    frozen: int,
    of_type: int = 0,
    again: Again = None,
) -> Tensor:
    """States of the pieces of all windows, `(pieces, h)`, window after window, [CLS] and [SEP]
    included.

    layers: of the encoder, those that read. frozen: so many of the lower ones, and the embeddings,
        do not learn. of_type: token type of the windows. again: see `run_again`.
    """
    embeddings, device = shim.module.embeddings, shim.device
    if not frozen:
        shim.frozen_states.forget()
        return PackedEncoder(embeddings, layers, again).read(*pack(shim, windows, of_type))
    lower = PackedEncoder(embeddings, layers[:frozen])
    for part in (embeddings, *lower.layers):
        part.eval()  # the others learn, with dropout

    def read_lower(indices: List[int]) -> List[Tensor]:
        chosen = [windows[i] for i in indices]
        with torch.no_grad():
            states = lower.read(*pack(shim, chosen, of_type))
        return [each.clone() for each in states.split(lengths_of(chosen).tolist())]

    keys = [(of_type, window.ids.tobytes()) for window in windows]
    form = (frozen, torch.is_autocast_enabled(device.type))
    states = shim.frozen_states.read(form, keys, read_lower)
    upper = PackedEncoder(embeddings, layers[frozen:], again)
    return upper.go_on(states, packing(lengths_of(windows), device))


def pack(
    shim: PretrainedShim, windows: List[Window], of_type: int
) -> Tuple[Tensor, Tensor, Tensor, Packing]:
    """Ids, token types and positions of the pieces of all windows, `(pieces,)` long each, and how
    they attend together."""
    device = shim.device
    lengths = lengths_of(windows)
    begins = begins_of(lengths)
    ids = np.empty(lengths.sum(), dtype=np.int64)
    for window, begin, length in zip(windows, begins, lengths):
        ids[begin + 1 : begin + length - 1] = window.ids
    ids[begins], ids[begins + lengths - 1] = shim.special["cls"], shim.special["sep"]
    positions = ranges(lengths) + first_position(shim.config)
    there = on_device(ids, device)
    types = torch.full_like(there, of_type)
    return there, types, on_device(positions, device), packing(lengths, device)


def packing(lengths: np.ndarray, device: torch.device) -> Packing:
    """Rows of texts of about one length. lengths: `(texts,)` int, of texts that lie one after the
    other, at least one of them."""
    rows, back, cells = [], torch.empty(int(lengths.sum()), dtype=torch.long), 0
    # On the host, which would wait for a device.
    for _, places, mask in padded_batches(lengths, pieces_at_once(device)):
        back[places[mask]] = cells + mask.flatten().nonzero().squeeze(1)
        cells += mask.numel()
        real = None if mask.all() else on_device(mask, device)
        rows.append((on_device(places, device), real))
    return Packing(rows, on_device(back, device))
