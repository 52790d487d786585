"""Question and sentence as one input of a pretrained encoder, through all its layers."""

import shutil
from typing import List

import numpy as np
import pytest
import spacy
import torch
from encoders import TEXTS, WIDTH, save_encoder
from pairs import QUESTIONS, make_input, read
from spacy.tokens import Doc
from spacy.util import registry
from thinc.api import Adam

from spacy_nested_ner.encoders.pair_encoder import build_pair_encoder, pair_shim
from spacy_nested_ner.encoders.piece_windows import cut_long
from spacy_nested_ner.encoders.protocol import PairInput
from spacy_nested_ner.model.pairs import all_pairs

transformers = pytest.importorskip("transformers")


def make_model(directory: str, **settings):
    """All layers read question and sentence together."""
    torch.manual_seed(0)
    model = build_pair_encoder(directory, joint_layers=None, **settings)
    model.initialize()
    return model


def expected_vectors(directory: str, question: str, doc: Doc, offsets: np.ndarray) -> np.ndarray:
    """Hugging Face's own call on the two texts: first and last piece of each word."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    encoder = transformers.AutoModel.from_pretrained(directory).eval()
    coded = tokenizer(question, " ".join(token.text for token in doc), return_tensors="pt")
    in_sentence = np.array([part == 1 for part in coded.sequence_ids(0)])
    assert in_sentence.sum() == offsets[-1]
    with torch.no_grad():
        pieces = encoder(**coded).last_hidden_state[0].numpy()[in_sentence]
    return np.concatenate([pieces[offsets[:-1]], pieces[offsets[1:] - 1]], axis=1)


def test_words_are_first_and_last_piece_of_the_pair(directory) -> None:
    model, X = make_model(directory), make_input()
    words, mask = read(model, X, list(range(len(X.pairs))))
    assert words.shape == (12, 16, 2 * WIDTH) and model.get_dim("nO") == 2 * WIDTH
    for i, (segment, question) in enumerate(X.pairs):
        doc = X.docs[segment]
        assert mask[i].tolist() == [j < len(doc) for j in range(16)]
        _, offsets = pair_shim(model).tokenise([doc])[0]
        expected = expected_vectors(directory, QUESTIONS[question], doc, offsets)
        np.testing.assert_allclose(words[i, : len(doc)], expected, atol=1e-5)


def test_a_pair_does_not_depend_on_its_batch(directory) -> None:
    model, X = make_model(directory, max_pieces=70), make_input()
    together, mask = read(model, X, [0, 11, 5, 9])
    for row, i in enumerate([0, 11, 5, 9]):
        alone, _ = read(model, X, [i])
        np.testing.assert_allclose(together[row][mask[row]], alone[0], atol=1e-5)


def test_segment_ids_where_the_encoder_has_them(directory) -> None:
    shim = pair_shim(make_model(directory))
    question, sentence = np.array([7, 8, 9]), np.array([10, 11])
    ids, types, mask = shim.pad([(question, sentence), (question[:1], sentence[:1])])
    cls, sep, pad = (shim.special[name] for name in ("cls", "sep", "pad"))
    if shim.config["type_vocab_size"] > 1:
        assert ids.tolist() == [
            [cls, 7, 8, 9, sep, 10, 11, sep],
            [cls, 7, sep, 10, sep] + [pad] * 3,
        ]
        assert types.tolist() == [[0] * 5 + [1] * 3, [0] * 3 + [1] * 2 + [0] * 3]
    else:
        assert ids.tolist()[0] == [cls, 7, 8, 9, sep, sep, 10, 11, sep]
        assert not types.any()
    assert mask.sum(1).tolist() == [len(ids[0]), len(ids[0]) - 3]


def test_a_long_sentence_is_read_in_windows(bert) -> None:
    """Every word has a vector: that of the window in which it is most central."""
    X = make_input([" ".join(TEXTS)])._replace(questions=["genes", "cell", "who"])
    model = make_model(bert, max_pieces=30)
    shim = pair_shim(model)
    question = shim.question("cell")
    ids, offsets = shim.tokenise(X.docs)[0]
    room = shim.room(question)
    bounds, joint = cut_long(np.diff(offsets), room)
    assert len(bounds) > 5 and room < 30
    words, mask = read(model, X, [1])
    assert mask.all() and words.shape[1] == len(X.docs[0])
    read_ids, types, seen = (
        torch.from_numpy(a).to(shim.piece_embeddings.device)
        for a in shim.pad([(question, ids[a:b]) for a, b in bounds])
    )
    with torch.no_grad():
        states = shim.module(read_ids, attention_mask=seen.long(), token_type_ids=types)[0].cpu()
    pieces = np.concatenate(
        [states[k, shim.skip(question) :][: b - a] for k, (a, b) in enumerate(bounds)]
    )[joint.chosen]
    expected = np.concatenate([pieces[offsets[:-1]], pieces[offsets[1:] - 1]], axis=1)
    np.testing.assert_allclose(words[0], expected, atol=1e-5)
    lengths = model.predict(X).lengths
    assert lengths[1] == sum(b - a + len(question) + 3 for a, b in bounds)


def test_an_endless_word_has_its_first_and_its_last_piece(bert) -> None:
    model = make_model(bert, max_pieces=24)
    X = make_input(["a " + "x" * 100 + " b"])._replace(questions=["genes", "cell", "who"])
    words, _ = read(model, X, [1])
    assert (np.abs(words[0]).max(axis=1) > 0).all()
    assert not np.allclose(words[0, 1, :WIDTH], words[0, 1, WIDTH:])


def test_words_without_pieces_have_zeros(bert) -> None:
    vocab = spacy.blank("en").vocab
    docs = [Doc(vocab, words=["T", "\n\n", "cells"]), Doc(vocab, words=["\n"])]
    X = PairInput(docs, np.array([(0, 0, 3), (1, 0, 1)]), QUESTIONS[:1], all_pairs(2, 1))
    words, mask = read(make_model(bert), X, [0, 1])
    assert mask.tolist() == [[True] * 3, [True, False, False]]
    assert (np.abs(words).max(axis=2) > 0).tolist() == [[True, False, True], [False] * 3]


def test_a_question_that_leaves_no_room_is_an_error(bert) -> None:
    model = make_model(bert, max_pieces=24)
    X = make_input()._replace(questions=["word " * 20] * 3)
    with pytest.raises(ValueError, match=r"PairEncoder.*'word word.*shorter question"):
        model.predict(X)


def test_nothing_is_encoded_before_it_is_read(bert) -> None:
    model, X = make_model(bert), make_input()
    seen: List[int] = []
    pair_shim(model).module.embeddings.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(len(kwargs["input_ids"])), with_kwargs=True
    )
    reading = model.predict(X)
    assert not seen
    reading.read(np.array([0, 3]))
    assert seen == [2]


def test_questions_are_tokenised_once(bert) -> None:
    model = make_model(bert)
    shim = pair_shim(model)
    model.predict(make_input())
    pieces = [shim.question(text) for text in QUESTIONS]
    model.predict(make_input())
    assert all(shim.question(text) is known for text, known in zip(QUESTIONS, pieces))
    model.initialize()  # another tokenizer, perhaps
    assert not any(shim.question(text) is known for text, known in zip(QUESTIONS, pieces))


def test_gradients_reach_the_whole_encoder(directory) -> None:
    model, X = make_model(directory), make_input()
    reading, backprop = model(X, is_train=True)
    words, mask = reading.read(np.arange(len(X.pairs)))
    (words * mask.unsqueeze(-1)).square().sum().backward()
    assert backprop() == []
    module = pair_shim(model).module
    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    assert all(p.grad is not None and p.grad.isfinite().all() for p in module.parameters())
    model.finish_update(Adam(0.01))
    assert all(
        not torch.equal(p, before[name]) or ("bias" in name and ".key." in name)
        for name, p in module.named_parameters()
    )
    assert not module.training


def test_mixed_precision_is_for_training_only(directory) -> None:
    X = make_input()
    model = make_model(directory, mixed_precision=True)
    seen = []
    layer = pair_shim(model).module.encoder.layer[0].output.dense
    layer.register_forward_hook(lambda *args: seen.append(args[2].dtype))
    read(model, X, [0, 4])
    words, _ = model(X, is_train=True)[0].read(np.array([0, 4]))
    assert seen == [torch.float32, torch.bfloat16] and words.dtype == torch.float32
    words.sum().backward()
    assert layer.weight.grad.any() and layer.weight.dtype == torch.float32


@pytest.mark.parametrize("mixed", [False, True])
def test_gradient_checkpointing_keeps_less_for_the_same_gradients(directory, mixed) -> None:
    X = make_input()
    kept, gradients = [], []
    for checkpointing in (False, True):
        model = make_model(directory, gradient_checkpointing=checkpointing, mixed_precision=mixed)
        sizes: List[int] = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda tensor, sizes=sizes: sizes.append(tensor.numel()) or tensor,
            lambda tensor: tensor,
        ):
            torch.manual_seed(1)  # of the dropout, the same when a layer is computed again
            words, _ = model(X, is_train=True)[0].read(np.array([0, 4]))
        kept.append(sum(sizes))
        words.cos().sum().backward()
        parameters = pair_shim(model).module.named_parameters()
        gradients.append({name: p.grad for name, p in parameters if p.grad is not None})
    assert kept[1] < kept[0] / 3
    torch.testing.assert_close(gradients[1], gradients[0])
    model.predict(X)
    assert not pair_shim(model).module.is_gradient_checkpointing


def test_frozen_encoder_does_not_learn(directory) -> None:
    X = make_input()
    model = make_model(directory, frozen=True)
    words, _ = model(X, is_train=True)[0].read(np.array([0, 4]))
    assert not words.requires_grad
    np.testing.assert_array_equal(words.cpu().numpy(), read(model, X, [0, 4])[0])


def test_saved_model_needs_no_directory(tmp_path) -> None:
    directory = save_encoder(tmp_path / "pretrained", "bert")
    model, X = make_model(directory, max_pieces=100), make_input()
    model.to_disk(tmp_path / "saved")
    shutil.rmtree(directory)
    expected, _ = read(model, X, [0, 4, 11])
    for loaded in (
        build_pair_encoder("no/such/place").from_disk(tmp_path / "saved"),
        build_pair_encoder("no/such/place").from_bytes(model.to_bytes()),
    ):
        assert np.array_equal(read(loaded, X, [0, 4, 11])[0], expected)
        assert pair_shim(loaded).max_pieces == 100 and loaded.get_dim("nO") == 2 * WIDTH
    assert b"torch._utils" not in model.to_bytes()


def test_a_saved_configuration_names_no_code(directory) -> None:
    """It may be a stranger's."""
    model, X = make_model(directory), make_input()
    expected, _ = read(model, X, [0, 4])
    shim = pair_shim(model)
    shim.config.update(
        attn_implementation="stranger/kernel:fn", auto_map={"AutoModel": "stranger/code--m.M"}
    )
    loaded = build_pair_encoder("nowhere").from_bytes(model.to_bytes())
    assert np.array_equal(read(loaded, X, [0, 4])[0], expected)
    shim.config["model_type"] = "gpt2"
    with pytest.raises(ValueError, match=r"PairEncoder\.v1: the saved encoder is .* type 'gpt2'"):
        build_pair_encoder("nowhere").from_bytes(model.to_bytes())


def test_errors_name_this_encoder(tmp_path) -> None:
    model = build_pair_encoder(str(tmp_path / "gone"))
    with pytest.raises(ValueError, match=r"PairEncoder\.v1.*there is no directory"):
        model.initialize()
    with pytest.raises(ValueError, match="no weights yet"):
        model.predict(make_input())
    with pytest.raises(ValueError, match="max_pieces"):
        build_pair_encoder("anywhere", max_pieces=3)


def test_registered() -> None:
    assert registry.architectures.get("spacy_nested_ner.PairEncoder.v1") is build_pair_encoder
