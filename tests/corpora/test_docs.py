"""Records to docs: tokens, entities, sentences."""

from __future__ import annotations

import numpy as np
import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st

from spacy_nested_ner.corpora import CorpusError, ReadOptions, Record
from spacy_nested_ner.corpora.docs import record_to_doc, record_to_docs
from spacy_nested_ner.corpora.records import text_record, words_record
from spacy_nested_ner.corpora.sentences import grouped, line_starts, split_at_sentences
from spacy_nested_ner.corpora.statistics import SplitStatistics


@pytest.fixture
def nlp():
    return spacy.blank("en")


def test_a_record_becomes_a_doc(nlp):
    record = Record("d1", "train", "CD28-mediated T cells .", [(0, 4, "A"), (14, 21, "B")])
    doc, dropped = record_to_doc(record, nlp, "nest")
    assert doc.text == record.text
    assert [(span.text, span.label_) for span in doc.spans["nest"]] == [
        ("CD28", "A"),
        ("T cells", "B"),
    ]
    assert not dropped


def test_spans_inside_tokens_are_counted(nlp):
    record = Record("d1", "dev", "CD28 cells", [(0, 2, "A"), (5, 10, "B")], ["CD28", "cells"])
    doc, dropped = record_to_doc(record, nlp)
    assert [span.text for span in doc.spans["sc"]] == ["cells"]
    assert dropped == {("misaligned", "A"): 1}
    assert doc.user_data["misaligned_example"] == "A 'CD' in 'CD28'"
    counts = SplitStatistics()
    counts.add(doc, "sc", dropped)
    assert counts.to_dict()["misaligned_example"] == "A 'CD' in 'CD28' (d1)"


def test_a_span_inside_two_tokens_is_shown_with_both(nlp):
    record = Record("d1", "dev", "the CD28 cells", [(5, 11, "A")])
    doc, _ = record_to_doc(record, nlp)
    assert doc.user_data["misaligned_example"] == "A 'D28 ce' in 'CD28 cells'"


@pytest.mark.parametrize("words", [None, ["One", "two.", "Three", "four."]])
def test_sentence_starts(nlp, words):
    record = Record("d", "dev", "One two. Three four.", [], words, sentence_starts=[0, 9])
    doc, _ = record_to_doc(record, nlp)
    assert [sentence.text.strip() for sentence in doc.sents] == ["One two.", "Three four."]


def test_empty_record(nlp):
    doc, _ = record_to_doc(Record("d", "dev", "", []), nlp)
    assert len(doc) == 0 and "sc" in doc.spans


def test_character_tokens(nlp):
    record = Record("d", "dev", "我在 ABC。", [(3, 6, "ORG"), (0, 1, "PER")])
    doc, dropped = record_to_doc(record, nlp, tokens="character")
    assert [token.text for token in doc] == list("我在ABC。") and not dropped
    assert [span.text for span in doc.spans["sc"]] == ["A B C", "我"]  # spaces unknown
    doc, _ = record_to_doc(record, spacy.blank("zh"), tokens="character")
    assert doc.text == record.text and not doc.has_unknown_spaces
    assert [span.text for span in doc.spans["sc"]] == ["ABC", "我"]


def test_tokens_cut_at_entities(nlp):
    record = Record("d", "dev", "antiCD28s cells.", [(0, 15, "X"), (4, 8, "P")])
    doc, dropped = record_to_doc(record, nlp)
    assert dropped == {("misaligned", "P"): 1} and not doc.has_unknown_spaces
    doc, dropped = record_to_doc(record, nlp, tokens="cut")
    assert not dropped and doc.spans["sc"][1].text == "CD28"
    assert [token.text for token in doc] == ["anti", "CD28", "s", "cells", "."]
    assert doc.has_unknown_spaces and doc.user_data["text"] == "antiCD28s cells."


def test_words_without_a_text_of_their_own_have_none(nlp):
    words = ["B", "cells", "."]
    joined = words_record("d", "dev", words, [(0, 2, "X")], ReadOptions())
    doc, _ = record_to_doc(joined, nlp)
    assert doc.has_unknown_spaces and "text" not in doc.user_data
    for record in (Record("d", "dev", "B cells.", [], ["B", "cells."]), joined):
        part = next(split_at_sentences(record))
        assert part.has_text == record.has_text


@pytest.mark.parametrize(
    "span", [(14, 99, "GPE"), (-3, 2, "GPE"), (4, 4, "GPE"), (4, 2, "GPE"), (0, 2, " ")]
)
def test_spans_that_are_none_of_the_text_are_refused(span):
    """A reader of one's own may hand over anything."""
    with pytest.raises(CorpusError, match="d1: expected an entity with 0 <= start < end <= 12 and"):
        text_record("d1", "dev", "Ann in Paris", [span], ReadOptions())
    words = ["w"] * 12
    with pytest.raises(CorpusError, match="d1: expected an entity with 0 <= start < end <= 12 and"):
        words_record("d1", "dev", words, [span], ReadOptions())
    with pytest.raises(CorpusError, match="label nan"):
        text_record("d1", "dev", "Ann in Paris", [(0, 3, float("nan"))], ReadOptions())


def test_offsets_of_a_table(nlp):
    span = (np.int64(7), np.int32(12), "GPE")
    record = text_record("d1", "dev", "Ann in Paris", [span], ReadOptions())
    doc, _ = record_to_doc(record, nlp)
    assert [each.text for each in doc.spans["sc"]] == ["Paris"]


def test_spacy_tokens_of_a_tokenised_corpus(nlp):
    record = Record("d", "dev", "can't go .", [(0, 5, "X")], ["can't", "go", "."])
    doc, _ = record_to_doc(record, nlp, tokens="spacy")
    assert [token.text for token in doc] == ["ca", "n't", "go", "."]


@pytest.mark.parametrize(
    "text, starts",
    [("a\nb", [0, 2]), ("a\r\nb\rc", [0, 3, 5]), ("a\u2028b\x0bc\x85d", [0]), ("\n \n a\n", [4])],
)
def test_lines_end_where_an_editor_ends_them(text, starts):
    assert line_starts(text) == starts


@pytest.mark.parametrize("how, count", [("corpus", 1), ("lines", 2), ("rules", 2)])
def test_sentences_of_plain_text(nlp, how, count):
    record = Record("d", "dev", "One is. Two\nis too.\n", [(8, 14, "X")], sentence_starts=[])
    record.dropped["why", "x"] += 1
    options = ReadOptions(sentences=how)
    docs = list(record_to_docs(record, nlp, "sc", options))
    # The entity bridges the line end, so by lines only what is before it would be cut off.
    assert len(docs) == (1 if how == "lines" else count)
    assert sum(len(doc.spans["sc"]) for doc, _ in docs) == 1
    assert sum(dropped["why", "x"] for _, dropped in docs) == 1
    assert docs[0][0].has_annotation("SENT_START") == (how != "corpus")


def test_articles_keep_their_sentences(nlp):
    record = Record("d", "dev", "One. Two.", [], sentence_starts=[0, 5])
    ((doc, _),) = record_to_docs(record, nlp, "sc", ReadOptions(group="article"))
    assert [sentence.text for sentence in doc.sents] == ["One.", "Two."]


def test_found_sentences_of_an_article_do_not_cut_entities(nlp):
    record = Record("d", "dev", "Mr. X. Dole\nis. He.", [(0, 14, "X")], sentence_starts=[])
    options = ReadOptions(group="article", sentences="lines")
    ((doc, _),) = record_to_docs(record, nlp, "sc", options)
    assert len(list(doc.sents)) == 1 and doc.has_annotation("SENT_START")


TEXTS = st.lists(st.lists(st.sampled_from(["a", "bc", "d"]), min_size=1, max_size=4), min_size=1)


@given(TEXTS)
def test_sentences_to_an_article_and_back(sentences):
    records = [
        Record("d", "dev", " ".join(words), [(0, len(words[0]), f"L{i}")], words)
        for i, words in enumerate(sentences)
    ]
    (article,) = grouped(records, "article")
    back = list(split_at_sentences(article))
    assert [(r.text, r.words, r.spans) for r in back] == [
        (r.text, r.words, r.spans) for r in records
    ]


@pytest.mark.parametrize("text", ["<" * 250, "🙂" * 101 + " a", "ab " + "x" * 1500 + "<" * 120])
def test_words_beyond_any_length_are_cut(nlp, text):
    doc, dropped = record_to_doc(Record("a", "", text, [(0, 1, "X")]), nlp)
    assert doc.text == text and not doc.has_unknown_spaces
    assert max(len(token) for token in doc) <= 1000 and dropped.total() <= 1


def test_ordinary_words_are_not_cut(nlp):
    text = "see https://example.org/" + "a/b" * 300 + " -- ... !!! (really) " + "=" * 90
    doc, _ = record_to_doc(Record("a", "", text, []), nlp)
    assert [token.text for token in doc] == [token.text for token in nlp.make_doc(text)]


def test_texts_beyond_spacy_s_limit_are_refused_by_name(nlp):
    nlp.max_length = 100
    with pytest.raises(CorpusError, match=r"^long: a text of 102 characters, but spaCy takes 100"):
        record_to_doc(Record("long", "", "a " * 51, []), nlp)


def test_rules_do_not_cut_a_word_of_the_corpus(nlp):
    words = ["See", "Hello.World", "now", ".", "It", "ended", "."]
    text = "See Hello.World now. It ended."
    record = Record("d", "dev", text, [], words=list(words), sentence_starts=[])
    docs = record_to_docs(record, nlp, "sc", ReadOptions(sentences="rules"))
    assert [[token.text for token in doc] for doc, _ in docs] == [words[:4], words[4:]]


@pytest.mark.parametrize("blanks", [" ", "  ", "\n", " \n "])
def test_rules_find_sentences_of_words_behind_any_whitespace(nlp, blanks):
    words = ["It", "is", ".", "It", "ended", "."]
    record = Record("d", "dev", f"It is.{blanks}It ended.", [], list(words), sentence_starts=[])
    docs = record_to_docs(record, nlp, "sc", ReadOptions(sentences="rules"))
    assert [[token.text for token in doc] for doc, _ in docs] == [words[:3], words[3:]]


@pytest.mark.parametrize("how", ["rules", "lines"])
def test_words_of_whitespace_stay_with_their_sentence(nlp, how):
    """Those that Prodigy has as tokens, as spaCy does."""
    text = "Acme  grew.\n\nShe left\tRome. "
    words = [token.text for token in nlp.make_doc(text)]
    record = Record("d", "", text, [(22, 26, "LOC")], words, sentence_starts=[])
    docs = [doc for doc, _ in record_to_docs(record, nlp, "sc", ReadOptions(sentences=how))]
    assert [doc.text for doc in docs] == ["Acme  grew.", "She left\tRome."]
    assert [(span.text, span.label_) for span in docs[1].spans["sc"]] == [("Rome", "LOC")]


def test_the_name_of_a_file_that_is_not_utf8_can_be_written():
    record = Record("caf\udce9", "train", "a", [])
    assert record.doc_id == "caf\\udce9" and Record("caf\u00e9", "", "a", []).doc_id == "caf\u00e9"


def test_an_entity_across_all_sentences_makes_them_one(nlp) -> None:
    record = Record("d", "", "St. Louis left. ", [(0, 9, "GPE")], sentence_starts=[0, 4])
    (doc,) = (doc for doc, _ in record_to_docs(record, nlp, "sc", ReadOptions()))
    assert [sent.text for sent in doc.sents] == ["St. Louis left."]


def test_words_with_whitespace_in_them_are_cut_to_the_sentence(nlp) -> None:
    words = [" Foo", "bar", ". \n", "So", "it is."]
    record = Record("d", "", " Foo bar. \nSo it is.", [], words, sentence_starts=[0, 11])
    docs = [doc for doc, _ in record_to_docs(record, nlp, "sc", ReadOptions())]
    assert [[t.text for t in doc] for doc in docs] == [["Foo", "bar", "."], ["So", "it is."]]


def test_one_line_has_no_line_break(nlp) -> None:
    record = Record("d", "", "Paris is big.\n", [(0, 5, "GPE")], sentence_starts=[])
    docs = list(record_to_docs(record, nlp, "sc", ReadOptions(sentences="lines")))
    assert [doc.text for doc, _ in docs] == ["Paris is big."]


def test_an_entity_inside_one_across_sentences_does_not_free_the_boundary() -> None:
    text = "Bank of One. Two Group left. Bye."
    spans = [(0, 22, "ORG"), (0, 4, "FAC"), (8, 11, "NUM")]
    record = Record("d", "", text, spans, sentence_starts=[0, 13, 29])
    assert [part.text for part in split_at_sentences(record)] == [text[:28], "Bye."]


def test_sentences_without_a_blank_between_them() -> None:
    text = "好。我来。"
    record = Record("d", "", text, [], words=list(text), sentence_starts=[0, 2])
    doc, _ = record_to_doc(record, spacy.blank("xx"))
    assert [token.i for token in doc if token.is_sent_start] == [0, 2]
