"""One row for each segment and label: the segment is read together with the label's question."""

from typing import Any, Callable, List, Optional, Tuple

import numpy as np
import torch
from torch import Tensor

from spacy_nested_ner.architectures.questions import questions_of
from spacy_nested_ner.architectures.types import Entity, HeadInput, HeadModel, PairInput, Rows


def read_pairs(
    model: HeadModel, X: HeadInput, is_train: bool
) -> Tuple[Rows, Callable[[], List[Any]]]:
    """Rows of a model that asks questions, and the way back for their gradients.

    Only the indices of all pairs are made here, nothing is encoded before it is read.
    """
    questions = questions_of(model)
    pairs = all_pairs(len(X.segments), len(questions))
    if is_train and model.attrs["unanswered_share"] < 1:
        pairs = pairs[_asked(pairs, X.gold, model.attrs["unanswered_share"])]
    reading, backprop = model.layers[0](PairInput(X.docs, X.segments, questions, pairs), is_train)

    def read(batch: np.ndarray) -> Tuple[Tensor, Tensor, Optional[Tensor]]:
        words, mask = reading.read(batch)
        return words, mask, None

    return Rows(pairs[:, 0], pairs[:, 1], reading.lengths, read), backprop


def all_pairs(n_segments: int, n_questions: int) -> np.ndarray:
    """`(segments * questions, 2)` int."""
    return np.stack(np.divmod(np.arange(n_segments * n_questions), n_questions), axis=1)


def _asked(pairs: np.ndarray, gold: Optional[List[List[Entity]]], share: float) -> np.ndarray:
    """Which pairs take part in a step: those with an answer and a random share of the others.

    Never none at all: a step needs something to learn from.
    """
    answered = {(i, label) for i, group in enumerate(gold or []) for _, _, label in group}
    has_answer = np.array([(i, label) in answered for i, label in pairs.tolist()], dtype=bool)
    asked = has_answer | (torch.rand(len(pairs)).numpy() < share)
    if not asked.any():
        asked[int(torch.randint(len(pairs), ()))] = True
    return asked
