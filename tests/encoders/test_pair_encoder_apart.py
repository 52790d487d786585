"""Question and sentence that a pretrained encoder reads apart, and together in its top layers."""

import shutil
from typing import Any, List

import numpy as np
import pytest
import spacy
import srsly
import torch
from encoders import TEXTS, WIDTH, save_encoder
from pairs import QUESTIONS, make_input, read
from spacy.tokens import Doc
from thinc.api import Adam, set_dropout_rate

from spacy_nested_ner.encoders.pair_encoder import build_pair_encoder, pair_shim
from spacy_nested_ner.encoders.piece_windows import Window, cut_long
from spacy_nested_ner.encoders.protocol import PairInput
from spacy_nested_ner.model.pairs import all_pairs
from tests.conftest import slack

transformers = pytest.importorskip("transformers")

N_LAYERS = 3


@pytest.fixture(scope="module", params=["bert", "roberta"])
def deep(request, tmp_path_factory) -> str:
    """An encoder of three layers."""
    path = tmp_path_factory.mktemp("encoder") / request.param
    return save_encoder(path, request.param, num_hidden_layers=N_LAYERS)


@pytest.fixture(scope="module")
def deep_bert(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("encoder") / "bert"
    return save_encoder(path, "bert", num_hidden_layers=N_LAYERS)


def make_model(directory: str, joint_layers: Any, **settings):
    torch.manual_seed(0)
    model = build_pair_encoder(directory, joint_layers=joint_layers, **settings)
    model.initialize()
    return model


def layers_of(module, states: torch.Tensor, first: int, end: int) -> torch.Tensor:
    """Hugging Face's own layers, on one text without padding."""
    for layer in module.encoder.layer[first:end]:
        states = layer(states)[0]
    return states


@torch.no_grad()
def joined_by_hand(shim, question: np.ndarray, sentence: np.ndarray, joint: int) -> torch.Tensor:
    """Pieces of the sentence, one pair alone."""
    n_lower, halves = N_LAYERS - joint, []
    for ids, of_type in ((question, 0), (sentence, shim.sentence_type)):
        pieces = [shim.special["cls"], *ids, shim.special["sep"]]
        whole = torch.tensor([pieces], device=shim.piece_embeddings.device)
        states = shim.module.embeddings(whole, token_type_ids=torch.full_like(whole, of_type))
        halves.append(layers_of(shim.module, states, 0, n_lower))
    together = layers_of(shim.module, torch.cat(halves, dim=1), n_lower, N_LAYERS)
    return together[0, len(question) + 3 : -1].cpu()


@pytest.mark.parametrize("joint", [1, 2])
def test_the_top_layers_read_both(deep, joint) -> None:
    model, X = make_model(deep, joint), make_input()
    shim = pair_shim(model)
    words, mask = read(model, X, list(range(12)))
    assert words.shape == (12, 16, 2 * WIDTH) and model.get_dim("nO") == 2 * WIDTH
    for i, (segment, question) in enumerate(X.pairs):
        assert mask[i].tolist() == [j < len(X.docs[segment]) for j in range(16)]
        ids, offsets = shim.tokenise([X.docs[segment]])[0]
        pieces = joined_by_hand(shim, shim.question(QUESTIONS[question]), ids, joint)
        expected = np.concatenate([pieces[offsets[:-1]], pieces[offsets[1:] - 1]], axis=1)
        np.testing.assert_allclose(words[i][mask[i]], expected, atol=1e-5)


def test_a_gpu_reads_padding_and_the_same(deep) -> None:
    """So does a CPU where gradients are wanted."""
    shim = pair_shim(make_model(deep, 1))
    split = shim.split(checkpointing=False)
    words = [np.arange(7, 7 + n) for n in (9, 2, 5)]
    windows = [Window(ids, 0, np.ones(len(ids), dtype=np.int64)) for ids in words]
    ids, mask, _ = (tensor.to(shim.device) for tensor in shim.pad_windows(windows))
    read = []
    for wanted in (False, True):
        with torch.set_grad_enabled(wanted):
            read.append(split.read(ids, torch.zeros_like(ids), mask).detach()[mask])
    torch.testing.assert_close(*read)


def test_as_many_joint_layers_as_there_are_is_all_of_them(deep) -> None:
    X = make_input()
    full, all_layers = (read(make_model(deep, joint), X, [0, 5, 9]) for joint in (None, N_LAYERS))
    np.testing.assert_array_equal(full[0], all_layers[0])
    with pytest.raises(ValueError, match=r"joint_layers is 4.*has 3 layers"):
        make_model(deep, N_LAYERS + 1)


@pytest.mark.parametrize("joint", [0, 1, 2])
def test_a_pair_does_not_depend_on_its_batch(deep, joint) -> None:
    model = make_model(deep, joint, max_pieces=70)
    X = make_input([*TEXTS, " ".join(TEXTS)])
    together, mask = read(model, X, [0, 11, 5, 9, 13])
    for row, i in enumerate([0, 11, 5, 9, 13]):
        alone, _ = read(model, X, [i])
        np.testing.assert_allclose(together[row][mask[row]], alone[0], atol=1e-5)
        segment, question = X.pairs[i]
        one = PairInput([X.docs[segment]], X.segments[segment : segment + 1] * [0, 1, 1], [], [])
        one = one._replace(questions=[QUESTIONS[question]], pairs=np.array([(0, 0)]))
        np.testing.assert_allclose(read(model, one, [0])[0], alone, atol=1e-5)


@pytest.mark.parametrize("joint", [0, 1, 2])
def test_another_question_gives_other_vectors(deep, joint) -> None:
    words, mask = read(make_model(deep, joint), make_input(), [3, 4])
    assert np.abs(words[0] - words[1])[mask[0]].max(axis=1).min() > 1e-3


def test_a_long_sentence_is_read_in_windows(deep_bert) -> None:
    """Every word has the vector of the window in which it is most central."""
    X = make_input(["a", " ".join(TEXTS)])._replace(questions=["genes", "cell", "who"])
    model = make_model(deep_bert, 2, max_pieces=30)
    shim = pair_shim(model)
    ids, offsets = shim.tokenise(X.docs)[1]
    bounds, joint = cut_long(np.diff(offsets), 28)
    assert len(bounds) > 5
    words, mask = read(model, X, [0, 4, 3])
    assert mask[1].all() and words.shape[1] == len(X.docs[1])
    pieces = [joined_by_hand(shim, shim.question("cell"), ids[a:b], 2) for a, b in bounds]
    chosen = np.concatenate(pieces)[joint.chosen]
    expected = np.concatenate([chosen[offsets[:-1]], chosen[offsets[1:] - 1]], axis=1)
    np.testing.assert_allclose(words[1], expected, atol=1e-5)
    lengths = model.predict(X).lengths
    longest = max(len(shim.question(text)) + 2 for text in X.questions)
    assert lengths[4] == sum(b - a + 2 + longest for a, b in bounds)


@pytest.mark.parametrize("joint", [0, 1])
def test_words_without_pieces_have_zeros(deep_bert, joint) -> None:
    vocab = spacy.blank("en").vocab
    words = [["\n", "T", "\n\n", "cells", "\n"], ["\n"]]
    docs = [Doc(vocab, words=each) for each in words]
    X = PairInput(docs, np.array([(0, 0, 5), (1, 0, 1)]), QUESTIONS[:1], all_pairs(2, 1))
    vectors, mask = read(make_model(deep_bert, joint), X, [0, 1])
    assert mask.tolist() == [[True] * 5, [True] + [False] * 4]
    has_vector = (np.abs(vectors).max(axis=2) > 0) & mask
    assert has_vector.tolist() == [[False, True, False, True, False], [False] * 5]
    only, _ = read(make_model(deep_bert, joint), X, [1])
    assert only.shape[1] == 1 and not only.any()


def test_no_pairs(deep_bert) -> None:
    X = make_input()._replace(pairs=np.zeros((0, 2), dtype=np.int64))
    assert len(make_model(deep_bert, 1).predict(X).lengths) == 0


class Rows:
    """Counts the texts that the first layer of an encoder reads, by their [CLS]."""

    def __init__(self, model: Any) -> None:
        self.seen, self.first = 0, pair_shim(model).special["cls"]
        embeddings = pair_shim(model).module.embeddings
        embeddings.register_forward_pre_hook(self.count, with_kwargs=True)

    def count(self, module: Any, inputs: Any, named: Any) -> None:
        self.seen += int((named["input_ids"] == self.first).sum())

    def take(self) -> int:
        seen, self.seen = self.seen, 0
        return seen


@pytest.mark.parametrize("joint", [0, 1])
def test_each_sentence_is_read_once_and_questions_are_kept(deep_bert, joint) -> None:
    model, X = make_model(deep_bert, joint), make_input()
    rows = Rows(model)
    for n_read in (len(TEXTS) + len(QUESTIONS), len(TEXTS)):
        reading = model.predict(X)
        for batch in np.split(np.arange(12), 4):
            reading.read(batch)
        assert rows.take() == n_read
    reading, _ = model(X._replace(pairs=X.pairs[:5]), is_train=True)
    reading.read(np.arange(5))
    assert rows.take() == 2 + len(QUESTIONS)  # sentences that are in no pair are left out


def step(model: Any) -> None:
    reading, _ = model(make_input(), is_train=True)
    with torch.enable_grad():
        words, mask = reading.read(np.arange(12))
        (words * mask.unsqueeze(-1)).cos().sum().backward()
    model.finish_update(Adam(0.05))


def from_bytes(model: Any) -> None:
    other = model.copy()
    step(other)
    model.from_bytes(other.to_bytes())


def initialize(model: Any) -> None:
    step(model)
    model.predict(make_input())
    model.initialize()


def torch_in_place(model: Any) -> None:
    with torch.no_grad():
        weights = pair_shim(model).module.embeddings.word_embeddings.weight
        weights.add_(torch.randn_like(weights))


@pytest.mark.parametrize("change", [step, from_bytes, torch_in_place, initialize])
@pytest.mark.parametrize("joint", [0, 1])
def test_nothing_stale_after(deep_bert, joint, change) -> None:
    model, X = make_model(deep_bert, joint), make_input()
    before, _ = read(model, X, [4])
    change(model)
    after, fresh = read(model, X, [4])[0], model.copy()
    np.testing.assert_array_equal(after, read(fresh, X, [4])[0])
    if change is not initialize:
        assert not np.allclose(after, before, atol=1e-3)


@pytest.mark.parametrize("joint", [0, 1])
def test_averaged_weights_count_within_their_context_alone(deep_bert, joint) -> None:
    model, X = make_model(deep_bert, joint), make_input()
    before, _ = read(model, X, [4])
    averages = {
        (shim.id, name): parameter.detach().cpu().numpy() + 0.3
        for node in model.walk()
        for shim in node.shims
        for name, parameter in shim.module.named_parameters()
        if name.endswith("bias")
    }
    with model.use_params(averages):
        within, fresh = read(model, X, [4])[0], read(model.copy(), X, [4])[0]
        np.testing.assert_array_equal(within, fresh)
    assert not np.allclose(within, before, atol=1e-3)
    np.testing.assert_array_equal(read(model, X, [4])[0], before)


@pytest.mark.parametrize("joint", [0, 1, 2])
def test_gradients_reach_the_whole_encoder(deep, joint) -> None:
    """Through the sentence, which all its questions share, and through the questions."""
    model, X = make_model(deep, joint, mixed_precision=False), make_input()
    modules = [shim.module for node in model.walk() for shim in node.shims]
    gradients = []
    for batches in ([np.arange(12)], np.split(np.arange(12), 3)):
        torch.manual_seed(1)
        for dropout in (m for module in modules for m in module.modules()):
            if isinstance(dropout, torch.nn.Dropout):
                dropout.p = 0.0
        pair_shim(model).module.config.attention_probs_dropout_prob = 0.0
        reading, backprop = model(X, is_train=True)
        with torch.enable_grad():
            parts = [reading.read(batch) for batch in batches]
            sum((words * mask.unsqueeze(-1)).cos().sum() for words, mask in parts).backward()
        assert backprop() == []
        parameters = [p for module in modules for p in module.parameters()]
        assert all(p.grad is not None and p.grad.isfinite().all() for p in parameters)
        gradients.append([p.grad for p in parameters])
        for parameter in parameters:
            parameter.grad = None
    scale = max(float(g.abs().max()) for g in gradients[0])
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-5 * scale, rtol=1e-3)
    assert not any(module.training for module in modules)


@pytest.mark.parametrize("joint", [0, 1, 2])
@pytest.mark.parametrize("mixed", [False, True])
def test_gradient_checkpointing_keeps_less_for_the_same_gradients(deep_bert, joint, mixed) -> None:
    X = make_input()
    kept, gradients = [], []
    for checkpointing in (False, True):
        settings = {"gradient_checkpointing": checkpointing, "mixed_precision": mixed}
        model = make_model(deep_bert, joint, **settings)
        sizes: List[int] = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda tensor, sizes=sizes: sizes.append(tensor.numel()) or tensor,
            lambda tensor: tensor,
        ):
            torch.manual_seed(1)  # of the dropout, the same when a layer is computed again
            words, _ = model(X, is_train=True)[0].read(np.arange(12))
        assert words.dtype == torch.float32
        kept.append(sum(sizes))
        words.cos().sum().backward()
        parameters = pair_shim(model).module.named_parameters()
        gradients.append({name: p.grad for name, p in parameters if p.grad is not None})
    assert kept[1] < kept[0] * (0.5 if joint else 0.6)
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("joint", [0, 1])
def test_frozen_encoder_does_not_learn(deep_bert, joint) -> None:
    X, model = make_input(), make_model(deep_bert, joint, frozen=True, mixed_precision=False)
    before, _ = read(model, X, [0, 4])
    rows = Rows(model)
    words, _ = model(X, is_train=True)[0].read(np.array([0, 4]))
    # The narrow layer over a frozen encoder is not pretrained: it learns.
    assert words.requires_grad == (joint == 0)
    np.testing.assert_allclose(words.detach().cpu().numpy(), before, atol=slack(1e-6))
    if joint:
        assert rows.take() == len(TEXTS)  # the questions are those of the prediction
    else:
        words.sum().backward()
        assert all(p.grad is None for p in pair_shim(model).module.parameters())


def test_late_interaction_is_one_sided_and_has_dropout_of_its_own(deep) -> None:
    model, X = make_model(deep, 0, frozen=True), make_input()
    assert not model.two_sided and make_model(deep, 1).two_sided
    assert model.get_dim("nO") == WIDTH // 2 == read(model, X, [0])[0].shape[2]
    set_dropout_rate(model, 0.5)
    first, second = (model(X, is_train=True)[0].read(np.array([0]))[0] for _ in range(2))
    assert not torch.allclose(first, second, atol=1e-2)
    np.testing.assert_array_equal(read(model, X, [0])[0], read(model, X, [0])[0])


@pytest.mark.parametrize("joint", [None, 0, 1])
def test_saved_model_needs_no_directory(tmp_path, joint) -> None:
    directory = save_encoder(tmp_path / "pretrained", "bert", num_hidden_layers=2)
    model, X = make_model(directory, joint, max_pieces=100), make_input()
    model.to_disk(tmp_path / "saved")
    shutil.rmtree(directory)
    expected, _ = read(model, X, [0, 4, 11])
    other = build_pair_encoder("no/such/place", joint_layers=joint)
    loaded = other.from_disk(tmp_path / "saved")
    assert np.array_equal(read(loaded, X, [0, 4, 11])[0], expected)
    assert pair_shim(loaded).joint_layers == joint and loaded.two_sided == (joint != 0)


def test_a_model_of_before_there_was_a_choice_reads_all_layers_together(deep_bert) -> None:
    model, X = make_model(deep_bert, None), make_input()
    saved = srsly.msgpack_loads(model.to_bytes())
    ((shim,),) = saved["shims"]
    parts = srsly.msgpack_loads(shim)
    settings = srsly.json_loads(parts["settings"])
    assert settings.pop("joint_layers", "there") is None
    parts["settings"] = srsly.json_dumps(settings)
    saved["shims"] = [[srsly.msgpack_dumps(parts)]]
    loaded = build_pair_encoder("nowhere", joint_layers=1).from_bytes(srsly.msgpack_dumps(saved))
    np.testing.assert_array_equal(read(loaded, X, [0, 7])[0], read(model, X, [0, 7])[0])
