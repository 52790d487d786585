"""What an encoder reads and hands out.

Any token-to-vector model is an encoder: it reads docs and gives the vectors of their words. The
encoders of this package that read more are models of a class of their own.
"""

from functools import partial
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, TypeVar

import numpy as np
from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import Floats2d, Floats3d
from torch import Tensor

from spacy_nested_ner.encoders.curated import is_curated_listener

InT = TypeVar("InT")
OutT = TypeVar("OutT")


def no_backprop(*_: Any) -> List[Any]:
    """The way back where nothing learns."""
    return []


class PairInput(NamedTuple):
    """What an encoder of pairs reads: segments, each with some of the questions.

    segments: see `HeadInput`. pairs: `(pairs, 2)` int, index of the segment and of the question.
    """

    docs: List[Doc]
    segments: np.ndarray
    questions: List[str]
    pairs: np.ndarray


class PairReading(NamedTuple):
    """Pairs, encoded batch by batch on demand.

    lengths: `(pairs,)` int, words or pieces of question and sentence. read: from indices of pairs
    to the vectors of the sentences' words, `(batch, words, width)`, and their bool mask. The
    model's callback takes no argument: it passes on the gradients of these vectors.
    """

    lengths: np.ndarray
    read: Callable[[np.ndarray], Tuple[Tensor, Tensor]]


class Encoder(Model[InT, OutT]):
    """A model whose class says what it reads. Copies keep the class, which Thinc's own do not."""

    __slots__ = ()

    def _copy(self, seen: Optional[Dict[int, Any]] = None) -> Any:
        copied = super()._copy(seen)
        # Thinc copies the parts into a plain `Model`, and cannot be told of another class.
        copied.__class__ = type(self)
        return copied


class QueryEncoderModel(Encoder[Tuple[List[Doc], np.ndarray], Tuple[Floats2d, Floats3d]]):
    """Reads docs and `(segments, 3)` segments, and queries of its own along with them. Gives the
    words of all segments, `(words, width)`, and the queries, `(segments, M, width)`."""

    __slots__ = ()

    @property
    def n_queries(self) -> int:
        """M."""
        return self.attrs["n_queries"]

    @property
    def query_interaction(self) -> bool:
        """Whether the queries attend to each other."""
        return self.shims[0].settings["query_interaction"]  # type: ignore[attr-defined]


class PairEncoderModel(Encoder[PairInput, PairReading]):
    """Reads pairs of a segment and a question."""

    __slots__ = ()

    @property
    def two_sided(self) -> bool:
        """Whether the vector of a word is that of its first piece followed by that of its last."""
        return self.attrs["two_sided"]


class AnnotationEncoderModel(Encoder[List[Doc], List[Floats2d]]):
    """A token-to-vector model that may read an annotation of the tokens beside their text."""

    __slots__ = ()

    @property
    def annotation(self) -> Optional[str]:
        """The attribute, "tag" or "pos", that another component has to set; None for none."""
        return self.attrs["annotation"]


Tok2VecModel = Model[List[Doc], List[Floats2d]]


def check_encoder(model: Optional[Model[Any, Any]], what: str = "the tok2vec") -> None:
    """Raises ValueError for a model that does not turn docs into vectors of their words. what: it
    is called."""
    kind, extra = "", ""
    if isinstance(model, PairEncoderModel):
        kind, extra = "PairEncoder", "questions"
    elif isinstance(model, QueryEncoderModel):
        kind, extra = "QueryEncoder", "queries"
    if kind:
        raise ValueError(
            f"{what} is a {kind}, which reads {extra}, too, and cannot stand here. Use a "
            "SortedTransformer for the same pretrained encoder."
        )
    if model is not None and "set_transformer" in model.attrs:
        raise ValueError(
            f"{what} is a TransformerModel, which gives vectors of pieces, not of words. Use "
            "'spacy-transformers.Tok2VecTransformer.v3' with a 'pooling', a listener, or "
            "'spacy_nested_ner.SortedTransformer.v1'. spaCy's replace_listeners writes such a "
            "config for a listener inside another architecture: correct it in config.cfg, or let "
            "the transformer component have the model "
            "'spacy_nested_ner.LayerMeanTransformer.v1', which writes a correct one."
        )


def needed_annotation(encoder: Model[Any, Any]) -> List[str]:
    """The annotation that any part of the encoder reads."""
    parts = (node for node in encoder.walk() if isinstance(node, AnnotationEncoderModel))
    return sorted({node.annotation for node in parts if node.annotation})


def listens(model: Model[Any, Any]) -> bool:
    """Whether vectors come from another component."""
    return any(
        node.name.endswith("-listener") or is_curated_listener(node) for node in model.walk()
    )


KNOWN = (
    "thinc.",
    "spacy.",
    "spacy_legacy.",
    "spacy_nested_ner.",
    "spacy_transformers.",
    "spacy_curated_transformers.",
)
"""What the modules of functions and classes begin with of which it is known what they do."""


def reads_words_alone(model: Model[Any, Any]) -> bool:
    """Whether all that a model reads of a doc is known, each thing of a single word, so that it can
    be given a part of the doc. A listener's vectors are made of the whole doc, and nobody knows
    what layers from elsewhere look at."""
    return not listens(model) and all(_is_known(node) for node in model.walk())


def _is_known(node: Model[Any, Any]) -> bool:
    """Its function, and those in its attributes, such as what converts docs for a torch layer."""
    for function in (node._func, *filter(callable, node.attrs.values())):
        while isinstance(function, partial):
            function = function.func
        if not (getattr(function, "__module__", None) or "").startswith(KNOWN):
            return False
    return True


QUESTION = "is_question"
"""In `doc.user_data` of the docs that are made of questions. No component annotates them."""


def has_annotation(docs: List[Doc], attr: str) -> bool:
    """Whether any token of the docs has a "tag" or "pos", or none should have: questions."""
    texts = [doc for doc in docs if QUESTION not in doc.user_data]
    return not texts or any(doc.has_annotation(attr.upper()) for doc in texts)


def missing_annotation(attr: str) -> str:
    """What to do about docs without the annotation that an encoder reads."""
    return (
        f"the encoder reads token.{attr} (pos_width is set), but no token of the docs has a "
        f"{attr}_. Put a component that predicts token.{attr} before this one and name it in "
        "training.annotating_components (with what it listens to), or set pos_width to 0"
    )
