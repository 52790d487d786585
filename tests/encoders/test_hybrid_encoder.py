import pickle
from typing import Any, List

import numpy as np
import pytest
import spacy
import torch
from spacy.tokens import Doc
from spacy.training import Example
from spacy.vectors import Vectors
from spacy.vocab import Vocab
from thinc.api import Adam, Model, NumpyOps, set_dropout_rate, torch2xp

from spacy_nested_ner.encoders.hybrid_encoder import build_hybrid_encoder, parts_shim
from spacy_nested_ner.encoders.word_features import character_codes, static_rows
from spacy_nested_ner.layers.hybrid import END, UNKNOWN
from spacy_nested_ner.model.head_model import head_parts
from spacy_nested_ner.training.optimizer import AdamW
from tests.conftest import (
    HASH_EMBED,
    SENTENCES,
    SMALL_CNN,
    assert_same_found,
    found_in,
    make_examples,
    make_pipeline,
    slack,
    small_cnn,
    spans_of,
    train,
)

VECTORS = {"gene": [1.0, 2.0, 3.0], "cells": [-1.0, 0.5, 4.0], "T": [0.1, 0.2, 0.3]}
TAGS = ["NN", "VB", "DT"]
PARTS = {
    "tok2vec": {"tok2vec": True},
    "static": {"static_vectors": True},
    "projected": {"static_vectors": True, "static_width": 6},
    "tags": {"pos_width": 5},
    "characters": {"char_width": 8, "char_embedding_width": 4},
    "last": {
        "char_width": 8,
        "char_embedding_width": 4,
        "char_cell": "gru",
        "char_pooling": "last",
    },
    "embed": {"embed": True},
}
WIDTHS = {
    "embed": 12,
    "tok2vec": 16,
    "static": 3,
    "projected": 6,
    "tags": 5,
    "characters": 8,
    "last": 8,
}
ALL = {**PARTS["tok2vec"], **PARTS["static"], **PARTS["tags"], **PARTS["characters"]}
WAYS = {
    "joined": {},
    "linear": {"width": 7},
    "lstm": {"word_rnn": "lstm"},
    "two grus": {"word_rnn": "gru", "rnn_width": 10, "rnn_layers": 2},
    "beside": {"word_rnn": "lstm", "rnn_width": 10, "rnn_layers": 2, "tok2vec_in_rnn": False},
    "beside, linear": {"word_rnn": "gru", "rnn_width": 10, "tok2vec_in_rnn": False, "width": 7},
    "embed": {"embed": True},
    "embed, gru": {"embed": True, "word_rnn": "gru"},
}
WAY_WIDTHS = {
    "joined": 32,
    "linear": 7,
    "lstm": 16,
    "two grus": 10,
    "beside": 26,
    "beside, linear": 7,
    "embed": 44,
    "embed, gru": 16,
}


def make_vocab():
    vocab = spacy.blank("en").vocab
    vocab.reset_vectors(width=3)
    for word, vector in VECTORS.items():
        vocab.set_vector(word, np.array(vector, dtype="f"))
    return vocab


def make_docs(vocab=None) -> List[Doc]:
    """The ten sentences and an empty doc, with tags."""
    vocab = vocab or make_vocab()
    texts = [text for text, _ in SENTENCES]
    docs = [Doc(vocab, words=text.split(" ")) for text in [*texts[:3], "", *texts[3:]] if text]
    docs.insert(3, Doc(vocab))
    for doc in docs:
        for token in doc:
            token.tag_ = TAGS[len(token) % 3]
    return docs


def hash_embed():
    return spacy.registry.resolve({"embed": HASH_EMBED})["embed"]


def build(tok2vec: Any = False, embed: Any = False, **settings: Any):
    inner = small_cnn(16) if tok2vec is True else tok2vec or None
    return build_hybrid_encoder(inner, hash_embed() if embed else None, **settings)


def make_model(docs=None, **settings: Any):
    spacy.util.fix_random_seed(0)
    model = build(**settings)
    model.initialize(X=make_docs() if docs is None else docs)
    return model


def flat(vectors) -> np.ndarray:
    return np.concatenate([array for array in vectors if len(array)])


def own_module(model):
    return parts_shim(model).module


# Parts


@pytest.mark.parametrize("part", PARTS)
def test_each_part_alone(part):
    docs = make_docs()
    model = make_model(docs, **PARTS[part])
    vectors = model.predict(docs)
    assert [array.shape for array in vectors] == [(len(doc), WIDTHS[part]) for doc in docs]
    assert model.get_dim("nO") == WIDTHS[part]
    assert all(array.dtype == np.float32 for array in vectors)
    assert flat(vectors).std() > 0.05
    if part == "tok2vec":
        np.testing.assert_array_equal(flat(vectors), flat(model.layers[1].predict(docs)))


@pytest.mark.parametrize("way", WAYS)
def test_all_parts_together(way):
    docs = make_docs()
    model = make_model(docs, **ALL, **WAYS[way])
    vectors = model.predict(docs)
    assert [array.shape for array in vectors] == [(len(doc), WAY_WIDTHS[way]) for doc in docs]
    assert model.get_dim("nO") == WAY_WIDTHS[way]


def test_parts_stand_side_by_side():
    docs = make_docs()
    model = make_model(docs, **ALL)
    found = flat(model.predict(docs))
    np.testing.assert_array_equal(found[:, :16], flat(model.layers[1].predict(docs)))
    words = [token for doc in docs for token in doc]
    expected = np.array([VECTORS.get(token.text, [0, 0, 0]) for token in words], dtype="f")
    np.testing.assert_array_equal(found[:, 16:19], expected)
    assert expected.any()
    tags = {tag: found[[t.tag_ == tag for t in words], 19:24] for tag in TAGS}
    for rows in tags.values():
        np.testing.assert_array_equal(rows, rows[:1].repeat(len(rows), axis=0))
    assert np.abs(tags["NN"][0] - tags["VB"][0]).max() > 0.1
    forms = {token.text: row for token, row in zip(words, found[:, 24:])}
    for token, row in zip(words, found[:, 24:]):
        np.testing.assert_array_equal(row, forms[token.text])


def test_embeddings_stand_last():
    docs = make_docs()
    model = make_model(docs, **ALL, embed=True)
    embedded = flat(model.layers[0].layers[0].predict(docs))
    np.testing.assert_array_equal(flat(model.predict(docs))[:, 32:], embedded)
    assert embedded.std() > 0.05


def test_projection_keeps_zeros():
    docs = make_docs()
    model = make_model(docs, **PARTS["projected"])
    found = flat(model.predict(docs))
    weight = own_module(model).projection.weight.detach().cpu().numpy()
    words = [token.text for doc in docs for token in doc]
    for word, row in zip(words, found):
        np.testing.assert_allclose(row, weight @ VECTORS.get(word, [0, 0, 0]), atol=1e-6)


def test_floret_vectors():
    vocab = spacy.blank("en").vocab
    table = np.random.default_rng(0).normal(size=(20, 4)).astype("f")
    vocab.vectors = spacy.vectors.Vectors(
        strings=vocab.strings, data=table, mode="floret", minn=2, maxn=3, hash_count=2
    )
    docs = make_docs(vocab)
    found = flat(make_model(docs, static_vectors=True).predict(docs))
    expected = np.array([token.vector for doc in docs for token in doc])
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert np.abs(found).min(axis=1).all()


def test_pos_instead_of_tag():
    docs = make_docs()
    for doc in docs:
        for token in doc:
            token.pos_ = "NOUN" if token.i % 2 else "VERB"
    found = flat(make_model(docs, pos_width=5, pos_attr="pos").predict(docs))
    odd = np.array([token.i % 2 for doc in docs for token in doc], dtype=bool)
    np.testing.assert_array_equal(found[odd], found[odd][:1].repeat(odd.sum(), axis=0))
    assert np.abs(found[odd][0] - found[~odd][0]).max() > 0.1


def test_character_codes():
    codes = character_codes(["a ~", "é\n", "", "\U0001f600!"])
    expected = [ord("a") - 32, 0, 94, END, UNKNOWN, UNKNOWN, END, END, UNKNOWN, 1, END]
    assert codes.tolist() == expected


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_character_vectors_equal_those_of_a_plain_bidirectional_layer(cell, pooling):
    docs = make_docs()
    model = make_model(
        docs, char_width=8, char_embedding_width=4, char_cell=cell, char_pooling=pooling
    )
    encoder = own_module(model).characters
    device = encoder.embedding.weight.device
    plain = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[cell]
    plain = plain(4, 4, batch_first=True, bidirectional=True).to(device)
    for name, parameter in encoder.rnn.ahead[0].named_parameters():
        getattr(plain, name).data = parameter.data
    for name, parameter in encoder.rnn.back[0].named_parameters():
        getattr(plain, f"{name}_reverse").data = parameter.data
    words = [token.text for doc in docs for token in doc]
    for word, row in zip(words, flat(model.predict(docs))):
        codes = torch.tensor([[*(ord(c) - 32 for c in word), END]], device=device)
        with torch.no_grad():
            states = plain(encoder.embedding(codes))[0][0]
        if pooling == "mean":
            expected = states.mean(dim=0)
        else:
            expected = torch.cat([states[-1, :4], states[0, 4:]])
        np.testing.assert_allclose(row, expected, atol=slack(1e-6))


def test_characters_of_a_form_are_encoded_once(monkeypatch):
    docs = make_docs()
    model = make_model(docs, **PARTS["characters"])
    encoder = own_module(model).characters
    seen = []
    run = type(encoder).forward
    monkeypatch.setattr(
        type(encoder), "forward", lambda self, c, mask: seen.append(len(c)) or run(self, c, mask)
    )
    model.predict([*docs, *docs])
    assert sum(seen) == len({token.text for doc in docs for token in doc})


def test_words_see_their_doc_through_the_recurrent_layer():
    vocab = make_vocab()
    words = ["human", "T", "cells", "today"]
    docs = [Doc(vocab, words=words), Doc(vocab, words=[*words[:3], "never"])]
    settings = {"char_width": 8, "rnn_width": 6}
    first, second = make_model(docs, **settings).predict(docs)
    np.testing.assert_allclose(first[:3], second[:3], atol=1e-6)
    first, second = make_model(docs, **settings, word_rnn="gru").predict(docs)
    assert np.abs(first[0] - second[0]).max() > 1e-4
    # Beside the recurrent layer, the contextual part stays what it was.
    model = make_model(docs, tok2vec=True, **settings, word_rnn="gru", tok2vec_in_rnn=False)
    np.testing.assert_array_equal(
        flat(model.predict(docs))[:, :16], flat(model.layers[1].predict(docs))
    )


# Batches


@pytest.mark.parametrize("way", WAYS)
def test_a_doc_does_not_depend_on_its_batch(way):
    docs = make_docs()
    model = make_model(docs, **ALL, **WAYS[way])
    together = model.predict(docs)
    for batch_words in (1, 20):
        model.attrs["batch_words"] = batch_words
        for doc, expected in zip(docs, together):
            np.testing.assert_allclose(model.predict([doc])[0], expected, atol=1e-5)
        again = model.predict(docs[::-1])[::-1]
        np.testing.assert_allclose(flat(again), flat(together), atol=1e-5)


def test_docs_without_words():
    docs = make_docs()
    model = make_model(docs, **ALL, word_rnn="lstm")
    empty = Doc(docs[0].vocab)
    for batch in ([], [empty], [empty, empty]):
        vectors, backprop = model(batch, is_train=True)
        assert [array.shape for array in vectors] == [(0, 16)] * len(batch)
        backprop(vectors)


def test_contextual_part_of_width_zero_for_an_empty_doc():
    """What a transformer listener gives."""
    docs = make_docs()

    def without_width(outer, batch, is_train):
        vectors, backprop = outer.layers[0](batch, is_train)
        return [a if len(a) else outer.ops.alloc2f(0, 0) for a in vectors], backprop

    def init(outer, X=None, Y=None):
        outer.layers[0].initialize(X=X)

    inner = Model("without_width", without_width, init=init, layers=[small_cnn(16)])
    model = make_model(docs, **{**ALL, "tok2vec": inner})
    expected = model.predict([doc for doc in docs if len(doc)])
    vectors, backprop = model(docs, is_train=True)
    assert vectors[3].shape == (0, 32)
    np.testing.assert_allclose(flat(vectors), flat(expected), atol=1e-6)
    backprop(vectors)


# Learning


@pytest.mark.parametrize("way", WAYS)
def test_gradients_reach_every_parameter(way):
    docs = make_docs()
    model = make_model(docs, **{**ALL, "static_width": 6}, **WAYS[way])
    inner = {n.id: n.get_param("W").copy() for n in model.walk() if n.has_param("W")}
    before = {n: p.detach().clone() for n, p in own_module(model).named_parameters()}
    vectors, backprop = model(docs, is_train=True)
    backprop([2 * array for array in vectors])
    model.finish_update(Adam(0.01))
    for name, parameter in own_module(model).named_parameters():
        assert not torch.equal(parameter, before[name]), name
    for node in model.walk():
        if node.id in inner:
            assert np.abs(node.get_param("W") - inner[node.id]).max() > 0


@pytest.mark.parametrize("way", ["joined", "two grus", "beside, linear", "embed, gru"])
def test_gradients_are_those_of_finite_differences(way):
    docs = make_docs()[:5]
    model = make_model(docs, **{**ALL, "static_width": 6}, **WAYS[way])
    drawn = np.random.default_rng(0).normal(size=(len(docs), 20, 50))
    weights = model.ops.asarray(drawn.astype("f"))

    def loss() -> float:
        vectors = model.predict(docs)
        return sum(
            float((w[: a.shape[0], : a.shape[1]] * a).sum(dtype="f8"))
            for w, a in zip(weights, vectors)
        )

    vectors, backprop = model(docs, is_train=True)
    backprop([w[: a.shape[0], : a.shape[1]].copy() for w, a in zip(weights, vectors)])
    moved = {
        n: (torch2xp(p.data), torch2xp(p.grad))  # which share their memory
        for n, p in own_module(model).named_parameters()
    }
    for node in model.walk():
        for name in node.param_names:
            if node.has_grad(name):
                moved[f"{node.name} {node.id} {name}"] = (node.get_param(name), node.get_grad(name))
    assert len(moved) > 12
    for name, (parameter, gradient) in moved.items():
        # Of 1e-3 the error is up to 5 % of the slope of hashed embeddings, which are small.
        step = np.sign(gradient) * 3e-4
        start = parameter.copy()
        parameter += step
        high = loss()
        parameter[...] = start - step
        low = loss()
        parameter[...] = start
        slope = float((gradient * step).sum())
        assert (high - low) / 2 == pytest.approx(slope, rel=0.05, abs=3e-5), name


def test_dropout_is_that_of_the_training_config_unless_set():
    docs = make_docs()
    for given, rate, changed in ((None, 0.5, True), (None, 0.0, False), (0.0, 0.5, False)):
        model = make_model(docs, **{**ALL, "tok2vec": None}, dropout=given)
        expected = flat(model.predict(docs))
        set_dropout_rate(model, rate)
        noisy, _ = model(docs, is_train=True)
        assert (np.abs(flat(noisy) - expected).max() > 0.01) == changed
        np.testing.assert_array_equal(flat(model.predict(docs)), expected)
    always = make_model(docs, **{**ALL, "tok2vec": None}, dropout=0.5)
    noisy, _ = always(docs, is_train=True)
    zeros = (flat(noisy)[:, 3:] == 0).mean()
    assert 0.4 < zeros < 0.6


def test_dropout_spares_the_contextual_part():
    docs = make_docs()
    model = make_model(docs, **ALL, dropout=0.5)
    noisy, _ = model(docs, is_train=True)
    np.testing.assert_array_equal(flat(noisy)[:, :16], flat(model.layers[1].predict(docs)))


def test_only_the_contextual_part_keeps_the_encoder_rate():
    tok2vec = {
        "@architectures": "spacy_nested_ner.HybridEncoder.v1",
        "char_width": 8,
        "tok2vec": SMALL_CNN,
        "embed": HASH_EMBED,
    }
    nlp = make_pipeline(model={"tok2vec": tok2vec})
    model = nlp.get_pipe("ner").model
    hybrid = model.get_ref("tok2vec")
    assert head_parts(model) == [model.get_ref("head"), hybrid.layers[0]]
    frozen = hybrid.layers[1].to_bytes()
    before = hybrid.layers[0].to_bytes()
    embedded = hybrid.layers[0].layers[0].to_bytes()
    nlp.update(make_examples(nlp), sgd=AdamW(0.0, head_learn_rate=0.01))
    assert hybrid.layers[1].to_bytes() == frozen
    assert hybrid.layers[0].to_bytes() != before
    assert hybrid.layers[0].layers[0].to_bytes() != embedded


# Saving


@pytest.mark.parametrize("way", WAYS)
def test_round_trips(way, tmp_path):
    docs = make_docs()
    model = make_model(docs, **ALL, **WAYS[way])
    expected = flat(model.predict(docs))
    model.to_disk(tmp_path / "saved")
    fresh = [build(**ALL, **WAYS[way]) for _ in "ab"]
    fresh[0].from_disk(tmp_path / "saved")
    fresh[1].from_bytes(model.to_bytes())
    for loaded in (*fresh, pickle.loads(pickle.dumps(model)), model.copy()):
        np.testing.assert_array_equal(flat(loaded.predict(docs)), expected)
        assert loaded.get_dim("nO") == WAY_WIDTHS[way]
    assert fresh[1].to_bytes() == model.to_bytes()


def test_a_copy_has_parameters_of_its_own():
    docs = make_docs()
    model = make_model(docs, **ALL)
    copied = model.copy()
    assert parts_shim(copied).id != parts_shim(model).id
    expected = flat(model.predict(docs))
    vectors, backprop = copied(docs, is_train=True)
    backprop(vectors)
    copied.finish_update(Adam(0.1))
    assert np.abs(flat(copied.predict(docs)) - expected).max() > 0.01
    np.testing.assert_array_equal(flat(model.predict(docs)), expected)


def test_model_without_weights_can_be_saved_and_says_so_when_used():
    model = build_hybrid_encoder(char_width=8)
    loaded = build_hybrid_encoder(char_width=8).from_bytes(model.to_bytes())
    with pytest.raises(ValueError, match=r"hybrid encoder has no weights yet.*nlp.initialize"):
        loaded.predict(make_docs())


# Errors


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "switch on tok2vec, embed, static_vectors, pos_width or char_width"),
        ({"char_width": 7}, "char_width must be even"),
        ({"char_width": -2}, "char_width must be a whole number of at least 0, got -2"),
        ({"pos_width": -1}, "pos_width must be a whole number of at least 0, got -1"),
        (
            {"char_width": 8, "char_embedding_width": 0},
            "char_embedding_width must be a",
        ),
        ({"char_width": 8, "char_cell": "rnn"}, 'char_cell must be one of "lstm", "gru"'),
        ({"char_width": 8, "static_width": 5}, "static_width needs static_vectors"),
        (
            {"char_width": 8, "dropout": 1.0},
            "dropout must be null or a number from 0",
        ),
        ({"char_width": 8, "word_rnn": "lstm"}, "word_rnn without a tok2vec needs an rnn_width"),
        ({"char_width": 8, "word_rnn": "lstm", "rnn_width": 5}, "rnn_width must be even"),
        ({"char_width": 8, "rnn_layers": 0}, "rnn_layers must be a whole number of at least 1"),
        ({"char_width": 8, "width": 0}, "width must be null or a whole number of at least 1"),
        ({"char_width": 8, "batch_words": 0}, "batch_words must be a whole number of at least 1"),
        ({"char_width": 8, "tok2vec_in_rnn": False}, "without tok2vec_in_rnn, a word_rnn"),
        (
            {"tok2vec": True, "word_rnn": "gru", "tok2vec_in_rnn": False},
            "without tok2vec_in_rnn, a word_rnn",
        ),
    ],
)
def test_settings_that_contradict_each_other(settings, message):
    with pytest.raises(ValueError, match=f"spacy_nested_ner.HybridEncoder.v1: .*{message}"):
        make_model(**settings)


def test_odd_contextual_width():
    inner = small_cnn(15)
    with pytest.raises(ValueError, match=r"odd width 15.*even rnn_width"):
        make_model(tok2vec=inner, word_rnn="lstm")


def test_no_vectors_in_the_vocab():
    docs = make_docs(spacy.blank("en").vocab)
    with pytest.raises(ValueError, match=r"static_vectors is on.*initialize.vectors"):
        make_model(docs, static_vectors=True)
    with pytest.raises(ValueError, match=r"width of the static vectors without examples"):
        make_model([], static_vectors=True)


def test_other_vectors_than_in_training():
    model = make_model(static_vectors=True)
    vocab = spacy.blank("en").vocab
    with pytest.raises(ValueError, match=r"of width 3, but the vocab has width 0"):
        model.predict(make_docs(vocab))


def test_initialising_without_examples():
    model = build_hybrid_encoder(tok2vec=small_cnn(16), char_width=8)
    model.initialize()
    assert model.get_dim("nO") == 24
    assert flat(model.predict(make_docs())).shape[1] == 24


def test_docs_without_tags():
    docs = make_docs()
    model = make_model(docs, pos_width=5)
    bare = [Doc(docs[0].vocab, words=["human", "T", "cells"])]
    message = r"pos_width is set\), but no token.*annotating_components.*pos_width to 0"
    with pytest.raises(ValueError, match=message):
        model(bare, is_train=True)
    with pytest.warns(UserWarning, match=message):
        assert model.predict(bare)[0].shape == (3, 5)
    # A word without a tag among others is no error.
    model([*bare, docs[0]], is_train=True)


# Pipelines

HYBRID = {
    "@architectures": "spacy_nested_ner.HybridEncoder.v1",
    "static_vectors": True,
    "pos_width": 5,
    "char_width": 16,
    "char_embedding_width": 8,
    "word_rnn": "lstm",
}


def tagged_examples(nlp) -> List[Example]:
    examples = make_examples(nlp)
    for eg in examples:
        for token in eg.reference:
            token.tag_ = TAGS[len(token) % 3]
    return examples


def tagged_pipeline(tok2vec: Any, before: Any = ("tok2vec", "tagger")):
    """A tagger that listens to a shared tok2vec, and piqn_ner on a hybrid encoder."""
    spacy.util.fix_random_seed(0)
    nlp = spacy.blank("en")
    nlp.vocab.reset_vectors(width=3)
    for word, vector in VECTORS.items():
        nlp.vocab.set_vector(word, np.array(vector, dtype="f"))
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": 32, "upstream": "tok2vec"}
    model = {"@architectures": "spacy.Tagger.v2", "tok2vec": listener}
    if "tok2vec" in before:
        nlp.add_pipe("tok2vec", config={"model": SMALL_CNN})
    if "tagger" in before:
        nlp.add_pipe("tagger", config={"model": model})
    head = {"@architectures": "spacy_nested_ner.PIQN.v1", "hidden_width": 48, "attention_heads": 2}
    config = {"model": {**head, "tok2vec": tok2vec}}
    nlp.add_pipe("piqn_ner", name="ner", config=config)
    return nlp


def found_of(nlp) -> List[tuple]:
    return found_in(nlp, [Doc(nlp.vocab, words=text.split(" ")) for text, _ in SENTENCES])


def test_everything_in_one_pipeline(tmp_path):
    """Shared tok2vec, tagger, vectors and characters: memorises, survives, stands alone."""
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": 32, "upstream": "tok2vec"}
    nlp = tagged_pipeline({**HYBRID, "tok2vec": listener})
    data = tagged_examples(nlp)
    nlp.initialize(lambda: data)
    assert not any(eg.predicted.has_annotation("TAG") for eg in data)
    assert nlp.get_pipe("tok2vec").listening_components == ["tagger", "ner"]
    optimizer = Adam(0.003, L2=0.01, L2_is_weight_decay=True, grad_clip=1.0)
    for _ in range(60):
        # Without tok2vec the tagger would tag zeros here, and real vectors afterwards.
        nlp.update(tagged_examples(nlp), sgd=optimizer, annotates=["tok2vec", "tagger"])
    assert nlp.evaluate(tagged_examples(nlp))["nested_f"] == 1.0
    expected = found_of(nlp)
    nlp.to_disk(tmp_path / "shared")
    loaded = spacy.load(tmp_path / "shared")
    assert_same_found(found_of(loaded), expected)
    loaded.replace_listeners("tok2vec", "ner", ["model.tok2vec.tok2vec"])
    assert loaded.get_pipe("tok2vec").listening_components == ["tagger"]
    assert_same_found(found_of(loaded), expected)
    loaded.to_disk(tmp_path / "own")
    assert_same_found(found_of(spacy.load(tmp_path / "own")), expected)
    with pytest.raises(ValueError, match=r"pos_width is set.*annotating_components"):
        nlp.update(tagged_examples(nlp), sgd=optimizer)


def test_shared_by_listeners():
    """The hybrid encoder as the model of a shared tok2vec component."""
    spacy.util.fix_random_seed(0)
    nlp = spacy.blank("en")
    shared = {**HYBRID, "static_vectors": False, "pos_width": 0, "tok2vec": SMALL_CNN}
    nlp.add_pipe("tok2vec", config={"model": shared})
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": 32, "upstream": "tok2vec"}
    head = {"@architectures": "spacy_nested_ner.PIQN.v1", "hidden_width": 48, "attention_heads": 2}
    for name in ("one", "two"):
        nlp.add_pipe("piqn_ner", name=name, config={"model": {**head, "tok2vec": listener}})
    data = make_examples(nlp)
    nlp.initialize(lambda: data)
    model = nlp.get_pipe("tok2vec").model
    before = (model.layers[0].to_bytes(), model.layers[1].to_bytes())
    nlp.update([*data, Example(Doc(nlp.vocab), Doc(nlp.vocab))], sgd=Adam(0.003))
    nlp.update(data, sgd=Adam(0.003))
    assert model.layers[0].to_bytes() != before[0] and model.layers[1].to_bytes() != before[1]
    docs = [Doc(nlp.vocab, words=text.split(" ")) for text, _ in SENTENCES]
    expected = [spans_of(doc) for doc in nlp.pipe(docs)]
    nlp.replace_listeners("tok2vec", "two", ["model.tok2vec"])
    assert head_parts(nlp.get_pipe("two").model)[1].name == "hybrid_words"
    docs = [Doc(nlp.vocab, words=text.split(" ")) for text, _ in SENTENCES]
    assert [spans_of(doc) for doc in nlp.pipe(docs)] == expected


def test_memorises_from_characters_alone():
    tok2vec = {
        "@architectures": "spacy_nested_ner.HybridEncoder.v1",
        "char_width": 32,
        "char_cell": "gru",
        "word_rnn": "gru",
        "rnn_width": 32,
    }
    nlp = train(make_pipeline(model={"tok2vec": tok2vec}), 80)
    assert nlp.evaluate(make_examples(nlp))["nested_f"] == 1.0


def test_no_tagger_in_the_pipeline():
    nlp = tagged_pipeline({**HYBRID, "tok2vec": SMALL_CNN}, before=())
    data = tagged_examples(nlp)
    with pytest.raises(ValueError, match=r"Component 'ner'.*pos_width is set.*before this one"):
        nlp.initialize(lambda: data)


def test_a_frozen_tagger_counts_if_it_annotates():
    nlp = tagged_pipeline({**HYBRID, "tok2vec": SMALL_CNN})
    data = tagged_examples(nlp)
    nlp.initialize(lambda: data)
    with nlp.select_pipes(enable="ner"):
        with pytest.raises(ValueError, match="annotating_components"):
            nlp.initialize(lambda: data)
        nlp.config["training"]["annotating_components"] = ["tok2vec", "tagger"]
        nlp.initialize(lambda: data)


@pytest.mark.filterwarnings("error:.*pos_width")
def test_questions_need_no_tags():
    """No component tags them: that they have none is no error and no warning."""
    tags = {**HYBRID, "static_vectors": False, "tok2vec": SMALL_CNN}
    for own in (None, tags):
        nlp = make_pipeline("mrc_ner", {"tok2vec": tags, "question_tok2vec": own}, examples=None)
        nlp.initialize(lambda nlp=nlp: [tagged(eg) for eg in tagged_examples(nlp)])
        nlp.update([tagged(eg) for eg in tagged_examples(nlp)], sgd=nlp.create_optimizer())
        nlp.get_pipe("ner").predict([eg.reference for eg in tagged_examples(nlp)])


def tagged(example: Example) -> Example:
    """With the tags on the docs that are read, as a tagger leaves them."""
    for token, gold in zip(example.predicted, example.reference):
        token.tag_ = gold.tag_
    return example


def test_a_word_without_a_vector_has_zeros() -> None:
    vocab = spacy.blank("en").vocab
    data = np.array([[1, 2, 3], [4, 5, 6]], dtype="f")
    vocab.vectors = Vectors(strings=vocab.strings, data=data, keys=["T", "cells"])
    doc = Doc(vocab, words=["T", "unknown", "cells"])
    assert static_rows([doc], NumpyOps()).tolist() == [[1, 2, 3], [0, 0, 0], [4, 5, 6]]


def test_features_have_only_their_own_dropout() -> None:
    docs = make_docs()
    model = make_model(docs, embed=True)
    embed = model.layers[0]
    set_dropout_rate(embed.layers[0], 0.0)
    embed.attrs["dropout_rate"] = 0.99
    found, _ = model(docs, is_train=True)
    np.testing.assert_allclose(flat(found), flat(model.predict(docs)), atol=1e-6)


def test_characters_of_docs_of_several_vocabs() -> None:
    model = build_hybrid_encoder(tok2vec=small_cnn(16), char_width=6)
    docs = [Doc(Vocab(), words=["gene", word]) for word in ("zygomorphic", "Zanzibar")]
    model.initialize(docs)
    for mine, doc in zip(model.predict(docs), docs, strict=True):
        assert np.allclose(mine, model.predict([doc])[0], atol=1e-5)
