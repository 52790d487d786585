"""UIMA CAS XMI, written here with the library that INCEpTION's makers publish."""

from __future__ import annotations

import re
import sys
import zipfile
from collections import Counter

import pytest

from spacy_nested_ner.corpora import CorpusError, Problems, ReadOptions, get_reader
from spacy_nested_ner.corpora.sentences import split_at_sentences
from tests.corpora.comparing import entities

CORE = "de.tudarmstadt.ukp.dkpro.core.api"
TEXT = "😀 Bo Li's lab is old.\nRome, too."
SPANS = [(2, 13, "ORG"), (2, 7, "PER"), (22, 26, "GPE")]
TOKENS = [(0, 1), (2, 4), (5, 7), (7, 9), (10, 13), (14, 16), (17, 20), (20, 21)]
TOKENS += [(22, 26), (26, 27), (28, 31), (31, 32)]


def write(folder, name="doc", spans=SPANS, tokens=TOKENS, layer=f"{CORE}.ner.type.NamedEntity"):
    cassis = pytest.importorskip("cassis", reason="dkpro-cassis is not installed")
    types = cassis.TypeSystem()
    layers = {f"{CORE}.segmentation.type.{kind}": () for kind in ("Token", "Sentence")}
    for type_name, features in {**layers, layer: ("value", "identifier")}.items():
        made = types.create_type(name=type_name, supertypeName="uima.tcas.Annotation")
        for feature in features:
            types.create_feature(domainType=made, name=feature, rangeType="uima.cas.String")
    cas = cassis.Cas(typesystem=types)
    cas.sofa_string = TEXT
    cas.sofa_mime = "text/plain"
    for begin, end in tokens:
        cas.add(types.get_type(f"{CORE}.segmentation.type.Token")(begin=begin, end=end))
    for begin, end in [(0, 21), (22, 32)]:
        cas.add(types.get_type(f"{CORE}.segmentation.type.Sentence")(begin=begin, end=end))
    for begin, end, label in spans:
        cas.add(types.get_type(layer)(begin=begin, end=end, value=label))
    folder.mkdir(exist_ok=True)
    cas.to_xmi(folder / f"{name}.xmi")
    types.to_xml(folder / "TypeSystem.xml")
    return folder / f"{name}.xmi"


def read(path, **options):
    return list(get_reader("xmi")(path, ReadOptions(**options)))


EXPECTED = [("Bo Li's lab", "ORG"), ("Bo Li", "PER"), ("Rome", "GPE")]


def test_file_beside_its_type_system(tmp_path):
    (record,) = read(write(tmp_path / "dev"))
    assert record.text == TEXT and record.doc_id == "doc" and entities(record) == EXPECTED
    assert record.words == [TEXT[start:end] for start, end in TOKENS]
    first, second = split_at_sentences(record)
    assert first.text == "😀 Bo Li's lab is old." and entities(second) == [("Rome", "GPE")]


def test_folder_of_splits_and_zip_files(tmp_path):
    write(tmp_path / "dev")
    xmi = write(tmp_path / "zipped", "other", spans=[(2, 7, "PER")])
    (tmp_path / "train").mkdir()
    with zipfile.ZipFile(tmp_path / "train" / "other.zip", "w") as archive:
        archive.write(xmi, "other.xmi")
        archive.write(xmi.with_name("TypeSystem.xml"), "TypeSystem.xml")
    for file in (tmp_path / "zipped").iterdir():
        file.unlink()
    records = read(tmp_path)
    assert [(r.doc_id, r.split, len(r.spans)) for r in records] == [
        ("doc", "dev", 3),
        ("other", "train", 1),
    ]


def test_an_exported_project_gives_each_document_once(tmp_path):
    """As INCEpTION exports it: a folder for each document, a file for each annotator."""

    def annotated(folder, name, spans):
        (tmp_path / "made").mkdir(exist_ok=True)
        xmi = write(tmp_path / "made" / name, name, spans=spans)
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(tmp_path / folder / f"{name}.zip", "w") as archive:
            archive.write(xmi, f"{name}.xmi")
            archive.write(xmi.with_name("TypeSystem.xml"), "TypeSystem.xml")

    for document in ("1.txt", "2.txt"):
        annotated(f"inc/annotation/{document}", "INITIAL_CAS", [])
        annotated(f"inc/annotation/{document}", "berta", [(2, 7, "PER")])
        annotated(f"inc/annotation/{document}", "anna", [(2, 13, "ORG"), (2, 7, "PER")])
    for records in (read(tmp_path / "inc"), read(tmp_path / "inc" / "annotation")):
        assert [(r.doc_id, len(r.spans)) for r in records] == [("1.txt", 2), ("2.txt", 2)]
        left_out = sum((r.dropped for r in records), Counter())
        assert left_out == {
            ("before annotation", ""): 2,
            ("further annotation of a document", ""): 2,
        }
    annotated("inc/curation/2.txt", "CURATION_USER", [(2, 7, "PER")])
    records = read(tmp_path / "inc")
    assert [(r.doc_id, len(r.spans)) for r in records] == [("1.txt", 2), ("2.txt", 1)]


@pytest.mark.parametrize("name", ["annotation", "curation"])
def test_a_folder_may_be_called_like_those_of_a_project(tmp_path, name):
    (tmp_path / name).mkdir()
    for document in ("a", "b"):
        write(tmp_path / name / "train", document)
    for folder in (tmp_path, tmp_path / name / "train"):
        assert [record.doc_id for record in read(folder)] == ["a", "b"]


def test_layers_of_ones_own(tmp_path):
    path = write(tmp_path, layer="webanno.custom.Span")
    with pytest.raises(CorpusError, match=r"--set layer=NAME; the file has: webanno\.custom\.Span"):
        read(path)
    settings = {"layer": "webanno.custom.Span"}
    assert entities(read(path, settings=settings)[0]) == EXPECTED
    with pytest.raises(CorpusError, match="has no 'identifier'"):
        read(path, settings={**settings, "feature": "identifier"})


def test_empty_tokens_and_sentences_that_cut_a_token(tmp_path):
    (record,) = read(write(tmp_path, tokens=[*TOKENS[:8], (21, 21), (20, 26), *TOKENS[9:]]))
    assert record.words is None  # these overlap
    tokens = [*TOKENS[:7], (20, 20), (20, 26), *TOKENS[9:]]
    (record,) = read(write(tmp_path, tokens=tokens))
    assert "" not in record.words and record.words[7] == ".\nRome"
    assert record.sentence_starts == [0]
    assert [part.text for part in split_at_sentences(record)] == [TEXT]


def test_tokens_that_leave_out_text_are_not_taken(tmp_path):
    assert read(write(tmp_path, tokens=TOKENS[1:]))[0].words is None


def test_malformed_files_can_be_skipped(tmp_path):
    path = write(tmp_path)
    write(tmp_path, "other")
    path.write_text(path.read_text("utf8").replace("</xmi:XMI>", ""), encoding="utf8")
    with pytest.raises(CorpusError, match=r"doc\.xmi, line \d+: no element found"):
        read(tmp_path)
    problems = Problems(skip=True, quiet=True)
    (record,) = read(tmp_path, problems=problems)
    assert record.doc_id == "other" and problems.count == 1


def test_other_xml(tmp_path):
    path = write(tmp_path)
    path.write_text("<a><b/></a>", encoding="utf8")
    with pytest.raises(CorpusError, match="not UIMA CAS XMI"):
        read(path)


def test_entity_declarations_are_refused(tmp_path):
    path = write(tmp_path)
    text = path.read_text("utf8")
    declared = '?>\n<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/hostname">]>'
    path.write_text(text.replace("?>", declared, 1), encoding="utf8")
    with pytest.raises(CorpusError, match="declares the XML entity 'a'"):
        read(path)


def test_no_type_system(tmp_path):
    path = write(tmp_path)
    (tmp_path / "TypeSystem.xml").unlink()
    with pytest.raises(CorpusError, match=r"no TypeSystem\.xml beside it"):
        read(path)


def test_damaged_zip(tmp_path):
    pytest.importorskip("cassis")
    (tmp_path / "a.zip").write_bytes(b"PK damaged")
    with pytest.raises(CorpusError, match="the archive is damaged"):
        read(tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("readme", "x")
    with pytest.raises(CorpusError, match="It holds: readme"):
        read(tmp_path / "b.zip")


def test_without_the_library(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cassis", None)
    with pytest.raises(ImportError, match=r"pip install 'spacy_nested_ner\[xmi\]'"):
        read(tmp_path)


def test_zip_with_damaged_contents(tmp_path):
    """The list of its files is whole, so that only reading one of them shows it."""
    xmi = write(tmp_path)
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(xmi, "doc.xmi")
        archive.write(xmi.with_name("TypeSystem.xml"), "TypeSystem.xml")
    data = bytearray(path.read_bytes())
    data[60:200] = bytes(140)
    path.write_bytes(data)
    with pytest.raises(CorpusError, match=r"a\.zip: the archive is damaged or cut off"):
        read(path)


@pytest.mark.parametrize("file", ["doc.xmi", "TypeSystem.xml"])
def test_unknown_encodings(tmp_path, file):
    path = write(tmp_path)
    damaged = tmp_path / file
    text = re.sub("encoding=.UTF-8.", "encoding='x-none'", damaged.read_text("utf8"), flags=re.I)
    damaged.write_text(text, encoding="utf8")
    problem = r"doc\.xmi, line 1: the file declares the encoding 'x-none'"
    with pytest.raises(CorpusError, match=problem):
        read(path)


@pytest.mark.parametrize(
    "pattern, new, kept, lost",
    [(" members=", " others=", 0, 3), (r"(<\w+:NamedEntity [^>]*>)", r"\1\1", 3, 1)],
)
def test_spans_that_belong_to_no_text_are_counted(tmp_path, pattern, new, kept, lost):
    path = write(tmp_path)
    path.write_text(re.sub(pattern, new, path.read_text("utf8"), count=1), encoding="utf8")
    (record,) = read(path)
    assert len(record.spans) == kept
    assert record.dropped == {("in no view of the text", ""): lost}


def test_spans_without_a_label_are_counted_beside_others(tmp_path):
    spans = [(2, 13, "ORG"), (2, 7, None), (14, 16, ""), (22, 26, "GPE")]
    (record,) = read(write(tmp_path, spans=spans))
    assert entities(record) == [("Bo Li's lab", "ORG"), ("Rome", "GPE")]
    assert record.dropped == {("annotation without a label", ""): 2}
    with pytest.raises(CorpusError, match="Name the feature that holds the label"):
        read(write(tmp_path, spans=[(2, 13, None), (2, 7, None)]))


def test_spans_without_an_end(tmp_path):
    path = write(tmp_path, spans=[(2, 13, "ORG"), (22, 26, "GPE")])
    text = re.sub(r'(<\w+:NamedEntity[^>]*) end="\d+"', r"\1", path.read_text("utf8"), count=1)
    path.write_text(text, encoding="utf8")
    with pytest.raises(CorpusError, match=r"doc\.xmi: expected an entity with 0 <= start < end"):
        read(path)
    problems = Problems(skip=True, quiet=True)
    (record,) = read(path, problems=problems)
    assert entities(record) == [("Rome", "GPE")] and problems.count == 1


def test_texts_of_one_name_in_zip_files(tmp_path):
    """INCEpTION calls the file of an exported document after its user."""
    for number, city in enumerate(["Rome", "Oslo"]):
        file = write(tmp_path / f"{number}", "admin")
        file.write_text(file.read_text("utf8").replace("Rome", city), "utf8")
        with zipfile.ZipFile(tmp_path / f"{number}.zip", "w") as archive:
            for each in (file, file.with_name("TypeSystem.xml")):
                archive.write(each, each.name)
        for each in file.parent.iterdir():
            each.unlink()
    assert [record.doc_id for record in read(tmp_path)] == ["admin", "admin#2"]
