"""`spacy pretrain` and `initialize.init_tok2vec` with the encoder inside a component."""

from typing import Any

import numpy as np
import pytest
import srsly
from spacy.language import DEFAULT_CONFIG_PRETRAIN_PATH
from spacy.training.pretrain import pretrain
from spacy.util import load_config, load_model_from_config

from spacy_nested_ner.model.types import encoder_of
from tests.conftest import SENTENCES, SMALL_CNN, SMALL_MODELS, make_examples, make_pipeline


def vectors(nlp: Any) -> np.ndarray:
    (found,) = nlp.get_pipe("ner").model.get_ref("tok2vec").predict([nlp.make_doc("IL-2 gene")])
    return found


@pytest.mark.parametrize(
    ("factory", "optimizer"),
    [
        *((factory, "Adam.v1") for factory in SMALL_MODELS),
        ("piqn_ner", "spacy_nested_ner.AdamW.v1"),
    ],
)
def test_pretrained_weights_are_taken(factory, optimizer, tmp_path) -> None:
    nlp = make_pipeline(factory, examples=None)
    srsly.write_jsonl(tmp_path / "texts.jsonl", [{"text": text} for text, _ in SENTENCES[:3]])
    config = load_config(DEFAULT_CONFIG_PRETRAIN_PATH).merge(nlp.config)
    config["paths"]["raw_text"] = str(tmp_path / "texts.jsonl")
    config["pretraining"].update(component="ner", layer="tok2vec", max_epochs=2)
    if optimizer != "Adam.v1":
        config["pretraining"]["optimizer"] = {"@optimizers": optimizer, "learn_rate": 0.001}
    config = config.interpolate()
    (tmp_path / "weights").mkdir()
    pretrain(config, tmp_path / "weights", silent=True)
    weights = tmp_path / "weights" / "model1.bin"
    config["initialize"]["init_tok2vec"] = str(weights)
    fresh = load_model_from_config(config, auto_fill=True)
    data = make_examples(fresh)
    fresh.initialize(lambda: data)
    assert fresh.get_pipe("ner").model.get_ref("tok2vec").to_bytes() == weights.read_bytes()
    assert vectors(fresh).shape == (2, SMALL_CNN["width"])


def test_a_pipeline_that_was_saved_with_another_tok2vec_loads(tmp_path) -> None:
    """Until 0.1.0 the ref of `mrc_ner` was the transformer over the tok2vec."""
    nlp = make_pipeline("mrc_ner")
    model = nlp.get_pipe("ner").model
    inner = model.get_ref("tok2vec")
    assert inner is encoder_of(model).get_ref("tok2vec") is not encoder_of(model)
    expected = vectors(nlp)
    model.set_ref("tok2vec", encoder_of(model))
    nlp.to_disk(tmp_path)
    loaded = load_model_from_config(nlp.config, auto_fill=True).from_disk(tmp_path)
    np.testing.assert_array_equal(vectors(loaded), expected)
