"""ACE 2004 and 2005."""

from __future__ import annotations

import html
import re
import shutil
from collections import Counter

import pytest

from spacy_nested_ner.corpora import CorpusError, Problems, ReadOptions, get_reader
from tests.corpora.comparing import mentions


@pytest.mark.parametrize("year, count, documents", [("ace2005", 113, 5), ("ace2004", 80, 4)])
def test_ace(samples, year, count, documents):
    """Offsets are worked out a second way: the text before a mention, decoded, from the body on."""
    root = samples / "ace" / year
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
            for mention in mentions(samples, record.doc_id)
        }
        assert set(record.spans) == expected
        assert "&amp;" not in record.text and not record.dropped


def test_ace_split_lists_and_versions(samples, tmp_path):
    source = samples / "ace" / "ace2005"
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
def one_ace(samples, tmp_path):
    source = samples / "ace" / "ace2005" / "data" / "English" / "nw" / "timex2norm"
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


@pytest.mark.parametrize("counted", [0, 1])
def test_ace_with_a_byte_order_mark(one_ace, counted):
    (plain,) = get_reader("ace")(one_ace, ReadOptions())
    sgm, apf = (one_ace / f"PITFALL_ENG_20240101.0002.{end}" for end in ("sgm", "apf.xml"))
    sgm.write_text(f"\ufeff{sgm.read_text('utf8')}", encoding="utf8")
    moved = re.sub(
        r'(START|END)="(\d+)"',
        lambda match: f'{match[1]}="{int(match[2]) + counted}"',
        apf.read_text("utf8"),
    )
    apf.write_text(moved, encoding="utf8")
    (record,) = get_reader("ace")(one_ace, ReadOptions())
    assert (record.text, record.spans) == (plain.text, plain.spans)
    sgm.write_text("\ufeff" + re.sub("<[^>]*>", "", sgm.read_text("utf8")[1:]), encoding="utf8")
    (record,) = get_reader("ace")(one_ace, ReadOptions())
    assert len(record.spans) == len(plain.spans) and "\ufeff" not in record.text


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


def test_a_mention_without_an_extent_is_no_mention_lost(one_ace):
    path = one_ace / "PITFALL_ENG_20240101.0002.apf.xml"
    text = re.sub("<extent>.*?</extent>", "", path.read_text("utf8"), count=1, flags=re.DOTALL)
    path.write_text(text, encoding="utf8")
    with pytest.raises(CorpusError, match=r"<entity_mention> without <extent> and <charseq>"):
        list(get_reader("ace")(one_ace, ReadOptions()))


@pytest.mark.parametrize("start, end", [(-3, 1), (5, 2), (0, 10**9), (10**30, 10**30)])
def test_extents_outside_of_the_text(one_ace, start, end):
    path = one_ace / "PITFALL_ENG_20240101.0002.apf.xml"
    extent = f'START="{start}" END="{end}"'
    text = re.sub(r'START="\d+" END="\d+"', extent, path.read_text("utf8"), count=1)
    path.write_text(text, encoding="utf8")
    with pytest.raises(CorpusError, match=rf"a mention of \w+ at {start} is"):
        list(get_reader("ace")(one_ace, ReadOptions()))


def test_a_tag_without_a_name(one_ace):
    path = next(one_ace.glob("*.sgm"))
    path.write_text(path.read_text("utf8").replace("<BODY>", "<BODY><\t\n>"), encoding="utf8")
    assert list(get_reader("ace")(one_ace, ReadOptions()))


def test_a_mention_with_two_extents_is_refused(one_ace):
    path = one_ace / "PITFALL_ENG_20240101.0002.apf.xml"
    text = path.read_text("utf8")
    extent = re.search("<charseq.*?</charseq>", text, re.DOTALL).group()
    path.write_text(text.replace(extent, extent * 2, 1), encoding="utf8")
    with pytest.raises(CorpusError, match=r"<entity_mention> with two extents"):
        list(get_reader("ace")(one_ace, ReadOptions()))


def test_what_is_behind_the_text_is_left_out(tmp_path):
    text = "<BODY><TEXT>\nBush spoke.\n</TEXT></BODY><ENDTIME>2000-10-01</ENDTIME>"
    (tmp_path / "a.sgm").write_text(f"<DOC><DOCID>a</DOCID>{text}</DOC>", encoding="utf8")
    (tmp_path / "a.apf.xml").write_text(
        '<source_file><document DOCID="a"><entity TYPE="PER"><entity_mention><extent>'
        '<charseq START="2" END="5">Bush</charseq></extent></entity_mention></entity></document>'
        "</source_file>",
        encoding="utf8",
    )
    (record,) = get_reader("ace")(tmp_path, ReadOptions())
    assert record.text == "\nBush spoke.\n" and record.spans == [(1, 5, "PER")]
