"""Files as bytes: the one place where they are opened and unpacked."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import tarfile
import zipfile
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Callable, Dict, Iterator, Tuple

from spacy_nested_ner.corpora.errors import CorpusError
from spacy_nested_ner.corpora.parsing.paths import check_is_file

LARGEST_RATIO = 200
"""Bytes that one byte of a file may unpack to, beyond the first `ALWAYS_ALLOWED`."""

ALWAYS_ALLOWED = 64 << 20

REFUSED = "This is refused for safety. If you trust it, unpack it yourself."

_DAMAGE = (EOFError, zlib.error, lzma.LZMAError, tarfile.TarError)
_BLOCK = 512

_OPENERS: Dict[str, Callable[..., Any]] = {
    r"\x1f\x8b": gzip.open,
    r"BZh[1-9](?:1AY&SY|\x17rE8P\x90)": bz2.open,
    r"\xfd7zXZ\0": lzma.open,
}


@contextmanager
def unpacked(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a regular file, unpacked where it is gzipped (or bzip2 or xz).

    Raises CorpusError if there is no such file or, also from the block that reads it, if it is
    damaged or unpacks to far more than packed text does.
    """
    check_is_file(path, "a file")
    with damage_named(path), path.open("rb") as file:
        begin = file.peek(_BLOCK)
        if begin.startswith(b"PK\3\4"):
            raise CorpusError("a zip archive, which is not read here. Unpack it.", path)
        for magic, opener in _OPENERS.items():
            if re.match(magic.encode("ascii"), begin):
                with opener(file) as stream, io.BufferedReader(_Bounded(stream, path)) as bounded:
                    yield bounded
                return
        yield file


@contextmanager
def damage_named(path: object) -> Iterator[None]:
    """What reading a damaged archive raises becomes CorpusError."""
    try:
        yield
    except _DAMAGE as err:
        raise _damaged(path, err) from err
    except OSError as err:
        if err.errno is not None:  # of the system, not of a format
            raise
        raise _damaged(path, err) from err


def is_tar(path: Path) -> bool:
    """Whether a file is a tar archive, plain or compressed."""
    with unpacked(path) as stream:
        try:
            tarfile.TarInfo.frombuf(stream.read(_BLOCK), "utf8", "surrogateescape")
        except (tarfile.HeaderError, ValueError):
            return False
    return True


def members(stream: IO[bytes], suffix: str, path: Path) -> Iterator[Tuple[str, IO[bytes]]]:
    """Name and content of the files of a tar archive with this ending, in their order. Each is
    open until the next is asked for.

    stream: the archive, from `unpacked`. path: its file, for errors.

    Raises CorpusError if there are none, or if the archive is damaged.
    """
    found, held = False, []
    with _read_by_library(path), tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            held.append(member.name)
            if member.issparse():  # its holes take no place in the archive
                raise CorpusError(f"it holds a sparse file, '{member.name}'. {REFUSED}", path)
            content = archive.extractfile(member) if member.name.endswith(suffix) else None
            if content is not None:
                found = True
                with content:
                    yield member.name, content
    if not found:
        names = ", ".join(held) or "nothing"
        raise CorpusError(f"no {suffix} file in the archive. It holds: {names}.", path)


@contextmanager
def unzipped(path: Path) -> Iterator[zipfile.ZipFile]:
    """A zip archive.

    Raises CorpusError if there is no such file or, also from the block that reads it, if it is
    damaged or unpacks to far more than packed text does.
    """
    check_is_file(path, "a zip archive")
    with _read_by_library(path), zipfile.ZipFile(path) as archive:
        if sum(info.file_size for info in archive.infolist()) > _most(path):
            raise _too_large(path)
        yield archive


@contextmanager
def _read_by_library(path: Path) -> Iterator[None]:
    """`tarfile` and `zipfile` pass on whatever the parts of a damaged file make Python raise."""
    try:
        yield
    except (CorpusError, MemoryError):
        raise
    except Exception as err:
        if isinstance(err, OSError) and err.errno is not None:
            raise
        raise _damaged(path, err) from err


class _Bounded(io.RawIOBase):
    """Refuses to go on where a file unpacks to far more than packed text does."""

    def __init__(self, stream: Any, path: Path) -> None:
        self._stream = stream
        self._path = path
        self._left = _most(path)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._stream.readinto(buffer)
        self._left -= count
        if self._left < 0:
            raise _too_large(self._path)
        return count


def _most(path: Path) -> int:
    return ALWAYS_ALLOWED + LARGEST_RATIO * path.stat().st_size


def _too_large(path: Path) -> CorpusError:
    return CorpusError(f"it unpacks to more than {LARGEST_RATIO} times its size. {REFUSED}", path)


def _damaged(path: object, err: BaseException) -> CorpusError:
    reason = f"{err}" or type(err).__name__
    return CorpusError(f"the archive is damaged or cut off ({reason}). Get it again.", path)
