"""Docs to sentences of other formats."""

from __future__ import annotations

from collections import Counter

import pytest
import spacy
from spacy.tokens import Doc, Span

from spacy_nested_ner.corpora.export import export_docs, sentences_of
from tests.corpora.comparing import entities, read


def test_sentences_that_an_entity_bridges_stay_together(tmp_path):
    doc = Doc(spacy.blank("en").vocab, words=["a", "b", "\n", "c", "d"])
    for token in doc:
        token.is_sent_start = token.i in (0, 1, 4)
    # The last one is the one before it with whitespace beside.
    spans = [(0, 2, "X"), (1, 3, "Y"), (2, 3, "Z"), (4, 5, "X"), (1, 2, "Y")]
    doc.spans["sc"] = [Span(doc, a, b, label=label) for a, b, label in spans]
    path = tmp_path / "out.json"
    count, dropped = export_docs([doc], "papers-json", path, "sc")
    assert count == 2 and dropped == {("no text", "Z"): 1}
    first, second = read("papers-json", path)
    assert first.words == ["a", "b", "c"] and second.words == ["d"]
    assert entities(first) == [("a b", "X"), ("b", "Y")]


def test_export_errors_leave_no_file(tmp_path):
    doc = Doc(spacy.blank("en").vocab, words=["New York"])
    doc.spans["sc"] = [Span(doc, 0, 1, label="GPE")]
    with pytest.raises(ValueError, match="the token 'New York' contains whitespace"):
        export_docs([doc], "mrc-json", tmp_path / "out.json", "sc")
    empty = Doc(doc.vocab, words=["a"])
    with pytest.raises(ValueError, match="there are no entities"):
        export_docs([empty], "mrc-json", tmp_path / "out.json", "sc")
    with pytest.raises(ValueError, match="Known formats: mrc-json, papers-json"):
        export_docs([doc], "nope", tmp_path / "out.json", "sc")
    assert not list(tmp_path.iterdir())


def test_entities_of_words_out_of_order_are_in_their_sentences():
    doc = Doc(spacy.blank("en").vocab, words=[*"abcdef"])
    for token in doc:
        token.is_sent_start = token.i % 2 == 0
    places = [(5, 6), (0, 2), (2, 3), (1, 2), (4, 6)]
    doc.spans["sc"] = [Span(doc, a, b, label="X") for a, b in places]
    found = [sentence.spans for sentence in sentences_of(doc, "sc", Counter())]
    assert found == [[(0, 2, "X"), (1, 2, "X")], [(0, 1, "X")], [(0, 2, "X"), (1, 2, "X")]]
