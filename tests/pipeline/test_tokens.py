"""Docs of raw text: as spaCy's, but no word is too long for the tokenizer."""

import pytest
import spacy

from spacy_nested_ner.pipeline.tokens import LONGEST_WORD, MOST_MARKS, make_doc

ORDINARY = [
    "",
    "IL-2 genes (human).",
    " a\n\nb ",
    "-" * MOST_MARKS,
    "a/b." * 200,
    "x" * LONGEST_WORD,
    "(" * 30,
]
ENDLESS = {
    "brackets": "(" * 3000,
    "quotes": "a " + "'" * 3000 + " b",
    "both": "('" * 2000 + "word" + "')" * 2000,
    "letters": "x" * 5000,
    "dashes": "-" * 150,
    "underscores": "_" * 3000,
    "mixed": "(._" * 1000,
    "possessives": "'s(" * 1000,
}


@pytest.fixture
def nlp(monkeypatch):
    """That notes what its tokenizer reads at once, in `read`."""
    nlp = spacy.blank("en")
    made, nlp.read = nlp.make_doc, []
    monkeypatch.setattr(nlp, "make_doc", lambda text: nlp.read.append(text) or made(text))
    return nlp


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_texts_are_read_as_by_spacy(nlp, text):
    doc, expected = make_doc(nlp, text), spacy.blank("en")(text)
    assert doc.text == text and [t.text for t in doc] == [t.text for t in expected]
    assert nlp.read == [text]


@pytest.mark.parametrize("text", ENDLESS.values(), ids=ENDLESS.keys())
def test_endless_words_are_cut(nlp, text):
    doc = make_doc(nlp, text)
    assert doc.text == text == "".join(nlp.read)
    assert len(nlp.read) > 1 and max(map(len, nlp.read)) <= LONGEST_WORD
    marks = [[c for c in piece if not c.isalnum() and c not in " ."] for piece in nlp.read]
    assert max(map(len, marks)) <= 2 * MOST_MARKS


def test_the_rest_of_the_text_keeps_its_spaces_and_norms(nlp):
    text = "I  don't \n" + "(" * 150 + " gonna go."
    doc, expected = make_doc(nlp, text), spacy.blank("en")(text)
    assert doc.text == text and not doc.has_annotation("SENT_START")
    assert [(t.text, t.norm_) for t in doc] == [(t.text, t.norm_) for t in expected]
    assert "not" in [t.norm_ for t in doc]


def test_other_tokenizers_read_the_whole_text(nlp):
    """Those of Chinese or Japanese know no words that have to be cut."""
    tokenizer = nlp.tokenizer
    nlp.tokenizer = lambda text: tokenizer(text)
    text = "(" * 300
    assert make_doc(nlp, text).text == text and nlp.read == [text]


def test_a_text_that_is_too_long_is_an_error(nlp):
    nlp.max_length = 1000
    with pytest.raises(ValueError, match="E088"):
        make_doc(nlp, "(" * 1001)
