"""The head of the toy system."""

from typing import Dict

import torch
import torch.nn.functional as F
from torch import nn

from spacy_nested_ner.layers.growing import grow_outputs
from spacy_nested_ner.systems.base import Options
from spacy_nested_ner.systems.head import Batch, Gold, Head, Loss, Predictions
from tests.toy import ToySettings


class Toy(Head):
    """A label for each word, by itself."""

    def __init__(self, width: int, n_labels: int, settings: ToySettings) -> None:
        super().__init__()
        self.hidden = nn.Linear(width, settings.hidden_width)
        self.output = nn.Linear(settings.hidden_width, n_labels)

    def logits(self, batch: Batch) -> torch.Tensor:
        """`(batch, words, labels)`."""
        return self.output(torch.relu(self.hidden(batch.words)))

    def losses(self, batch: Batch, gold: Gold) -> Dict[str, Loss]:
        logits = self.logits(batch)
        goal = torch.zeros_like(logits)
        single = gold.mask & (gold.spans[..., 0] == gold.spans[..., 1])
        row, entity = torch.nonzero(single, as_tuple=True)
        goal[row, gold.spans[row, entity, 0], gold.labels[row, entity]] = 1.0
        terms = F.binary_cross_entropy_with_logits(logits, goal, reduction="none")
        return {"label": Loss((terms * batch.mask.unsqueeze(-1)).sum(), batch.mask.sum())}

    def predict(self, batch: Batch, options: Options) -> Predictions:
        score = self.logits(batch).sigmoid() * batch.mask.unsqueeze(-1)
        row, word, label = torch.nonzero(score >= options.threshold, as_tuple=True)
        return Predictions(row, word, word, label, score[row, word, label])

    def add_labels(self, n_labels: int) -> None:
        self.output = grow_outputs(self.output, n_labels)
