"""Seed lengths that follow the training data."""

from __future__ import annotations

from typing import List

import pytest
from spacy.tokens import Doc, Span
from spacy.training import Example

from spacy_nested_ner.model.head_model import head_shim
from tests.conftest import make_pipeline

LENGTH = 45


def examples(nlp, length: int) -> List[Example]:
    """Quotations of so many words, with one word in them that is an entity, too."""
    found = []
    for start in (1, 3):
        words = ["he"] * start + ["<<", *["said"] * (length - 3), "Oslo", ">>", "."]
        doc = Doc(nlp.vocab, words=words)
        entities = [(start, start + length, "QUOTE"), (len(words) - 3, len(words) - 2, "GPE")]
        doc.spans["sc"] = [Span(doc, first, end, label) for first, end, label in entities]
        found.append(Example(Doc(nlp.vocab, words=words), doc))
    return found


def pipeline(**settings):
    return make_pipeline("locate_and_label_ner", {"hidden_width": 32, **settings}, None)


def lengths(nlp) -> List[int]:
    return head_shim(nlp.get_pipe("ner").model).module.lengths


@pytest.mark.parametrize(
    ("longest", "expected"),
    [
        (5, [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14]),
        (32, [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 17, 20, 24, 29, 32]),
    ],
)
def test_seeds_are_as_long_as_the_entities_of_the_training_data(longest, expected) -> None:
    nlp = pipeline()
    nlp.initialize(lambda: examples(nlp, longest))
    assert lengths(nlp) == expected
    again = pipeline().from_bytes(nlp.to_bytes())
    assert lengths(again) == expected
    # What was fitted to one corpus does not stay for the next one.
    again.initialize(lambda: examples(again, 9))
    assert lengths(again) == [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14]


def test_lengths_of_the_config_stay() -> None:
    nlp = pipeline(lengths=[1, 3])
    nlp.initialize(lambda: examples(nlp, 20))
    assert lengths(nlp) == [1, 3]


def test_without_examples_the_usual_lengths() -> None:
    nlp = pipeline()
    nlp.get_pipe("ner").initialize(lambda: [], labels=["A"])
    assert lengths(nlp)[-1] == 14


def test_entities_far_longer_than_the_usual_seeds_are_found() -> None:
    nlp = pipeline()
    gold = examples(nlp, LENGTH)
    optimizer = nlp.initialize(lambda: gold)
    optimizer.learn_rate = 0.003
    for _ in range(200):
        nlp.update(gold, sgd=optimizer)
    for example in gold:
        doc = nlp(Doc(nlp.vocab, words=[token.text for token in example.reference]))
        wanted = {(span.start, span.end, span.label_) for span in example.reference.spans["sc"]}
        assert {(span.start, span.end, span.label_) for span in doc.spans["sc"]} == wanted
