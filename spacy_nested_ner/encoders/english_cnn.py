"""A CNN that knows English, with nothing to download: it reads vectors of words, and begins with
weights that have learned from a pretrained transformer. Both come with the package."""

from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple, Union

import numpy as np
from safetensors.numpy import load_file
from spacy.attrs import IDS
from spacy.ml.featureextractor import FeatureExtractor
from spacy.ml.models.tok2vec import MaxoutWindowEncoder, build_Tok2Vec_model
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

from spacy_nested_ner.encoders.english_words import english_words, shipped_folder
from spacy_nested_ner.encoders.protocol import no_backprop
from spacy_nested_ner.warn import warn

PRETRAINED = "cnn.safetensors"
SIZES: Dict[str, Any] = {
    "width": 96,
    "depth": 4,
    "embed_size": 2000,
    "window_size": 1,
    "maxout_pieces": 3,
    "subword_features": True,
}
"""Of the weights there."""

HASHED = "spacy.HashEmbedCNN.v2"
ATTRS = ["NORM", "PREFIX", "SUFFIX", "SHAPE"]
READ = [IDS[attr] for attr in (*ATTRS, "LOWER")]
FACTORS = np.random.default_rng(0).integers(2**64, size=len(READ), dtype=np.uint64)


def build_english_cnn(
    width: int,
    depth: int,
    embed_size: int,
    window_size: int,
    maxout_pieces: int,
    subword_features: bool,
    pretrained: bool = True,
) -> Model[List[Doc], List[Floats2d]]:
    """`spacy_nested_ner.EnglishCNN.v1`: spaCy's `HashEmbedCNN.v2`, which also reads the vectors of
    English words that come with the package. They do not learn, and a trained pipeline does not
    carry them.

    pretrained: begin with the weights that come with the package, which have learned to tell of
    each word in its sentence what a pretrained transformer tells of it; if not, or if the sizes are
    others than theirs, at random. For the other settings see `HashEmbedCNN.v2`.
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
        vectors_of_words(), with_array(Linear(width, english_words().width)), ragged2list()
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
    model = build_Tok2Vec_model(embed, encode)
    if pretrained:
        sizes = width, depth, embed_size, window_size, maxout_pieces, subword_features
        model.init = partial(_begin, model.init, sizes == tuple(SIZES.values()))
    return model


def parameters(
    model: Model[List[Doc], List[Floats2d]],
) -> Iterator[Tuple[str, Model[Any, Any], str]]:
    """All that learns: a name of its own, its node, and its name there."""
    nodes = (node for node in model.walk() if node.param_names)
    for number, node in enumerate(nodes):
        for name in node.param_names:
            yield f"{number}.{node.name}.{name}", node, name


def _begin(
    at_random: Callable[..., Any],
    fits: bool,
    model: Model[List[Doc], List[Floats2d]],
    X: Optional[List[Doc]] = None,
    Y: Optional[List[Floats2d]] = None,
) -> None:
    """Take the weights of the package, if they fit."""
    at_random(model, X, Y)
    if not fits:
        wanted = ", ".join(f"{name} = {str(value).lower()}" for name, value in SIZES.items())
        warn(
            "spacy_nested_ner.EnglishCNN.v1 begins at random: the weights that come with the "
            f"package are of other sizes ({wanted}). Take these, or set pretrained to false."
        )
        return
    weights = load_file(shipped_folder() / PRETRAINED)
    ops: Any = model.ops
    for name, node, key in parameters(model):
        node.set_param(key, ops.asarray(weights[name].astype(np.float32)))


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


def without_english(tok2vec: Dict[str, Any], static_vectors: bool = False) -> None:
    """Make a HashEmbedCNN of the block of an EnglishCNN in a config.

    static_vectors: whether it reads those of the vocab instead.
    """
    del tok2vec["pretrained"]
    tok2vec.update({"@architectures": HASHED, "pretrained_vectors": static_vectors})


def vectors_of_words() -> Model[List[Doc], Ragged]:
    """The vectors of `EnglishWords`, which have nothing to learn."""
    return Model("english_words", _forward, dims={"nO": english_words().width})


def _forward(
    model: Model[List[Doc], Ragged], docs: List[Doc], is_train: bool
) -> Tuple[Ragged, Callable[[Ragged], List[Doc]]]:
    ops: Any = model.ops
    vectors = ops.asarray2f(english_words()(docs))
    lengths = ops.asarray1i([len(doc) for doc in docs])
    return Ragged(vectors, lengths), no_backprop
