"""Bidirectional recurrent encoder that padding cannot reach."""

from __future__ import annotations

from typing import Type

import torch
from torch import Tensor, nn


class BiLSTM(nn.Module):
    """Stacked bidirectional LSTM over padded sequences, exact for every length.

    Each direction is a plain `cell`. The backward one reads every sequence reversed within its own
    length, so padding always comes last and cannot change a real word. This is what packing does,
    at about half its cost on a CPU, where packed sequences miss the fused kernels.

    width: of the input. hidden: of the output, half per direction (must be even).
    dropout: between the layers only.
    """

    cell: Type[nn.Module] = nn.LSTM

    def __init__(self, width: int, hidden: int, layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        if hidden % 2:
            raise ValueError(f"{type(self).__name__}: the output width must be even, got {hidden}.")
        widths = [width] + [hidden] * (layers - 1)
        self.ahead = nn.ModuleList(self.cell(w, hidden // 2, batch_first=True) for w in widths)
        self.back = nn.ModuleList(self.cell(w, hidden // 2, batch_first=True) for w in widths)
        self.dropout = nn.Dropout(dropout)
        self.dropout.fixed = True  # type: ignore[assignment]

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        """words: `(batch, words, width)`; mask: `(batch, words)` bool, real words first.

        Returns `(batch, words, hidden)`; what stands at padding is arbitrary but finite.
        """
        mirror = _mirror_index(mask)
        for i, (ahead, back) in enumerate(zip(self.ahead, self.back)):
            if i:
                words = self.dropout(words)
            forward_states, _ = ahead(words)
            backward_states, _ = back(_pick(words, mirror))
            words = torch.cat([forward_states, _pick(backward_states, mirror)], dim=-1)
        return words


class BiGRU(BiLSTM):
    """The same with gated recurrent units."""

    cell = nn.GRU


def _mirror_index(mask: Tensor) -> Tensor:
    """`(batch, words)` long: word j of a sequence of n words takes word n-1-j, padding itself."""
    position = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)
    reverse = mask.sum(dim=1, keepdim=True) - 1 - position
    return torch.where(mask, reverse, position)


def _pick(words: Tensor, index: Tensor) -> Tensor:
    return words.gather(1, index.unsqueeze(-1).expand(-1, -1, words.shape[-1]))
