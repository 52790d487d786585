"""Column formats: a token and its tags on a line, a blank line after each sentence.

A column of tags is one level of nesting. CoNLL 2003, OntoNotes, GermEval 2014, Few-NERD, Weibo,
MSRA, layered CoNLL (Ju et al. 2018) and LitBank's `tsv` files are of this kind.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Iterator, List, Optional, Tuple

from spacy_nested_ner.corpora.errors import CorpusError, Problems
from spacy_nested_ner.corpora.parsing.settings import with_settings
from spacy_nested_ner.corpora.parsing.tags import (
    OUTSIDE,
    SCHEMES,
    Evidence,
    TagError,
    decode_tags,
)
from spacy_nested_ner.corpora.parsing.text import read_lines
from spacy_nested_ner.corpora.records import ReadOptions, Record, words_record
from spacy_nested_ner.corpora.registry import readers
from spacy_nested_ner.corpora.sentences import grouped
from spacy_nested_ner.corpora.splits import named_files

DOCSTART = "-DOCSTART-"

MOST_LEVELS, MOST_ROWS = 100, 200_000
"""Columns of tags and lines of one sentence. No corpus comes near; a file without blank lines
does."""

_NEW_DOCUMENT = re.compile(r"\t(?P<tab>[^\t]*)|[\t ]*newdoc\b(?:\s+id\s*=\s*(?P<id>\S(?:.*\S)?))?")

_HEADING = re.compile(r"# ?[A-Za-z_][\w.:-]* = |# new(?:doc|par)\b")
"""Comments as CoNLL-U has them. In a file of bare labels they would be tokens and entities."""

Row = Tuple[int, List[str]]
"""Line number and cells."""


@dataclass(frozen=True)
class ColumnSettings:
    """Where things are in a line. Columns count from 0, negative ones from the right.

    token: column of the token. tags: columns of tags, outermost level first; empty for all behind
    the token. scheme: see `tags.decode_tags`, or "auto" to find out from the whole file.
    comment: what a line begins with that is no token. Of GermEval's form (`#`, a tab, a name) and
    CoNLL-U's (`# newdoc id = name`) it begins a document; others are left out.
    first_character: the token is the first character of its cell (Weibo: the digit behind it is
    the place of the character in its word).
    """

    token: int = 0
    tags: Tuple[int, ...] = ()
    scheme: str = "auto"
    comment: str = ""
    first_character: bool = False


@readers.register("columns")
def read_columns(path: Path, options: ReadOptions) -> Iterator[Record]:
    """Tokens and tags in columns, any number of levels (settings: token, tags, scheme, comment)"""
    return column_records(path, options, ColumnSettings())


def column_records(path: Path, options: ReadOptions, defaults: ColumnSettings) -> Iterator[Record]:
    """Records of a file or folder. Settings in the options replace the defaults of the format."""
    settings = with_settings(defaults, options.settings)
    for file, split in named_files(Path(path)):
        records = _read_file(file, split, settings, options)
        yield from grouped(options.problems.stop(records), options.group)


def _read_file(
    path: Path, split: str, settings: ColumnSettings, options: ReadOptions
) -> Iterator[Record]:
    if settings.scheme == "auto":
        settings = replace(settings, scheme=_find_scheme(path, settings))
    elif settings.scheme not in SCHEMES:
        raise ValueError(
            f"Setting scheme must be auto or one of {', '.join(SCHEMES)}, not {settings.scheme!r}."
        )
    for doc_id, rows in _sentences(path, settings):
        if doc_id is None and options.group == "article":
            problem = f"the file marks no documents ({DOCSTART}). Use --group sentence."
            raise CorpusError(problem, path)
        name = doc_id or f"{path.name}:{rows[0][0]}"
        record = options.problems.attempt(_record, path, name, split, rows, settings, options)
        if record is not None:
            yield record


def _is_comment(line: str, sign: str) -> bool:
    """Whether the sign stands alone or before a `name = value`. "#London" and a tag are a token."""
    rest = line[len(sign) :]
    alone = rest[:1] in ("", " ", "\t", "\n", "\r")
    return line.startswith(sign) and (alone or (" = " in rest and "\t" not in rest))


def _sentences(path: Path, settings: ColumnSettings) -> Iterator[Tuple[Optional[str], List[Row]]]:
    """Document, if the file marks any, and rows of each sentence."""
    doc_id, documents = None, 0
    rows: List[Row] = []
    for number, line in read_lines(path):
        # Other whitespace than tabs and blanks, such as that of Chinese, belongs to a token.
        cells = line.split("\t") if "\t" in line else [*filter(None, line.split(" "))]
        if cells and cells[0] == DOCSTART:
            documents += 1
            doc_id, cells = f"{path.name}#{documents}", []
        elif settings.comment and _is_comment(line, settings.comment):
            new = _NEW_DOCUMENT.match(line, len(settings.comment))
            if new is not None:
                documents += 1
                doc_id = new["tab"] or new["id"] or f"{path.name}#{documents}"
            cells = []
        elif not settings.comment and _HEADING.match(line):
            problem = "the line is a comment. To leave out comments: --set comment=#."
            raise CorpusError(problem, path, number)
        if any(cell.strip() for cell in cells):
            rows.append((number, cells))
            if len(rows) > MOST_ROWS:
                problem = f"a sentence of more than {MOST_ROWS:,} lines. Blank lines end sentences."
                raise CorpusError(problem, path, rows[0][0])
        elif rows:
            yield doc_id, rows
            rows = []
    if rows:
        yield doc_id, rows


def _record(
    path: Path,
    doc_id: str,
    split: str,
    rows: List[Row],
    settings: ColumnSettings,
    options: ReadOptions,
) -> Record:
    words = [_token(path, row, settings) for row in rows]
    found = []
    for level in _levels(path, rows, settings):
        try:
            found += decode_tags(level, settings.scheme)
        except TagError as err:
            problem = (
                f"{err} Fix it, name the scheme (--set scheme={'|'.join(SCHEMES)}), or leave out "
                "comments (--set comment=#)."
            )
            raise CorpusError(problem, path, rows[err.index][0]) from err
    return words_record(doc_id, split, words, found, options)


def _token(path: Path, row: Row, settings: ColumnSettings) -> str:
    token = _cell(path, row, settings.token, "token").strip(" ")
    if settings.first_character:
        token = token[:1]
    token = token.strip()
    if not token:
        raise CorpusError("a row without a token, expected one or a blank line.", path, row[0])
    return token


def _levels(path: Path, rows: List[Row], settings: ColumnSettings) -> Iterator[List[str]]:
    """Tags of the sentence, level by level. No tag is the same as O."""
    if not settings.tags:
        if settings.token < 0:
            problem = (
                "if the token column is counted from the right, --set tags=NUMBERS is needed, too."
            )
            raise ValueError(problem)
        width = max(len(cells) for _, cells in rows)
        if width - settings.token < 2:
            raise CorpusError("a line with nothing after the token.", path, rows[0][0])
        if width - settings.token - 1 > MOST_LEVELS:
            line = next(number for number, cells in rows if len(cells) == width)
            problem = f"a line of {width} columns. Say which of them hold tags: --set tags=NUMBERS."
            raise CorpusError(problem, path, line)
        for i in range(settings.token + 1, width):
            yield [(cells[i].strip() if i < len(cells) else "") or "O" for _, cells in rows]
    yield from [[_cell(path, row, i, "tag").strip() or "O" for row in rows] for i in settings.tags]


def _cell(path: Path, row: Row, column: int, what: str) -> str:
    line, cells = row
    if not -len(cells) <= column < len(cells):
        problem = f"expected a {what} in column {column}, but the line has {len(cells)} columns."
        raise CorpusError(problem, path, line)
    return cells[column]


def _find_scheme(path: Path, settings: ColumnSettings) -> str:
    """The scheme that the tags of the whole file fit. Sentences with malformed lines do not count:
    they are reported when they are read."""
    evidence = Evidence()
    quiet = Problems(skip=True, quiet=True)
    for _, rows in _sentences(path, settings):
        for level in quiet.stop(_levels(path, rows, settings)):
            for tag, before, (line, _) in zip(level, [OUTSIDE, *level], rows):
                evidence.add(tag, before, line)
    try:
        return evidence.scheme()
    except TagError as err:
        problem = (
            f"the scheme of the tags is not clear: {err} Name it with --set "
            f"scheme={'|'.join(SCHEMES)}, say which columns hold tags with --set tags=NUMBERS, or "
            "leave out comments with --set comment=#."
        )
        raise CorpusError(problem, path, err.index) from err
