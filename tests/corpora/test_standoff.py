"""BRAT, LitBank, ACE, Rich ERE and NNE."""

from __future__ import annotations

import html
import json
import re
import shutil
import tarfile
from collections import Counter

import pytest

from spacy_nested_ner.corpora import CorpusError, Problems, ReadOptions, get_reader
from spacy_nested_ner.corpora.rewrite import Rewritten
from tests.corpora.comparing import entities, in_words, normalised, read, table

TEXT = "Mr. Dole left\nParis in the U.N. car."


def brat(tmp_path, *lines, text=TEXT, name="doc"):
    (tmp_path / f"{name}.txt").write_text(text, encoding="utf8")
    (tmp_path / f"{name}.ann").write_text("".join(f"{line}\n" for line in lines), encoding="utf8")
    return tmp_path


def test_brat_entities(tmp_path):
    folder = brat(
        tmp_path,
        "T1\tPER 0 8\tMr. Dole",
        "T2\tPER 4 8\tDole",
        "#1\tAnnotatorNotes T2\tno entity",
        "R1\tpart Arg1:T1 Arg2:T2",
        "T3\tGPE 14 19\tParis",
        "A1\tKnown T3",
    )
    (record,) = get_reader("brat")(folder, ReadOptions())
    assert record.text == TEXT and record.doc_id == "doc" and record.words is None
    assert entities(record) == [("Mr. Dole", "PER"), ("Dole", "PER"), ("Paris", "GPE")]


def test_discontinuous_annotations_are_counted(tmp_path):
    folder = brat(
        tmp_path,
        "T1\tVEH 23 26;32 35\tthe car",
        "T2\tEVT 9 13;14 19\tleft Paris",  # cut at the end of the line only
    )
    (record,) = get_reader("brat")(folder, ReadOptions())
    assert entities(record) == [("left\nParis", "EVT")]
    assert record.dropped == {("discontinuous", "VEH"): 1}


@pytest.mark.parametrize(
    "line, problem",
    [
        ("T1 PER 0 8 Mr. Dole", "expected ID<tab>LABEL START END<tab>TEXT"),
        ("T1\tPER 0 8\tMr. Dale", "says 'Mr. Dale', but the .txt has 'Mr. Dole'"),
        ("T1\tPER 30 90\tcar", "is not in the text of 36 characters"),
        ("T1\tPER 8 8\t", "is not in the text"),
        ("1\tPER 0 8\tMr. Dole", "expected an annotation (T1, R1, E1 ...), not '1"),
    ],
)
def test_malformed_annotations_can_be_skipped(tmp_path, line, problem):
    folder = brat(tmp_path, "T2\tGPE 14 19\tParis", line)
    with pytest.raises(CorpusError, match=r"doc\.ann, line 2: ") as err:
        list(get_reader("brat")(folder, ReadOptions()))
    assert problem in str(err.value)
    problems = Problems(skip=True, quiet=True)
    (record,) = get_reader("brat")(folder, ReadOptions(problems=problems))
    assert entities(record) == [("Paris", "GPE")] and problems.count == 1


def test_brat_folders_and_lone_files(tmp_path, caplog):
    for split in ("train", "dev"):
        (tmp_path / split).mkdir()
        brat(tmp_path / split, name=split)
    (tmp_path / "train" / "unread.txt").write_text("no annotation", encoding="utf8")
    records = list(get_reader("brat")(tmp_path, ReadOptions()))
    assert [(r.doc_id, r.split) for r in records] == [("dev", "dev"), ("train", "train")]
    assert "1 .txt files without .ann" in caplog.text
    assert records[0].dropped == {(".txt without .ann", ""): 1}
    (tmp_path / "dev" / "dev.txt").unlink()
    with pytest.raises(CorpusError, match=r"dev\.txt: no such file"):
        list(get_reader("brat")(tmp_path, ReadOptions()))


def test_nothing_below_a_folder(tmp_path):
    with pytest.raises(CorpusError, match=r"no file that ends in \.ann below"):
        list(get_reader("brat")(tmp_path, ReadOptions()))


LITBANK = {
    "train": (7051, 1147, 11007, 3166, 23),
    "dev": (697, 155, 1457, 424, 14),
    "test": (814, 112, 1448, 291, 14),
}


def test_litbank(shared):
    found = read("litbank", shared / "litbank" / "raw")
    for split, row in LITBANK.items():
        records = [record for record in found if record.split == split]
        assert table(records) == row
        expected = list(normalised(shared / "litbank" / "normalized" / f"{split}.jsonl"))
        assert [in_words(record) for record in records] == expected


def test_litbank_tsv_is_a_column_format(shared):
    path = shared / "litbank" / "raw" / "entities" / "tsv" / "1023_bleak_house_brat.tsv"
    assert ("Chancery", "FAC") in entities(read("columns", path)[0])


def test_litbank_as_plain_brat(shared):
    records = list(get_reader("brat")(shared / "litbank" / "raw", ReadOptions()))
    assert (len(records), sum(len(record.spans) for record in records)) == (100, 13912)


def expected_mentions(shared, doc_id):
    path = shared / "ace_format_fixtures" / "expected.jsonl"
    documents = map(json.loads, path.read_text("utf8").splitlines())
    return next(doc for doc in documents if doc["doc_id"] == doc_id)["mentions"]


@pytest.mark.parametrize("year, count, documents", [("ace2005", 113, 5), ("ace2004", 80, 4)])
def test_ace(shared, year, count, documents):
    """Offsets are worked out a second way: the text before a mention, decoded, from the body on."""
    root = shared / "ace_format_fixtures" / year
    found = list(get_reader("ace")(root, ReadOptions()))
    assert len(found) == documents and sum(len(record.spans) for record in found) == count
    for record in found:
        (sgm,) = root.rglob(f"{record.doc_id}.sgm")
        whole = sgm.read_bytes().decode("utf8")
        begin = min(whole.index(tag) for tag in ("<HEADLINE>", "<TEXT>") if tag in whole)
        header = len(re.sub(r"<[^>]*>", "", whole[:begin]))
        text = re.sub(r"<[^>]*>", "", whole)
        expected = {
            (
                len(html.unescape(text[header : mention["start_char"]])),
                len(html.unescape(text[header : mention["end_char"]])),
                mention["label"],
            )
            for mention in expected_mentions(shared, record.doc_id)
        }
        assert set(record.spans) == expected
        assert "&amp;" not in record.text and not record.dropped


def test_ace_split_lists_and_versions(shared, tmp_path):
    source = shared / "ace_format_fixtures" / "ace2005"
    shutil.copytree(source, tmp_path / "ace", copy_function=shutil.copy)
    news = tmp_path / "ace" / "data" / "English" / "nw"
    shutil.copytree(news / "timex2norm", news / "adj")
    (news / "adj" / "PITFALL_ENG_20240101.0001.sgm").write_text("another version", encoding="utf8")
    lists = tmp_path / "lists"
    lists.mkdir()
    for split, name in [("train", "nw/adj/PITFALL_ENG_20240101.0001"), ("dev", ""), ("test", "")]:
        (lists / f"{split}.txt").write_text(f"{name}\n", encoding="utf8")
    (lists / "dev.txt").write_text("bc/adj/LITBANK_ENG_20240301.0011\n", encoding="utf8")
    options = ReadOptions(settings={"splits": str(lists)})
    found = list(get_reader("ace")(tmp_path / "ace", options))
    assert [(record.doc_id, record.split) for record in found] == [
        ("LITBANK_ENG_20240301.0011", "dev"),
        ("PITFALL_ENG_20240101.0001", "train"),
    ]
    assert sum((record.dropped for record in found), Counter()) == {
        ("document in none of the lists", f"{name}"): 1
        for name in (
            "LITBANK_ENG_20240101.1023",
            "LITBANK_ENG_20240201.2489",
            "PITFALL_ENG_20240101.0002",
        )
    }


@pytest.fixture
def one_ace(shared, tmp_path):
    source = shared / "ace_format_fixtures" / "ace2005" / "data" / "English" / "nw" / "timex2norm"
    for file in source.glob("PITFALL_ENG_20240101.0002.*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def test_ace_checks_the_text(one_ace):
    sgm = one_ace / "PITFALL_ENG_20240101.0002.sgm"
    sgm.write_text(sgm.read_text("utf8").replace("his U.N.", "her U.N."), encoding="utf8")
    with pytest.raises(CorpusError, match="'his', but the text has 'her' there"):
        list(get_reader("ace")(one_ace, ReadOptions()))
    problems = Problems(skip=True, quiet=True)
    (record,) = get_reader("ace")(one_ace, ReadOptions(problems=problems))
    assert (len(record.spans), problems.count) == (5, 2)


def test_ace_refuses_entity_declarations(one_ace):
    apf = one_ace / "PITFALL_ENG_20240101.0002.apf.xml"
    old = '<!DOCTYPE source_file SYSTEM "apf.v5.1.1.dtd">'
    new = '<!DOCTYPE source_file [<!ENTITY x SYSTEM "file:///etc/hostname">]>'
    apf.write_text(apf.read_text("utf8").replace(old, new), encoding="utf8")
    with pytest.raises(CorpusError, match="declares the XML entity 'x'"):
        list(get_reader("ace")(one_ace, ReadOptions()))


def test_ace_malformed_xml_names_the_line(one_ace):
    apf = one_ace / "PITFALL_ENG_20240101.0002.apf.xml"
    apf.write_text(apf.read_text("utf8").replace("</extent>", "", 1), encoding="utf8")
    with pytest.raises(CorpusError, match=r"0002\.apf\.xml, line \d+: mismatched tag"):
        list(get_reader("ace")(one_ace, ReadOptions()))


def test_rich_ere(shared):
    root = shared / "ace_format_fixtures" / "kbp2017"
    found = {record.doc_id: record for record in get_reader("rich-ere")(root, ReadOptions())}
    counts = {"NYT_ENG_20240101.0001": 21, "ENG_DF_000001_20240101_F00000001": 21}
    assert {doc_id: len(record.spans) for doc_id, record in found.items()} == counts
    for doc_id, record in found.items():
        mentions = expected_mentions(shared, doc_id)
        expected = [(m["text"], m["label"]) for m in mentions if m["start_char"] != 133]
        assert sorted(entities(record)) == sorted(expected)
        assert "<" not in record.text
    forum = found["ENG_DF_000001_20240101_F00000001"]
    assert forum.dropped == {("in markup or a quote", "PER"): 1}  # the author attribute at 133
    assert "Down the hole" not in forum.text and "No comment." in forum.text


def test_rich_ere_offsets_one_beside(shared, tmp_path):
    for file in (shared / "ace_format_fixtures" / "kbp2017" / "data").rglob("NYT*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    ere = tmp_path / "NYT_ENG_20240101.0001.rich_ere.xml"
    shifted = re.sub(r'offset="155"', 'offset="156"', ere.read_text("utf8"))
    ere.write_text(shifted, encoding="utf8")
    (record,) = get_reader("rich-ere")(tmp_path, ReadOptions())
    assert len(record.spans) == 21 and ("London", "GPE") in entities(record)
    ere.write_text(re.sub(r'offset="156"', 'offset="180"', shifted), encoding="utf8")
    with pytest.raises(CorpusError, match="is 'London', but the source has"):
        list(get_reader("rich-ere")(tmp_path, ReadOptions()))


def test_rich_ere_in_several_files(shared, tmp_path):
    for file in (shared / "ace_format_fixtures" / "kbp2017" / "data").rglob("*.xml"):
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


def test_rich_ere_without_source(shared, tmp_path):
    (file,) = (shared / "ace_format_fixtures" / "kbp2017").rglob("NYT*.rich_ere.xml")
    (tmp_path / file.name).write_bytes(file.read_bytes())
    with pytest.raises(CorpusError, match=r"no source file .* NYT_ENG_20240101\.0001\.cmp\.txt"):
        list(get_reader("rich-ere")(tmp_path, ReadOptions()))


def test_rewritten_text():
    new = Rewritten("ab<x>c&amp;d", [(2, 5, ""), (6, 11, "&")])
    assert new.text == "abc&d"
    assert new.place(0, 2) == (0, 2) and new.place(5, 12) == (2, 5)
    assert new.place(6, 11) == (3, 4) and new.place(1, 6) == (1, 3)
    assert new.place(3, 6) is None and new.place(0, 8) is None


NNE = {  # PIQN table 6: S, NS, E, NE, ME
    "train": (43457, 28606, 248136, 206618, 149),
    "dev": (1989, 1292, 10463, 8487, 58),
    "test": (3762, 2489, 21196, 17670, 64),
}


def test_nne(shared):
    found = read("nne", shared / "nne_no_text" / "raw" / "no-text.tar.gz")
    for split, row in NNE.items():
        assert table([record for record in found if record.split == split]) == row
    assert len({label for record in found for _, _, label in record.spans}) == 114


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
    with pytest.raises(CorpusError, match="none or damaged"):
        read("nne", tmp_path / "nne.tar.gz")
