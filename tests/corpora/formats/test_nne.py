"""NNE and the four-line files of Lu and Roth."""

from __future__ import annotations

import tarfile

import pytest

from spacy_nested_ner.corpora import CorpusError, ReadOptions, get_reader
from tests.corpora.comparing import entities, expected, in_words, read


def test_nne_as_distributed(samples):
    """Sections are splits; a span may carry several labels."""
    found = sorted(map(in_words, read("nne", samples / "nne")))
    assert found == sorted(expected(samples / "nne" / "expected.jsonl"))
    assert {split for split, _, _ in found} == {"train", "dev", "test"}
    assert any(len({s[:2] for s in spans}) < len(spans) for _, _, spans in found)


SENTENCES = ("Bell of LA", "NNP IN NNP", "0,0 ORG|0,0 NAME|2,2 CITY", "", "a", "DT", "", "")


def test_nne_folder_and_archive(tmp_path):
    for section in ("02", "07", "23"):
        (tmp_path / "nne" / section).mkdir(parents=True)
        file = tmp_path / "nne" / section / f"wsj_{section}00.mrg"
        file.write_text("\n".join(SENTENCES), encoding="utf8")
    with tarfile.open(tmp_path / "nne.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "nne", "nne")
    found = read("nne", tmp_path / "nne")
    assert [r.split for r in found] == ["dev", "dev", "train", "train", "test", "test"]
    assert entities(found[0]) == [("Bell", "NAME"), ("Bell", "ORG"), ("LA", "CITY")]
    assert found[1].text == "a" and not found[1].spans
    archived = read("nne", tmp_path / "nne.tar.gz")
    key = lambda r: (r.doc_id, r.text)  # noqa: E731
    assert sorted(map(key, archived)) == sorted(map(key, found))
    articles = list(get_reader("nne")(tmp_path / "nne", ReadOptions(group="article")))
    assert [record.text for record in articles] == ["Bell of LA a"] * 3


def test_a_byte_order_mark_in_an_archive_is_no_text(tmp_path):
    file = tmp_path / "wsj_0700.mrg"
    file.write_text("\ufeff" + "\n".join(SENTENCES), encoding="utf8")
    with tarfile.open(tmp_path / "nne.tar.gz", "w:gz") as archive:
        archive.add(file, "nne/07/wsj_0700.mrg")
    for path in (file, tmp_path / "nne.tar.gz"):
        assert read("nne", path)[0].words == ["Bell", "of", "LA"]


def test_one_label_per_span(tmp_path):
    file = tmp_path / "dev.txt"
    file.write_text("Bell\nNNP\n0,1 ORG|0,1 NAME\n\n", encoding="utf8")
    (record,) = read("lu-roth", file, all_labels=False)
    assert entities(record) == [("Bell", "ORG")] and record.split == "dev"
    assert record.dropped == {("second label on a span", "NAME beside ORG"): 1}


@pytest.mark.parametrize(
    "lines, problem",
    [
        (("Bell", "NNP", "0;0 ORG", ""), "line 3: expected entities such as 0,1 PER"),
        (("Bell", "NNP", "0,1 ORG", ""), "line 3: entity '0,1 ORG': expected"),
        (("Bell", "NNP", "0,0 ORG", "x"), "line 4: expected a blank line"),
    ],
)
def test_nne_malformed(tmp_path, lines, problem):
    (tmp_path / "wsj_0001.mrg").write_text("\n".join(lines), encoding="utf8")
    with pytest.raises(CorpusError, match=problem):
        read("nne", tmp_path)


def test_nne_damaged_archive(tmp_path):
    (tmp_path / "nne.tar.gz").write_bytes(b"no archive")
    with pytest.raises(CorpusError, match="is not one, or it is damaged"):
        read("nne", tmp_path / "nne.tar.gz")


def test_a_lost_line_of_tags_at_the_end(tmp_path):
    (tmp_path / "dev.txt").write_text("a\nDT\n\n\nBell\n0,1 ORG\n", encoding="utf8")
    with pytest.raises(CorpusError, match=r"line 6: expected words and tags before entities"):
        read("lu-roth", tmp_path / "dev.txt")
    (tmp_path / "dev.txt").write_text("\n0,1 ORG|0,2 ORG\n\n", encoding="utf8")
    with pytest.raises(CorpusError, match=r"line 2: expected words and tags before entities"):
        read("lu-roth", tmp_path / "dev.txt")


def test_numbers_of_thousands_of_digits(tmp_path):
    (tmp_path / "dev.txt").write_text(f"a\nDT\n{'9' * 5000},1 X\n", encoding="utf8")
    with pytest.raises(CorpusError, match=r"line 3: entity '999"):
        read("lu-roth", tmp_path / "dev.txt")
