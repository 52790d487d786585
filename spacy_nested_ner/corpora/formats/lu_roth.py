"""Four lines per sentence: words, parts of speech, entities, blank.

The data of Lu and Roth (2015) and the papers after it have this format. Entities are `START,END
LABEL`, joined by `|`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Iterable, Iterator, List, Tuple

from spacy_nested_ner.corpora.errors import CorpusError, shortened
from spacy_nested_ner.corpora.parsing.settings import with_settings
from spacy_nested_ner.corpora.parsing.text import read_lines
from spacy_nested_ner.corpora.records import ReadOptions, Record, words_record
from spacy_nested_ner.corpora.registry import readers
from spacy_nested_ner.corpora.spans import WordSpan, check_span
from spacy_nested_ner.corpora.splits import named_files

Lines = Iterable[Tuple[int, str]]
"""Lines of a file with their numbers."""

_ENTITY = re.compile(r"(\d+),(\d+) (\S+)")
_ENTITIES = re.compile(r"\s*\d+,\d+ [^\s|]+(?:\|\d+,\d+ [^\s|]+)*\s*")


@dataclass(frozen=True)
class FourLineSettings:
    """exclusive_end: the END of an entity is the token after its last."""

    exclusive_end: bool = False


@readers.register("lu-roth")
def read_lu_roth(path: Path, options: ReadOptions) -> Iterator[Record]:
    """Four-line files of Lu and Roth (2015): as nne, ends exclusive, files by split"""
    settings = with_settings(FourLineSettings(True), options.settings)
    if options.group == "article":
        raise CorpusError("this format has no documents. Use --group sentence.", path)
    for file, split in named_files(Path(path)):
        records = four_line_records(str(file), "", split, read_lines(file), settings, options)
        yield from options.problems.stop(records)


def four_line_records(
    name: str,
    doc_id: str,
    split: str,
    lines: Lines,
    settings: FourLineSettings,
    options: ReadOptions,
) -> Iterator[Record]:
    """Records of the sentences of one file.

    name: of the file, for errors. doc_id: of all its sentences; "" names each by its line.
    """
    for number, (line, tags, entities, blank) in _fours(lines):
        if _ENTITY.match(tags) or (not tags.strip() and _ENTITIES.fullmatch(line)):
            problem = f"expected words and tags before entities, not {(tags or line)[:40]!r}."
            raise CorpusError(problem, name, number + bool(tags))
        if blank.strip():
            problem = f"expected a blank line after words, tags and entities, not {blank[:40]!r}."
            raise CorpusError(problem, name, number + 3)
        words = line.split()
        place = (name, number + 2)
        spans = options.problems.attempt(_spans, entities, len(words), settings, place)
        if spans is not None:
            own_id = doc_id or f"{Path(name).name}:{number}"
            yield words_record(own_id, split, words, spans, options)


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


def _spans(
    entities: str, length: int, settings: FourLineSettings, place: Tuple[str, int]
) -> List[WordSpan]:
    """The entities of a line for a sentence of that many words. place: file and line."""
    spans = []
    for entity in filter(None, entities.strip().split("|")):
        match = _ENTITY.fullmatch(entity.strip())
        if match is None:
            problem = f"expected entities such as 0,1 PER|3,3 AGE, not {entity[:40]!r}."
            raise CorpusError(problem, *place)
        label = match.group(3)
        try:
            start, last = int(match.group(1)), int(match.group(2))
            end = last if settings.exclusive_end else last + 1
            check_span(start, end, label, length)
        except ValueError as err:
            raise CorpusError(f"entity {shortened(entity, 80)!r}: {err}", *place) from err
        spans.append((start, end, label))
    return spans
