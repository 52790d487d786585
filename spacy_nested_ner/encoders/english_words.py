"""Vectors of English words that come with the package: what a pretrained encoder knows of a word
alone (Bommasani et al. 2020, *Interpreting Pretrained Contextualized Representations via Reductions
to Static Embeddings*). `EnglishCNN` reads them."""

import unicodedata
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, List, Sequence

import numpy as np
from safetensors.numpy import load_file
from spacy.attrs import LOWER
from spacy.strings import get_string_id

from spacy_nested_ner.encoders.word_features import attribute, string_of
from spacy_nested_ner.files import shipped

FOLDER = "english_words"
PIECES, TENSORS = "pieces.txt", "vectors.safetensors"
INSIDE = "##"  # begins a piece that does not begin a word
LONGEST = 100  # characters of what the encoder cuts into pieces; it does not read what is longer
CACHED = 20_000  # words whose vectors are kept, of those that are no piece as they are
ASCII_SYMBOLS = "$+<=>^`|~"  # to the encoder signs as those of punctuation; other symbols are not


class EnglishWords:
    """A vector for every word: of one piece, what the encoder makes of it; of several, the mean of
    these, mapped to what the encoder makes of such words.

    folder: with the pieces, one in a line, and the tensors `vectors`, `(pieces, width) int8`, the
    `scale` of each column, and `mapping`, `(width, width)`.
    """

    def __init__(self, folder: Path):
        pieces = (folder / PIECES).read_text(encoding="utf8").splitlines()
        tensors = load_file(folder / TENSORS)
        self.vectors = tensors["vectors"] * tensors["scale"]
        self.width = self.vectors.shape[1]
        self._mapping = tensors["mapping"]
        self._rows: Dict[str, int] = {piece: row for row, piece in enumerate(pieces)}
        # An ellipsis of three full stops is a piece that no word is cut into.
        whole = [
            (get_string_id(piece), row)
            for piece, row in self._rows.items()
            if piece.isalnum() or self.pieces(piece) == [row]
        ]
        whole.sort()
        self._keys = np.array([key for key, _ in whole], dtype=np.uint64)
        self._rows_of_keys = np.array([row for _, row in whole])
        self._vector_of = lru_cache(maxsize=CACHED)(self._read)

    def __call__(self, docs: Sequence[Any]) -> np.ndarray:
        """`(words, width) float32` of all words of the docs, or of what stands for some `docs`,
        whatever their case. Zeros for what is no word of any piece, such as a line break."""
        if not any(map(len, docs)):
            return np.zeros((0, self.width), dtype=np.float32)
        forms = attribute(docs, LOWER)
        places = np.searchsorted(self._keys, forms).clip(max=len(self._keys) - 1)
        found = self.vectors[self._rows_of_keys[places]]
        given = [doc for each in docs for doc in getattr(each, "docs", [each])]
        for i in np.flatnonzero(self._keys[places] != forms).tolist():
            found[i] = self._vector_of(string_of(int(forms[i]), given))
        return found

    def _read(self, word: str) -> np.ndarray:
        rows = self.pieces(word)
        if len(rows) == 1:
            return self.vectors[rows[0]]
        return self.vectors[rows].sum(axis=0) / max(1, len(rows)) @ self._mapping

    def pieces(self, word: str) -> List[int]:
        """Rows of the pieces of a word, cut as by the tokenizer of BERT in lower case: without
        accents, signs apart, and from left to right the longest piece there is. A part that cannot
        be cut so has none."""
        return [row for part in parts(word) for row in self._cut(part)]

    def _cut(self, part: str) -> List[int]:
        rows: List[int] = []
        begin = 0
        while begin < len(part) <= LONGEST:
            prefix = INSIDE if begin else ""
            ends = range(len(part), begin, -1)
            end = next((end for end in ends if prefix + part[begin:end] in self._rows), 0)
            if not end:
                return []
            rows.append(self._rows[prefix + part[begin:end]])
            begin = end
        return rows


def parts(word: str) -> List[str]:
    """A word in lower case without accents and what is not to be seen, each sign apart."""
    letters = unicodedata.normalize("NFD", word.lower())
    return "".join(map(_spaced, letters)).split()


def _spaced(letter: str) -> str:
    kind = unicodedata.category(letter)
    if kind[0] == "P" or letter in ASCII_SYMBOLS:
        return f" {letter} "
    return "" if kind == "Mn" or kind[0] == "C" else letter


def shipped_folder() -> Path:
    """That of the package. Raises ValueError if it is missing."""
    return shipped(FOLDER, in_clone=f"assets/{FOLDER}")


@lru_cache(maxsize=1)
def english_words() -> EnglishWords:
    """The table of the package, read once in a process.

    Raises ValueError if it is missing.
    """
    return EnglishWords(shipped_folder())
