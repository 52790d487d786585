"""Copies of sentences with other entities in them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Dict, List

import pytest
import spacy
from spacy.language import Language
from spacy.tokens import Doc, DocBin, Span
from spacy.training import Example
from spacy.util import load_model_from_config, registry

from spacy_nested_ner.training.augment import outermost, swap_entities, use_swap_entities
from tests.conftest import spans_of

# Words, and spans of words with their labels.
GENE = "the IL-2 gene promoter is active", [(1, 4, "dna"), (1, 3, "dna"), (1, 2, "protein")]
COURT = "she sued the US court .", [(2, 5, "org"), (3, 4, "gpe")]
CELL = "T cells and NF-AT grow", [(0, 2, "cell"), (3, 4, "protein")]
CITY = "near Bonn", [(1, 2, "gpe")]
BANK = "the bank of the city of Ulm", [(0, 7, "org"), (3, 7, "gpe"), (6, 7, "gpe")]
ALL = [GENE, COURT, CELL, CITY, BANK]


@pytest.fixture
def nlp() -> Language:
    return spacy.blank("en")


def doc_of(nlp: Language, sentence: tuple, key: str = "sc", **annotation: Any) -> Doc:
    words = sentence[0].split()
    spaces = [True] * (len(words) - 1) + [False]
    doc = Doc(nlp.vocab, words=words, spaces=spaces, **annotation)
    doc.spans[key] = [Span(doc, *span) for span in sentence[1]]
    return doc


def write(path: Path, docs: List[Doc]) -> Path:
    DocBin(docs=docs, store_user_data=True).to_disk(path)
    return path


@pytest.fixture
def corpus(nlp, tmp_path) -> Path:
    return write(tmp_path / "train.spacy", [doc_of(nlp, each) for each in ALL])


def copies(nlp: Language, path: Path, doc: Doc, **settings: Any) -> List[Doc]:
    found = list(swap_entities(path, **settings)(nlp, Example(nlp.make_doc(doc.text), doc)))
    assert found[0].reference is doc  # it stays as it is
    for example in found[1:]:
        assert example.predicted.text == example.reference.text
        assert not example.predicted.spans
    return [example.reference for example in found[1:]]


def test_another_entity_comes_with_what_is_nested_in_it(nlp, corpus) -> None:
    random.seed(0)
    found = copies(nlp, corpus, doc_of(nlp, COURT), variants=40, probability=1.0)
    # The only other organisation; itself is drawn, too, and gives no copy.
    assert 0 < len(found) < 40
    for doc in found:
        assert doc.text == "she sued the bank of the city of Ulm ."
        assert spans_of(doc) == [(2, 9, "org"), (5, 9, "gpe"), (8, 9, "gpe")]


def test_every_entity_of_a_label_comes(nlp, corpus) -> None:
    random.seed(0)
    found = {doc.text for doc in copies(nlp, corpus, doc_of(nlp, CELL), variants=60)}
    # Inner entities stay where they are: of proteins only the outermost, of cells the one itself.
    assert found == set()
    more = [*ALL, ("B cells die", [(0, 2, "cell")]), ("p65 binds", [(0, 1, "protein")])]
    write(corpus, [doc_of(nlp, each) for each in more])
    found = {doc.text for doc in copies(nlp, corpus, doc_of(nlp, CELL), variants=60)}
    expected = {"B cells and NF-AT grow", "T cells and p65 grow", "B cells and p65 grow"}
    assert found == expected


@pytest.mark.parametrize("probability", [0.2, 0.8])
def test_probability(nlp, corpus, probability: float) -> None:
    random.seed(0)
    write(corpus, [doc_of(nlp, (f"in X{i}", [(1, 2, "gpe")])) for i in range(1000)])
    found = copies(nlp, corpus, doc_of(nlp, CITY), variants=1000, probability=probability)
    assert len(found) == pytest.approx(1000 * probability, abs=60)


def test_entities_that_cross_stay(nlp, corpus) -> None:
    crossing = "a b c d near Bonn", [(0, 3, "org"), (2, 4, "org"), (5, 6, "gpe")]
    doc = doc_of(nlp, crossing)
    assert outermost(doc, "sc") == [(0, 4), (5, 6)]
    write(corpus, [doc, doc_of(nlp, ("in Rome", [(1, 2, "gpe")])), doc_of(nlp, COURT)])
    random.seed(0)
    found = copies(nlp, corpus, doc, variants=20)
    assert {each.text for each in found} == {"a b c d near Rome"}
    assert spans_of(found[0]) == [(0, 3, "org"), (2, 4, "org"), (5, 6, "gpe")]


def test_spaces_and_sentences(nlp, corpus) -> None:
    words, spaces = ["Bonn", ".", "Bonn", "!"], [False, True, False, False]
    starts = [True, False, True, False]
    doc = Doc(nlp.vocab, words=words, spaces=spaces, sent_starts=starts)
    doc.spans["sc"] = [Span(doc, 0, 1, "gpe"), Span(doc, 2, 3, "gpe")]
    write(corpus, [doc_of(nlp, ("in New York", [(1, 3, "gpe")]))])
    (found,) = copies(nlp, corpus, doc, variants=1, probability=1.0)
    assert found.text == "New York. New York!"
    assert [sent.text for sent in found.sents] == ["New York.", "New York!"]
    assert spans_of(found) == [(0, 2, "gpe"), (3, 5, "gpe")]


def test_without_sentence_boundaries_there_are_none(nlp, corpus) -> None:
    random.seed(0)
    doc = copies(nlp, corpus, doc_of(nlp, COURT), variants=20)[0]
    assert not doc.has_annotation("SENT_START")


def test_no_entity_no_copy(nlp, corpus) -> None:
    assert copies(nlp, corpus, doc_of(nlp, ("nothing here", []))) == []
    assert copies(nlp, corpus, nlp.make_doc("")) == []


def test_same_copies_after_the_same_seed(nlp, corpus) -> None:
    def texts() -> List[str]:
        random.seed(3)
        return [doc.text for doc in copies(nlp, corpus, doc_of(nlp, BANK), variants=20)]

    assert texts() == texts() != []


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"variants": 0}, "swap_entities.v1: variants must be positive, not 0"),
        ({"probability": 0.0}, "probability must be above 0 and at most 1, not 0.0"),
        ({"probability": 1.5}, "not 1.5"),
    ],
)
def test_settings_out_of_range(settings: Dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        swap_entities("train.spacy", **settings)


def test_corpora_without_entities(nlp, corpus, tmp_path) -> None:
    doc = doc_of(nlp, CITY)
    with pytest.raises(ValueError, match=r"train\.spacy has no entity under spans_key 'other'"):
        copies(nlp, corpus, doc, spans_key="other")
    with pytest.raises(ValueError, match=r"no-such\.spacy: no such file"):
        copies(nlp, tmp_path / "no-such.spacy", doc)


def test_in_a_config(corpus) -> None:
    reader = {"@readers": "spacy.Corpus.v1", "path": "${paths.train}"}
    config = {"paths": {"train": str(corpus)}, "corpora": {"train": reader}}
    use_swap_entities(config, "sc", variants=30)
    nlp = load_model_from_config({"nlp": {"lang": "en"}, **config}, auto_fill=True)
    settings = nlp.config.interpolate()["corpora"]
    assert settings["train"]["augmenter"]["path"] == str(corpus)
    random.seed(0)
    examples = list(registry.resolve({"train": settings["train"]})["train"](nlp))
    texts = {example.reference.text for example in examples}
    assert texts > {text for text, _ in ALL}
    assert "she sued the bank of the city of Ulm ." in texts
