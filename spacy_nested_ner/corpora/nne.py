"""Four lines per sentence: words, parts of speech, entities, blank.

The stand-off annotations of NNE (Ringland et al. 2019) and the data of Lu and Roth (2015) and the
papers after it have this format. Entities are `START,END LABEL`, joined by `|`.
"""

from __future__ import annotations

import io
import re
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Iterable, Iterator, List, Tuple

from spacy_nested_ner.corpora.records import CorpusError, ReadOptions, Record
from spacy_nested_ner.corpora.registry import readers
from spacy_nested_ner.corpora.sentences import grouped
from spacy_nested_ner.corpora.settings import with_settings
from spacy_nested_ner.corpora.text import named_files, read_lines
from spacy_nested_ner.corpora.words import check_span, words_record

Lines = Iterable[Tuple[int, str]]

_SECTION = re.compile(r"\d\d")
_ENTITY = re.compile(r"(\d+),(\d+) (\S+)")


@dataclass(frozen=True)
class FourLineSettings:
    """exclusive_end: the END of an entity is the token after its last."""

    exclusive_end: bool = False


@readers.register("nne")
def read_nne(path: Path, options: ReadOptions) -> Iterator[Record]:
    """NNE (.mrg files in a folder or .tar.gz): section 02 is dev, 23 and 24 are test"""
    settings = with_settings(FourLineSettings(), options.settings)
    for name, lines in _nne_files(Path(path)):
        file = PurePosixPath(name)
        records = _records(name, file.stem, _split(file), lines, settings, options)
        yield from grouped(options.problems.stop(records), options.group)


@readers.register("lu-roth")
def read_lu_roth(path: Path, options: ReadOptions) -> Iterator[Record]:
    """Four-line files of Lu and Roth (2015): as nne, ends exclusive, files by split"""
    settings = with_settings(FourLineSettings(True), options.settings)
    if options.group == "article":
        raise CorpusError("this format has no documents. Use --group sentence.", path)
    for file, split in named_files(Path(path)):
        records = _records(str(file), "", split, read_lines(file), settings, options)
        yield from options.problems.stop(records)


def _nne_files(path: Path) -> Iterator[Tuple[str, Lines]]:
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
            for member in archive:
                stream = archive.extractfile(member) if member.name.endswith(".mrg") else None
                if stream is not None:
                    found = True
                    text = stream.read().decode("utf8")
                    lines = ((i, line.rstrip("\n")) for i, line in enumerate(io.StringIO(text), 1))
                    yield f"{path} ({member.name})", lines
    except (EOFError, zlib.error, tarfile.TarError, UnicodeDecodeError) as err:
        problem = f"expected a .tar.gz archive of .mrg files, but it is none or damaged ({err})."
        raise CorpusError(problem, path) from err
    if not found:
        raise CorpusError("no .mrg file in the archive.", path)


def _split(file: PurePosixPath) -> str:
    """By the section of the Wall Street Journal, the folder of the file."""
    if not _SECTION.fullmatch(file.parent.name):
        return ""
    return {"02": "dev", "23": "test", "24": "test"}.get(file.parent.name, "train")


def _records(
    name: str,
    doc_id: str,
    split: str,
    lines: Lines,
    settings: FourLineSettings,
    options: ReadOptions,
) -> Iterator[Record]:
    for number, (words, _, entities, blank) in _fours(lines):
        if blank.strip():
            problem = f"expected a blank line after words, tags and entities, not {blank[:40]!r}."
            raise CorpusError(problem, name, number + 3)
        record = options.problems.attempt(
            _record, name, doc_id, split, number, words, entities, settings, options
        )
        if record is not None:
            yield record


def _fours(lines: Lines) -> Iterator[Tuple[int, List[str]]]:
    """Number of the first of four lines, and the lines; blank lines before them are passed over."""
    number = 0
    four: List[str] = []
    for line_number, line in lines:
        if not four and not line.strip():
            continue
        number = number if four else line_number
        four.append(line)
        if len(four) == 4:
            yield number, four
            four = []
    if four:
        yield number, four + [""] * (4 - len(four))


def _record(
    name: str,
    doc_id: str,
    split: str,
    number: int,
    line: str,
    entities: str,
    settings: FourLineSettings,
    options: ReadOptions,
) -> Record:
    words = line.split()
    spans = []
    for entity in filter(None, entities.strip().split("|")):
        match = _ENTITY.fullmatch(entity.strip())
        if match is None:
            problem = f"expected entities such as 0,1 PER|3,3 AGE, not {entity[:40]!r}."
            raise CorpusError(problem, name, number + 2)
        start, last, label = int(match.group(1)), int(match.group(2)), match.group(3)
        end = last if settings.exclusive_end else last + 1
        try:
            check_span(start, end, label, len(words))
        except ValueError as err:
            raise CorpusError(f"entity {entity!r}: {err}", name, number + 2) from err
        spans.append((start, end, label))
    return words_record(doc_id or f"{Path(name).name}:{number}", split, words, spans, options)
