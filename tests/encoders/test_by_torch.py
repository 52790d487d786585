"""Thinc layers by torch: products and LayerNorms."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from thinc.api import LayerNorm, Maxout, NumpyOps

from spacy_nested_ner.encoders.by_torch import TorchProducts, use_torch
from tests.conftest import make_examples, make_pipeline


@pytest.mark.parametrize("trans1", [False, True])
@pytest.mark.parametrize("trans2", [False, True])
@pytest.mark.parametrize("kind", ["plain", "read-only", "every second row"])
def test_products_are_those_of_thinc(trans1, trans2, kind):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5, 7) if trans1 else (7, 5)).astype("float32")
    y = rng.normal(size=(3, 5) if trans2 else (5, 3)).astype("float32")
    if kind == "every second row":
        x = np.repeat(x, 2, axis=0)[::2]
    x.flags.writeable = kind != "read-only"
    expected = NumpyOps().gemm(x, y, trans1=trans1, trans2=trans2)
    ops, out = TorchProducts(), np.full((7, 3), np.nan, dtype="float32")
    assert_allclose(ops.gemm(x, y, trans1=trans1, trans2=trans2), expected, rtol=1e-5)
    assert ops.gemm(x, y, out=out, trans1=trans1, trans2=trans2) is out
    assert_allclose(out, expected, rtol=1e-5)


def test_what_thinc_refuses_is_refused():
    with pytest.raises(ValueError, match="float32"):
        TorchProducts().gemm(np.ones((2, 2)), np.ones((2, 2)))


def norms(width=6):
    """Of Thinc and of torch, with the same weights."""
    rng = np.random.default_rng(1)
    pair = LayerNorm(width), LayerNorm(width)
    weights = {name: rng.normal(size=width).astype("float32") for name in ("G", "b")}
    for norm in pair:
        norm.initialize()
        for name, values in weights.items():
            norm.set_param(name, values)
    use_torch(pair[1])
    return pair


@pytest.mark.parametrize("is_train", [False, True])
@pytest.mark.parametrize("kind", ["plain", "read-only", "every second row", "float64", "no rows"])
def test_layer_norms_are_those_of_thinc(is_train, kind):
    rng = np.random.default_rng(0)
    rows = rng.normal(2.0, 3.0, (0 if kind == "no rows" else 7, 6))
    d_rows = rng.normal(size=rows.shape).astype("float32")
    x = rows if kind == "float64" else rows.astype("float32")
    if kind == "every second row":
        x, d_rows = (np.repeat(array, 2, axis=0)[::2] for array in (x, d_rows))
    x.flags.writeable = kind != "read-only"
    gradients = []
    for norm in norms():
        found, backprop = norm(x, is_train)
        twice = [backprop(d_rows) for _ in range(2)]
        assert_allclose(twice[0], twice[1])
        gradients.append((found, twice[0], norm.get_grad("G"), norm.get_grad("b")))
    for expected, found in zip(*gradients):
        assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert gradients[1][0].shape == rows.shape


def test_what_is_predicted_of_a_row_does_not_depend_on_the_others():
    _, norm = norms(96)
    rows = np.random.default_rng(0).normal(size=(65, 96)).astype("float32")
    together = norm.predict(rows)
    assert all((norm.predict(rows[i : i + 1])[0] == row).all() for i, row in enumerate(together))


def test_a_layer_norm_inside_other_layers(monkeypatch):
    layer = Maxout(4, 3, normalize=True)
    use_torch(layer)
    x = np.random.default_rng(0).normal(size=(5, 3)).astype("float32")
    layer.initialize(X=x)
    expected, calls = layer.predict(x), []
    monkeypatch.setattr(
        torch.nn.functional, "layer_norm", lambda inputs, *args: calls.append(args) or inputs * 0
    )
    assert np.ptp(layer.predict(x)) == 0 < np.ptp(expected) and len(calls) == 1
    assert (layer.copy().predict(x) == 0).all() and len(calls) == 2


@pytest.mark.no_gpu("cupy multiplies there")
def test_the_encoder_of_a_component_multiplies_with_torch(monkeypatch):
    nlp = make_pipeline("piqn_ner")
    nlp.initialize(lambda: make_examples(nlp))
    model = nlp.get_pipe("ner").model.get_ref("tok2vec")
    docs = [eg.reference for eg in make_examples(nlp)]
    found = model.predict(docs)
    products = []
    monkeypatch.setattr(torch, "mm", lambda *args, out: products.append(args) or args[0] @ args[1])
    assert_allclose(np.vstack(model.predict(docs)), np.vstack(found), atol=1e-5)
    assert products
