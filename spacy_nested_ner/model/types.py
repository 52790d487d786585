"""Signatures of the models, named once, and what a model holds."""

from dataclasses import dataclass
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import numpy as np
from spacy.tokens import Doc
from thinc.api import Model

from spacy_nested_ner.systems import get_system
from spacy_nested_ner.systems.base import Options, System

# (first word, last word, label index) of a gold entity, counted from its segment's first word.
GoldEntity = Tuple[int, int, int]


class ScoredSpans(NamedTuple):
    """Scored spans of a batch of docs: columns of one length, on the CPU.

    segment: row of `HeadInput.segments`. doc: index of the doc. start, end: its tokens, end
    exclusive. label: label index. score: float32 in [0, 1].
    """

    segment: np.ndarray
    doc: np.ndarray
    start: np.ndarray
    end: np.ndarray
    label: np.ndarray
    score: np.ndarray

    def take(self, chosen: Any) -> "ScoredSpans":
        """Some of the spans: a slice, a mask or indices."""
        return ScoredSpans(*(column[chosen] for column in self))


_NONE = np.zeros(0, dtype=np.int64)
NO_SPANS = ScoredSpans(_NONE, _NONE, _NONE, _NONE, _NONE, np.zeros(0, dtype=np.float32))


@dataclass
class HeadInput:
    """What a component hands to its model.

    segments: `(segments, 3)` int: index of the doc, first token, end token (exclusive).
    gold: in training the entities of each segment. options: run-time settings for prediction.
    """

    docs: List[Doc]
    segments: np.ndarray
    gold: Optional[List[List[GoldEntity]]] = None
    options: Optional[Options] = None


class HeadOutput(NamedTuple):
    """Losses by name where gold was given, spans where it was not."""

    losses: Dict[str, float]
    spans: ScoredSpans


HeadModel = Model[HeadInput, HeadOutput]


def system_of(model: HeadModel) -> System:
    """The system that a model belongs to."""
    return get_system(model.attrs["system"])


def encoder_of(model: HeadModel) -> Model[Any, Any]:
    """What reads the segments for the head."""
    return model.layers[0]
