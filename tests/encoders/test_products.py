"""Products of Thinc layers by torch."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from thinc.api import NumpyOps

from spacy_nested_ner.encoders.products import TorchProducts
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
