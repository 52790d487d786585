"""Transformers that put out the mean of their last layers."""

import shutil
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import pytest
import spacy
import thinc.api as thinc
import torch
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from thinc.api import Adam, Config
from thinc.types import Ragged

from spacy_nested_ner.encoders.layer_mean import (
    build_layer_mean_transformer,
    replace_listener_config,
)
from spacy_nested_ner.encoders.reduce_max import reduce_max
from tests.conftest import (
    SENTENCES,
    assert_same_found,
    found_in,
    make_examples,
    save_bert,
    scores_of,
)

transformers = pytest.importorskip("transformers")
pytest.importorskip("spacy_transformers")

LAYERS = 5
SPANS = {"@span_getters": "spacy-transformers.strided_spans.v1", "window": 24, "stride": 24}
LISTENER = {
    "@architectures": "spacy-transformers.TransformerListener.v1",
    "grad_factor": 1.0,
    "pooling": {"@layers": "spacy_nested_ner.reduce_max.v1"},
    "upstream": "*",
}
HYBRID = {
    "@architectures": "spacy_nested_ner.HybridEncoder.v1",
    "char_width": 8,
    "tok2vec": LISTENER,
}


@pytest.fixture(scope="module")
def bert(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("hub") / "bert"
    save_bert(path, layers=LAYERS)
    return path


def make_nlp(bert: Path, n_layers: Any = 4, tok2vec: Any = HYBRID, **config: Any) -> Language:
    """A transformer and `piqn_ner`, which listens to it. n_layers: None for the stock model."""
    spacy.util.fix_random_seed(0)
    nlp = spacy.blank("en")
    kind = "spacy_nested_ner.LayerMeanTransformer.v1"
    if n_layers is None:
        kind, n_layers = "spacy-transformers.TransformerModel.v3", {}
    else:
        n_layers = {"n_layers": n_layers}
    model = {"@architectures": kind, "name": str(bert), "get_spans": SPANS, **n_layers, **config}
    nlp.add_pipe("transformer", config={"model": model})
    head = {"@architectures": "spacy_nested_ner.PIQN.v1", "hidden_width": 32, "attention_heads": 2}
    nlp.add_pipe("piqn_ner", config={"model": {**head, "tok2vec": tok2vec}})
    data = make_examples(nlp)
    nlp.initialize(lambda: data)
    return nlp


def docs_of(nlp: Language) -> List[Doc]:
    return [Doc(nlp.vocab, words=text.split(" ")) for text, _ in SENTENCES]


def encoder_of(nlp: Language) -> Any:
    return nlp.get_pipe("piqn_ner").model.get_ref("tok2vec")


def states_by_hand(bert: Path, doc: Doc, encoder: Any, n_layers: int, pool: Any) -> torch.Tensor:
    """Mean of the last layers of Hugging Face's own forward pass, pooled in a plain loop."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(bert))
    words = [token.text for token in doc]
    coded = tokenizer(words, is_split_into_words=True, return_tensors="pt")
    output = encoder(**coded, output_hidden_states=True)
    mean = sum(output.hidden_states[-n_layers:]) / n_layers
    of_word = coded.word_ids()
    rows = [mean[0, [k for k, w in enumerate(of_word) if w == i]] for i in range(len(words))]
    return torch.stack([pool(row) for row in rows])


@pytest.mark.parametrize("n_layers", [1, 4])
@pytest.mark.parametrize("pooling", ["max", "mean"])
def test_equals_the_mean_worked_out_by_hand(bert, n_layers, pooling):
    listener = {**LISTENER, "pooling": {"@layers": f"reduce_{pooling}.v1"}}
    nlp = make_nlp(bert, n_layers, {**HYBRID, "tok2vec": listener})
    encoder = transformers.AutoModel.from_pretrained(str(bert)).eval()
    pool = {"max": lambda r: r.max(0).values, "mean": lambda r: r.mean(0)}[pooling]
    docs = [nlp.get_pipe("transformer")(doc) for doc in docs_of(nlp)]
    for doc, found in zip(docs, encoder_of(nlp).predict(docs)):
        with torch.no_grad():
            expected = states_by_hand(bert, doc, encoder, n_layers, pool)
        assert found.shape == (len(doc), 32 + 8)
        np.testing.assert_allclose(found[:, :32], expected.numpy(), atol=1e-5)
    # The layers themselves would be kept with every doc.
    assert "hidden_states" not in docs[0]._.trf_data.model_output


def test_gradients_reach_every_layer_as_by_hand(bert):
    nlp = make_nlp(bert)
    component = nlp.get_pipe("transformer")
    ours = component.model.transformer
    for module in ours.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if hasattr(module, "dropout_prob"):  # of the attention, which is no module
            module.dropout_prob = 0.0
    docs = docs_of(nlp)
    component.update([Example(doc, doc.copy()) for doc in docs], drop=0.0)
    vectors, backprop = encoder_of(nlp)(docs, is_train=True)
    rng = np.random.default_rng(0)
    gradients = [rng.normal(size=array.shape).astype("f") for array in vectors]
    backprop([encoder_of(nlp).ops.asarray(array.copy()) for array in gradients])
    theirs = transformers.AutoModel.from_pretrained(str(bert)).eval()
    for doc, gradient in zip(docs, gradients):
        states = states_by_hand(bert, doc, theirs, 4, lambda rows: rows.max(0).values)
        (states * torch.from_numpy(gradient[:, :32])).sum().backward()
    expected = {name: p.grad for name, p in theirs.named_parameters() if p.grad is not None}
    assert {name.split(".")[2] for name in expected if ".layer." in name} == set("01234")
    for name, parameter in ours.named_parameters():
        if name in expected and expected[name].abs().max() > 1e-4:
            scale = float(expected[name].abs().max())
            torch.testing.assert_close(
                parameter.grad.cpu(), expected[name], atol=1e-3 * scale, rtol=0.01
            )


def test_one_layer_is_the_stock_transformer(bert):
    one, stock = make_nlp(bert, 1), make_nlp(bert, None)
    for a, b in zip(one.pipe(docs_of(one)), stock.pipe(docs_of(stock))):
        np.testing.assert_array_equal(
            a._.trf_data.model_output.last_hidden_state, b._.trf_data.model_output.last_hidden_state
        )
        assert scores_of(a) == scores_of(b)


def found_of(nlp: Language) -> List[tuple]:
    return found_in(nlp, [*docs_of(nlp), Doc(nlp.vocab)])


def test_learns_and_survives(tmp_path):
    """Also with its listener replaced, without the Hugging Face directory."""
    save_bert(tmp_path / "bert", layers=LAYERS)
    nlp = make_nlp(tmp_path / "bert")
    shutil.rmtree(tmp_path / "bert")
    optimizer = Adam(0.003, L2=0.01, L2_is_weight_decay=True, grad_clip=1.0)
    empty = Example(Doc(nlp.vocab), Doc(nlp.vocab))
    for _ in range(40):
        nlp.update([empty, *make_examples(nlp)], sgd=optimizer)
    assert nlp.evaluate(make_examples(nlp))["nested_f"] > 0.9
    expected = found_of(nlp)
    nlp.to_disk(tmp_path / "shared")
    loaded = spacy.load(tmp_path / "shared")
    assert_same_found(found_of(loaded), expected)
    loaded.replace_listeners("transformer", "piqn_ner", ["model.tok2vec.tok2vec"])
    loaded.remove_pipe("transformer")
    assert_same_found(found_of(loaded), expected)
    loaded.to_disk(tmp_path / "own")
    alone = spacy.load(tmp_path / "own")
    assert_same_found(found_of(alone), expected)
    assert alone.update(make_examples(alone), sgd=alone.resume_training())["piqn_ner"] > 0


@pytest.mark.parametrize("text", ["the  US\nSupreme Court", "\n", " \n the"])
def test_tokens_without_pieces_have_zeros(bert, text: str) -> None:
    nlp = make_nlp(bert, tok2vec=LISTENER)
    assert "sc" in nlp(text).spans
    nlp.update([Example.from_dict(nlp.make_doc(text), {"spans": {"sc": []}})], sgd=Adam(0.001))


def test_pooling_is_the_maximum_over_pieces() -> None:
    """Also with gradients: each goes to the piece that was the maximum."""
    own, stock = reduce_max(), thinc.reduce_max()
    X = np.random.default_rng(0).normal(size=(6, 3)).astype("f")
    filled = np.array([0, 2, 3])
    d = np.arange(12, dtype="f").reshape(4, 3)
    lengths = np.array([2, 0, 1, 3], dtype="i")
    Y, back = own(Ragged(X, lengths), True)
    expected, back_stock = stock(Ragged(X, lengths[filled]), True)
    np.testing.assert_array_equal(Y[filled], expected)
    assert not Y[1].any()
    np.testing.assert_array_equal(back(d).data, back_stock(d[filled]).data)
    nothing = np.zeros(2, dtype="i")
    Y, back = own(Ragged(X[:0], nothing), True)
    assert Y.shape == (2, 3) and not Y.any() and back(Y).dataXd.shape == (0, 3)


def test_replaced_config():
    shared = {"@architectures": "spacy_nested_ner.LayerMeanTransformer.v1", "n_layers": 3}
    around = {"@architectures": "a", "deep": {"er": LISTENER}}
    replaced = replace_listener_config(shared, LISTENER)
    assert replaced == replace_listener_config(shared, around)
    assert replaced == {
        "@architectures": "spacy_nested_ner.Tok2VecLayerMeanTransformer.v1",
        "n_layers": 3,
        "pooling": {"@layers": "spacy_nested_ner.reduce_max.v1"},
        "grad_factor": 1.0,
    }
    assert replace_listener_config(shared, {"@architectures": "a"}) == shared


def test_too_few_layers(bert):
    with pytest.raises(ValueError, match=r"for the last 6 layers.*gives 5\. Set n_layers"):
        make_nlp(bert, LAYERS + 1)
    make_nlp(bert, LAYERS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_layers": 0}, "n_layers must be positive"),
        ({"transformer_config": {"output_hidden_states": False}}, "remove the setting"),
    ],
)
def test_settings_that_cannot_work(settings: Dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        build_layer_mean_transformer("bert", lambda docs: [], **settings)


def test_a_transformer_that_gives_pieces_is_refused(bert, tmp_path):
    """What spaCy's replace_listeners writes for a stock transformer and a nested listener."""
    nlp = make_nlp(bert, None)
    nlp.replace_listeners("transformer", "piqn_ner", ["model.tok2vec.tok2vec"])
    nlp.remove_pipe("transformer")
    nlp.to_disk(tmp_path)
    with pytest.raises(
        ValueError, match=r"gives vectors of pieces, not of words.*Tok2VecTransformer.v3"
    ):
        spacy.load(tmp_path)
    config = Config().from_disk(tmp_path / "config.cfg")
    tok2vec = config["components"]["piqn_ner"]["model"]["tok2vec"]["tok2vec"]
    tok2vec["@architectures"] = "spacy-transformers.Tok2VecTransformer.v3"
    tok2vec["pooling"] = LISTENER["pooling"]
    config.to_disk(tmp_path / "config.cfg")
    loaded = spacy.load(tmp_path)
    for a, b in zip(found_of(loaded), found_of(nlp)):
        assert a[0] == b[0]
