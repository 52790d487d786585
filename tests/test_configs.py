"""Every shipped config parses, is complete for spaCy, and initialises."""

from pathlib import Path

import pytest
import spacy
from spacy import util
from spacy.tokens import DocBin
from spacy.training.initialize import init_nlp

from tests.conftest import make_examples

CONFIGS = sorted((Path(__file__).parents[1] / "configs").glob("*.cfg"))


@pytest.fixture(scope="session")
def encoder_dir(tmp_path_factory) -> Path:
    """A tiny random BERT with its tokenizer, made on the spot."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("bert")
    letters = "abcdefghijklmnopqrstuvwxyz0123456789-"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{x}" for x in letters)]
    (folder / "vocab.txt").write_text("\n".join(pieces))
    tokenizer = transformers.BertTokenizerFast(str(folder / "vocab.txt"))
    config = transformers.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
    )
    transformers.BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_there_are_configs() -> None:
    assert {"piqn_cnn", "piqn_paper", "piqn_transformer", "spancat_cnn"} <= {
        path.stem for path in CONFIGS
    }


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_config_initialises_and_learns_a_step(path, encoder_dir, tmp_path) -> None:
    blank = spacy.blank("en")
    docs = [eg.reference for eg in make_examples(blank)]
    DocBin(docs=docs).to_disk(tmp_path / "data.spacy")
    overrides = {"paths.train": str(tmp_path / "data.spacy")}
    overrides["paths.dev"] = overrides["paths.train"]
    config = util.load_config(path)
    if "transformer" in config["paths"]:
        overrides["paths.transformer"] = str(encoder_dir)
    nlp = init_nlp(util.load_config(path, overrides=overrides))
    train = util.registry.resolve(nlp.config.interpolate()["training"])
    losses = nlp.update(make_examples(nlp), sgd=train["optimizer"])
    assert losses["ner"] > 0
    scores = nlp.evaluate(make_examples(nlp))
    assert all(scores[name] is not None for name in train["score_weights"])
