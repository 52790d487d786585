"""Bidirectional recurrent encoder that padding cannot reach."""

from __future__ import annotations

from typing import List, Optional, Tuple

import torch
from torch import Tensor, nn

from spacy_nested_ner.layers.dropout import set_dropout
from spacy_nested_ner.layers.gru import gru_states
from spacy_nested_ner.layers.masks import of_padding
from spacy_nested_ner.layers.pooling import words_at

CELLS = {"lstm": nn.LSTM, "gru": nn.GRU}


class BiRNN(nn.Module):
    """Stacked bidirectional LSTM or GRU over padded sequences, exact for every length.

    Each direction is a plain recurrent layer. The backward one reads every sequence reversed
    within its own length, so padding always comes last and cannot change a real word. This is what
    packing does, at about half its cost on a CPU, where packed sequences miss the fused kernels.

    width: of the input. hidden: of the output, half per direction (must be even).
    dropout: between the layers only. cell: "lstm" or "gru".
    """

    def __init__(
        self, width: int, hidden: int, layers: int = 1, dropout: float = 0.0, cell: str = "lstm"
    ) -> None:
        super().__init__()
        if hidden % 2:
            raise ValueError(f"BiRNN: the output width must be even, got {hidden}.")
        widths = [width] + [hidden] * (layers - 1)
        layer = CELLS[cell]
        self.ahead = nn.ModuleList(layer(w, hidden // 2, batch_first=True) for w in widths)
        self.back = nn.ModuleList(layer(w, hidden // 2, batch_first=True) for w in widths)
        self.dropout = nn.Dropout(dropout)
        set_dropout(self.dropout, dropout, fixed=True)

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        """words: `(batch, words, width)`; mask: `(batch, words)` bool, real words first.

        Returns `(batch, words, hidden)`; what stands at padding is arbitrary but finite.
        """
        mirror = None if of_padding(mask) is None else _mirror_index(mask)
        for i, (ahead, back) in enumerate(zip(self.ahead, self.back)):
            if i:
                words = self.dropout(words)
            words = _read_both(ahead, back, words, mirror)
        return words


def last_states(states: Tensor, mask: Tensor) -> Tensor:
    """What each direction of a `BiRNN` knows when it has read the whole sequence.

    states: `(batch, words, hidden)`, its output. Returns `(batch, hidden)`.
    """
    half = states.shape[-1] // 2
    last = (mask.sum(dim=1) - 1).view(-1, 1, 1).expand(-1, 1, half)
    return torch.cat([states[..., :half].gather(1, last).squeeze(1), states[:, 0, half:]], dim=-1)


def _read_both(
    ahead: nn.Module, back: nn.Module, words: Tensor, mirror: Optional[Tensor]
) -> Tensor:
    """`(batch, words, hidden)`. mirror: from `_mirror_index`, None where there is no padding."""
    if mirror is not None:
        states, mirrored = _read([ahead, back], [words, words_at(words, mirror)])
        return torch.cat([states, words_at(mirrored, mirror)], dim=-1)
    if isinstance(ahead, nn.LSTM) and isinstance(back, nn.LSTM):
        # Both directions in one call, which knows of no padding. Settings: biases, layers, dropout,
        # training, both directions, the batch first.
        zeros = words.new_zeros((2, len(words), ahead.hidden_size))
        weights: List[Tensor] = [*ahead.all_weights[0], *back.all_weights[0]]
        settings = (True, 1, 0.0, ahead.training, True, True)
        return torch.lstm(words, (zeros, zeros), weights, *settings)[0]
    states, mirrored = _read([ahead, back], [words, words.flip(1)])
    return torch.cat([states, mirrored.flip(1)], dim=-1)


def _read(layers: List[nn.Module], inputs: List[Tensor]) -> Tuple[Tensor, ...]:
    """Each layer's output, `(batch, words, hidden / 2)`, for its own input."""
    gated = [layer for layer in layers if isinstance(layer, nn.GRU)]
    if gated and inputs[0].device.type == "cpu":
        return gru_states(gated, inputs)
    return tuple(layer(words)[0] for layer, words in zip(layers, inputs))


def _mirror_index(mask: Tensor) -> Tensor:
    """`(batch, words)` long: word j of a sequence of n words takes word n-1-j, padding itself."""
    position = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)
    reverse = mask.sum(dim=1, keepdim=True) - 1 - position
    return torch.where(mask, reverse, position)
