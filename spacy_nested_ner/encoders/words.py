"""Word vectors of a tok2vec as one tensor, and the way back."""

import contextlib
import threading
from typing import Any, Callable, Iterable, List, NamedTuple, Optional

import numpy as np
import torch
from spacy.tokens import Doc
from thinc.api import Model, PyTorchShim, get_torch_default_device
from thinc.util import is_cupy_array, torch2xp, xp2torch
from torch import Tensor

from spacy_nested_ner.encoders.batching import begins_of
from spacy_nested_ner.encoders.protocol import Tok2VecModel
from spacy_nested_ner.forks import in_forked_processes


class EncodedWords(NamedTuple):
    """What a tok2vec makes of a batch of docs.

    words: `(all words, width)` float, doc after doc. lengths: `(docs,)` int, words per doc.
    backprop: takes the gradient of `words` (None for zeros), returns what the tok2vec's own
    callback returns.
    """

    words: Tensor
    lengths: np.ndarray
    backprop: Callable[[Optional[Tensor]], List[Any]]


def encode_words(
    tok2vec: Tok2VecModel, docs: List[Doc], width: int, is_train: bool
) -> EncodedWords:
    """Run a tok2vec. width: of the vectors, 0 if it is not known yet.

    Raises ValueError for vectors of another width, or not one for each token.
    """
    with _in_turn(tok2vec, is_train):
        vectors, backprop = tok2vec(docs, is_train)
    for doc, array in zip(docs, vectors, strict=True):
        if array.shape[0] != len(doc):
            raise ValueError(
                f"the encoder gives {array.shape[0]} vectors for the {len(doc)} tokens of a doc"
            )
    # A transformer listener gives an empty doc an array of width 0: keep it out of the flat one.
    real = [array for array in vectors if array.shape[0]]
    flat = tok2vec.ops.flatten(real) if real else tok2vec.ops.alloc2f(0, width)
    if width and flat.shape[1] != width:
        raise ValueError(
            f"the encoder gives vectors of width {flat.shape[1]}, but width {width} is expected: "
            "a listener's width must be that of the tok2vec it listens to"
        )
    words = to_torch(flat, is_train)
    lengths = np.array([array.shape[0] for array in vectors], dtype=np.int64)
    starts = begins_of(lengths)

    def back(d_words: Optional[Tensor]) -> List[Any]:
        gradient = gradient_of(d_words, words)
        return backprop(
            [
                gradient[start : start + len(array)] if len(array) else array
                for start, array in zip(starts, vectors)
            ]
        )

    return EncodedWords(words, lengths, back)


def _in_turn(tok2vec: Tok2VecModel, is_train: bool) -> contextlib.AbstractContextManager[Any]:
    """One prediction at a time of a tok2vec with a torch layer of Thinc or spacy-transformers.

    Such a layer is in evaluation mode only while it predicts and in training mode afterwards: one
    thread would give dropout to the words of another.
    """
    return _turn if not is_train and _flips(tok2vec) else contextlib.nullcontext()


def _flips(node: Model[Any, Any]) -> bool:
    """Whether there is such a layer. Asked for every doc, so it is much faster than `walk`."""
    nodes = [node]
    for each in nodes:
        for shim in each.shims:
            if isinstance(shim, PyTorchShim):
                return True
        nodes += each.layers
    return False


_turn = threading.RLock()  # taken twice where one encoder reads the words of another


def _new_turn() -> None:
    global _turn
    _turn = threading.RLock()


in_forked_processes(_new_turn)


def to_torch(array: Any, requires_grad: bool) -> Tensor:
    """An array as a tensor on its GPU, or else on the device in use, which Thinc knows only in the
    thread that asked for it."""
    on_gpu = is_cupy_array(array)
    device = torch.device("cuda", array.device.id) if on_gpu else get_torch_default_device()
    return xp2torch(array, requires_grad=requires_grad, device=device)


def gradient_of(gradient: Optional[Tensor], like: Tensor) -> Any:
    """As an array of the ops in use; zeros where the loss did not reach."""
    return torch2xp(like.new_zeros(like.shape) if gradient is None else gradient)


def initialize_tok2vec(tok2vec: Any, docs: Iterable[Any]) -> int:
    """Initialise a token-to-vector model on docs; the width of its vectors.

    Raises ValueError if there is no doc with words and the model does not tell its width.
    """
    docs = [doc for doc in docs if len(doc)]
    if docs:
        tok2vec.initialize(X=docs)
        return tok2vec.predict(docs[:1])[0].shape[1]
    tok2vec.initialize()
    if not tok2vec.has_dim("nO"):
        raise ValueError(
            "Cannot determine the width of the encoder without examples: call nlp.initialize with "
            "a get_examples callback that returns at least one non-empty doc."
        )
    return tok2vec.get_dim("nO")
