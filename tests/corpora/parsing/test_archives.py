"""What is opened, and how: special files, packed files, damage, bombs."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import socket
import tarfile
import zipfile

import pytest

from spacy_nested_ner.corpora import CorpusError, ReadOptions, get_reader, readers
from spacy_nested_ner.corpora.parsing import archives
from spacy_nested_ner.corpora.parsing.paths import walk
from spacy_nested_ner.corpora.parsing.text import read_lines, read_text
from spacy_nested_ner.corpora.read import Source, read_corpus

ENDINGS = {"nne": ".mrg", "xmi": ".xmi", "ace": ".apf.xml", "brat": ".ann", "litbank": ".ann"}


@pytest.mark.parametrize("name", sorted(readers.get_all()))
def test_a_named_pipe_is_no_input(tmp_path, name):
    """Reading it would wait for ever."""
    path = tmp_path / f"train{ENDINGS.get(name, '.rich_ere.xml')}"
    os.mkfifo(path)
    with pytest.raises(CorpusError, match=r"neither a file nor a folder, but a named pipe"):
        list(get_reader(name)(path, ReadOptions()))
    if name != "genia":  # which reads no folders
        with pytest.raises(CorpusError, match=r"a named pipe|no (source |such )?file|no Type"):
            list(get_reader(name)(tmp_path, ReadOptions()))


def test_other_things_that_are_no_input(tmp_path):
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    (tmp_path / "itself").symlink_to(tmp_path / "itself")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "socket"))
        for name, problem in {
            "nowhere": "a broken link",
            "itself": "a broken link",
            "socket": "neither a file nor a folder",
            "none": "no such file or folder",
        }.items():
            with pytest.raises(CorpusError, match=f"{name}: {problem}"):
                list(read_corpus("columns", [Source(tmp_path / name)]))
    with pytest.raises(CorpusError, match="/dev/null: neither a file"):
        read_text(type(tmp_path)("/dev/null"))


def test_links_inside_a_folder(tmp_path):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.ann").write_text("", encoding="utf8")
    (tmp_path / "corpus" / "train").symlink_to(tmp_path / "real")
    assert walk(tmp_path / "corpus") == [tmp_path / "corpus" / "train" / "a.ann"]
    (tmp_path / "real" / "back").symlink_to(tmp_path / "corpus")
    with pytest.raises(CorpusError, match="which has already been read"):
        list(get_reader("brat")(tmp_path / "corpus", ReadOptions()))


def test_a_broken_link_in_a_folder_is_an_error(tmp_path):
    (tmp_path / "dev.json").write_text("[]", encoding="utf8")
    (tmp_path / "train.json").symlink_to(tmp_path / "gone")
    with pytest.raises(CorpusError, match=r"train\.json: a broken link"):
        list(get_reader("papers-json")(tmp_path, ReadOptions()))


def test_folders_that_are_not_read_are_named(tmp_path, caplog):
    (tmp_path / "dev.txt").write_text("a O\n", encoding="utf8")
    (tmp_path / "train").mkdir()
    assert len(list(get_reader("few-nerd")(tmp_path, ReadOptions()))) == 1
    assert "are not read: train. To read one, give it as an input." in caplog.text


@pytest.mark.parametrize("opener", [gzip.open, bz2.open, lzma.open])
def test_packed_text(tmp_path, opener):
    path = tmp_path / "packed"
    with opener(path, "wb") as file:
        file.write("é\nb\n".encode())
    assert list(read_lines(path)) == [(1, "é"), (2, "b")]
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(CorpusError, match="packed: the archive is damaged or cut off"):
        list(read_lines(path))


def test_a_zip_archive_is_named(tmp_path):
    with zipfile.ZipFile(tmp_path / "all.jsonl", "w") as archive:
        archive.writestr("a.jsonl", "{}")
    with pytest.raises(CorpusError, match=r"all.jsonl: a zip archive, .* Unpack it"):
        read_text(tmp_path / "all.jsonl")


def test_a_file_that_unpacks_to_far_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "ALWAYS_ALLOWED", 1 << 20)
    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb") as file:
        file.write(bytes(20 << 20))
    with pytest.raises(CorpusError, match="more than 200 times its size"):
        read_text(path)


def test_archives_of_tar(tmp_path):
    path = tmp_path / "a.tgz"
    with tarfile.open(path, "w:gz") as archive:
        for name, data in {"a.txt": b"x", "b.mrg": b"y" * 100_000}.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    assert archives.is_tar(path)
    with archives.unpacked(path) as stream:
        found = [(name, len(file.read())) for name, file in archives.members(stream, "rg", path)]
    assert found == [("b.mrg", 100_000)]
    plain = tmp_path / "cut.tar"
    plain.write_bytes(gzip.decompress(path.read_bytes())[:50_000])
    with pytest.raises(CorpusError, match=r"cut\.tar: the archive is damaged or cut off"):
        list(get_reader("nne")(plain, ReadOptions()))


def test_a_sparse_file_in_an_archive_is_refused(tmp_path):
    """It may have any size, whatever that of the archive."""
    path, info = tmp_path / "a.tar", tarfile.TarInfo("a.mrg")
    info.size = 3_000_000_000
    info.pax_headers = {"GNU.sparse.map": "0,0", "GNU.sparse.size": str(info.size)}
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        info.size = 0
        archive.addfile(info)
    with archives.unpacked(path) as stream, pytest.raises(CorpusError, match=r"sparse.*'a\.mrg'"):
        list(archives.members(stream, ".mrg", path))


@pytest.mark.parametrize("read", [lambda path: list(read_lines(path)), read_text])
def test_what_is_no_text(tmp_path, read):
    path = tmp_path / "a.txt"
    path.write_bytes("a\nb".encode("utf-16-le"))
    with pytest.raises(CorpusError, match="line 1: a NUL character"):
        read(path)
    path.write_bytes(b"a\nb\nc\xff")
    with pytest.raises(CorpusError, match=r"line 3: not UTF-8 \(invalid start byte, byte 0xff\)"):
        read(path)
