"""BRAT standoff: `DOC.ann` with annotations beside `DOC.txt` with the text.

Of the annotations only text-bound ones (`T`) are entities. Offsets are characters of the `.txt`
file, with or without its byte order mark. Fragments with nothing but whitespace between them are
one span, since BRAT cuts its spans at the ends of lines; other discontinuous annotations are
dropped and counted.
"""

from __future__ import annotations

import logging
import re
from itertools import pairwise
from pathlib import Path
from typing import Iterator, List, Optional, Sequence, Tuple, Union

from spacy_nested_ner.corpora.errors import CorpusError
from spacy_nested_ner.corpora.parsing.edits import too_long
from spacy_nested_ner.corpora.parsing.settings import no_settings
from spacy_nested_ner.corpora.parsing.text import BYTE_ORDER_MARK, read_lines, read_text
from spacy_nested_ner.corpora.records import (
    DocumentIds,
    ReadOptions,
    Record,
    text_record,
    with_omissions,
)
from spacy_nested_ner.corpora.registry import readers
from spacy_nested_ner.corpora.spans import CharSpan, Dropped
from spacy_nested_ner.corpora.splits import files_below

EXPECTED = "a text (DOC.txt) with its annotations beside it (DOC.ann), or a folder of such pairs"

TEXT_ALONE = (".txt without .ann", "")
"""Why a text is left out, for the report."""

_OTHERS = "REAMN#*"
"""What the other annotations begin with: relations, events, attributes, notes."""

_TEXT_BOUND = re.compile(r"(T\S+)\t(\S+) (\d+ \d+(?:;\d+ \d+)*)(?:\t(.*))?")
_logger = logging.getLogger("spacy_nested_ner")


@readers.register("brat")
def read_brat(path: Path, options: ReadOptions) -> Iterator[Record]:
    """BRAT standoff: a folder with .txt and .ann files"""
    no_settings(options.settings)
    yield from with_omissions(_documents(Path(path), options))


def _documents(path: Path, options: ReadOptions) -> Iterator[Union[Record, Dropped]]:
    files, alone = annotation_files(path)
    if alone:
        yield Dropped({TEXT_ALONE: alone})
    ids = DocumentIds()
    calls = ((ann, split, options, ids) for ann, split in files)
    yield from options.problems.attempt_each(read_document, calls)


def annotation_files(path: Path) -> Tuple[List[Tuple[Path, str]], int]:
    """Annotation files with their splits, and how many texts have none. Raises CorpusError if the
    path is neither a folder with some nor one file of a pair."""
    if path.is_file():
        if path.suffix not in (".txt", ".ann"):
            problem = f"not BRAT standoff. Expected {EXPECTED}."
            raise CorpusError(problem, path)
        return [(path.with_suffix(".ann"), "")], 0
    files = files_below(path, ".ann")
    texts = {file for file, _ in files_below(path, ".txt")}
    alone = sorted(texts - {ann.with_suffix(".txt") for ann, _ in files})
    if alone:
        _logger.warning("%d .txt files without .ann are left out: %s ...", len(alone), alone[0])
    return files, len(alone)


def read_document(ann: Path, split: str, options: ReadOptions, ids: DocumentIds) -> Record:
    """The record of one `.ann` file and the text beside it. Raises CorpusError."""
    for file in (ann, ann.with_suffix(".txt")):
        if not file.is_file():
            raise CorpusError(f"no such file. BRAT standoff is {EXPECTED}.", file)
    text = read_text(ann.with_suffix(".txt"))
    mark = int(text.startswith(BYTE_ORDER_MARK))
    spans: List[CharSpan] = []
    dropped: Dropped = Dropped()
    for number, line in read_lines(ann):
        if line.startswith("T"):
            found = options.problems.attempt(_entity, ann, number, line, text)
            if found is None:
                continue
            place, label = found
            if place is None:
                dropped["discontinuous", label] += 1
            elif place[1] <= mark:
                dropped["no text", label] += 1
            else:
                start, end = place
                spans.append((max(0, start - mark), end - mark, label))
        elif line.strip() and line[0] not in _OTHERS:
            problem = f"expected an annotation (T1, R1, E1 ...), not {line[:60]!r}."
            options.problems.report(CorpusError(problem, ann, number))
    doc_id = ids(ann.stem, text)
    return text_record(doc_id, split, text[mark:], spans, options, dropped)


def _entity(path: Path, number: int, line: str, text: str) -> Tuple[Optional[Tuple[int, int]], str]:
    """Span, None for a discontinuous one, and label."""
    match = _TEXT_BOUND.fullmatch(line)
    if match is None:
        problem = f"expected ID<tab>LABEL START END<tab>TEXT, not {line[:60]!r}."
        raise CorpusError(problem, path, number)
    _, label, offsets, covered = match.groups()
    try:
        fragments: Sequence[Tuple[int, ...]] = [
            tuple(map(int, pair.split())) for pair in offsets.split(";")
        ]
    except ValueError as err:  # thousands of digits
        raise CorpusError(str(err), path, number) from err
    problem = _problem(fragments, covered, text)
    if problem and text.startswith(BYTE_ORDER_MARK):  # they may not count it
        moved = [(start + 1, end + 1) for start, end in fragments]
        if not _problem(moved, covered, text):
            fragments, problem = moved, ""
    if problem:
        raise CorpusError(problem, path, number)
    for (_, end), (start, _) in pairwise(fragments):
        if text[end:start].strip():
            return None, label
    return (fragments[0][0], fragments[-1][1]), label


def _problem(fragments: Sequence[Tuple[int, ...]], covered: Optional[str], text: str) -> str:
    """Why the text does not have these fragments; empty if it has."""
    for start, end in fragments:
        if not 0 <= start < end <= len(text):
            return f"the span {start} {end} is not in the text of {len(text)} characters."
    if covered is None:
        return ""
    long = too_long(sum(end - start for start, end in fragments), covered)
    shown = [(start, start + 200) for start, _ in fragments[:1]] if long else fragments
    found = " ".join(text[start:end] for start, end in shown)
    if long or found.split() != covered.split():
        changed = " Were its line ends changed?" if "\r\n" in text else ""
        return f"the annotation says {covered!r}, but the .txt has {found!r} there.{changed}"
    return ""
