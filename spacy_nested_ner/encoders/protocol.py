"""What an encoder reads, and how the rest of the package learns it."""

from enum import Enum
from typing import Any, Callable, List, NamedTuple, Optional, Tuple

import numpy as np
from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import Floats2d, Floats3d
from torch import Tensor


class Reads(Enum):
    """The input of an encoder: the words of docs (any tok2vec); segments with its own queries; or
    pairs of segment and question."""

    WORDS = "words"
    QUERIES = "queries"
    PAIRS = "pairs"


def reads(encoder: Model[Any, Any]) -> Reads:
    """What an encoder reads."""
    return Reads(encoder.attrs.get("input", Reads.WORDS.value))


def n_queries(encoder: Model[Any, Any]) -> Optional[int]:
    """How many queries an encoder reads with the words; None for none."""
    return encoder.attrs["n_queries"] if reads(encoder) is Reads.QUERIES else None


def needed_annotation(encoder: Model[Any, Any]) -> List[str]:
    """Token attributes ("tag", "pos") that the encoder reads and another component has to set."""
    return sorted({node.attrs["reads"] for node in encoder.walk() if node.attrs.get("reads")})


def has_annotation(docs: List[Doc], attr: str) -> bool:
    """Whether any token of the docs has a "tag" or "pos"."""
    return any(doc.has_annotation(attr.upper()) for doc in docs)


def missing_annotation(attr: str) -> str:
    """What to do about docs without the annotation that an encoder reads."""
    return (
        f"the encoder reads token.{attr} (pos_width is set), but no token of the docs has a "
        f"{attr}_. Put a component that predicts token.{attr} before this one and name it in "
        "training.annotating_components (with what it listens to), or set pos_width to 0"
    )


class PairInput(NamedTuple):
    """What an encoder of pairs reads: segments, each with some of the questions.

    segments: see `HeadInput`. pairs: `(pairs, 2)` int, index of the segment and of the question.
    """

    docs: List[Doc]
    segments: np.ndarray
    questions: List[str]
    pairs: np.ndarray


class PairReading(NamedTuple):
    """Pairs that are encoded batch by batch, when they are asked for.

    lengths: `(pairs,)` int, words or pieces of question and sentence. read: from indices of pairs
    to the vectors of the sentences' words, `(batch, words, width)`, and their bool mask. The
    model's callback, which takes nothing, goes on with the gradients that derive from them.
    """

    lengths: np.ndarray
    read: Callable[[np.ndarray], Tuple[Tensor, Tensor]]


Tok2VecModel = Model[List[Doc], List[Floats2d]]
QueryEncoderModel = Model[Tuple[List[Doc], np.ndarray], Tuple[Floats2d, Floats3d]]
PairEncoderModel = Model[PairInput, PairReading]
