"""What words look like beside their context: static vectors, tags and characters of docs."""

from typing import Any, List, NamedTuple, Optional, Sequence

import numpy as np
import torch
from spacy.attrs import ORTH
from spacy.tokens import Doc
from spacy.vectors import Mode, Vectors
from spacy.vocab import Vocab
from thinc.api import Model, NumpyOps, Ops, get_array_module
from torch import Tensor

from spacy_nested_ner.device import on_device
from spacy_nested_ner.encoders.words import to_torch
from spacy_nested_ner.layers.hybrid import END, FIRST_CHARACTER, N_PRINTABLE, UNKNOWN

TAG_SEED = 0
STATIC_VECTORS = "static_vectors"
"""Name of spaCy's layer that reads the vectors of the vocab."""


class WordForms(NamedTuple):
    """The distinct word forms of some docs, as characters.

    characters: `(all characters,)` long, form after form, an end mark behind each. lengths:
    `(forms,)` int, end mark included. form_of_word: `(words,)` long, the form of each word.
    """

    characters: Tensor
    lengths: np.ndarray
    form_of_word: Tensor


def word_forms(docs: List[Doc], device: torch.device) -> WordForms:
    """The forms of the words of non-empty docs, each only once."""
    orths, form_of_word = np.unique(attribute(docs, ORTH), return_inverse=True)
    forms = [string_of(int(orth), docs) for orth in orths]
    lengths = np.array([len(form) for form in forms], dtype=np.int64) + 1
    return WordForms(
        on_device(character_codes(forms), device),
        lengths,
        on_device(form_of_word.reshape(-1), device),
    )


def string_of(form: int, docs: Sequence[Doc]) -> str:
    """The string of a hash, from the vocab of the docs that has it."""
    for doc in docs:
        strings: Any = doc.vocab.strings
        if form in strings:
            return str(strings[form])
    raise KeyError(form)


def character_codes(forms: List[str]) -> np.ndarray:
    """`(all characters,)` int: printable ASCII from 0 on, one code for every other character, and
    an end mark behind each form."""
    text = "".join(forms).encode("utf-32-le", errors="surrogatepass")
    points = np.frombuffer(text, dtype="<u4").astype(np.int64) - FIRST_CHARACTER
    known = (points >= 0) & (points < N_PRINTABLE)
    ends = np.cumsum([len(form) + 1 for form in forms]) - 1
    codes = np.full(len(points) + len(forms), END, dtype=np.int64)
    codes[np.delete(np.arange(len(codes)), ends)] = np.where(known, points, UNKNOWN)
    return codes


def tag_keys(docs: List[Doc], attr: str) -> Tensor:
    """`(words, hashes)` long: hashes of the "tag" or "pos" of each word, "" included, so that any
    tag set of any component will do."""
    ids = attribute(docs, attr.upper())
    return torch.from_numpy(NumpyOps().hash(ids, TAG_SEED).astype(np.int64))


def static_rows(docs: List[Doc], ops: Ops) -> Tensor:
    """`(words, width)` float: the vectors of the vocab, zeros for a word without one."""
    vocab = docs[0].vocab
    vectors = vocab.vectors
    keys = ops.xp.asarray(attribute(docs, getattr(vectors, "attr", ORTH)))
    if isinstance(vectors, Vectors) and vectors.mode == Mode.default:
        rows = vectors.find(keys=keys)
        found = vectors.data[rows]
        found[get_array_module(rows).asarray(rows) < 0] = 0
    else:
        found = vectors.get_batch(keys)
    return to_torch(ops.asarray2f(found), requires_grad=False)


def vectors_width(vocab: Vocab) -> int:
    """Width of the vectors of the vocab, 0 if there are none."""
    rows, width = vocab.vectors.shape
    return width if rows else 0


def missing_vectors(model: Model[Any, Any], vocab: Vocab) -> Optional[str]:
    """What is wrong, if a layer of spaCy's in a model learned to read static vectors of another
    width than the vocab has, or the vocab has none; spaCy stops at such a layer with an IndexError
    or goes on without a word."""
    width = vectors_width(vocab)
    for node in model.walk():
        if node.name != STATIC_VECTORS:
            continue
        learned = node.maybe_get_dim("nM")
        if not width or learned not in (None, width):
            has = f"has vectors of width {width}" if width else "has none"
            wanted = f" of width {learned}" if learned else ""
            return (
                f"its encoder reads static vectors{wanted}, and the vocab of the docs {has}. Give "
                "the pipeline those that the encoder learns or learned with: --paths.vectors for "
                "`spacy train`, nlp.vocab.vectors = trained.vocab.vectors in Python"
            )
    return None


def attribute(docs: Sequence[Any], attr: int | str) -> np.ndarray:
    """`(words,)` uint64: a token attribute of all words of the docs."""
    return np.concatenate([doc.to_array(attr) for doc in docs]).astype(np.uint64)
