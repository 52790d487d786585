"""The CNN that knows English."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import spacy
from safetensors.numpy import load_file
from spacy.tokens import Doc
from spacy.vocab import Vocab
from thinc.api import Model, set_dropout_rate

from spacy_nested_ner import files
from spacy_nested_ner.encoders import english_cnn as module
from spacy_nested_ner.encoders.english_cnn import (
    PRETRAINED,
    SIZES,
    build_english_cnn,
    parameters,
)
from spacy_nested_ner.encoders.english_words import TENSORS, english_words
from spacy_nested_ner.encoders.word_features import string_of
from tests.conftest import make_examples, make_pipeline, train

ASSETS = Path(__file__).parents[2] / "assets" / "english_words"
ENGLISH_CNN = {
    "@architectures": "spacy_nested_ner.EnglishCNN.v1",
    "width": 32,
    "depth": 2,
    "embed_size": 200,
    "window_size": 1,
    "maxout_pieces": 2,
    "subword_features": True,
    "pretrained": False,
}


def make_cnn(subwords: bool = True) -> Model:
    """A small one, from scratch."""
    return build_english_cnn(32, 2, 200, 1, 2, subwords, pretrained=False)


def vectors_of(model: Model, *texts: str) -> list[np.ndarray]:
    vocab = spacy.blank("en").vocab
    return model.predict([Doc(vocab, words=text.split()) for text in texts])


def test_it_begins_with_the_weights_of_the_package() -> None:
    weights = load_file(ASSETS / PRETRAINED)
    begun = build_english_cnn(**SIZES, pretrained=True)
    begun.initialize()
    assert [name for name, _, _ in parameters(begun)] == sorted(weights, key=_number)
    for name, node, key in parameters(begun):
        assert np.array_equal(node.get_param(key), weights[name].astype("f")), name
    scratch = build_english_cnn(**SIZES, pretrained=False)
    scratch.initialize()
    for name, node, key in parameters(scratch):
        assert node.get_param(key).shape == weights[name].shape
    assert not np.allclose(vectors_of(begun, "the gene")[0], vectors_of(scratch, "the gene")[0])


def _number(name: str) -> int:
    return int(name.partition(".")[0])


def test_it_knows_what_a_word_means_where_it_stands() -> None:
    model = build_english_cnn(**SIZES, pretrained=True)
    model.initialize()
    texts = ["He lives in Rome now", "He lives in London now", "He lives in fear now"]
    rome, london, fear = (
        found[3] / np.linalg.norm(found[3]) for found in vectors_of(model, *texts)
    )
    assert rome @ london > rome @ fear
    texts = ["They can fish here", "I saw a fish here", "I saw a bird here"]
    verb, noun, bird = (
        found[at] / np.linalg.norm(found[at])
        for found, at in zip(vectors_of(model, *texts), (2, 3, 3))
    )
    assert noun @ bird > verb @ bird


@pytest.mark.parametrize("name, value", [("width", 64), ("subword_features", False)])
def test_weights_of_other_sizes(name, value) -> None:
    sizes = {**SIZES, name: value}
    with pytest.warns(UserWarning, match=r"begins at random: .* \(width = 96, .*set pretrained to"):
        build_english_cnn(**sizes).initialize()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build_english_cnn(**sizes)  # to load a trained pipeline
        build_english_cnn(**sizes, pretrained=False).initialize()


def test_what_a_pipeline_has_learned_is_loaded() -> None:
    """Not the weights of the package."""
    tok2vec = {"@architectures": "spacy_nested_ner.EnglishCNN.v1", **SIZES, "pretrained": True}
    nlp = train(make_pipeline(model={"tok2vec": tok2vec}), 2)
    loaded = make_pipeline(model={"tok2vec": tok2vec}, examples=None).from_bytes(nlp.to_bytes())
    mine, theirs = (
        each.get_pipe("ner").model.get_ref("tok2vec").predict([each.make_doc("the US Court")])[0]
        for each in (nlp, loaded)
    )
    assert np.array_equal(mine, theirs)


@pytest.mark.parametrize("subwords", [True, False])
def test_the_cnn_is_that_of_spacy_but_for_the_words(subwords) -> None:
    """HashEmbedCNN with vectors of the same width in the vocab has the same parameters."""
    settings = {key: value for key, value in ENGLISH_CNN.items() if key[0] != "@"}
    del settings["pretrained"]
    settings["subword_features"] = subwords
    nlp = spacy.blank("en")
    nlp.vocab.set_vector("gene", np.ones(english_words().width, dtype="f"))
    docs = [eg.reference for eg in make_examples(nlp)[:2]]
    theirs = spacy.registry.architectures.get("spacy.HashEmbedCNN.v2")
    shapes, hashes = [], []
    for model in (
        build_english_cnn(**settings, pretrained=False),
        theirs(**settings, pretrained_vectors=True),
    ):
        model.initialize(X=docs)
        shapes.append(
            sorted(
                node.get_param(name).shape
                for node in model.walk()
                for name in node.param_names
                # Thinc's linear layer has a bias, spaCy's layer of vectors has none.
                if (node.name, name) != ("linear", "b")
            )
        )
        hashes.append(
            [dict(n.attrs) for n in model.walk() if n.name in ("hashembed", "ints-getitem")]
        )
    assert len(shapes[0]) > 8 and shapes[0] == shapes[1]
    assert len(hashes[0]) >= 1 and str(hashes[0]) == str(hashes[1])


def test_docs_of_any_length_and_gradients() -> None:
    model = make_cnn(subwords=False)
    model.initialize()
    vocab = spacy.blank("en").vocab
    for docs in ([Doc(vocab)], [Doc(vocab), Doc(vocab)]):
        assert [array.shape for array in model.predict(docs)] == [(0, 32)] * len(docs)
    docs = [Doc(vocab, words=["a", "gene"]), Doc(vocab)]
    found, backprop = model(docs, is_train=True)
    assert [array.shape for array in found] == [(2, 32), (0, 32)]
    (linear,) = [node for node in model.walk() if node.name == "linear"]
    backprop([np.arange(array.size, dtype="f").reshape(array.shape) for array in found])
    assert linear.get_grad("W").any()


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_each_word_is_computed_once(monkeypatch, dropout) -> None:
    """Vectors and gradients are those of all words, one layer after the other."""
    docs = [eg.reference for eg in make_examples(spacy.blank("en"))]
    docs.insert(1, Doc(docs[0].vocab))
    model = make_cnn()
    model.initialize(X=docs)
    sizes = []

    class Recorded(module.DistinctWords):
        def __init__(self, docs):
            super().__init__(docs)
            sizes.append(len(self))

    monkeypatch.setattr(module, "DistinctWords", Recorded)
    embed = model.get_ref("embed")
    set_dropout_rate(embed, dropout)
    np.random.seed(0)
    found, backprop = embed(docs, is_train=True)
    d_found = [np.sin(np.arange(a.size, dtype="f")).reshape(a.shape) for a in found]
    backprop([d.copy() for d in d_found])
    distinct = {token.orth for doc in docs for token in doc}
    assert sizes == [len(distinct)] and len(distinct) < sum(map(len, docs))
    nodes = [(node, name) for node in embed.walk() for name in node.param_names]
    grads = [node.get_grad(name).copy() for node, name in nodes]
    for node, name in nodes:
        node.set_grad(name, np.zeros_like(node.get_grad(name)))
    read, mix = embed.layers
    np.random.seed(0)
    vectors, backprop_read = read(docs, is_train=True)
    wanted, backprop_mix = mix(vectors, is_train=True)
    backprop_read(backprop_mix([d.copy() for d in d_found]))
    for mine, theirs in zip(found, wanted, strict=True):
        assert np.allclose(mine, theirs, atol=1e-5)
    for mine, (node, name) in zip(grads, nodes, strict=True):
        assert mine.any() and np.allclose(mine, node.get_grad(name), atol=1e-4), node.name


def test_docs_of_several_vocabs() -> None:
    model = make_cnn()
    model.initialize()
    docs = [Doc(Vocab(), words=["gene", word]) for word in ("zygomorphic", "dephosphorylations")]
    for mine, doc in zip(model.predict(docs), docs):
        assert np.allclose(mine, model.predict([doc])[0], atol=1e-5)
    with pytest.raises(KeyError):
        string_of(2**63, docs)


def test_words_alike_have_dropouts_of_their_own() -> None:
    model = make_cnn()
    model.initialize()
    embed = model.get_ref("embed")
    set_dropout_rate(embed, 0.5)
    vocab = spacy.blank("en").vocab
    twice, other = embed([Doc(vocab, words=["gene", "gene"]), Doc(vocab, words=["gene"])], True)[0]
    assert (twice[0] != twice[1]).any() and (twice[0] != other[0]).any()
    once, again = embed.predict([Doc(vocab, words=["gene"]), Doc(vocab, words=["gene"])])
    assert np.array_equal(once, again)


def test_a_norm_of_its_own_makes_a_word_another() -> None:
    model = make_cnn()
    model.initialize()
    doc = Doc(spacy.blank("en").vocab, words=["ca", "ca"])
    doc[1].norm_ = "can"
    (found,) = model.get_ref("embed").predict([doc])
    assert (found[0] != found[1]).any()


@pytest.mark.filterwarnings("ignore:.*W113")
def test_a_trained_pipeline_reads_them_anywhere(tmp_path) -> None:
    nlp = spacy.blank("en")
    model = {"@architectures": "spacy_nested_ner.LocateAndLabel.v1", "tok2vec": ENGLISH_CNN}
    nlp.add_pipe("locate_and_label_ner", name="ner", config={"model": model})
    nlp.initialize(lambda: make_examples(nlp))
    train(nlp, 40)
    nlp.to_disk(tmp_path / "trained")
    size = sum(path.stat().st_size for path in (tmp_path / "trained").rglob("*"))
    assert size < (ASSETS / TENSORS).stat().st_size  # the words stay in the package
    loaded = spacy.load(tmp_path / "trained")
    # Vectors of the vocab do not matter.
    other = spacy.blank("en")
    other.vocab.set_vector("gene", np.ones(7, dtype="f"))
    other.add_pipe("ner", source=loaded)
    texts = [eg.reference.text for eg in make_examples(nlp)]
    spans = [
        [[(s.start, s.end, s.label_) for s in doc.spans["sc"]] for doc in each.pipe(texts)]
        for each in (nlp, loaded, other)
    ]
    assert any(spans[0]) and spans[0] == spans[1] == spans[2]


def test_the_table_of_an_installed_package(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(files, "PACKAGE", tmp_path / "a")
    monkeypatch.setattr(module, "english_words", english_words.__wrapped__)
    with pytest.raises(ValueError, match=r"has no english_words\. Install the package again\."):
        make_cnn()
    shutil.copytree(ASSETS, tmp_path / "a" / "english_words")
    assert make_cnn().get_dim("nO") == 32
