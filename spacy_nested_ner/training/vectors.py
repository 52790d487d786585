"""Static vectors of words from a pretrained encoder, which reads each word alone (Bommasani et al.
2020, *Interpreting Pretrained Contextualized Representations via Reductions to Static Embeddings*).
A CNN that reads them, too, knows something of words that no annotated sentence has."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Iterable, List, Sequence, Tuple

import numpy as np
from spacy.language import Language
from spacy.tokens import Doc
from spacy.vectors import Vectors
from thinc.util import to_numpy

from spacy_nested_ner.encoders.sorted_transformer import build_sorted_transformer, encoder_shim

# What the errors of an encoder that cannot be read begin with.
VECTORS = "nested-ner vectors"
# A principal component is divided by its standard deviation to this power: 0 keeps their sizes, 1
# makes all equally large; docs/tried.md has F1 for each.
DAMPING = 0.5
CHUNK = 512  # words that are read between two moves of the progress bar


def add_vectors(
    nlp: Language,
    name: str,
    words: Sequence[str],
    width: int,
    progress: Callable[[Sequence[Any]], Iterable[Any]] = iter,
) -> None:
    """Give the vocab of a pipeline one vector for each of the words.

    name: directory or hub name of a pretrained encoder. width: of the vectors; less if the encoder
    is narrower or there are fewer words. progress: goes through parts of the words.

    Raises ValueError if there is no such encoder, or if it reads fewer than two of the words: their
    vectors are what tells them apart.
    """
    known, states = _read_alone(name, nlp, words, progress)
    if len(known) < 2:
        raise ValueError(
            f"Vectors need at least two words, and the encoder reads {len(known)} of {len(words)}. "
            "Give more text."
        )
    keys = [nlp.vocab.strings.add(word) for word in known]
    nlp.vocab.vectors = Vectors(
        strings=nlp.vocab.strings,
        data=principal_components(states, width),
        keys=keys,
        name=Path(name).name,  # goes into the meta.json of what learns with them
    )


def _read_alone(
    name: str, nlp: Language, words: Sequence[str], progress: Callable[..., Iterable[Any]]
) -> Tuple[List[str], np.ndarray]:
    """The words that have pieces, and `(words, h) float32`: means of the last layer over these."""
    model = build_sorted_transformer(name)
    encoder_shim(model).architecture = VECTORS
    model.initialize()
    found: List[np.ndarray] = []
    for begin in progress(range(0, len(words), CHUNK)):
        docs = [Doc(nlp.vocab, words=[word]) for word in words[begin : begin + CHUNK]]
        found += [to_numpy(vectors) for vectors in model.predict(docs)]
    states = np.concatenate(found) if found else np.zeros((0, 1), dtype="f")
    has_pieces = states.any(axis=1)
    return [words[i] for i in np.flatnonzero(has_pieces).tolist()], states[has_pieces]


def principal_components(states: np.ndarray, width: int) -> np.ndarray:
    """`(words, h) float32` of at least two words to `(words, width) float32`: the largest principal
    components, damped, with a mean square of 1 over all."""
    centred = states.astype(np.float64) - states.mean(axis=0)
    variances, axes = np.linalg.eigh(centred.T @ centred / len(centred))
    largest = np.argsort(variances)[::-1][: min(width, len(states) - 1)]
    deviations = np.sqrt(np.maximum(variances[largest], 0))
    # Words that an encoder in lower case reads alike may leave nothing that deviates.
    found = centred @ axes[:, largest] / np.maximum(deviations, 1e-6) ** DAMPING
    size = np.sqrt(np.mean(found**2))
    return (found / max(size, 1e-6)).astype(np.float32)
