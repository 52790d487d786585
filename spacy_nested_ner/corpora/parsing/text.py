"""Text files in UTF-8, plain or gzipped, line by line or whole."""

from __future__ import annotations

import gzip
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator, Optional, TextIO, Tuple

from spacy_nested_ner.corpora.errors import CorpusError
from spacy_nested_ner.corpora.parsing.archives import DAMAGE, is_gzip


def read_lines(path: Path) -> Iterator[Tuple[int, str]]:
    """Lines of a UTF-8 file, plain or gzipped, with their numbers from 1, without line ends.

    Raises CorpusError if the file is missing, damaged or not UTF-8.
    """
    with reading(path), open_text(path) as file:
        for number, line in enumerate(file, start=1):
            yield number, line.rstrip("\r\n")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Errors of the file while it is read become CorpusError."""
    try:
        yield
    except UnicodeDecodeError as err:
        problem = f"not UTF-8 ({err.reason}, byte {err.object[err.start]:#x}). Save it in UTF-8."
        raise CorpusError(problem, path, _line_of_bad_byte(path)) from err
    except DAMAGE as err:
        problem = f"the archive is damaged or cut off ({err}). Get it again."
        raise CorpusError(problem, path) from err


def _line_of_bad_byte(path: Path) -> Optional[int]:
    """Of a plain file; the position in the error is one in a buffer."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode("utf8")
            except UnicodeDecodeError:
                return number
    return None


def read_text(path: Path) -> str:
    """A whole UTF-8 file as it stands: line ends are kept, so that offsets hold.

    Raises CorpusError if the file is missing or not UTF-8.
    """
    if not path.is_file():
        raise CorpusError("no such file.", path)
    data = path.read_bytes()
    try:
        return data.decode("utf8")
    except UnicodeDecodeError as err:
        line = data[: err.start].count(b"\n") + 1
        raise CorpusError(f"not UTF-8 ({err.reason}). Save it in UTF-8.", path, line) from err


def open_text(path: Path) -> TextIO:
    """A UTF-8 file, plain or gzipped. Lines end with a line feed only: a stray carriage return or
    form feed ends none.

    Raises CorpusError if there is no such file.
    """
    if not path.is_file():
        raise CorpusError("no such file.", path)
    opener: Any = gzip.open if is_gzip(path) else open
    return opener(path, "rt", encoding="utf-8-sig", newline="\n")
