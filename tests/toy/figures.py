"""The figure of the toy system."""

from typing import Any, Dict

import torch

from spacy_nested_ner.systems.base import FigureInput
from spacy_nested_ner.systems.drawing import new_figure


@torch.no_grad()
def draw(view: FigureInput) -> Dict[str, Any]:
    """How sure the head is of a label for each word."""
    figure, axes = new_figure(4, 3)
    scores = [view.head.logits(batch).sigmoid()[batch.mask] for batch, _ in view.batches()]
    axes.hist(torch.cat(scores).flatten().tolist(), range=(0, 1))
    axes.set(title="Scores of all labels of all words")
    return {"scores": figure}
