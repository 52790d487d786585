"""Sentences and questions on any token-to-vector model, joined by a small transformer."""

import re
import unicodedata
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np
import torch
import torch.nn.functional as F
from spacy.attrs import LOWER, NORM, ORTH, PREFIX, SHAPE, SUFFIX
from spacy.tokens import Doc
from thinc.api import Model
from thinc.util import to_numpy
from torch import Tensor, nn

from spacy_nested_ner.device import on_device
from spacy_nested_ner.encoders.pair_places import PairPlaces
from spacy_nested_ner.encoders.protocol import (
    QUESTION,
    PairEncoderModel,
    PairInput,
    PairReading,
    Tok2VecModel,
    no_backprop,
)
from spacy_nested_ner.encoders.question_cache import QuestionCache, state_of
from spacy_nested_ner.encoders.shim import ModuleShim, called_by_its_parent
from spacy_nested_ner.encoders.words import encode_words, initialize_tok2vec
from spacy_nested_ner.layers.cross_encoder import CrossEncoder
from spacy_nested_ner.layers.dropout import set_dropout
from spacy_nested_ner.layers.late_interaction import LateCrossEncoder, LateInteraction

Backprop = Callable[[], List[Any]]


def build_cross_encoder(
    tok2vec: Tok2VecModel,
    question_tok2vec: Optional[Tok2VecModel],
    hidden_width: int,
    depth: int,
    attention_heads: int,
    feedforward: int,
) -> PairEncoderModel:
    """An encoder of pairs; see `PairInput` and `PairReading`.

    tok2vec: of the sentences, and of the questions too unless `question_tok2vec` is given. depth:
    layers; without any, words meet a question in one layer of late interaction. The rest: see
    `CrossEncoder` and `LateInteraction`. Each doc and each question is read by them once, each pair
    by the layers over them, whose parameters belong to the node `model.get_ref("cross")`.
    Predictions of a model that has not learned since it was loaded read the questions once for all:
    see `QuestionCache`.
    """
    settings = {
        "hidden_width": hidden_width,
        "attention_heads": attention_heads,
        "feedforward": feedforward,
    }
    shim = CrossShim(LateCrossEncoder, settings)
    if depth:
        shim = CrossShim(CrossEncoder, {**settings, "depth": depth})
    cross: Model[Any, Any] = Model(
        "cross_layers",
        called_by_its_parent,
        shims=[shim],
        attrs={"dropout_rate": 0.0},
    )
    own = [] if question_tok2vec is None else [question_tok2vec]
    return PairEncoderModel(
        "cross_encoder",
        forward,
        init=init,
        layers=[tok2vec, *own, cross],
        refs={"tok2vec": tok2vec, "question_tok2vec": question_tok2vec, "cross": cross},
        dims={"nO": hidden_width},
        attrs={"two_sided": False},
    )


def init(
    model: PairEncoderModel, X: Optional[Tuple[List[Doc], np.ndarray]] = None, Y: Any = None
) -> None:
    """Initialise what reads the words, and build the transformer for its width."""
    tok2vec, own = model.get_ref("tok2vec"), model.maybe_get_ref("question_tok2vec")
    readers = [tok2vec] if own is None else [tok2vec, own]
    widths = [initialize_tok2vec(reader, X[0] if X else []) for reader in readers]
    question_width = widths[1] if own is not None else None
    _cross_shim(model).build(width=widths[0], question_width=question_width)


class CrossShim(ModuleShim):
    """Holds the transformer over pairs, whose sizes depend on what reads the words, and the
    questions as it read them last."""

    what = "cross-encoder"

    def __init__(self, module_class: Callable[..., nn.Module], settings: Dict[str, Any]) -> None:
        super().__init__(module_class, settings)
        self.question_cache = QuestionCache()

    def from_bytes(self, data: bytes) -> "CrossShim":
        """As in the base; nothing is kept of what was before."""
        super().from_bytes(data)
        self.question_cache = QuestionCache()
        return self


# What spaCy's token-to-vector models read of a word.
WORD_FEATURES = [ORTH, NORM, LOWER, PREFIX, SUFFIX, SHAPE]


def _what_is_read(docs: List[Doc]) -> Tuple[Tuple[bytes, ...], bytes]:
    """The words of questions and their static vectors."""
    words = tuple(doc.to_array(WORD_FEATURES).tobytes() for doc in docs)
    return words, _static_vectors(docs)


def _static_vectors(docs: List[Doc]) -> bytes:
    """Those of the words, which models may read, too."""
    if not docs[0].vocab.vectors_length:
        return b""
    return b"".join(to_numpy(token.vector).tobytes() for doc in docs for token in doc)


def _cross_shim(model: PairEncoderModel) -> CrossShim:
    return model.get_ref("cross").shims[0]  # type: ignore[return-value]


def question_words(question: str) -> List[str]:
    """Words and signs of a question. Chinese characters and Japanese ones are words of their own,
    as no blank tells where one ends; marks, such as vowel signs, belong to what they stand at."""
    kinds = "".join(map(_kind, question))
    found = [question[match.start() : match.end()] for match in _WORD.finditer(kinds)]
    return found or [question]


_WORD = re.compile(r"w+(?:-w+)*|\S")
_ALONE = re.compile("[\u3005\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
JOINERS = "\u200c\u200d"  # inside words of Persian and of Indian scripts


def _kind(character: str) -> str:
    """ " " for a blank, "w" for a letter, digit or mark, "c" for a word, "-" for what may stand
    inside a word, "s" for another sign."""
    if character.isspace():
        return " "
    if _ALONE.match(character):
        return "c"
    if character.isalnum() or character == "_" or character in JOINERS:
        return "w"
    if unicodedata.category(character).startswith("M"):
        return "w"
    return "-" if character in "-'" else "s"


def forward(model: PairEncoderModel, X: PairInput, is_train: bool) -> Tuple[PairReading, Backprop]:
    """Read docs and questions; `PairReading.read` joins pairs of them."""
    vocab = X.docs[0].vocab
    question_docs = [
        Doc(vocab, words=question_words(question), user_data={QUESTION: True})
        for question in X.questions
    ]
    node, module = model.get_ref("cross"), _cross_shim(model).module
    late = isinstance(module, LateInteraction)
    if module.training != is_train:  # every part is told: too much for every doc
        module.train(is_train)
    if is_train:
        set_dropout(module, node.attrs["dropout_rate"])
    # One pool of words that every pair picks its own from.
    if is_train:
        pool, backprop = _learning_pool(model, X.docs, question_docs)
    else:
        pool, backprop = _pool(model, X.docs, question_docs), no_backprop
    places = PairPlaces.of(X, [len(doc) for doc in question_docs])

    def read(batch: np.ndarray) -> Tuple[Tensor, Tensor]:
        pairs = X.pairs[batch]
        if late:
            word, is_word, piece, is_piece = tensors(*places.apart(pairs))
            return module(F.embedding(word, pool), F.embedding(piece, pool), is_piece), is_word
        index, mask, words, word_mask = tensors(*places.rows(pairs))
        return module(F.embedding(index, pool), mask, words), word_mask

    def tensors(*arrays: np.ndarray) -> List[Tensor]:
        return [on_device(array, pool.device) for array in arrays]

    lengths = places.question_lengths[X.pairs[:, 1]] + places.lengths[X.pairs[:, 0]]
    return PairReading(lengths, read), backprop


@torch.no_grad()
def _pool(model: PairEncoderModel, docs: List[Doc], question_docs: List[Doc]) -> Tensor:
    """Embedded words of all questions, then of all docs, `(words, h)`."""
    tok2vec, shim = model.get_ref("tok2vec"), _cross_shim(model)
    own = model.maybe_get_ref("question_tok2vec")
    reader, width = tok2vec, shim.settings["width"]
    if own is not None:
        reader, width = own, shim.settings["question_width"]

    def read_questions() -> Tensor:
        return shim.module.read_questions(encode_words(reader, question_docs, width, False).words)

    state = state_of(_what_is_read(question_docs), [reader, model.get_ref("cross")])
    questions = shim.question_cache.read(state, read_questions)
    sentences = encode_words(tok2vec, docs, shim.settings["width"], False).words
    return torch.cat([questions, shim.module.read_words(sentences)])


@torch.enable_grad()
def _learning_pool(
    model: PairEncoderModel, docs: List[Doc], question_docs: List[Doc]
) -> Tuple[Tensor, Backprop]:
    """As `_pool`, and the way back."""
    shim = _cross_shim(model)
    shim.question_cache.stop()
    sentences, questions, backprop = _vectors(model, docs, question_docs)
    embedded = shim.module.read_questions(questions), shim.module.read_words(sentences)
    return torch.cat(embedded), backprop


def _vectors(
    model: PairEncoderModel, docs: List[Doc], question_docs: List[Doc]
) -> Tuple[Tensor, Tensor, Backprop]:
    """Flat vectors of all docs and all questions, `(words, width)` each, and the way back."""
    tok2vec, own = model.get_ref("tok2vec"), model.maybe_get_ref("question_tok2vec")
    width = _cross_shim(model).settings["width"]
    if own is None:
        both = encode_words(tok2vec, [*docs, *question_docs], width, True)
        n_words = sum(len(doc) for doc in docs)
        return both.words[:n_words], both.words[n_words:], lambda: both.backprop(both.words.grad)
    sentences = encode_words(tok2vec, docs, width, True)
    questions = encode_words(
        own, question_docs, _cross_shim(model).settings["question_width"], True
    )

    def backprop_both() -> List[Any]:
        questions.backprop(questions.words.grad)
        return sentences.backprop(sentences.words.grad)

    return sentences.words, questions.words, backprop_both
