from __future__ import annotations

import json
from pathlib import Path

import pytest
import spacy
from spacy.tokens import DocBin

from spacy_nested_ner.corpora import ReadOptions, Record, get_reader, readers
from spacy_nested_ner.corpora.convert import convert_corpus
from spacy_nested_ner.corpora.docs import record_to_doc
from spacy_nested_ner.corpora.files import written_together


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


@pytest.mark.parametrize("words", [None, ["One", "two.", "Three", "four."]])
def test_sentence_starts(nlp, words):
    record = Record("d", "dev", "One two. Three four.", [], words, sentence_starts=[0, 9])
    doc, _ = record_to_doc(record, nlp)
    assert [sentence.text.strip() for sentence in doc.sents] == ["One two.", "Three four."]


def test_empty_record(nlp):
    doc, _ = record_to_doc(Record("d", "dev", "", []), nlp)
    assert len(doc) == 0 and "sc" in doc.spans


def test_files_and_report(nlp, tmp_path):
    records = [
        Record("d1", "train", "a b c", [(0, 5, "X"), (2, 3, "Y")]),
        Record("d2", "test", "d", [(0, 1, "X")]),
    ]
    convert_corpus(records, tmp_path / "new" / "out", nlp, "nest", {"format": "none"})
    names = sorted(path.name for path in (tmp_path / "new" / "out").iterdir())
    assert names == ["dev.spacy", "report.json", "test.spacy", "train.spacy"]
    report = json.loads((tmp_path / "new" / "out" / "report.json").read_text("utf8"))
    assert report["format"] == "none" and report["spans_key"] == "nest"
    assert report["splits"]["train"]["nested_entities"] == 2
    assert report["splits"]["train"]["entities_by_depth"] == {"1": 1, "2": 1}
    assert report["splits"]["dev"]["documents"] == 0
    (doc,) = DocBin().from_disk(tmp_path / "new" / "out" / "train.spacy").get_docs(nlp.vocab)
    assert [(s.text, s.label_) for s in doc.spans["nest"]] == [("a b c", "X"), ("b", "Y")]
    assert doc.user_data["doc_id"] == "d1"


def test_an_error_leaves_earlier_files_alone(nlp, tmp_path):
    convert_corpus([Record("d1", "train", "a", [])], tmp_path, nlp)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def broken():
        yield Record("d2", "train", "b", [])
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError):
        convert_corpus(broken(), tmp_path, nlp)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_an_error_while_writing_leaves_nothing(tmp_path):
    with (
        pytest.raises(RuntimeError),
        written_together([tmp_path / "a", tmp_path / "b"]) as drafts,
    ):
        drafts[tmp_path / "a"].write_text("half", encoding="utf8")
        raise RuntimeError("stop")
    assert not list(tmp_path.iterdir())


def test_unknown_format_names_the_known_ones():
    with pytest.raises(ValueError, match=r"'nope'\. Known formats: .*genia"):
        get_reader("nope")


def test_every_registered_reader_resolves():
    for name in readers.get_all():
        assert callable(get_reader(name))


@pytest.mark.parametrize("options", [{"tokens": "bert"}, {"group": "page"}])
def test_unknown_options(options):
    with pytest.raises(ValueError, match="must be one of"):
        ReadOptions(**options)


def test_records_need_a_split(nlp, tmp_path):
    with pytest.raises(ValueError, match="d1: the record belongs to no split"):
        convert_corpus([Record("d1", "", "a", [])], tmp_path, nlp)
    assert not list(tmp_path.iterdir())


def test_no_record_or_doc_is_kept_until_the_end(tmp_path, monkeypatch):
    """What is alive while a corpus of 200 records is converted."""
    import weakref

    from spacy_nested_ner.corpora import convert

    records, docs, most = [], [], 0

    def alive(refs):
        return sum(ref() is not None for ref in refs)

    def made(record, *args):
        for doc, dropped in record_to_docs(record, *args):
            docs.append(weakref.ref(doc))
            yield doc, dropped

    def stream():
        nonlocal most
        for i in range(200):
            record = Record(f"d{i}", "train", f"a b{i}", [(0, 1, "X")])
            records.append(weakref.ref(record))
            yield record
            del record
            most = max(most, alive(records), alive(docs))

    record_to_docs = convert.record_to_docs
    monkeypatch.setattr(convert, "record_to_docs", made)
    counts = convert_corpus(stream(), tmp_path, spacy.blank("en"))
    assert counts["train"].documents == len(docs) == 200
    assert most <= 3


def test_the_page_on_corpora_names_every_format():
    page = (Path(__file__).parents[2] / "docs" / "corpora.md").read_text("utf8")
    for name in readers.get_all():
        assert f"| `{name}` | `convert {name} " in page
