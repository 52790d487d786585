"""The label of a span, from its vector and from the words at and between its boundaries."""

from __future__ import annotations

from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spacy_nested_ner.layers.growing import grow_outputs
from spacy_nested_ner.layers.pooling import mean_inside, soft_inside, words_at
from spacy_nested_ner.layers.quick_products import linear


class SpanClassifier(nn.Module):
    """Two-layer perceptron with a None class at index 0 (DiffusionNER, section 4.2).

    answer_pooling: it also reads the words at and between the predicted boundaries.
    words: width of the words. width: of the spans.
    """

    def __init__(self, words: int, width: int, n_labels: int, answer_pooling: bool) -> None:
        super().__init__()
        self.width, self.answer_pooling = width, answer_pooling
        self.input = nn.Linear(width + (3 * words if answer_pooling else 0), width)
        self.dropout = nn.Dropout(0.0)
        self.output = nn.Linear(width, n_labels + 1)

    def read(self, words: Tensor) -> Optional[Tensor]:
        """Words as first, then as last, then as any word of an entity, `(B, 3 * N, h)`; or None."""
        if not self.answer_pooling:
            return None
        weight = torch.cat(self.input.weight[:, self.width :].chunk(3, dim=1))
        return torch.cat(linear(words, weight, None).chunk(3, dim=-1), dim=1)

    def forward(
        self, spans: Tensor, words: Optional[Tensor], left: Tensor, right: Tensor
    ) -> Tensor:
        """Returns `(B, K, C + 1)` logits.

        spans: `(B, K, h)`. words: from `read`. left, right: `(B, K, N)` boundary probabilities.
        """
        if words is None:
            return self._logits(spans)
        inside = soft_inside(left, right)
        inside = inside / inside.sum(dim=-1, keepdim=True).clamp(min=1e-6)
        return self._logits(spans, torch.cat([left, right, inside], dim=-1) @ words)

    def at(self, spans: Tensor, words: Optional[Tensor], boundaries: Tensor) -> Tensor:
        """As `forward`, with certain boundaries: `(B, K, 2)` long, both inclusive."""
        if words is None:
            return self._logits(spans)
        first, last, inside = words.chunk(3, dim=1)
        left, right = boundaries.unbind(-1)
        within = mean_inside(boundaries, inside)
        return self._logits(spans, words_at(first, left), words_at(last, right), within)

    def _logits(self, spans: Tensor, *words: Tensor) -> Tensor:
        hidden = linear(spans, self.input.weight[:, : self.width], self.input.bias)
        return self.output(self.dropout(F.gelu(sum(words, hidden))))

    def grow(self, n_labels: int) -> None:
        """Rows for new labels; they start low, so that what was found before still is."""
        self.output = grow_outputs(self.output, n_labels + 1)
