"""Signatures of the models, named once."""

from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

import numpy as np
from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import Floats2d, Floats3d

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
    options: Mapping[str, Any] = field(default_factory=dict)


class HeadOutput(NamedTuple):
    """Losses by name where gold was given, spans where it was not."""

    losses: Dict[str, float]
    spans: SpanScores


Tok2VecModel = Model[List[Doc], List[Floats2d]]
QueryEncoderModel = Model[Tuple[List[Doc], np.ndarray], Tuple[Floats2d, Floats3d]]
HeadModel = Model[HeadInput, HeadOutput]
