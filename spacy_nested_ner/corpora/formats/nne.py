"""NNE (Ringland et al. 2019): annotations of the Wall Street Journal in files of four lines."""

from __future__ import annotations

import io
import re
from pathlib import Path, PurePosixPath
from typing import Iterator, Tuple

from spacy_nested_ner.corpora.errors import CorpusError
from spacy_nested_ner.corpora.formats.lu_roth import FourLineSettings, Lines, four_line_records
from spacy_nested_ner.corpora.parsing.archives import is_tar, members, unpacked
from spacy_nested_ner.corpora.parsing.paths import walk
from spacy_nested_ner.corpora.parsing.settings import with_settings
from spacy_nested_ner.corpora.parsing.text import (
    BYTE_ORDER_MARK,
    decoded,
    numbered_lines,
    read_lines,
)
from spacy_nested_ner.corpora.records import ReadOptions, Record
from spacy_nested_ner.corpora.registry import readers
from spacy_nested_ner.corpora.sentences import grouped

_SECTION = re.compile(r"\d\d")


@readers.register("nne")
def read_nne(path: Path, options: ReadOptions) -> Iterator[Record]:
    """NNE (.mrg files in a folder or .tar.gz): section 02 is dev, 23 and 24 are test"""
    settings = with_settings(FourLineSettings(), options.settings)
    for name, lines in _files(Path(path)):
        file = PurePosixPath(name)
        records = four_line_records(
            name, file.stem, _split_of_section(file), lines, settings, options
        )
        yield from grouped(options.problems.stop(records), options.group)


def _files(path: Path) -> Iterator[Tuple[str, Lines]]:
    if path.is_dir():
        files = [file for file in walk(path) if file.suffix == ".mrg"]
        if not files:
            raise CorpusError("no .mrg file below this folder.", path)
        for file in files:
            yield str(file), read_lines(file)
    elif path.suffix == ".mrg":
        yield str(path), read_lines(path)
    else:
        yield from _archived(path)


def _archived(path: Path) -> Iterator[Tuple[str, Lines]]:
    if not is_tar(path):
        problem = "expected a .tar.gz archive of .mrg files, but this is not one, or it is damaged."
        raise CorpusError(problem, path)
    with unpacked(path) as archive:
        for member, stream in members(archive, ".mrg", path):
            name = f"{path} ({member})"
            text = decoded(stream.read(), name).removeprefix(BYTE_ORDER_MARK)
            yield name, numbered_lines(io.StringIO(text, newline="\n"), name)


def _split_of_section(file: PurePosixPath) -> str:
    """By the section of the Wall Street Journal, the folder of the file."""
    if not _SECTION.fullmatch(file.parent.name):
        return ""
    return {"02": "dev", "23": "test", "24": "test"}.get(file.parent.name, "train")
