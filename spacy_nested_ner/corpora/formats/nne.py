"""NNE (Ringland et al. 2019): annotations of the Wall Street Journal in files of four lines."""

from __future__ import annotations

import io
import re
import tarfile
from pathlib import Path, PurePosixPath
from typing import Iterator, Tuple

from spacy_nested_ner.corpora.errors import CorpusError
from spacy_nested_ner.corpora.formats.lu_roth import FourLineSettings, Lines, four_line_records
from spacy_nested_ner.corpora.parsing.archives import DAMAGE, members
from spacy_nested_ner.corpora.parsing.settings import with_settings
from spacy_nested_ner.corpora.parsing.text import read_lines
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
        files = sorted(path.rglob("*.mrg"))
        if not files:
            raise CorpusError("no .mrg file below this folder.", path)
        for file in files:
            yield str(file), read_lines(file)
    elif path.suffix == ".mrg":
        yield str(path), read_lines(path)
    else:
        yield from _archived(path)


def _archived(path: Path) -> Iterator[Tuple[str, Lines]]:
    found = False
    try:
        with tarfile.open(path, "r|*") as archive:
            for name, stream in members(archive, ".mrg"):
                found = True
                text = io.StringIO(stream.read().decode("utf8"))
                yield f"{path} ({name})", ((i, line.rstrip("\n")) for i, line in enumerate(text, 1))
    except (*DAMAGE, UnicodeDecodeError) as err:
        problem = f"expected a .tar.gz archive of .mrg files, but it is none or damaged ({err})."
        raise CorpusError(problem, path) from err
    if not found:
        raise CorpusError("no .mrg file in the archive.", path)


def _split_of_section(file: PurePosixPath) -> str:
    """By the section of the Wall Street Journal, the folder of the file."""
    if not _SECTION.fullmatch(file.parent.name):
        return ""
    return {"02": "dev", "23": "test", "24": "test"}.get(file.parent.name, "train")
