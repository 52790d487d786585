"""The guide for who has a `spancat` or an `ner`: its blocks are run as they are printed."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import List

import pytest
import spacy
from spacy.language import Language
from spacy.tokens import DocBin
from spacy.training.initialize import init_nlp
from spacy.training.loop import train as train_loop
from thinc.api import Config

from tests.conftest import SENTENCES, make_examples

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "migrating.md"
TOK2VEC = {
    "@architectures": "spacy.Tok2Vec.v2",
    "embed": {
        "@architectures": "spacy.MultiHashEmbed.v2",
        "width": 32,
        "attrs": ["NORM", "SHAPE"],
        "rows": [200, 200],
        "include_static_vectors": False,
    },
    "encode": {
        "@architectures": "spacy.MaxoutWindowEncoder.v2",
        "width": 32,
        "depth": 1,
        "window_size": 1,
        "maxout_pieces": 2,
    },
}
LISTENER = {"@architectures": "spacy.Tok2VecListener.v1", "width": 32, "upstream": "*"}


def blocks(language: str) -> List[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text("utf8"), re.DOTALL)


def as_printed(config: str) -> Config:
    """A config as spaCy writes it, after what the page says to do in an editor."""
    sections = re.split(r"(?m)^(?=\[)", config.replace("\nbefore_to_disk = null\n", "\n"))
    gone = ("[components.spancat", "[training.score_weights]", "[training.logger]")
    kept = [section for section in sections if not section.startswith(gone)]
    (page,) = blocks("ini")
    return Config().from_str("".join([*kept, page]), interpolate=False)


@pytest.fixture
def with_spancat() -> Language:
    nlp = spacy.blank("en")
    nlp.add_pipe("tok2vec", config={"model": TOK2VEC})
    nlp.add_pipe("spancat", config={"model": {"tok2vec": LISTENER}})
    return nlp


@pytest.fixture
def data(tmp_path, monkeypatch) -> Path:
    docs = [eg.reference for eg in make_examples(spacy.blank("en"))]
    for doc in docs:
        doc.set_ents(spacy.util.filter_spans(doc.spans["sc"]))
    for name in ("train", "dev"):
        DocBin(docs=docs).to_disk(tmp_path / f"{name}.spacy")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_component_in_the_place_of_a_spancat(with_spancat, data) -> None:
    config = as_printed(with_spancat.config.to_str())
    config["paths"].update(train="train.spacy", dev="dev.spacy")
    config["training"].update(max_steps=120, eval_frequency=40, patience=0)
    out = io.StringIO()
    nlp = init_nlp(config.interpolate())
    train_loop(nlp, data / "out", stdout=out)
    assert "[training.score_weights]" not in out.getvalue()
    best = spacy.load(data / "out" / "model-best")
    assert best.get_pipe_meta("spancat").factory == "locate_and_label_ner"
    assert best.evaluate(make_examples(best))["nested_f"] > 0.8
    assert "spancat" in best.meta["thresholds"]


def test_gold_of_an_ner(data) -> None:
    code, _ = blocks("python")
    exec(compile(code, str(PAGE), "exec"), {})
    docs = list(DocBin().from_disk(data / "train.spacy").get_docs(spacy.blank("en").vocab))
    assert any(doc.ents for doc in docs)
    assert all(list(doc.spans["sc"]) == list(doc.ents) for doc in docs)


def test_a_component_beside_a_spancat(with_spancat, data) -> None:
    nlp = with_spancat
    nlp.initialize(lambda: make_examples(nlp))
    nlp.to_disk("prod")
    before = nlp.get_pipe("spancat").model.to_bytes()
    _, code = blocks("python")
    exec(compile(code, str(PAGE), "exec"), {})
    both = spacy.load("prod_nested")
    assert both.get_pipe("spancat").model.to_bytes() == before
    doc = both(SENTENCES[0][0])
    assert {"sc", "nested"} <= set(doc.spans) and doc.spans["nested"]
