"""Every shipped config parses, is complete for spaCy, and initialises."""

from pathlib import Path
from typing import Callable

import pytest
import spacy
from spacy import util
from spacy.language import Language
from spacy.tokens import DocBin
from spacy.training.initialize import init_nlp

from tests.conftest import make_examples, save_bert, train

CONFIGS = sorted((Path(__file__).parents[1] / "configs").glob("*.cfg"))


@pytest.fixture(scope="session")
def encoder_dir(tmp_path_factory) -> Path:
    """A tiny random BERT with its tokenizer, made on the spot."""
    folder = tmp_path_factory.mktemp("encoder") / "bert"
    save_bert(folder)
    return folder


def test_there_are_configs() -> None:
    expected = {"diffusion_cnn", "diffusion_transformer", "piqn_cnn", "piqn_paper"}
    expected |= {"piqn_transformer", "spancat_cnn"}
    assert expected <= {path.stem for path in CONFIGS}


@pytest.fixture
def load(encoder_dir, tmp_path) -> Callable[[Path], Language]:
    """A config, initialised on the ten nested sentences and with the tiny encoder."""

    def initialised(path: Path) -> Language:
        docs = [eg.reference for eg in make_examples(spacy.blank("en"))]
        DocBin(docs=docs).to_disk(tmp_path / "data.spacy")
        overrides = dict.fromkeys(("paths.train", "paths.dev"), str(tmp_path / "data.spacy"))
        if "transformer" in util.load_config(path)["paths"]:
            overrides["paths.transformer"] = str(encoder_dir)
        return init_nlp(util.load_config(path, overrides=overrides))

    return initialised


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_config_learns_a_step_and_is_scored(path, load) -> None:
    nlp = load(path)
    settings = util.registry.resolve(nlp.config.interpolate()["training"])
    losses = nlp.update(make_examples(nlp), sgd=settings["optimizer"])
    assert losses["ner"] > 0
    scores = nlp.evaluate(make_examples(nlp))
    assert all(scores[name] is not None for name in settings["score_weights"])


@pytest.mark.parametrize(
    "name", ["diffusion_cnn", "diffusion_transformer", "piqn_cnn", "piqn_transformer"]
)
def test_config_memorises_nested_sentences(name, load, tmp_path) -> None:
    nlp = load(CONFIGS[0].parent / f"{name}.cfg")
    for _ in range(10):
        train(nlp, 40)
        if nlp.evaluate(make_examples(nlp))["nested_f"] == 1.0:
            break
    assert nlp.evaluate(make_examples(nlp))["nested_f"] == 1.0
    nlp.to_disk(tmp_path / "saved")
    loaded = spacy.load(tmp_path / "saved")
    assert loaded.evaluate(make_examples(loaded))["nested_f"] == 1.0
    again = spacy.blank("en", config=nlp.config).from_bytes(nlp.to_bytes())
    assert again.evaluate(make_examples(again))["nested_f"] == 1.0
