"""Text files in UTF-8, plain or packed, line by line or whole."""

from __future__ import annotations

import io
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, Optional, TextIO, Tuple

from spacy_nested_ner.corpora.errors import CorpusError
from spacy_nested_ner.corpora.parsing.archives import unpacked

BYTE_ORDER_MARK = "\ufeff"


def read_lines(path: Path) -> Iterator[Tuple[int, str]]:
    """Lines of a UTF-8 file, plain or gzipped, with their numbers from 1, without line ends.

    Raises CorpusError if the file is missing, damaged, not UTF-8, or holds a NUL character.
    """
    with opened_text(path) as file:
        yield from numbered_lines(file, path)


def numbered_lines(file: TextIO, name: object) -> Iterator[Tuple[int, str]]:
    """As `read_lines`, from an open file that errors call `name`."""
    for number, line in enumerate(file, start=1):
        if "\0" in line:
            raise _with_nul(name, number)
        yield number, line.rstrip("\r\n")


@contextmanager
def opened_text(path: Path) -> Iterator[TextIO]:
    """A UTF-8 file, plain or gzipped, without a byte order mark. Lines end with a line feed only: a
    stray carriage return or form feed ends none.

    Raises CorpusError, also from the block that reads it, if the file is missing, damaged or not
    UTF-8.
    """
    try:
        with unpacked(path) as stream:
            yield io.TextIOWrapper(stream, encoding="utf-8-sig", newline="\n")
    except UnicodeDecodeError as err:
        raise _not_utf8(err, path, _line_of_bad_byte(path)) from err


def read_text(path: Path) -> str:
    """A whole UTF-8 file as it stands: line ends and a byte order mark are kept, so that
    offsets hold.

    Raises CorpusError if the file is missing, damaged, not UTF-8, or holds a NUL character.
    """
    with unpacked(path) as stream:
        return decoded(stream.read(), path)


def decoded(data: bytes, name: object) -> str:
    """Bytes of UTF-8 as they stand. Raises CorpusError, with the line, if they are not, or if one
    of them is NUL."""
    try:
        text = data.decode("utf8")
    except UnicodeDecodeError as err:
        raise _not_utf8(err, name, data[: err.start].count(b"\n") + 1) from err
    if "\0" in text:
        raise _with_nul(name, text[: text.index("\0")].count("\n") + 1)
    return text


def _line_of_bad_byte(path: Path) -> Optional[int]:
    """The position in the error is one in a buffer."""
    with unpacked(path) as stream:
        for number, line in enumerate(stream, start=1):
            try:
                line.decode("utf8")
            except UnicodeDecodeError:
                return number
    return None


def _not_utf8(err: UnicodeDecodeError, name: object, line: Optional[int]) -> CorpusError:
    problem = f"not UTF-8 ({err.reason}, byte {err.object[err.start]:#x}). Save it in UTF-8."
    return CorpusError(problem, name, line)


def _with_nul(name: object, line: int) -> CorpusError:
    return CorpusError("a NUL character, so it is no text in UTF-8. Save it in UTF-8.", name, line)
