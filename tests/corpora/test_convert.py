from __future__ import annotations

import json
import re
from pathlib import Path

import pandas
import pytest
import spacy
from spacy.tokens import DocBin

from spacy_nested_ner.corpora import Record
from spacy_nested_ner.corpora.convert import convert_corpus


@pytest.fixture
def nlp():
    return spacy.blank("en")


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


def test_tables_by_the_guide(tmp_path, monkeypatch):
    """Twelve texts of four authors, two sentences each; one entity is nested, one inside a word."""
    monkeypatch.chdir(tmp_path)
    rows = [(i, i % 4, "The US Supreme Court sat. It rose.") for i in range(12)]
    texts = pandas.DataFrame(rows, columns=["text_id", "author", "text"])
    spans = [(4, 20, "ORG"), (4, 6, "GPE"), (5, 6, "PER")]
    entities = pandas.DataFrame(
        [(i, *span) for i in range(12) for span in spans],
        columns=["text_id", "start", "end", "label"],
    )
    guide = Path(__file__).parents[2] / "docs" / "guide" / "corpora.md"
    blocks = re.findall(r"```python\n(.*?)```", guide.read_text("utf8"), re.S)
    (code,) = (block for block in blocks if "random_split" in block)
    exec(code, {"texts": texts, "entities": entities})
    splits = json.loads(Path("corpus/report.json").read_text("utf8"))["splits"]
    found = {name: (s["documents"], s["document_ids"]) for name, s in splits.items()}
    assert found == {"train": (18, 3), "dev": (6, 1), "test": (0, 0)}
    assert splits["train"]["labels"] == {"ORG": 9, "GPE": 9}
    assert splits["dev"]["dropped"] == {"misaligned": {"PER": 3}}
