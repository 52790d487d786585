import json
import pickle
import shutil
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
import spacy
import torch
from encoders import TEXTS, WIDTH, pooled_by_hand, save_encoder
from spacy.tokens import Doc
from spacy.util import registry
from thinc.api import Adam, Linear
from thinc.util import to_numpy

from spacy_nested_ner.encoders.piece_windows import (
    cut_windows,
    overlapping_windows,
)
from spacy_nested_ner.encoders.query_encoder import (
    build_query_encoder,
    encoder_shim,
    query_shim,
)
from spacy_nested_ner.model.architectures import make_architecture
from spacy_nested_ner.systems import get_system
from tests.conftest import make_examples, make_pipeline

transformers = pytest.importorskip("transformers")

N_QUERIES = 5


@pytest.fixture(scope="module")
def roberta(tmp_path_factory) -> str:
    return save_encoder(tmp_path_factory.mktemp("encoder") / "roberta", "roberta")


def make_model(directory: str, **settings):
    torch.manual_seed(0)
    model = build_query_encoder(directory, n_queries=N_QUERIES, **settings)
    model.initialize()
    return model


def make_docs(texts=TEXTS):
    vocab = spacy.blank("en").vocab
    return [Doc(vocab, words=text.split(" ")) for text in texts]


def whole(docs) -> np.ndarray:
    return np.array([(i, 0, len(doc)) for i, doc in enumerate(docs)])


def words_without_queries(directory: str, doc: Doc, how: str) -> np.ndarray:
    """Hugging Face's own forward pass on the text of the doc, pooled in a plain loop."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    encoder = transformers.AutoModel.from_pretrained(directory).eval()
    text = " ".join(token.text for token in doc)
    coded = tokenizer(text, return_offsets_mapping=True, return_tensors="pt")
    places = coded.pop("offset_mapping")[0].tolist()
    with torch.no_grad():
        states = encoder(**coded).last_hidden_state[0].numpy()
    pool = {"max": lambda s: s.max(0), "mean": lambda s: s.mean(0), "first": lambda s: s[0]}[how]
    return np.array(pooled_by_hand(doc, places, states, pool))


# Words


@pytest.mark.parametrize("how", ["max", "mean", "first"])
def test_words_equal_those_of_the_encoder_without_queries(directory, how):
    docs = make_docs()
    model = make_model(directory, word_pooling=how)
    words, queries = model.predict((docs, whole(docs)))
    expected = np.concatenate([words_without_queries(directory, doc, how) for doc in docs])
    assert queries.shape == (len(docs), N_QUERIES, WIDTH)
    assert model.get_dim("nO") == WIDTH and model.attrs["n_queries"] == N_QUERIES
    np.testing.assert_allclose(words, expected, atol=1e-5)


def test_queries_change_no_word(directory):
    docs = make_docs()
    model = make_model(directory)
    words, queries = model.predict((docs, whole(docs)))
    tables = query_shim(model).module
    with torch.no_grad():
        for parameter in tables.parameters():
            parameter.add_(torch.randn_like(parameter))
    words_after, queries_after = model.predict((docs, whole(docs)))
    assert np.array_equal(words_after, words)
    assert np.abs(queries_after - queries).max() > 0.1


def test_queries_depend_on_words_positions_and_each_other(bert):
    docs = make_docs()
    model = make_model(bert)
    _, queries = model.predict((docs, whole(docs)))
    assert np.abs(queries[0] - queries[1]).max() > 0.01
    alone = make_model(bert, query_interaction=False)
    for shim in (query_shim, encoder_shim):
        shim(alone).module.load_state_dict(shim(model).module.state_dict())
    _, unseen = alone.predict((docs, whole(docs)))
    assert np.abs(queries - unseen).max() > 1e-4
    for each, lonely in ((model, False), (alone, True)):
        _, before = each.predict((docs, whole(docs)))
        with torch.no_grad():
            position = query_shim(each).module.position
            position[0] += torch.randn_like(position[0])
        _, after = each.predict((docs, whole(docs)))
        assert np.abs(after[:, 0] - before[:, 0]).max() > 1e-3
        assert np.array_equal(after[:, 1:], before[:, 1:]) == lonely


def test_spaces_reach_the_pieces_of_roberta(roberta):
    model = make_model(roberta)
    vocab = spacy.blank("en").vocab
    apart = Doc(vocab, words=["T", "cells"], spaces=[True, False])
    together = Doc(vocab, words=["T", "cells"], spaces=[False, False])
    (first, _), (second, _) = encoder_shim(model).tokenise([apart, together])
    tokenizer = transformers.AutoTokenizer.from_pretrained(roberta)
    assert first.tolist() == tokenizer("T cells", add_special_tokens=False)["input_ids"]
    assert first.tolist() != second.tolist()


def test_special_tokens_in_a_text_are_text(directory):
    model = make_model(directory)
    shim = encoder_shim(model)
    [(pieces, _)] = shim.tokenise(make_docs(["a [SEP] </s> <pad> [PAD] b"]))
    assert not set(pieces.tolist()) & set(shim.special.values())


def test_words_without_pieces_have_zeros(bert):
    vocab = spacy.blank("en").vocab
    docs = [Doc(vocab, words=["T", "\n\n", "cells"]), Doc(vocab, words=["\n"]), Doc(vocab)]
    for how in ("max", "mean", "first"):
        model = make_model(bert, word_pooling=how)
        words, queries = model.predict((docs, whole(docs)))
        assert words.shape == (4, WIDTH) and queries.shape == (3, N_QUERIES, WIDTH)
        assert (np.abs(words).max(axis=1) > 0).tolist() == [True, False, True, False]
        assert np.isfinite(queries).all()


def test_no_segments(bert):
    model = make_model(bert)
    (words, queries), backprop = model((make_docs(), np.zeros((0, 3), dtype=int)), is_train=True)
    assert words.shape == (0, WIDTH) and queries.shape == (0, N_QUERIES, WIDTH)
    assert backprop((words, queries)) == []


# Segments, context and batches


def some_segments(docs) -> np.ndarray:
    halves = [
        (i, *half) for i, d in enumerate(docs) for half in ((0, len(d)), (len(d) // 2, len(d)))
    ]
    return np.array(halves)


def cut(shim, docs, segments, context=0):
    pieces = shim.pieces_of_segments(docs, segments)
    return cut_windows(pieces, segments, context, shim.max_pieces - 2)


@pytest.mark.parametrize("context", [0, 2])
def test_a_segment_does_not_depend_on_its_batch(directory, context):
    docs = make_docs()
    segments = some_segments(docs)
    model = make_model(directory, context=context)
    words, queries = model.predict((docs, segments))
    ends = np.cumsum(segments[:, 2] - segments[:, 1])
    order = np.random.default_rng(0).permutation(len(segments))
    for batch_pieces in (1, 40, 10_000):
        model.attrs["batch_pieces"] = batch_pieces
        shuffled_words, shuffled_queries = model.predict((docs, segments[order]))
        np.testing.assert_allclose(shuffled_queries, queries[order], atol=1e-5)
        expected = np.concatenate(
            [words[ends[i] - np.ptp(segments[i, 1:]) : ends[i]] for i in order]
        )
        np.testing.assert_allclose(shuffled_words, expected, atol=1e-5)
    for i, row in enumerate(segments):
        _, alone = model.predict((docs, row[None]))
        np.testing.assert_allclose(alone[0], queries[i], atol=1e-5)


def test_context_is_encoded_and_dropped(directory):
    [doc] = make_docs([TEXTS[3]])
    everything, _ = make_model(directory).predict(([doc], whole([doc])))
    segment = np.array([(0, 4, 7)])
    with_context, _ = make_model(directory, context=50).predict(([doc], segment))
    np.testing.assert_allclose(with_context, everything[4:7], atol=1e-5)
    for context in (0, 2):
        words, _ = make_model(directory, context=context).predict(([doc], segment))
        assert words.shape == (3, WIDTH)
        assert np.abs(words - with_context).max() > 1e-3


def test_marked_segment_has_token_type_1(bert, roberta):
    [doc] = make_docs([TEXTS[0]])
    shim = encoder_shim(make_model(bert))
    [window], _ = cut(shim, [doc], np.array([(0, 1, 3)]), context=1)
    before, inside = window.first, int(window.counts.sum())
    ids, mask, own = shim.pad_windows([window])
    expected = [False] * (1 + before) + [True] * inside
    assert before > 0 and mask.all()
    assert own[0].tolist() == expected + [False] * (ids.shape[1] - len(expected))
    segment = np.array([(0, 1, 3)])
    plain, marked = (
        make_model(bert, mark_segment=m).predict(([doc], segment)) for m in (False, True)
    )
    assert np.abs(plain[0] - marked[0]).max() > 1e-3
    with pytest.raises(ValueError, match="mark_segment"):
        make_model(roberta, mark_segment=True)


def test_sentences_in_each_others_context_have_queries_of_their_own(directory):
    [doc] = make_docs([f"{TEXTS[1]} {TEXTS[0]}"])
    end = len(TEXTS[1].split())
    model = make_model(directory, context=32, mark_segment=False)
    segments = np.array([(0, 0, end), (0, end, len(doc))])
    windows, _ = cut(encoder_shim(model), [doc], segments, context=32)
    assert np.array_equal(windows[0].ids, windows[1].ids)
    _, (first, second) = model.predict(([doc], segments))
    assert np.abs(first - second).max() > 0.01


def test_queries_hear_of_the_context_through_the_words_only(bert):
    """In the first layer the words give their queries what they are themselves."""
    one, other = make_docs([f"{TEXTS[1]} {TEXTS[0]}", f"{TEXTS[1]} {TEXTS[3]}"])
    segment = np.array([(0, 0, len(TEXTS[1].split()))])
    model = make_model(bert, context=32)
    encoder = encoder_shim(model).module
    layers = encoder.layers
    for n_layers, same in ((1, True), (2, False)):
        encoder.layers = layers[:n_layers]
        words, first = model.predict(([one], segment))
        other_words, second = model.predict(([other], segment))
        assert np.abs(words - other_words).max() > 1e-3
        assert np.allclose(first, second, atol=1e-6) == same


def test_context_shrinks_before_a_segment_is_too_long(bert):
    [doc] = make_docs([TEXTS[3]])
    model = make_model(bert, max_pieces=30)
    shim = encoder_shim(model)
    _, offsets = shim.tokenise([doc])[0]
    assert offsets[-1] > 28
    [window], _ = cut(shim, [doc], np.array([(0, 5, 6)]), context=50)
    assert int(window.counts.sum()) < len(window.ids) <= 28
    words, _ = model.predict(([doc], np.array([(0, 5, 6)])))
    assert np.isfinite(words).all()


# Segments with more pieces than the encoder takes

ROOM = 18
# Words of one to many pieces, among them some with more than half of a window's.
LONG = " ".join([TEXTS[3], TEXTS[0], "gene-gene-gene-gene", TEXTS[1], "T", TEXTS[3]])
ENDLESS = "".join(f"NF-kappa{i}/" for i in range(2_000))[:20_000]


def make_short_model(directory: str, **settings):
    """An encoder that takes `ROOM` pieces beside its two special ones."""
    return make_model(directory, max_pieces=ROOM + 2, **settings)


def long_docs():
    return make_docs([LONG, "gene " + ENDLESS[:60] + " in \n\n cells", "T cells"])


def most_central_piece_states(encoder, shim, ids, offsets):
    """`(pieces, h)` by Hugging Face's own forward pass over windows, word by word."""
    units = [(int(a), int(b)) for a, b in pairwise(offsets) if b > a]
    split = [[(a, b)] if b - a <= ROOM else [(i, i + 1) for i in range(a, b)] for a, b in units]
    units = [unit for parts in split for unit in parts]
    cuts = np.array([0, *(end for _, end in units)])
    windows = overlapping_windows(cuts, ROOM)
    states = []
    for begin, end in windows:
        special = shim.special
        window = [special["cls"], *ids[begin:end].tolist(), special["sep"]]
        with torch.no_grad():
            states.append(encoder(torch.tensor([window])).last_hidden_state[0, 1:-1].numpy())
    rows = []
    for start, end in units:
        margins = [min(start - a, b - end) for a, b in windows]
        best = int(np.argmax(margins))
        assert margins[best] >= 0
        rows.append(states[best][start - windows[best][0] : end - windows[best][0]])
    return np.concatenate(rows), len(windows)


@pytest.mark.parametrize("how", ["max", "mean", "first"])
def test_words_of_a_long_segment_equal_those_of_the_encoder_in_windows(directory, how):
    docs = long_docs()
    model = make_short_model(directory, word_pooling=how)
    shim = encoder_shim(model)
    encoder = transformers.AutoModel.from_pretrained(directory).eval()
    pool = {"max": lambda s: s.max(0), "mean": lambda s: s.mean(0), "first": lambda s: s[0]}[how]
    expected = []
    for doc, (ids, offsets) in zip(docs, shim.tokenise(docs)):
        states, n_windows = most_central_piece_states(encoder, shim, ids, offsets)
        assert (n_windows > 2) == (len(doc) > 2)
        for begin, end in pairwise(offsets):
            expected.append(pool(states[begin:end]) if end > begin else np.zeros(WIDTH))
    words, _ = model.predict((docs, whole(docs)))
    np.testing.assert_allclose(words, np.array(expected), atol=1e-5)


def test_queries_of_a_long_segment_are_the_mean_of_its_windows(bert):
    """Of words of one piece, so that each window can be given as a segment of its own."""
    model = make_short_model(bert)
    vocab = spacy.blank("en").vocab
    doc = Doc(vocab, words=[TEXTS[2]] * 45)
    _, queries = model.predict(([doc], whole([doc])))
    windows = [(0, 18), (9, 27), (18, 36), (27, 45)]
    _, asked = model.predict(([doc], np.array([(0, *window) for window in windows])))
    # Pieces up to 13.5, 22.5 and 31.5 belong to the first, the second and the third.
    shares = np.array([14, 9, 9, 13])
    by_hand = (to_numpy(asked) * shares[:, None, None]).sum(0) / 45
    np.testing.assert_allclose(queries[0], by_hand, atol=1e-5)


def test_a_segment_that_fits_does_not_see_that_others_are_long(directory):
    docs = [*make_docs([TEXTS[2], "The human T"]), *long_docs()]
    model = make_short_model(directory)
    for i in range(2):
        alone_words, alone_queries = model.predict((docs[i : i + 1], whole(docs[i : i + 1])))
        words, queries = model.predict((docs, whole(docs)))
        begin = sum(len(doc) for doc in docs[:i])
        np.testing.assert_allclose(words[begin : begin + len(docs[i])], alone_words, atol=1e-5)
        np.testing.assert_allclose(queries[i], alone_queries[0], atol=1e-5)


def test_a_segment_of_just_the_limit_is_one_window(bert):
    model = make_short_model(bert)
    vocab = spacy.blank("en").vocab
    docs = [Doc(vocab, words=[TEXTS[2]] * n) for n in (ROOM, ROOM + 1)]
    windows, joints = cut(encoder_shim(model), docs, whole(docs))
    assert [len(window.ids) for window in windows] == [ROOM, ROOM, ROOM] and set(joints) == {1}
    words, _ = model.predict((docs, whole(docs)))
    expected = words_without_queries(bert, docs[0], "max")
    np.testing.assert_allclose(words[:ROOM], expected, atol=1e-5)


def test_a_long_segment_does_not_depend_on_its_batch(directory):
    docs = [*long_docs(), *make_docs([TEXTS[3]])]
    segments = np.array([(0, 0, len(docs[0])), (0, 3, 20), *whole(docs)[1:]])
    model = make_short_model(directory, context=2)
    words, queries = model.predict((docs, segments))
    ends = np.cumsum(segments[:, 2] - segments[:, 1])
    for batch_pieces in (1, 100_000):
        model.attrs["batch_pieces"] = batch_pieces
        for i, row in enumerate(segments):
            alone_words, alone_queries = model.predict((docs, row[None]))
            mine = words[ends[i] - (row[2] - row[1]) : ends[i]]
            np.testing.assert_allclose(alone_words, mine, atol=1e-5)
            np.testing.assert_allclose(alone_queries[0], queries[i], atol=1e-5)


def test_a_token_of_20_000_characters_is_read_to_its_end(roberta):
    vocab = spacy.blank("en").vocab
    model = make_model(roberta)
    docs = [Doc(vocab, words=["the", ENDLESS[:-1] + end, "gene"]) for end in "ab"]
    (_, offsets), _ = encoder_shim(model).tokenise(docs)
    assert len(ENDLESS) == 20_000 and np.diff(offsets).max() > 10 * 510
    model.attrs["word_pooling"] = "mean"
    words, queries = model.predict((docs, whole(docs)))
    assert words.shape == (6, WIDTH) and np.isfinite(words).all() and np.isfinite(queries).all()
    # The two differ in the last character of the long token.
    assert np.abs(words[1] - words[4]).max() > 1e-5


def test_all_windows_of_a_long_segment_are_its_own(bert):
    model = make_short_model(bert)
    shim = encoder_shim(model)
    docs = make_docs([LONG])
    windows, _ = cut(shim, docs, whole(docs))
    _, mask, own = shim.pad_windows(windows)
    assert len(windows) > 2 and (own.sum(1) == mask.sum(1) - 2).all()


def test_gradients_of_a_long_segment_reach_all_of_it(directory):
    docs = long_docs()
    model = make_short_model(directory, word_pooling="mean")
    encoder, queries = encoder_shim(model).module, query_shim(model).module
    for what in ("words", "queries"):
        (words, asked), backprop = model((docs, whole(docs)), is_train=True)
        d_words, d_asked = np.zeros_like(words), np.zeros_like(asked)
        chosen = d_words if what == "words" else d_asked
        chosen[...] = model.ops.asarray(np.random.default_rng(0).normal(size=chosen.shape))
        backprop((d_words, d_asked))
        read = set(np.concatenate([ids for ids, _ in encoder_shim(model).tokenise(docs)]).tolist())
        gradient = encoder.embeddings.word_embeddings.weight.grad
        assert all(torch.isfinite(gradient[i]).all() and gradient[i].any() for i in read)
        for name, parameter in (*encoder.named_parameters(), *queries.named_parameters()):
            assert parameter.grad is None or torch.isfinite(parameter.grad).all(), name
        asking = queries.content.grad
        assert (asking is not None and bool(asking.any())) == (what == "queries")
        encoder.zero_grad()
        queries.zero_grad()


# Training


def test_gradients_reach_encoder_and_queries(directory):
    docs = make_docs()
    model = make_model(directory, query_type_embedding=True)
    (words, queries), backprop = model((docs, whole(docs)), is_train=True)
    assert backprop((np.ones_like(words), np.zeros_like(queries))) == []
    for name, parameter in query_shim(model).module.named_parameters():
        assert parameter.grad is None or not parameter.grad.any(), name
    (words, queries), backprop = model((docs, whole(docs)), is_train=True)
    backprop((np.zeros_like(words), queries))
    modules = (encoder_shim(model).module, query_shim(model).module)
    before = [{n: p.detach().clone() for n, p in m.named_parameters()} for m in modules]
    for module in modules:
        for name, parameter in module.named_parameters():
            assert parameter.grad is not None and torch.isfinite(parameter.grad).all(), name
    model.finish_update(Adam(0.01))
    for module, old in zip(modules, before):
        for name, parameter in module.named_parameters():
            assert parameter.grad is None
            unused = "bias" in name and ".key." in name
            assert unused or not torch.equal(parameter, old[name]), name


def test_gradients_are_those_of_finite_differences(bert):
    docs = make_docs(TEXTS[:2])
    model = make_model(bert)
    for shim in (encoder_shim(model), query_shim(model)):
        for module in shim.module.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
    encoder_shim(model).module.attention_dropout = 0.0
    (words, queries), backprop = model((docs, whole(docs)), is_train=True)
    rng = np.random.default_rng(0)
    drawn = [rng.normal(size=a.shape).astype("f") for a in (words, queries)]
    d_words, d_queries = (model.ops.asarray(array) for array in drawn)
    backprop((d_words, d_queries))
    moved = {
        "words": encoder_shim(model).module.embeddings.LayerNorm.bias,
        "content": query_shim(model).module.content,
        "position": query_shim(model).module.position,
    }
    for name, parameter in moved.items():
        step = torch.sign(parameter.grad) * 3e-4
        slope = float((parameter.grad * step).sum())
        losses = []
        for sign in (1, -1):
            with torch.no_grad():
                parameter.add_(sign * step)
            after_words, after_queries = model.predict((docs, whole(docs)))
            losses.append(float((after_words * d_words).sum() + (after_queries * d_queries).sum()))
            with torch.no_grad():
                parameter.sub_(sign * step)
        assert (losses[0] - losses[1]) / 2 == pytest.approx(slope, rel=0.05), name


def test_dropout_is_for_training_only(directory):
    docs = make_docs()
    model = make_model(directory)
    words, queries = model.predict((docs, whole(docs)))
    (noisy_words, noisy_queries), _ = model((docs, whole(docs)), is_train=True)
    assert np.abs(noisy_words - words).max() > 1e-3
    assert np.abs(noisy_queries - queries).max() > 1e-3
    again_words, again_queries = model.predict((docs, whole(docs)))
    assert np.array_equal(again_words, words) and np.array_equal(again_queries, queries)
    assert not encoder_shim(model).module.training and not query_shim(model).module.training


def test_averaged_weights_are_used(bert):
    docs = make_docs()
    model = make_model(bert)
    words, queries = model.predict((docs, whole(docs)))
    shims = (encoder_shim(model), query_shim(model))
    averages = {
        (shim.id, name): np.zeros(tuple(parameter.shape), dtype="f")
        for shim in shims
        for name, parameter in shim.module.named_parameters()
    }
    with model.use_params(averages):
        inside_words, inside_queries = model.predict((docs, whole(docs)))
        assert not inside_words.any() and not inside_queries.any()
    after_words, after_queries = model.predict((docs, whole(docs)))
    assert np.array_equal(after_words, words) and np.array_equal(after_queries, queries)


def test_initialising_again_reads_the_pretrained_weights_again(bert):
    docs = make_docs()
    model = make_model(bert)
    words, _ = model.predict((docs, whole(docs)))
    keys = [encoder_shim(model).id, query_shim(model).id]
    with torch.no_grad():
        encoder_shim(model).module.embeddings.LayerNorm.bias.add_(1.0)
    model.initialize()
    assert np.array_equal(model.predict((docs, whole(docs)))[0], words)
    assert not {encoder_shim(model).id, query_shim(model).id} & set(keys)


# Saving


def assert_same_output(model, other):
    docs = make_docs()
    for found, expected in zip(
        other.predict((docs, whole(docs))), model.predict((docs, whole(docs)))
    ):
        assert np.array_equal(found, expected)


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_saved_model_needs_no_directory(tmp_path, kind):
    directory = save_encoder(tmp_path / "pretrained", kind)
    model = make_model(
        directory, max_pieces=100, query_type_embedding=False, query_interaction=False
    )
    with torch.no_grad():
        for shim in (encoder_shim(model), query_shim(model)):
            for parameter in shim.module.parameters():
                parameter.add_(0.01 * torch.randn_like(parameter))
    model.to_disk(tmp_path / "saved")
    shutil.rmtree(directory)
    same = {"n_queries": N_QUERIES}
    from_disk = build_query_encoder(directory, **same).from_disk(tmp_path / "saved")
    from_bytes = build_query_encoder("no/such/place", **same).from_bytes(model.to_bytes())
    for loaded in (from_disk, from_bytes):
        assert_same_output(model, loaded)
        assert len(list(loaded.walk())) == len(list(model.walk())) == 2
        assert encoder_shim(loaded).max_pieces == 100
        assert loaded.get_dim("nO") == WIDTH
        assert loaded.to_bytes() == model.to_bytes()


def test_model_without_weights_can_be_saved_and_says_so_when_used(bert):
    model = build_query_encoder(bert)
    loaded = build_query_encoder(bert).from_bytes(model.to_bytes())
    with pytest.raises(ValueError, match=r"no weights yet.*nlp.initialize"):
        loaded.predict((make_docs(), whole(make_docs())))
    loaded.initialize()


def test_pickle_and_copy(directory):
    model = make_model(directory)
    assert_same_output(model, pickle.loads(pickle.dumps(model)))
    assert_same_output(model, model.copy())


def test_tokenizer_neither_cuts_nor_pads(tmp_path):
    directory = save_encoder(tmp_path / "pretrained", "bert")
    path = tmp_path / "pretrained" / "tokenizer.json"
    saved = json.loads(path.read_text(encoding="utf8"))
    saved["truncation"] = {
        "direction": "Right",
        "max_length": 4,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    path.write_text(json.dumps(saved), encoding="utf8")
    docs = make_docs()
    words, _ = make_model(directory).predict((docs, whole(docs)))
    assert len(words) == sum(len(doc) for doc in docs)
    assert (np.abs(words).max(axis=1) > 0).all()


# Errors and registration


def test_missing_directory(tmp_path):
    missing = str(tmp_path / "gone")
    model = build_query_encoder(missing)
    with pytest.raises(ValueError) as error:
        model.initialize()
    for told in ("spacy_nested_ner.QueryEncoder.v1", missing, "config.json", "there is no"):
        assert told in str(error.value)


def test_missing_directory_through_a_pipeline(tmp_path):
    """The error tells which setting of the component is wrong and what to do."""
    missing = str(tmp_path / "gone")
    tok2vec = {"@architectures": "spacy_nested_ner.QueryEncoder.v1", "name": missing}
    nlp = make_pipeline(model={"query_source": "encoder", "tok2vec": tok2vec}, examples=None)
    with pytest.raises(ValueError) as error:
        nlp.initialize(lambda: make_examples(nlp))
    for told in (f"'{missing}'", "'name' of the component's tok2vec", "directory with config.json"):
        assert told in str(error.value)


def test_directory_without_weights(tmp_path, bert):
    shutil.copytree(bert, tmp_path / "part")
    (tmp_path / "part" / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="cannot read a pretrained encoder"):
        make_model(str(tmp_path / "part"))


def test_unsupported_models(tmp_path):
    config = transformers.DistilBertConfig(vocab_size=10, dim=8, n_layers=1, n_heads=2)
    config.save_pretrained(tmp_path / "distilbert")
    with pytest.raises(ValueError, match=r"'distilbert'\. Supported are bert, roberta"):
        make_model(str(tmp_path / "distilbert"))
    relative = save_encoder(tmp_path / "bert", "bert", position_embedding_type="relative_key")
    with pytest.raises(ValueError, match="relative_key"):
        make_model(relative)


@pytest.mark.parametrize(
    "settings", [{"n_queries": 0}, {"context": -1}, {"max_pieces": 2}, {"batch_pieces": 0}]
)
def test_settings_out_of_range(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        build_query_encoder("anywhere", **settings)


@pytest.mark.parametrize("in_encoder", [True, False])
def test_interaction_of_queries_is_the_same_in_encoder_and_head(in_encoder):
    encoder = build_query_encoder("anywhere", query_interaction=in_encoder)
    build_piqn = make_architecture(get_system("piqn"))
    build_piqn(encoder, query_source="encoder", query_interaction=in_encoder)
    with pytest.raises(ValueError, match="Set both to the same"):
        build_piqn(encoder, query_source="encoder", query_interaction=not in_encoder)


@pytest.mark.parametrize(
    ("encoder", "source"),
    [(build_query_encoder("anywhere"), "words"), (Linear(), "encoder")],
)
def test_queries_of_the_encoder_and_a_head_that_reads_them_need_each_other(encoder, source):
    together = r"'encoder' and the tok2vec .*QueryEncoder.* can only be used together"
    with pytest.raises(ValueError, match=together):
        make_architecture(get_system("piqn"))(encoder, query_source=source)


def test_limit_of_pieces(bert, roberta):
    assert encoder_shim(make_model(bert)).max_pieces == 512
    assert encoder_shim(make_model(roberta)).max_pieces == 512
    with pytest.raises(ValueError, match="max_pieces is 513"):
        make_model(roberta, max_pieces=513)


def test_queries_node_cannot_be_called(bert):
    model = make_model(bert)
    with pytest.raises(ValueError, match="'instance_queries' has no input"):
        model.get_ref("queries").predict(None)


def test_registered_and_cheap_to_import():
    assert registry.architectures.get("spacy_nested_ner.QueryEncoder.v1") is build_query_encoder
    code = (
        "import sys, spacy_nested_ner.encoders.query_encoder;"
        "sys.exit('transformers' in sys.modules or 'tokenizers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
