"""One row for each segment and label: the segment is read together with the label's question."""

from typing import Optional, Tuple

import numpy as np
from torch import Tensor

from spacy_nested_ner.encoders.protocol import PairInput
from spacy_nested_ner.model.rows import Reading, Rows
from spacy_nested_ner.model.types import HeadInput, HeadModel, encoder_of, system_of


def read_pairs(model: HeadModel, X: HeadInput, is_train: bool) -> Reading:
    """Rows of a model that asks questions.

    Only the indices of all pairs are made here, nothing is encoded before it is read.
    """
    system = system_of(model)
    questions = system.questions(model)
    pairs = all_pairs(len(X.segments), len(questions))
    if is_train:
        pairs = pairs[system.training_pairs(model, pairs, X.gold or [])]
    reading, backprop = encoder_of(model)(PairInput(X.docs, X.segments, questions, pairs), is_train)

    def read(batch: np.ndarray) -> Tuple[Tensor, Tensor, Optional[Tensor]]:
        words, mask = reading.read(batch)
        return words, mask, None

    return Rows(pairs[:, 0], pairs[:, 1], reading.lengths, read), backprop


def all_pairs(n_segments: int, n_questions: int) -> np.ndarray:
    """`(segments * questions, 2)` int."""
    return np.stack(np.divmod(np.arange(n_segments * n_questions), n_questions), axis=1)
