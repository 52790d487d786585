import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import spacy
import torch
from hypothesis import given
from hypothesis import strategies as st
from spacy.tokens import Doc
from spacy.util import registry
from thinc.api import Adam

from spacy_nested_ner.architectures.query_encoder import (
    _fit_context,
    build_query_encoder,
    cut_windows,
    encoder_shim,
    query_shim,
)

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

WIDTH, N_QUERIES = 16, 5
TEXTS = [
    "IL-2 gene expression requires reactive oxygen production by 5-lipoxygenase .",
    "The human T cells , which express NF-kappa B .",
    "a",
    "promoter of the interleukin 2 receptor alpha gene in human T cells and B cells today",
]


def wordpiece_tokenizer():
    tokenizer = tokenizers.BertWordPieceTokenizer(lowercase=False)
    tokenizer.train_from_iterator(TEXTS, vocab_size=90, min_frequency=1, show_progress=False)
    add_special_pieces(tokenizer, "[CLS]", "[SEP]")
    return transformers.BertTokenizerFast(
        tokenizer_object=tokenizer._tokenizer, model_max_length=512
    )


def byte_level_tokenizer():
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(
        TEXTS, vocab_size=330, min_frequency=1, special_tokens=special, show_progress=False
    )
    add_special_pieces(tokenizer, "<s>", "</s>")
    return transformers.RobertaTokenizerFast(
        tokenizer_object=tokenizer._tokenizer, model_max_length=512
    )


def add_special_pieces(tokenizer, first: str, last: str) -> None:
    """Let Hugging Face's own call, which the tests compare with, add them."""
    tokenizer._tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{first} $A {last}",
        special_tokens=[(piece, tokenizer.token_to_id(piece)) for piece in (first, last)],
    )


TOKENIZERS = {"bert": wordpiece_tokenizer, "roberta": byte_level_tokenizer}


def save_encoder(path: Path, kind: str, **settings) -> str:
    """A tiny encoder with random weights and a tokenizer trained on the texts above."""
    tokenizer = TOKENIZERS[kind]()
    tokenizer.save_pretrained(path)
    values = {
        "vocab_size": len(tokenizer),
        "hidden_size": WIDTH,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 514 if kind == "roberta" else 512,
        "type_vocab_size": 1 if kind == "roberta" else 2,
        "pad_token_id": tokenizer.pad_token_id,
        "initializer_range": 0.3,
    }
    config = transformers.AutoConfig.for_model(kind, **{**values, **settings})
    torch.manual_seed(0)
    transformers.AutoModel.from_config(config).save_pretrained(path)
    return str(path)


@pytest.fixture(scope="module", params=["bert", "roberta"])
def directory(request, tmp_path_factory) -> str:
    return save_encoder(tmp_path_factory.mktemp("encoder") / request.param, request.param)


@pytest.fixture(scope="module")
def bert(tmp_path_factory) -> str:
    return save_encoder(tmp_path_factory.mktemp("encoder") / "bert", "bert")


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
    rows, begin = [], 0
    for token in doc:
        end = begin + len(token)
        # A piece of RoBERTa's may be the space before the word.
        inside = [i for i, (s, e) in enumerate(places) if s < e and begin <= e <= end]
        rows.append(pool(states[inside]))
        begin = end + 1
    return np.array(rows)


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
            query_shim(each).module.position[0] += torch.randn(WIDTH)
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
    [window] = cut_windows(shim, [doc], np.array([(0, 1, 3)]), context=1)
    before, inside = window.first, int(window.counts.sum())
    ids, types, mask = shim.pad([window], mark_segment=True)
    expected = [0] * (1 + before) + [1] * inside
    assert before > 0
    assert types[0].tolist() == expected + [0] * (ids.shape[1] - len(expected))
    assert mask.all() and not shim.pad([window], mark_segment=False)[1].any()
    segment = np.array([(0, 1, 3)])
    plain, marked = (make_model(bert, mark_segment=m).predict(([doc], segment)) for m in (0, 1))
    assert np.abs(plain[0] - marked[0]).max() > 1e-3
    with pytest.raises(ValueError, match="mark_segment"):
        make_model(roberta, mark_segment=True)


@given(
    counts=st.lists(st.integers(0, 4), min_size=1, max_size=30),
    data=st.data(),
    context=st.integers(0, 12),
    room=st.integers(0, 30),
)
def test_context_fits_and_is_as_wide_as_it_can_be(counts, data, context, room):
    start = data.draw(st.integers(0, len(counts) - 1))
    end = data.draw(st.integers(start + 1, len(counts)))
    offsets = np.concatenate([[0], np.cumsum(counts)])
    left, right = _fit_context(offsets, start, end, context, room)
    lowest, highest = max(0, start - context), min(len(counts), end + context)
    assert lowest <= left <= start and end <= right <= highest
    assert sum(counts[left:start]) + sum(counts[end:right]) <= room
    # Neither side could take one more word within its share.
    if left > lowest:
        share = max(room // 2, room - sum(counts[end:highest]))
        assert sum(counts[left - 1 : start]) > share
    if right < highest:
        share = room // 2
        assert sum(counts[end : right + 1]) > share


def test_context_shrinks_before_a_segment_is_too_long(bert):
    [doc] = make_docs([TEXTS[3]])
    model = make_model(bert, max_pieces=30)
    shim = encoder_shim(model)
    _, offsets = shim.tokenise([doc])[0]
    assert offsets[-1] > 28
    [window] = cut_windows(shim, [doc], np.array([(0, 5, 6)]), context=50)
    assert int(window.counts.sum()) < len(window.ids) <= 28
    words, _ = model.predict(([doc], np.array([(0, 5, 6)])))
    assert np.isfinite(words).all()


def test_segment_that_is_too_long_is_not_cut_in_silence(bert):
    docs = make_docs()
    model = make_model(bert, max_pieces=20)
    with pytest.raises(ValueError) as error:
        model.predict((docs, whole(docs)[2:]))
    for told in ("doc 3", "0 to 16", "promoter of the", "encoder takes 18", "smaller 'window'"):
        assert told in str(error.value)


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
    d_words, d_queries = (rng.normal(size=a.shape).astype("f") for a in (words, queries))
    backprop((d_words, d_queries))
    moved = {
        "words": encoder_shim(model).module.embeddings.LayerNorm.bias,
        "content": query_shim(model).module.content,
        "position": query_shim(model).module.position,
    }
    for name, parameter in moved.items():
        step = torch.sign(parameter.grad) * 1e-3
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


def test_limit_of_pieces(bert, roberta):
    assert encoder_shim(make_model(bert)).max_pieces == 512
    assert encoder_shim(make_model(roberta)).max_pieces == 512
    with pytest.raises(ValueError, match="max_pieces is 513"):
        make_model(roberta, max_pieces=513)


def test_queries_node_cannot_be_called(bert):
    model = make_model(bert)
    with pytest.raises(ValueError, match="query encoder"):
        model.get_ref("queries").predict(None)


def test_registered_and_cheap_to_import():
    assert registry.architectures.get("spacy_nested_ner.QueryEncoder.v1") is build_query_encoder
    code = (
        "import sys, spacy_nested_ner.architectures.query_encoder;"
        "sys.exit('transformers' in sys.modules or 'tokenizers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
