"""Rich ERE, as in TAC KBP 2017."""

from __future__ import annotations

import re

import pytest

from spacy_nested_ner.corpora import CorpusError, ReadOptions, get_reader
from tests.corpora.comparing import entities, mentions


def test_rich_ere(samples):
    root = samples / "ace" / "kbp2017"
    found = {record.doc_id: record for record in get_reader("rich-ere")(root, ReadOptions())}
    counts = {"NYT_ENG_20240101.0001": 21, "ENG_DF_000001_20240101_F00000001": 21}
    assert {doc_id: len(record.spans) for doc_id, record in found.items()} == counts
    for doc_id, record in found.items():
        listed = mentions(samples, doc_id)
        expected = [(m["text"], m["label"]) for m in listed if m["start_char"] != 133]
        assert sorted(entities(record)) == sorted(expected)
        assert "<" not in record.text
    forum = found["ENG_DF_000001_20240101_F00000001"]
    assert forum.dropped == {("in markup or a quote", "PER"): 1}  # the author attribute at 133
    assert "Down the hole" not in forum.text and "No comment." in forum.text


def test_rich_ere_offsets_one_beside(samples, tmp_path):
    for file in (samples / "ace" / "kbp2017" / "data").rglob("NYT*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    ere = tmp_path / "NYT_ENG_20240101.0001.rich_ere.xml"
    shifted = re.sub(r'offset="155"', 'offset="156"', ere.read_text("utf8"))
    ere.write_text(shifted, encoding="utf8")
    (record,) = get_reader("rich-ere")(tmp_path, ReadOptions())
    assert len(record.spans) == 21 and ("London", "GPE") in entities(record)
    ere.write_text(re.sub(r'offset="156"', 'offset="180"', shifted), encoding="utf8")
    with pytest.raises(CorpusError, match="is 'London', but the source has"):
        list(get_reader("rich-ere")(tmp_path, ReadOptions()))


@pytest.mark.parametrize("counted", [0, 1])
def test_rich_ere_with_a_byte_order_mark(samples, tmp_path, counted):
    for file in (samples / "ace" / "kbp2017" / "data").rglob("NYT*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (plain,) = get_reader("rich-ere")(tmp_path, ReadOptions())
    ere = tmp_path / "NYT_ENG_20240101.0001.rich_ere.xml"
    for file in tmp_path.iterdir():
        text = file.read_text("utf8")
        if file == ere:
            text = re.sub(r'offset="(\d+)"', lambda m: f'offset="{int(m[1]) + counted}"', text)
        else:
            text = f"\ufeff{text}"
        file.write_text(text, encoding="utf8")
    (record,) = get_reader("rich-ere")(tmp_path, ReadOptions())
    assert (record.text, record.spans) == (plain.text, plain.spans)


def test_rich_ere_in_several_files(samples, tmp_path):
    for file in (samples / "ace" / "kbp2017" / "data").rglob("*.xml"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    whole = tmp_path / "NYT_ENG_20240101.0001.rich_ere.xml"
    text = whole.read_text("utf8")
    parts = re.findall(r"<entity .*?</entity>", text, re.DOTALL)
    for i in range(2):
        name = f"NYT_ENG_20240101.0001_{i}.rich_ere.xml"
        entities_of_part = "".join(parts[i::2])
        xml = f'<deft_ere doc_id="x"><entities>{entities_of_part}</entities></deft_ere>'
        (tmp_path / name).write_text(xml, encoding="utf8")
    whole.unlink()
    found = {r.doc_id: len(r.spans) for r in get_reader("rich-ere")(tmp_path, ReadOptions())}
    assert found == {"ENG_DF_000001_20240101_F00000001": 21, "NYT_ENG_20240101.0001": 21}


def test_rich_ere_without_source(samples, tmp_path):
    (file,) = (samples / "ace" / "kbp2017").rglob("NYT*.rich_ere.xml")
    (tmp_path / file.name).write_bytes(file.read_bytes())
    with pytest.raises(CorpusError, match=r"no source file .* NYT_ENG_20240101\.0001\.cmp\.txt"):
        list(get_reader("rich-ere")(tmp_path, ReadOptions()))
