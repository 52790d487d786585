"""Vectors of English words that come with the package: what a pretrained encoder knows of a word
alone (Bommasani et al. 2020, *Interpreting Pretrained Contextualized Representations via Reductions
to Static Embeddings*). A CNN that reads them, too, learns more from few sentences, with nothing to
download."""

import unicodedata
from functools import lru_cache
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence, Tuple, Union

import numpy as np
from safetensors.numpy import load_file
from spacy.attrs import IDS, LOWER
from spacy.ml.featureextractor import FeatureExtractor
from spacy.ml.models.tok2vec import MaxoutWindowEncoder, build_Tok2Vec_model
from spacy.strings import get_string_id
from spacy.tokens import Doc
from thinc.api import (
    Dropout,
    HashEmbed,
    Linear,
    Maxout,
    Model,
    chain,
    concatenate,
    list2ragged,
    ragged2list,
    with_array,
)
from thinc.layers.chain import init as init_chain
from thinc.types import Floats2d, Ragged

from spacy_nested_ner.encoders.word_features import attribute, string_of
from spacy_nested_ner.files import shipped

FOLDER = "english_words"
PIECES, TENSORS = "pieces.txt", "vectors.safetensors"
INSIDE = "##"  # begins a piece that does not begin a word
LONGEST = 100  # characters of what the encoder cuts into pieces; it does not read what is longer
CACHED = 20_000  # words whose vectors are kept, of those that are no piece as they are
ASCII_SYMBOLS = "$+<=>^`|~"  # to the encoder signs as those of punctuation; other symbols are not
HASHED = "spacy.HashEmbedCNN.v2"
ATTRS = ["NORM", "PREFIX", "SUFFIX", "SHAPE"]
READ = [IDS[attr] for attr in (*ATTRS, "LOWER")]
FACTORS = np.random.default_rng(0).integers(2**64, size=len(READ), dtype=np.uint64)


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

    def __call__(self, docs: Sequence[Union[Doc, "DistinctWords"]]) -> np.ndarray:
        """`(words, width) float32` of all words of the docs, whatever their case. Zeros for what is
        no word of any piece, such as a line break."""
        if not any(map(len, docs)):
            return np.zeros((0, self.width), dtype=np.float32)
        forms = attribute(docs, LOWER)
        places = np.searchsorted(self._keys, forms).clip(max=len(self._keys) - 1)
        found = self.vectors[self._rows_of_keys[places]]
        for i in np.flatnonzero(self._keys[places] != forms).tolist():
            found[i] = self._vector_of(string_of(int(forms[i]), _docs_of(docs)))
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


@lru_cache(maxsize=1)
def english_words() -> EnglishWords:
    """The table of the package, read once in a process.

    Raises ValueError if it is missing.
    """
    return EnglishWords(shipped(FOLDER, in_clone=f"assets/{FOLDER}"))


def build_english_cnn(
    width: int,
    depth: int,
    embed_size: int,
    window_size: int,
    maxout_pieces: int,
    subword_features: bool,
) -> Model[List[Doc], List[Floats2d]]:
    """`spacy_nested_ner.EnglishCNN.v1`: spaCy's `HashEmbedCNN.v2`, which also reads the vectors of
    English words that come with the package. They do not learn, and a trained pipeline does not
    carry them.

    For the settings see `HashEmbedCNN.v2`.
    """
    attrs = ATTRS if subword_features else ATTRS[:1]
    rows = [embed_size, *[embed_size // 2] * (len(attrs) - 1)]
    # As in spaCy's MultiHashEmbed, whose static vectors are those of the vocab.
    embeddings: List[Any] = [
        HashEmbed(width, n, column=column, seed=8 + column, dropout=0.0)
        for column, n in enumerate(rows)
    ]
    # Lists, because Thinc's ragged arrays forget the width of docs without words.
    hashed: Any = chain(
        FeatureExtractor(attrs),
        list2ragged(),
        with_array(concatenate(*embeddings)),
        ragged2list(),
    )
    known: Any = chain(
        read_words(), with_array(Linear(width, english_words().width)), ragged2list()
    )
    mixed: Any = chain(Maxout(width, width * (len(rows) + 1), nP=3, normalize=True), Dropout(0.0))
    embed: Any = Model(
        "english_embed",
        _embed,
        init=init_chain,
        layers=[concatenate(hashed, known), with_array(mixed)],
        dims={"nO": width},
    )
    encode = MaxoutWindowEncoder(
        width=width, window_size=window_size, maxout_pieces=maxout_pieces, depth=depth
    )
    return build_Tok2Vec_model(embed, encode)


class DistinctWords:
    """The words of some docs, each only once, for layers that read docs.

    place: `(words,) int32`, where in it each word of the docs stands.
    """

    def __init__(self, docs: List[Doc]):
        self.docs = docs
        rows = np.concatenate([doc.to_array(READ) for doc in docs])
        # One number for all that is read of a word, as unlikely to stand for two as a hash of it.
        _, first, place = np.unique(rows @ FACTORS, return_index=True, return_inverse=True)
        self.rows, self.place = rows[first], place.astype(np.int32)

    def __len__(self) -> int:
        return len(self.rows)

    def to_array(self, attrs: Union[int, List[str]]) -> np.ndarray:
        """As that of a doc."""
        if isinstance(attrs, int):
            return self.rows[:, READ.index(attrs)]
        return self.rows[:, [READ.index(IDS[attr]) for attr in attrs]]


def _docs_of(docs: Sequence[Union[Doc, DistinctWords]]) -> List[Doc]:
    """The docs, and those of distinct words."""
    return [
        doc for each in docs for doc in (each.docs if isinstance(each, DistinctWords) else [each])
    ]


def _embed(
    model: Model[List[Doc], List[Floats2d]], docs: List[Doc], is_train: bool
) -> Tuple[List[Floats2d], Callable[[List[Floats2d]], List[Doc]]]:
    """What its two layers do one after the other, but each word that is read is computed once;
    only the dropout is drawn for each place where it stands."""
    read, mix = model.layers
    normalized, dropout = mix.layers[0].layers
    ops: Any = model.ops
    words = DistinctWords(docs)
    place = ops.asarray1i(words.place)
    (vectors,), backprop_read = read([words], is_train)
    vectors, backprop_normalized = normalized(vectors, is_train)
    found, backprop_dropout = dropout(vectors[place], is_train)

    def backprop(d_found: List[Floats2d]) -> List[Doc]:
        d_vectors = ops.alloc2f(*vectors.shape)
        ops.scatter_add(d_vectors, place, backprop_dropout(ops.flatten(d_found)))
        backprop_read([backprop_normalized(d_vectors)])
        return []

    return ops.unflatten(found, np.array([len(doc) for doc in docs])), backprop


def without_english_words(tok2vec: Dict[str, Any], static_vectors: bool = False) -> None:
    """Make a HashEmbedCNN of the block of an EnglishCNN in a config.

    static_vectors: whether it reads those of the vocab instead.
    """
    tok2vec.update({"@architectures": HASHED, "pretrained_vectors": static_vectors})


def read_words() -> Model[List[Doc], Ragged]:
    """The vectors of `EnglishWords`, which have nothing to learn."""
    return Model("english_words", _forward, dims={"nO": english_words().width})


def _forward(
    model: Model[List[Doc], Ragged], docs: List[Doc], is_train: bool
) -> Tuple[Ragged, Callable[[Ragged], List[Doc]]]:
    ops: Any = model.ops
    vectors = ops.asarray2f(english_words()(docs))
    lengths = ops.asarray1i([len(doc) for doc in docs])
    return Ragged(vectors, lengths), lambda d_vectors: []
