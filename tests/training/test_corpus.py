"""The corpus reader that keeps its docs."""

from typing import Any

import pytest
import spacy
from spacy.tokens import DocBin
from spacy.training import Corpus
from spacy.util import registry

from tests.conftest import make_examples, make_pipeline, spans_of

READER = "spacy_nested_ner.Corpus.v1"


@pytest.fixture
def path(tmp_path) -> Any:
    docs = [example.reference for example in make_examples(spacy.blank("en"))]
    DocBin(docs=docs).to_disk(tmp_path / "train.spacy")
    return tmp_path / "train.spacy"


def make(path: Any, **settings: Any) -> Any:
    return registry.resolve({"corpus": {"@readers": READER, "path": str(path), **settings}})[
        "corpus"
    ]


@pytest.mark.parametrize("settings", [{}, {"limit": 3}, {"max_length": 6}, {"gold_preproc": True}])
def test_examples_are_those_of_spacy_in_every_pass(path, settings) -> None:
    nlp, kept = spacy.blank("en"), make(path, **settings)
    expected = list(Corpus(path, **settings)(nlp))
    for _ in range(2):
        found = list(kept(nlp))
        assert 0 < len(found) == len(expected)
        for one, other in zip(found, expected):
            assert one.x.text == other.x.text and not one.x.spans
            assert one.y.to_json() == other.y.to_json()
        assert any(spans_of(example.y) for example in found)


def test_files_are_read_once_for_each_vocabulary(path) -> None:
    nlp, kept = spacy.blank("en"), make(path)
    first = [example.y for example in kept(nlp)]
    content = path.read_bytes()
    path.unlink()
    again = [example.y for example in kept(nlp)]
    assert len(again) == len(first) > 5 and all(a is b for a, b in zip(again, first))
    path.write_bytes(content)
    other = spacy.blank("en")
    assert [example.y.vocab for example in kept(other)] == [other.vocab] * len(first)


def test_docs_stay_as_they_are_when_a_pipeline_learns_from_them(path) -> None:
    nlp = make_pipeline("locate_and_label_ner")
    kept = make(path)
    before = [example.y.to_bytes() for example in kept(nlp)]
    nlp.update(list(kept(nlp)), sgd=nlp.create_optimizer())
    nlp.evaluate(list(kept(nlp)))
    assert [example.y.to_bytes() for example in kept(nlp)] == before
    assert not any(example.x.spans for example in kept(nlp))


def test_a_path_is_needed() -> None:
    with pytest.raises(ValueError, match="E913"):
        registry.resolve({"corpus": {"@readers": READER, "path": None}})
