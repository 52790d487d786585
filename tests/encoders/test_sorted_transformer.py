"""A pretrained encoder as a plain tok2vec: Hugging Face's own vectors, whatever the batches."""

import copy
import pickle
import re
import shutil
import subprocess
import sys
import warnings

import numpy as np
import pytest
import spacy
import torch
from encoders import TEXTS, WIDTH, pooled_by_hand, save_encoder
from spacy.tokens import Doc
from spacy.util import fix_random_seed, get_minor_version_range, registry
from thinc.api import Adam

from spacy_nested_ner import __version__
from spacy_nested_ner.encoders import shim
from spacy_nested_ner.encoders.pretrained import PretrainedShim
from spacy_nested_ner.encoders.sorted_transformer import (
    build_sorted_transformer,
    encoder_shim,
)
from tests.conftest import SMALL_MODELS, make_examples, make_pipeline, slack

transformers = pytest.importorskip("transformers")


def make_model(directory: str, **settings):
    model = build_sorted_transformer(directory, **settings)
    model.initialize()
    return model


def make_docs(texts=TEXTS):
    vocab = spacy.blank("en").vocab
    return [Doc(vocab, words=text.split(" ") if text else []) for text in texts]


def hugging_face(directory: str):
    """A function from a doc to its word vectors, by Hugging Face's own tokenizer and encoder on
    its text, pooled in a plain loop; and the encoder."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    encoder = transformers.AutoModel.from_pretrained(directory).eval()

    def vectors(doc: Doc, pool=lambda states: states.mean(0)) -> torch.Tensor:
        text = " ".join(token.text for token in doc)
        coded = tokenizer(text, return_offsets_mapping=True, return_tensors="pt")
        places = coded.pop("offset_mapping")[0].tolist()
        states = encoder(**coded).last_hidden_state[0]
        return torch.stack(pooled_by_hand(doc, places, states, pool))

    return vectors, encoder


POOLS = {"max": lambda s: s.max(0).values, "mean": lambda s: s.mean(0), "first": lambda s: s[0]}


@pytest.mark.parametrize("how", POOLS)
def test_vectors_are_those_of_hugging_face(directory, how) -> None:
    vectors, _ = hugging_face(directory)
    docs = make_docs()
    for doc, found in zip(docs, make_model(directory, word_pooling=how).predict(docs)):
        np.testing.assert_allclose(found, vectors(doc, POOLS[how]).detach(), atol=1e-5)


def test_gradients_are_those_of_hugging_face(directory) -> None:
    vectors, encoder = hugging_face(directory)
    docs = make_docs()
    model = make_model(directory, batch_pieces=40, mixed_precision=False)
    module = encoder_shim(model).module
    for part in module.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    module.config.attention_probs_dropout_prob = 0.0
    for layer in module.encoder.layer:
        layer.attention.self.dropout_prob = 0.0  # read by the fused attention
    found, backprop = model(docs, is_train=True)
    assert backprop([np.cos(array) for array in found]) == []
    for doc in docs:
        expected = vectors(doc)
        expected.backward(expected.detach().cos())
    pairs = dict(encoder.named_parameters())
    compared = 0
    for name, parameter in module.named_parameters():
        atol = slack(1e-5, on_gpu=50)  # of gradients that reach 50
        torch.testing.assert_close(parameter.grad.cpu(), pairs[name].grad, atol=atol, rtol=1e-4)
        compared += 1
    assert compared > 30


def test_mixed_precision_is_for_training_only(directory) -> None:
    """Gradients as in float32 within what bfloat16 can tell apart; predictions are the same."""
    docs = make_docs()
    kinds, gradients = [], []
    for mixed in (False, True):
        model = make_model(directory, mixed_precision=mixed)
        module = encoder_shim(model).module.eval()
        module.train = lambda mode, same=module: same  # dropout would hide the difference
        seen = []
        layer = module.encoder.layer[0].output.dense
        layer.register_forward_hook(lambda *args, seen=seen: seen.append(args[2].dtype))
        predicted = model.predict(docs)
        found, backprop = model(docs, is_train=True)
        backprop([np.cos(array) for array in found])
        kinds.append((seen[0], seen[-1]))
        gradients.append(layer.weight.grad.flatten())
        assert found[0].dtype == predicted[0].dtype == np.float32
        assert {p.dtype for p in module.parameters()} == {torch.float32}
        assert np.allclose(found[0], predicted[0], atol=1e-5) != mixed
    assert kinds == [(torch.float32,) * 2, (torch.float32, torch.bfloat16)]
    alike = torch.nn.functional.cosine_similarity(*gradients, dim=0)
    assert 0.99 < alike < 0.9999999


@pytest.mark.parametrize("has_it", [False, True])
def test_mixed_precision_is_taken_where_the_hardware_has_it(directory, monkeypatch, has_it) -> None:
    monkeypatch.setattr(shim, "has_bfloat16", lambda device: has_it)
    model = make_model(directory)
    seen = []
    layer = encoder_shim(model).module.encoder.layer[0].output.dense
    layer.register_forward_hook(lambda *args: seen.append(args[2].dtype))
    model(make_docs(), is_train=True)
    model.predict(make_docs())
    assert seen[0] == (torch.bfloat16 if has_it else torch.float32)
    assert set(seen[1:]) == {torch.float32}


@pytest.mark.parametrize("has_it", [False, True])
def test_mixed_precision_without_the_hardware_is_warned_of(
    directory, monkeypatch, recwarn, has_it
) -> None:
    monkeypatch.setattr(shim, "has_bfloat16", lambda device: has_it)
    make_model(directory)(make_docs(), is_train=True)
    model = make_model(directory, mixed_precision=True)
    model.predict(make_docs())
    assert not len(recwarn)
    model(make_docs(), is_train=True)
    told = [str(warning.message) for warning in recwarn]
    assert len(told) == (0 if has_it else 1)
    assert all("its device (cpu) has no instructions for bfloat16" in each for each in told)


def test_frozen_encoder_does_not_learn(directory) -> None:
    docs = make_docs()
    model = make_model(directory, frozen=True, mixed_precision=True)
    found, backprop = model(docs, is_train=True)
    for array, expected in zip(found, model.predict(docs)):
        np.testing.assert_array_equal(array, expected)
    assert backprop(found) == []
    assert all(p.grad is None for p in encoder_shim(model).module.parameters())


@pytest.mark.parametrize("settings", [{}, {"max_pieces": 12}])
def test_a_doc_does_not_depend_on_its_batch(directory, settings) -> None:
    docs = make_docs([*TEXTS, "", " ".join(TEXTS)])
    model = make_model(directory, **settings)
    together = model.predict(docs)
    model.attrs["batch_pieces"] = 5000
    for doc, expected in zip(docs, together):
        (alone,) = model.predict([doc])
        assert alone.shape == expected.shape == (len(doc), WIDTH)
        np.testing.assert_allclose(alone, expected, atol=1e-5)


def test_a_long_doc_is_read_to_its_end(directory) -> None:
    """In windows: the first words are far from the cut and see nothing of the last ones."""
    model = make_model(directory, max_pieces=60)
    docs = make_docs([" ".join(TEXTS * 8), " ".join(TEXTS * 8 + ["promoter"])])
    (before, after) = model.predict(docs)
    assert len(before) == len(docs[0]) and (np.abs(before).max(axis=1) > 0).all()
    np.testing.assert_allclose(before[0], after[0], atol=1e-5)
    changed, backprop = model(docs, is_train=True)
    gradients = [np.zeros_like(array) for array in changed]
    gradients[0][-1] = model.ops.asarray(np.arange(WIDTH))
    backprop(gradients)
    weights = encoder_shim(model).module.embeddings.word_embeddings.weight
    assert torch.isfinite(weights.grad).all() and weights.grad.any()


def test_docs_without_tokens(directory) -> None:
    model = make_model(directory)
    vectors, backprop = model(make_docs(["", ""]), is_train=True)
    assert [array.shape for array in vectors] == [(0, WIDTH)] * 2
    assert backprop(vectors) == []
    assert model.predict([]) == []


def test_saved_model_needs_no_directory(directory, tmp_path) -> None:
    copied = shutil.copytree(directory, tmp_path / "pretrained")
    model = make_model(str(copied), max_pieces=100)
    shutil.rmtree(copied)
    loaded = build_sorted_transformer("no/such/place").from_bytes(model.to_bytes())
    docs = make_docs()
    for found, expected in zip(loaded.predict(docs), model.predict(docs)):
        np.testing.assert_array_equal(found, expected)
    assert encoder_shim(loaded).max_pieces == 100 and loaded.get_dim("nO") == WIDTH


@pytest.mark.parametrize("settings", [{"max_pieces": 2}, {"batch_pieces": 0}])
def test_settings_out_of_range(settings) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        build_sorted_transformer("anywhere", **settings)


def test_missing_directory(tmp_path) -> None:
    with pytest.raises(ValueError, match=r"SortedTransformer\.v1: cannot read a pretrained"):
        make_model(str(tmp_path / "gone"))


def test_one_encoder_for_two_components(tiny_bert) -> None:
    """Shared through spaCy's own `tok2vec` component: both listeners reach its weights."""
    fix_random_seed(0)
    nlp = spacy.blank("en")
    encoder = {"@architectures": "spacy_nested_ner.SortedTransformer.v1", "name": str(tiny_bert)}
    nlp.add_pipe("tok2vec", config={"model": encoder})
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": 32, "upstream": "*"}
    for name in ("piqn_ner", "locate_and_label_ner"):
        nlp.add_pipe(name, config={"model": {**SMALL_MODELS[name], "tok2vec": listener}})
    spancat = {
        "@architectures": "spacy.SpanCategorizer.v1",
        "tok2vec": listener,
        "reducer": {"@layers": "spacy.mean_max_reducer.v1", "hidden_size": 16},
        "scorer": {"@layers": "spacy.LinearLogistic.v1"},
    }
    nlp.add_pipe("spancat", config={"model": spancat, "spans_key": "other"})

    def examples():
        data = make_examples(nlp)
        for example in data:
            example.reference.spans["other"] = list(example.reference.spans["sc"])
        return data

    optimizer = nlp.initialize(examples)
    before = nlp.get_pipe("tok2vec").model.to_bytes()
    history = [nlp.update(examples(), sgd=optimizer) for _ in range(40)]
    assert nlp.get_pipe("tok2vec").model.to_bytes() != before
    for name in ("piqn_ner", "locate_and_label_ner", "spancat"):
        assert history[-1][name] < 0.7 * history[0][name], name


@pytest.mark.parametrize(
    ("rate", "frozen", "warned"), [(0.001, False, 1), (0.0001, False, 0), (0.001, True, 0)]
)
def test_a_rate_for_an_encoder_from_scratch_is_warned_of_once(
    tiny_bert, rate, frozen, warned
) -> None:
    encoder = {"@architectures": "spacy_nested_ner.SortedTransformer.v1", "name": str(tiny_bert)}
    nlp = make_pipeline("piqn_ner", {"tok2vec": {**encoder, "frozen": frozen}})
    optimizer = Adam(rate)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            nlp.update(make_examples(nlp), sgd=optimizer)
    about = [str(each.message) for each in caught if "has a learning rate of" in str(each.message)]
    assert len(about) == warned and all("'ner'" in text and "0.001" in text for text in about)


def test_registered_and_cheap_to_import() -> None:
    name = "spacy_nested_ner.SortedTransformer.v1"
    assert registry.architectures.get(name) is build_sorted_transformer
    code = (
        "import sys, spacy_nested_ner.encoders.sorted_transformer;"
        "assert 'transformers' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_encoder_that_lacks_weights_is_refused(tmp_path):
    """They would be random, and its vectors with them."""
    from safetensors.torch import load_file, save_file

    name = save_encoder(tmp_path / "bert", "bert")
    path = tmp_path / "bert" / "model.safetensors"
    weights = load_file(path)
    without = {key: value for key, value in weights.items() if not key.startswith("pooler.")}
    save_file(without, path, metadata={"format": "pt"})
    build_sorted_transformer(name).initialize()  # the layer over [CLS] is not used
    lost = "encoder.layer.1.attention.self.query.weight"
    save_file({k: v for k, v in without.items() if k != lost}, path, metadata={"format": "pt"})
    with pytest.raises(ValueError, match=rf"lacks weights: {re.escape(lost)}\. "):
        build_sorted_transformer(name).initialize()
    with pytest.raises(ValueError, match=rf"lacks weights: bert.{re.escape(lost)}\. "):
        PretrainedShim("x", name, None).load_masked()


COPIES = {
    "pickled": lambda held: pickle.loads(pickle.dumps(held)),
    "deep": copy.deepcopy,
    "its own": lambda held: held.copy(),
}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES.keys())
def test_a_copy_reads_a_special_piece_as_text_too(directory, copied) -> None:
    held = encoder_shim(make_model(directory))
    special = held._tokenizer.id_to_token(held.special["sep"])
    doc = Doc(spacy.blank("en").vocab, words=["The", special, "cells"])
    expected = held.tokenise([doc])[0][0].tolist()
    assert held.special["sep"] not in expected
    assert copied(held).tokenise([doc])[0][0].tolist() == expected


def test_a_package_requires_transformers_and_versions_that_fit(tiny_bert, tmp_path) -> None:
    encoder = {"@architectures": "spacy_nested_ner.SortedTransformer.v1", "name": str(tiny_bert)}
    nlp = make_pipeline(model={"tok2vec": encoder})
    config = {"model": {"tok2vec": encoder}}
    nlp.add_pipe("piqn_ner", name="second", config=config)
    expected = f"spacy_nested_ner[transformers]{get_minor_version_range(__version__)}"
    assert nlp.meta["requirements"] == [expected]
    nlp.remove_pipe("second")
    nlp.to_disk(tmp_path)
    assert spacy.load(tmp_path).meta["requirements"] == [expected]
    assert "requirements" not in make_pipeline(examples=None).meta
    shared = spacy.blank("en")
    shared.add_pipe("tok2vec", config={"model": encoder})
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": 32}
    shared.add_pipe("piqn_ner", config={"model": {"tok2vec": listener}})
    data = make_examples(shared)
    shared.initialize(lambda: data)
    assert shared.meta["requirements"] == [expected]
    # As `spacy package` loads it; no factory knows of a component that is sourced.
    sourced = spacy.blank("en")
    for name in shared.pipe_names:
        sourced.add_pipe(name, source=shared)
    sourced.to_disk(tmp_path / "sourced")
    assert spacy.load(tmp_path / "sourced").meta["requirements"] == [expected]


def test_more_pieces_than_the_encoder_has_positions(directory) -> None:
    doc = Doc(spacy.blank("en").vocab, words=["a"] * 600)
    assert make_model(directory).predict([doc])[0].shape == (600, WIDTH)


def test_the_limit_of_the_tokenizer_counts(bert, tmp_path) -> None:
    path = shutil.copytree(bert, tmp_path / "encoder")
    tokenizer = transformers.AutoTokenizer.from_pretrained(path, model_max_length=128)
    tokenizer.save_pretrained(path)
    assert encoder_shim(make_model(str(path))).max_pieces == 128
