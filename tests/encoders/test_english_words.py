"""Vectors of English words that come with the package, and the CNN that reads them."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import numpy as np
import pytest
import spacy
from safetensors.numpy import load_file, save_file
from spacy.tokens import Doc
from spacy.vocab import Vocab
from thinc.api import set_dropout_rate

from spacy_nested_ner import files
from spacy_nested_ner.encoders import english_words as module
from spacy_nested_ner.encoders.english_words import (
    PIECES,
    TENSORS,
    EnglishWords,
    build_english_cnn,
    english_words,
)
from spacy_nested_ner.encoders.word_features import string_of
from tests.conftest import make_examples, train

ASSETS = Path(__file__).parents[2] / "assets" / "english_words"
WORDS = [
    "the",
    "The",
    "gene",
    "genes",
    "IL-2",
    "NF-kappa",
    "B",
    "phosphorylation",
    "zygomorphic",
    "Dr.",
    "don't",
    "a_b",
    "(CD28)",
    "3.5",
    "1/2",
    "'",
    "Mr.Smith's",
    "\u00dcberraschung",
    "na\u00efve",
    "\u03b1-actin",
    "\ufb01ne",
    "\u2026",
    "x\u00b2",
]
GOLDEN = [
    [-1.1592, -1.5074, 0.6466],
    [-1.4194, -1.7439, -0.0519],
    [-0.9274, 0.5583, -0.038],
    [-1.161, 0.2458, -0.0978],
    [-0.8464, 0.3961, 0.0355],
    [0.0, 0.0, 0.0],
]
ENGLISH_CNN = {
    "@architectures": "spacy_nested_ner.EnglishCNN.v1",
    "width": 32,
    "depth": 2,
    "embed_size": 200,
    "window_size": 1,
    "maxout_pieces": 2,
    "subword_features": True,
}


def vectors_of(*words: str) -> np.ndarray:
    return english_words()([Doc(spacy.blank("en").vocab, words=list(words))])


@pytest.fixture
def table(tmp_path) -> EnglishWords:
    """Of four pieces; a word of two is twice their mean."""
    (tmp_path / PIECES).write_text("gene\n##s\nil\n-\n", encoding="utf8")
    tensors = {
        "vectors": np.array([[1, 2], [3, -4], [5, 6], [0, 1]], dtype=np.int8),
        "scale": np.array([1, 0.5], dtype=np.float32),
        "mapping": 2 * np.eye(2, dtype=np.float32),
    }
    save_file(tensors, tmp_path / TENSORS)
    return EnglishWords(tmp_path)


def test_words_of_one_piece_of_several_and_of_none(table) -> None:
    vocab = spacy.blank("en").vocab
    words = ["GENE", "genes", "Génes", "\n", "il-", "il-x", "##s", "tree"]
    found = table([Doc(vocab, words=words[:3]), Doc(vocab), Doc(vocab, words=words[3:])])
    together = [4.0, -1.0]  # of gene and ##s
    expected = [[1, 1], together, together, [0, 0], [5, 3.5], [5, 3.5], [0, 0], [0, 0]]
    assert found.dtype == np.float32 and np.allclose(found, expected)
    assert table([Doc(vocab)]).shape == table([]).shape == (0, 2)


def test_a_long_word_is_read_no_more_than_by_the_encoder(table) -> None:
    assert len(table.pieces("gene" + "s" * 96)) == 97 and not table.pieces("gene" + "s" * 97)
    assert table.pieces(f"il-{'s' * 200}") == [2, 3]


def test_words_are_cut_as_the_encoder_cuts_them(tmp_path) -> None:
    transformers = pytest.importorskip("transformers")
    pieces = (ASSETS / PIECES).read_text("utf8").splitlines()
    (tmp_path / "vocab.txt").write_text("\n".join([*pieces, "[UNK]"]) + "\n", encoding="utf8")
    tokenizer = transformers.BertTokenizer(str(tmp_path / "vocab.txt"), do_lower_case=True)
    table = english_words()
    for word in WORDS:
        assert [pieces[row] for row in table.pieces(word)] == tokenizer.tokenize(word)
    # What is looked up as a whole is a piece that the encoder makes of it.
    found = table([Doc(spacy.blank("en").vocab, words=pieces)])
    for piece, whole in zip(pieces, (found == table.vectors).all(axis=1)):
        if whole:
            assert tokenizer.tokenize(piece) == [piece]
        else:
            assert tokenizer.tokenize(piece) != [piece] or not piece.isascii()


def test_the_table_is_the_one_that_pipelines_learned_with() -> None:
    """A trained pipeline does not carry it: another table needs another name."""
    pieces = (ASSETS / PIECES).read_text("utf8")
    contents = [pieces.encode("utf8"), (ASSETS / TENSORS).read_bytes()]
    found = [hashlib.sha256(content).hexdigest()[:16] for content in contents]
    assert found == ["efa5da3d114f3ed8", "796407403c8a606e"]
    assert len(pieces.splitlines()) == len(load_file(ASSETS / TENSORS)["vectors"])


def test_words_of_one_meaning_are_near() -> None:
    gene, genes, protein, capital, table = vectors_of("gene", "genes", "protein", "GENE", "table")
    assert np.array_equal(gene, capital)
    assert gene @ genes > gene @ protein > gene @ table
    known, unknown, other = vectors_of("phosphorylation", "dephosphorylations", "grandmother")
    assert unknown @ known > unknown @ other


def test_a_word_has_one_vector_wherever_it_stands() -> None:
    alone = [vectors_of(word)[0] for word in WORDS]
    together = EnglishWords(ASSETS)([Doc(spacy.blank("en").vocab, words=[*WORDS, *WORDS])])
    assert np.array_equal(together, np.stack(alone + alone))


def test_how_the_table_is_read_stays_as_it_is() -> None:
    """As pipelines learned it."""
    found = vectors_of("gene", "IL-2", "na\u00efve", "...", "dephosphorylations", "\n")
    assert np.allclose(found[:, :3], GOLDEN, atol=1e-4)


@pytest.mark.parametrize("subwords", [True, False])
def test_the_cnn_is_that_of_spacy_but_for_the_words(subwords) -> None:
    """HashEmbedCNN with vectors of the same width in the vocab has the same parameters."""
    settings = {key: value for key, value in ENGLISH_CNN.items() if key[0] != "@"}
    settings["subword_features"] = subwords
    nlp = spacy.blank("en")
    nlp.vocab.set_vector("gene", np.ones(english_words().width, dtype="f"))
    docs = [eg.reference for eg in make_examples(nlp)[:2]]
    theirs = spacy.registry.architectures.get("spacy.HashEmbedCNN.v2")
    shapes, hashes = [], []
    for model in (build_english_cnn(**settings), theirs(**settings, pretrained_vectors=True)):
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
    model = build_english_cnn(32, 2, 200, 1, 2, False)
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
    model = build_english_cnn(32, 2, 200, 1, 2, True)
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
    model = build_english_cnn(32, 2, 200, 1, 2, True)
    model.initialize()
    docs = [Doc(Vocab(), words=["gene", word]) for word in ("zygomorphic", "dephosphorylations")]
    for mine, doc in zip(model.predict(docs), docs):
        assert np.allclose(mine, model.predict([doc])[0], atol=1e-5)
    with pytest.raises(KeyError):
        string_of(2**63, docs)


def test_words_alike_have_dropouts_of_their_own() -> None:
    model = build_english_cnn(32, 2, 200, 1, 2, True)
    model.initialize()
    embed = model.get_ref("embed")
    set_dropout_rate(embed, 0.5)
    vocab = spacy.blank("en").vocab
    twice, other = embed([Doc(vocab, words=["gene", "gene"]), Doc(vocab, words=["gene"])], True)[0]
    assert (twice[0] != twice[1]).any() and (twice[0] != other[0]).any()
    once, again = embed.predict([Doc(vocab, words=["gene"]), Doc(vocab, words=["gene"])])
    assert np.array_equal(once, again)


def test_a_norm_of_its_own_makes_a_word_another() -> None:
    model = build_english_cnn(32, 2, 200, 1, 2, True)
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
        build_english_cnn(32, 2, 200, 1, 2, True)
    shutil.copytree(ASSETS, tmp_path / "a" / "english_words")
    assert build_english_cnn(32, 2, 200, 1, 2, True).get_dim("nO") == 32
