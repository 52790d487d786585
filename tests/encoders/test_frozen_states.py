"""Lower layers of a pretrained encoder that do not learn, and what they have made of texts."""

import copy
from typing import Any, List

import numpy as np
import pytest
import spacy
import torch
from spacy.tokens import Doc
from thinc.api import Adam
from torch import Tensor

from spacy_nested_ner.encoders import frozen_states
from spacy_nested_ner.encoders.frozen_states import FrozenStates
from spacy_nested_ner.encoders.pair_encoder import build_pair_encoder, pair_shim
from spacy_nested_ner.encoders.protocol import PairInput
from spacy_nested_ner.encoders.sorted_transformer import build_sorted_transformer, encoder_shim
from tests.conftest import slack
from tests.encoders.test_sorted_transformer import make_docs

pytest.importorskip("transformers")


class Reader:
    """Makes of each text so many numbers as it has letters; remembers what it was asked for."""

    def __init__(self, texts: List[str]) -> None:
        self.texts, self.asked = texts, []

    def __call__(self, indices: List[int]) -> List[Tensor]:
        self.asked += [self.texts[i] for i in indices]
        return [torch.full((len(self.texts[i]), 2), float(ord(self.texts[i][0]))) for i in indices]


def states_of(kept: FrozenStates, texts: List[str], of: Any = 1) -> List[str]:
    """Checks the states of the texts; returns which of these were read."""
    reader = Reader(texts)
    expected = torch.cat(Reader(texts)(list(range(len(texts)))))
    assert torch.equal(kept.read(of, texts, reader), expected)
    return reader.asked


def test_a_text_is_read_once() -> None:
    kept = FrozenStates()
    assert states_of(kept, ["a", "bbb", "a"]) in (["a", "bbb"], ["bbb", "a"])
    assert states_of(kept, ["bbb", "cc"]) == ["cc"]
    assert states_of(kept, ["cc", "a", "bbb"]) == []


def test_nothing_is_kept_of_other_layers() -> None:
    kept = FrozenStates()
    states_of(kept, ["a", "bbb"])
    assert states_of(kept, ["a"], of=2) == ["a"]
    assert states_of(kept, ["a"], of=1) == ["a"]
    kept.forget()
    assert states_of(kept, ["a"], of=1) == ["a"]


def test_what_does_not_fit_is_read_again(monkeypatch) -> None:
    monkeypatch.setattr(frozen_states, "MOST_BYTES", 4 * 2 * 4)
    kept = FrozenStates()
    states_of(kept, ["aaa", "bb", "c"])
    assert states_of(kept, ["aaa", "bb", "c"]) == ["bb"]


def test_a_copy_reads_anew() -> None:
    kept = FrozenStates()
    states_of(kept, ["a", "bbb"])
    assert states_of(copy.deepcopy(kept), ["a"]) == ["a"]
    assert states_of(kept, ["a"]) == []


def make_model(directory: str, **settings: Any) -> Any:
    """An encoder without dropout, in float32."""
    model = build_sorted_transformer(directory, mixed_precision=False, **settings)
    model.initialize()
    for part in encoder_shim(model).module.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    return model


def gradients(model: Any, docs: Any) -> dict:
    """Those of a step, by the name of the parameter."""
    found, backprop = model(docs, is_train=True)
    backprop([np.cos(array) for array in found])
    named = encoder_shim(model).module.named_parameters()
    return {name: parameter.grad for name, parameter in named if parameter.grad is not None}


@pytest.mark.parametrize("max_pieces", [None, 12])
def test_upper_layers_learn_as_ever(directory, max_pieces) -> None:
    """Also from what was kept of the step before."""
    docs = make_docs()
    expected = gradients(make_model(directory, max_pieces=max_pieces), docs)
    model = make_model(directory, max_pieces=max_pieces, frozen_layers=1)
    for _ in range(2):
        found = gradients(model, docs)
        assert set(found) == {name for name in expected if name.startswith("encoder.layer.1.")}
        for name, gradient in found.items():
            atol = slack(1e-5, on_gpu=50)  # of gradients that reach 50
            np.testing.assert_allclose(gradient, expected[name], atol=atol)
            encoder_shim(model).module.get_parameter(name).grad = None


@pytest.mark.parametrize("settings", [{"frozen_layers": 1}, {"frozen": True}])
def test_frozen_layers_read_a_text_once(directory, settings, monkeypatch) -> None:
    model = make_model(directory, **settings)
    calls: List[int] = []
    layer = encoder_shim(model).module.encoder.layer[0]
    layer.output.register_forward_hook(lambda *_: calls.append(1))
    docs = make_docs()
    first, _ = model(docs, is_train=True)
    assert calls
    calls.clear()
    again, _ = model(docs[::-1], is_train=True)
    assert not calls
    for array, expected in zip(again[::-1], first):
        np.testing.assert_allclose(array, expected, atol=1e-6)


def test_frozen_layers_have_no_dropout(directory) -> None:
    """The upper ones have."""
    model = build_sorted_transformer(directory, mixed_precision=False, frozen_layers=1)
    model.initialize()
    dropped = {
        name: part
        for name, part in encoder_shim(model).module.named_modules()
        if isinstance(part, torch.nn.Dropout)
    }
    seen = {}
    for name, part in dropped.items():
        part.register_forward_hook(lambda part, *_, name=name: seen.update({name: part.training}))
    model(make_docs(), is_train=True)
    assert {name.startswith("encoder.layer.1.") for name, drops in seen.items() if drops} == {True}
    assert any(not drops for drops in seen.values())


def test_a_layer_that_is_frozen_again_reads_anew(directory) -> None:
    """It has learned meanwhile."""
    model, docs = make_model(directory, frozen_layers=1), make_docs()
    before, _ = model(docs, is_train=True)
    model.attrs["frozen_layers"] = 0
    found, backprop = model(docs, is_train=True)
    backprop(found)
    model.finish_update(Adam(0.1))
    model.attrs["frozen_layers"] = 1
    after, _ = model(docs, is_train=True)
    for array, old, expected in zip(after, before, model.predict(docs)):
        np.testing.assert_allclose(array, expected, atol=1e-5)
        assert not len(array) or not np.allclose(array, old, atol=1e-2)


def test_other_weights_read_anew(directory) -> None:
    model, docs = make_model(directory, frozen_layers=1), make_docs()
    model(docs, is_train=True)
    other = make_model(directory)
    with torch.no_grad():
        for parameter in encoder_shim(other).module.parameters():
            parameter.mul_(1.5)
    model.from_bytes(other.to_bytes())
    assert model.attrs["frozen_layers"] == 0  # saved with the other model
    model.attrs["frozen_layers"] = 1
    for part in encoder_shim(model).module.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    for array, expected in zip(model(docs, is_train=True)[0], other.predict(docs)):
        np.testing.assert_allclose(array, expected, atol=1e-4)


def test_more_layers_than_there_are(directory) -> None:
    model = build_sorted_transformer(directory, frozen_layers=3)
    model.initialize()
    with pytest.raises(ValueError, match=r"frozen_layers is 3, but .* has 2 layers"):
        model.predict(make_docs())


def test_layers_that_read_both_learn(directory) -> None:
    with pytest.raises(ValueError, match="frozen_layers needs a number in joint_layers"):
        build_pair_encoder(directory, frozen_layers=1)


@pytest.mark.parametrize("joint_layers", [0, 1])
def test_lower_layers_of_pairs_rest(directory, joint_layers) -> None:
    """The upper one learns, whether it reads both texts or each alone."""
    model = build_pair_encoder(directory, joint_layers=joint_layers, frozen_layers=1)
    docs = [doc for doc in make_docs() if len(doc)]
    segments = np.array([(i, 0, len(doc)) for i, doc in enumerate(docs)])
    model.initialize(X=(docs, segments))
    pairs = np.array([(i, 0) for i in range(len(docs))])
    reading, _ = model(PairInput(docs, segments, ["Which genes?"], pairs), is_train=True)
    words, _ = reading.read(np.arange(len(docs)))
    words.sum().backward()
    named = pair_shim(model).module.named_parameters()
    learned = {name for name, parameter in named if parameter.grad is not None}
    assert learned and all(name.startswith("encoder.layer.1.") for name in learned)


def test_how_many_layers_of_pairs_rest(directory) -> None:
    model = build_pair_encoder(directory, joint_layers=1, frozen_layers=1)
    model.attrs["frozen_layers"] = 2
    model.initialize()
    assert pair_shim(model).frozen_layers(model.attrs) == 2  # all of them
    model.attrs["frozen_layers"] = 3
    with pytest.raises(ValueError, match="has 2 layers"):
        pair_shim(model).frozen_layers(model.attrs)


def read_in_training(model: Any) -> Tensor:
    docs = [doc for doc in make_docs() if len(doc)]
    segments = np.array([(i, 0, len(doc)) for i, doc in enumerate(docs)])
    pairs = np.array([(i, 0) for i in range(len(docs))])
    reading, _ = model(PairInput(docs, segments, ["Which genes?"], pairs), is_train=True)
    return reading.read(np.arange(len(docs)))[0]


@pytest.mark.parametrize("joint_layers", [2, None])
def test_layers_that_all_read_both_rest_together(directory, joint_layers) -> None:
    """One of them alone cannot: it is said, and not left out in silence."""
    model = build_pair_encoder(directory, joint_layers=joint_layers)
    model.initialize()
    for wanted, problem in ((1, r"of 2 layers the upper 2 read .* at most 0"), (99, "2 layers")):
        model.attrs["frozen_layers"] = wanted
        with pytest.raises(ValueError, match=rf"frozen_layers is {wanted}, but .*{problem}"):
            read_in_training(model)
    model.attrs["frozen_layers"] = 2
    assert not read_in_training(model).requires_grad
    model.attrs["frozen_layers"] = 0
    assert read_in_training(model).requires_grad


def test_words_that_are_cut_otherwise_are_another_text(bert) -> None:
    vocab = spacy.blank("en").vocab
    docs = [Doc(vocab, words=words) for words in (["IL-2"], ["IL", "-", "2"])]
    model = build_sorted_transformer(bert, frozen=True)
    model.initialize()
    for doc in docs:
        assert len(model([doc], is_train=True)[0][0]) == len(doc)
