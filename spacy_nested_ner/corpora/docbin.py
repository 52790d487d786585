"""Docs into a `.spacy` file one by one, and out of it.

A `DocBin` holds all its docs in memory until it is written. Here its own code packs each doc, and
the packed parts wait in temporary files; only the container around them is put together here.
What grows in memory is the set of strings that a `DocBin` stores (the vocabulary).
"""

from __future__ import annotations

import errno
import shutil
import struct
import tempfile
import warnings
import zlib
from array import array
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Dict, Iterator, List

from spacy.tokens import Doc, DocBin
from spacy.training.corpus import walk_corpus
from spacy.vocab import Vocab
from srsly.msgpack import Packer

from spacy_nested_ner.files import settle
from spacy_nested_ner.msgpack import ask_packages_once

ask_packages_once()

KEPT_IN_MEMORY = 1 << 20
"""Bytes of one part of one file that are kept in memory before they go to disk."""

_RAW = ("tokens", "spaces")
_LISTS = ("cats", "flags", "span_groups", "user_data")
_LARGEST = (1 << 32) - 1


def read_docs(path: Path, vocab: Vocab) -> Iterator[Doc]:
    """The docs of a `.spacy` file, or of those in a folder, one by one.

    Raises ValueError, with the path, if there is no such file, or if it is damaged.
    """
    for file in check_data(path):
        try:
            for doc in DocBin().from_disk(file).get_docs(vocab):
                _check_strings(doc)
                yield doc
        except (MemoryError, OSError):
            raise
        except Exception as err:  # zlib, msgpack and numpy all have errors of their own
            problem = "is not a .spacy file (DocBin) or is damaged. Convert the corpus again."
            raise ValueError(f"{file} {problem} ({err})") from err


def spacy_files(path: Path) -> List[Path]:
    """The file, or the `.spacy` files in and below a folder, as `spacy train` reads them."""
    if not path.is_dir():
        return [path]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a folder without any
        return list(walk_corpus(path.resolve(), ".spacy"))


def check_data(path: Path, what: str = "gold data") -> List[Path]:
    """`spacy_files`, or ValueError if there are none, or if they are no regular files with this
    ending. What a killed conversion left is settled first."""
    settle(path.parent)
    if not path.exists():
        raise ValueError(f"{path}: no such file. Expected {what}, a .spacy file or folder.")
    if path.is_dir():
        settle(path)
    elif path.suffix != ".spacy":  # spaCy's reader would find nothing in it and only warn
        raise ValueError(f"{path} is not a .spacy file. Convert the corpus first.")
    files = spacy_files(path)
    if not files:
        raise ValueError(f"{path} is a folder without .spacy files. Expected {what}.")
    for file in files:
        if not file.is_file():
            raise ValueError(f"{file} is not a regular file. Expected {what} in a .spacy file.")
    return files


def _check_strings(doc: Doc) -> None:
    """A doc holds hashes; raise KeyError now if the vocabulary lacks the string of one. Ids of
    spans may be numbers that have none."""
    _ = doc.text
    for span in (*doc.ents, *(span for group in doc.spans.values() for span in group)):
        _ = span.label_


class DocBinWriter:
    """Context manager: `add` docs, then `write` the file, equal to that of one `DocBin`."""

    def __init__(self) -> None:
        self._bin = DocBin(attrs=["SENT_START"], store_user_data=True)
        self._lengths = array("i")
        self._packer = Packer(use_bin_type=True)  # to make one costs more than to pack a doc
        self._parts: Dict[str, IO[bytes]] = {}
        self._stack = ExitStack()

    def __enter__(self) -> DocBinWriter:
        for name in (*_RAW, *_LISTS):
            part = tempfile.SpooledTemporaryFile(max_size=KEPT_IN_MEMORY)
            self._parts[name] = self._stack.enter_context(part)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __len__(self) -> int:
        return len(self._lengths)

    def add(self, doc: Doc) -> None:
        """Pack one doc, with its user data.

        Raises OSError if there is no room for what waits: it says where.
        """
        try:
            self._add(doc)
        except OSError as err:
            if err.errno != errno.ENOSPC:
                raise
            raise OSError(
                f"No space left in {tempfile.gettempdir()}, where docs wait to be written. Make "
                "room there, or set the environment variable TMPDIR to another folder."
            ) from err

    def _add(self, doc: Doc) -> None:
        self._bin.add(doc)
        self._lengths.append(len(doc))
        for name in _RAW:
            self._parts[name].write(getattr(self._bin, name).pop().tobytes("C"))
        for name in _LISTS:
            self._parts[name].write(self._packer.pack(getattr(self._bin, name).pop()))

    def write(self, path: Path) -> None:
        """Put the file together.

        Raises ValueError if its tokens take more than the 4 GiB that the format allows.
        """
        with path.open("wb") as file:
            packed = _Compressed(file)
            packed.write(self._packer.pack_map_header(10))
            self._pack(packed, "version", self._bin.version)
            self._pack(packed, "attrs", self._bin.attrs)
            for name in _RAW:
                packed.write(self._packer.pack(name))
                self._copy_raw(packed, name)
            self._pack(packed, "lengths", self._lengths.tobytes())
            self._pack(packed, "strings", sorted(self._bin.strings))
            for name in _LISTS:
                packed.write(self._packer.pack(name))
                packed.write(self._packer.pack_array_header(len(self)))
                self._copy(packed, name)
            packed.close()

    def _pack(self, packed: _Compressed, name: str, value: Any) -> None:
        packed.write(self._packer.pack(name))
        packed.write(self._packer.pack(value))

    def _copy_raw(self, packed: _Compressed, name: str) -> None:
        size = self._parts[name].tell()
        if size > _LARGEST:
            raise ValueError(
                "A .spacy file cannot hold so many tokens (its arrays are limited to 4 GiB). "
                "Convert the corpus in several parts and train on a folder of .spacy files."
            )
        packed.write(_bytes_header(size))
        self._copy(packed, name)

    def _copy(self, packed: _Compressed, name: str) -> None:
        self._parts[name].seek(0)
        shutil.copyfileobj(self._parts[name], packed)
        self._parts[name].seek(0, 2)


class _Compressed:
    """A file that compresses what is written to it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._compressor = zlib.compressobj()

    def write(self, data: bytes) -> int:
        self._file.write(self._compressor.compress(data))
        return len(data)

    def close(self) -> None:
        self._file.write(self._compressor.flush())


def _bytes_header(size: int) -> bytes:
    """What msgpack writes before that many bytes."""
    if size < 1 << 8:
        return struct.pack(">BB", 0xC4, size)
    if size < 1 << 16:
        return struct.pack(">BH", 0xC5, size)
    return struct.pack(">BI", 0xC6, size)
