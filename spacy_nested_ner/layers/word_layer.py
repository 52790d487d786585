"""What a head makes of the encoder's words first."""

from __future__ import annotations

from typing import Optional

from torch import Tensor, nn

from spacy_nested_ner.layers.recurrent import BiRNN


class WordLayer(nn.Module):
    """Words of the encoder in the width of a head: through a BiLSTM, as the papers have it, or,
    without layers of it, through a linear layer and a LayerNorm, by which an encoder without
    pretraining learns sooner.

    width: of the input. hidden: of the output. lstm_layers: of the BiLSTM. lstm_dropout: between
    them.
    """

    def __init__(self, width: int, hidden: int, lstm_layers: int, lstm_dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.0)
        self.lstm = BiRNN(width, hidden, lstm_layers, lstm_dropout) if lstm_layers else None
        self.project: Optional[nn.Module] = None
        if self.lstm is None:
            self.project = nn.Sequential(nn.Linear(width, hidden), nn.LayerNorm(hidden))

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        """words: `(B, N, width)`; mask: `(B, N)` bool. Returns `(B, N, hidden)`."""
        words = self.dropout(words)
        if self.lstm is not None:
            return self.lstm(words, mask)
        assert self.project is not None
        return self.project(words)
