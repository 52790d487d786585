"""Signatures of the models, named once."""

from dataclasses import dataclass
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

import numpy as np
from spacy.tokens import Doc
from thinc.api import Model
from torch import Tensor

from spacy_nested_ner.systems.base import Options

# (first word, last word, label index) of a gold entity, counted from its segment's first word.
Entity = Tuple[int, int, int]


class SpanScores(NamedTuple):
    """Scored spans of a batch of docs, flat arrays of one length, on the CPU.

    segment: row of `HeadInput.segments`. start, end: tokens of the doc, end exclusive.
    label: label index. score: float32 in [0, 1].
    """

    segment: np.ndarray
    start: np.ndarray
    end: np.ndarray
    label: np.ndarray
    score: np.ndarray


_NONE = np.zeros(0, dtype=np.int64)
NO_SPANS = SpanScores(_NONE, _NONE, _NONE, _NONE, np.zeros(0, dtype=np.float32))


@dataclass
class HeadInput:
    """What a component hands to its model.

    segments: `(segments, 3)` int: index of the doc, first token, end token (exclusive).
    gold: in training the entities of each segment. options: run-time settings for prediction.
    """

    docs: List[Doc]
    segments: np.ndarray
    gold: Optional[List[List[Entity]]] = None
    options: Optional[Options] = None


class Rows(NamedTuple):
    """What a head reads of its input, encoded when a batch of it is asked for.

    segment: `(rows,)` int, row of `HeadInput.segments`. label: `(rows,)` int, the label that a row
    was encoded for, None where a row stands for all of them. lengths: `(rows,)` int, what a row
    counts in a batch. read: from indices of rows to `(batch, words, width)` vectors, their
    `(batch, words)` bool mask and `(batch, queries, width)` queries if any.
    """

    segment: np.ndarray
    label: Optional[np.ndarray]
    lengths: np.ndarray
    read: Callable[[np.ndarray], Tuple[Tensor, Tensor, Optional[Tensor]]]


class HeadOutput(NamedTuple):
    """Losses by name where gold was given, spans where it was not."""

    losses: Dict[str, float]
    spans: SpanScores


HeadModel = Model[HeadInput, HeadOutput]
