"""Text files of a corpus: which they are, and their lines."""

from __future__ import annotations

import gzip
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator, List, Optional, TextIO, Tuple

from spacy_nested_ner.corpora.records import SPLITS, CorpusError
from spacy_nested_ner.corpora.splits import split_of_folder, split_of_name


def named_files(path: Path) -> List[Tuple[Path, str]]:
    """Files with the split that their name speaks of: the file itself, or those of a folder.

    Of a folder the files that name a split are taken (train, dev, valid, test ...), in the order
    train, dev, test.

    Raises CorpusError if no file of the folder names one.
    """
    if path.is_file():
        return [(path, split_of_name(path.name))]
    if not path.exists():
        raise CorpusError("no such file or folder.", path)
    named = [(file, split_of_name(file.name)) for file in sorted(path.iterdir()) if file.is_file()]
    found = [(file, split) for file, split in named if split]
    if not found:
        problem = "no file in this folder has train, dev or test in its name. Name the files."
        raise CorpusError(problem, path)
    return sorted(found, key=lambda pair: SPLITS.index(pair[1]))


def files_below(path: Path, *suffixes: str) -> List[Tuple[Path, str]]:
    """Files with one of these endings and the split that a folder around them speaks of: the file
    itself, or those at any depth of a folder, sorted.

    Raises CorpusError if there are none.
    """
    if path.is_file():
        return [(path, "")]
    if not path.exists():
        raise CorpusError("no such file or folder.", path)
    files = sorted(file for file in path.rglob("*") if file.name.endswith(suffixes))
    if not files:
        raise CorpusError(f"no file that ends in {' or '.join(suffixes)} below this folder.", path)
    return [(file, split_of_folder(file, path)) for file in files]


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
    except (EOFError, zlib.error, gzip.BadGzipFile) as err:
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
    with path.open("rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    opener: Any = gzip.open if zipped else open
    return opener(path, "rt", encoding="utf-8-sig", newline="\n")
