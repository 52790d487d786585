"""Files written doc by doc."""

from __future__ import annotations

import errno
import tempfile
import zlib

import pytest
import spacy
from spacy.tokens import Doc, DocBin, Span

from spacy_nested_ner.corpora import docbin
from spacy_nested_ner.corpora.docbin import DocBinWriter


@pytest.fixture
def nlp():
    return spacy.blank("en")


def docs_for(nlp, count):
    for i in range(count):
        doc = nlp.make_doc(f"Doc {i} is in Tromsø . " * (i % 4))
        if i % 3 == 0:
            doc = Doc(nlp.vocab, words=["New", f"w{i}"])
            doc[0].is_sent_start = True
        doc.spans["sc"] = [Span(doc, 0, 2, label=f"L{i % 5}")] if len(doc) else []
        doc.user_data["doc_id"] = f"d{i}"
        yield doc


@pytest.mark.parametrize("count", [0, 1, 15, 16, 70])
def test_files_written_doc_by_doc_are_those_of_a_docbin(nlp, tmp_path, count):
    doc_bin = DocBin(attrs=["SENT_START"], store_user_data=True)
    with DocBinWriter() as writer:
        for doc in docs_for(nlp, count):
            doc_bin.add(doc)
            writer.add(doc)
        writer.write(tmp_path / "a.spacy")
        writer.write(tmp_path / "b.spacy")
    expected = zlib.decompress(doc_bin.to_bytes())
    assert zlib.decompress((tmp_path / "a.spacy").read_bytes()) == expected
    assert (tmp_path / "a.spacy").read_bytes() == (tmp_path / "b.spacy").read_bytes()
    docs = list(DocBin().from_disk(tmp_path / "a.spacy").get_docs(nlp.vocab))
    assert [doc.user_data["doc_id"] for doc in docs] == [f"d{i}" for i in range(count)]


def test_parts_that_outgrow_memory_go_to_disk(nlp, tmp_path, monkeypatch):
    monkeypatch.setattr(docbin, "KEPT_IN_MEMORY", 100)
    on_disk = []
    open_file = tempfile.TemporaryFile
    monkeypatch.setattr(
        tempfile, "TemporaryFile", lambda **args: on_disk.append(args) or open_file(**args)
    )
    doc_bin = DocBin(attrs=["SENT_START"], docs=docs_for(nlp, 70), store_user_data=True)
    with DocBinWriter() as writer:
        for doc in docs_for(nlp, 70):
            writer.add(doc)
        assert len(on_disk) > 3
        writer.write(tmp_path / "a.spacy")
    raw = zlib.decompress((tmp_path / "a.spacy").read_bytes())
    assert raw == zlib.decompress(doc_bin.to_bytes())


@pytest.mark.parametrize("size", [0, 255, 256, 65_535, 65_536])
def test_the_header_of_bytes_is_that_of_msgpack(size):
    packed = docbin.Packer(use_bin_type=True).pack(b"x" * size)
    assert docbin._bytes_header(size) + b"x" * size == packed


def test_what_a_file_or_the_disk_cannot_hold(tmp_path, monkeypatch):
    nlp = spacy.blank("en")
    with DocBinWriter() as writer:
        writer.add(nlp("a b"))
        monkeypatch.setattr(docbin, "_LARGEST", 8)
        with pytest.raises(ValueError, match="limited to 4 GiB"):
            writer.write(tmp_path / "a.spacy")
        for number, match in ((errno.ENOSPC, "where docs wait.*TMPDIR"), (errno.EIO, "broken")):

            def fail(doc, number=number):
                raise OSError(number, "broken")

            monkeypatch.setattr(writer._bin, "add", fail)
            with pytest.raises(OSError, match=match):
                writer.add(nlp("a"))


def test_ids_of_spans_may_be_numbers(tmp_path):
    doc = spacy.blank("en").make_doc("a b")
    doc.spans["sc"] = [Span(doc, 0, 2, "X", kb_id=24068, span_id=7)]
    DocBin(docs=[doc]).to_disk(tmp_path / "a.spacy")
    (read,) = docbin.read_docs(tmp_path / "a.spacy", spacy.blank("en").vocab)
    assert [(span.label_, span.kb_id, span.id) for span in read.spans["sc"]] == [("X", 24068, 7)]
