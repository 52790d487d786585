"""How a sentence answers the question of each label (Li et al. 2020, section 3.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Optional, Sequence

import numpy as np
import torch

from spacy_nested_ner.systems.base import FigureInput
from spacy_nested_ner.systems.drawing import label_words, new_figure, plain


@dataclass(frozen=True)
class AnswerScores:
    """How a sentence answers the question of each label; all `(labels, words)` float, 0 to 1.

    start, end: that an answer starts or ends at the word. answer: the score of the best answer that
    holds the word; None for a head that matches no starts with ends.
    """

    start: np.ndarray
    end: np.ndarray
    answer: Optional[np.ndarray]


def draw(view: FigureInput) -> Dict[str, Any]:
    """The figure "answers"."""
    return {"answers": plot_answers(answer_scores(view), view.followed_words, view.labels)}


@torch.no_grad()
def answer_scores(view: FigureInput) -> AnswerScores:
    """Of the followed segment."""
    head = view.head
    shape = (len(view.labels), len(view.followed_words))
    start, end, answer = (np.zeros(shape) for _ in range(3))
    for (words, mask, _), label in view.followed():
        first, last, start_logits, end_logits = head.boundaries(words)
        starts, ends = start_logits.sigmoid(), end_logits.sigmoid()
        start[label], end[label] = starts.cpu().numpy(), ends.cpu().numpy()
        if head.match is not None:
            row, i, j, score = head.scored_pairs(first, last, starts, ends, mask, view.options)
            best = score.new_zeros((*starts.shape, starts.shape[1]))
            best[row, i, j] = score
            # Of all that start here or before, the best that end here or later.
            best = best.flip(2).cummax(dim=2).values.flip(2).cummax(dim=1).values
            answer[label] = best.diagonal(dim1=1, dim2=2).cpu().numpy()
    return AnswerScores(start, end, None if head.match is None else answer)


def plot_answers(scores: AnswerScores, words: Sequence[str], labels: Sequence[str]) -> Any:
    """Heat maps of starts, ends and answers, one row for the question of each label."""
    parts = {"start": scores.start, "end": scores.end}
    if scores.answer is not None:
        parts["best answer\nover the word"] = scores.answer
    size = (max(6, 0.45 * len(words)), len(parts) * (0.3 * len(labels) + 0.4) + 1.2)
    figure, rows = new_figure(*size, nrows=len(parts), sharex=True)
    for axes, (name, values) in zip(rows, parts.items()):
        image = axes.imshow(values, aspect="auto", cmap="Blues", vmin=0, vmax=1)
        axes.set(ylabel=name, yticks=range(len(labels)))
        axes.set_yticklabels(list(map(plain, labels)))
    figure.colorbar(image, ax=rows, label="probability")
    rows[0].set(title="Answers to the question of each label")
    label_words(rows[-1], words)
    return figure
