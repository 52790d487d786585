"""BRAT standoff (`.txt` and `.ann`), and LitBank, which comes in it.

Of the annotations only text-bound ones (`T`) are entities. Offsets are characters of the `.txt`
file. Fragments with nothing but whitespace between them are one span, since BRAT cuts its spans at
the ends of lines; other discontinuous annotations are dropped and counted.
"""

from __future__ import annotations

import logging
import re
from bisect import bisect_left, bisect_right
from itertools import pairwise
from pathlib import Path
from typing import Iterator, List, Optional, Tuple, Union

from spacy_nested_ner.corpora.records import (
    CharSpan,
    CorpusError,
    Dropped,
    ReadOptions,
    Record,
    span_order,
    with_omissions,
)
from spacy_nested_ner.corpora.registry import readers
from spacy_nested_ner.corpora.sentences import line_starts, word_places
from spacy_nested_ner.corpora.settings import no_settings
from spacy_nested_ner.corpora.spans import clean_spans
from spacy_nested_ner.corpora.text import files_below, read_lines, read_text

_OTHERS = "REAMN#*"
"""What the other annotations begin with: relations, events, attributes, notes."""

_TEXT_BOUND = re.compile(r"(T\S+)\t(\S+) (\d+ \d+(?:;\d+ \d+)*)(?:\t(.*))?")
_logger = logging.getLogger("spacy_nested_ner")


@readers.register("brat")
def read_brat(path: Path, options: ReadOptions) -> Iterator[Record]:
    """BRAT standoff: a folder with .txt and .ann files"""
    no_settings(options.settings)
    yield from with_omissions(_brat(Path(path), options))


def _brat(path: Path, options: ReadOptions) -> Iterator[Union[Record, Dropped]]:
    files, alone = _annotation_files(path)
    if alone:
        yield Dropped({(".txt without .ann", ""): alone})
    for ann, split in files:
        record = options.problems.attempt(_document, ann, split, options)
        if record is not None:
            yield record


@readers.register("litbank")
def read_litbank(path: Path, options: ReadOptions) -> Iterator[Record]:
    """LitBank's entities/brat: of ten books in the order of names the 9th is dev, the 10th test"""
    no_settings(options.settings)
    files, _ = _annotation_files(Path(path))
    for i, (ann, _) in enumerate(files):
        split = {8: "dev", 9: "test"}.get(i % 10, "train")
        record = options.problems.attempt(_document, ann, split, options)
        if record is not None:
            record.doc_id = record.doc_id.removesuffix("_brat")
            record.words = record.text.split()
            record.sentence_starts = line_starts(record.text)
            if options.tokens == "published":
                record.spans = _widened(record.text, record.words, record.spans)
            yield record


def _widened(text: str, words: List[str], spans: List[CharSpan]) -> List[CharSpan]:
    """Spans grown to whole words, as in the published `tsv` files: 21 begin or end inside one."""
    places = word_places(text, words)
    starts, ends = [start for start, _ in places], [end for _, end in places]
    grown = [
        (starts[bisect_right(starts, start) - 1], ends[bisect_left(ends, end)], label)
        for start, end, label in spans
    ]
    return sorted(grown, key=span_order)


def _annotation_files(path: Path) -> Tuple[List[Tuple[Path, str]], int]:
    """Annotation files with their splits, and how many texts have none."""
    if path.is_file():
        return [(path.with_suffix(".ann"), "")], 0
    files = files_below(path, ".ann")
    texts = {file for file, _ in files_below(path, ".txt")}
    alone = sorted(texts - {ann.with_suffix(".txt") for ann, _ in files})
    if alone:
        _logger.warning("%d .txt files without .ann are left out: %s ...", len(alone), alone[0])
    return files, len(alone)


def _document(ann: Path, split: str, options: ReadOptions) -> Record:
    text = read_text(ann.with_suffix(".txt"))
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
            else:
                spans.append((*place, label))
        elif line.strip() and line[0] not in _OTHERS:
            problem = f"expected an annotation (T1, R1, E1 ...), not {line[:60]!r}."
            options.problems.report(CorpusError(problem, ann, number))
    kept, cleaned = clean_spans(text, spans, one_label=options.all_labels is False)
    dropped.update(cleaned)
    return Record(ann.stem, split, text, kept, sentence_starts=[], dropped=dropped)


def _entity(path: Path, number: int, line: str, text: str) -> Tuple[Optional[Tuple[int, int]], str]:
    """Span, None for a discontinuous one, and label."""
    match = _TEXT_BOUND.fullmatch(line)
    if match is None:
        problem = f"expected ID<tab>LABEL START END<tab>TEXT, not {line[:60]!r}."
        raise CorpusError(problem, path, number)
    _, label, offsets, covered = match.groups()
    fragments = [tuple(map(int, pair.split())) for pair in offsets.split(";")]
    _check_fragments(fragments, covered, text, path, number)
    for (_, end), (start, _) in pairwise(fragments):
        if text[end:start].strip():
            return None, label
    return (fragments[0][0], fragments[-1][1]), label


def _check_fragments(
    fragments: List[Tuple[int, ...]], covered: Optional[str], text: str, path: Path, number: int
) -> None:
    for start, end in fragments:
        if not 0 <= start < end <= len(text):
            problem = f"the span {start} {end} is not in the text of {len(text)} characters."
            raise CorpusError(problem, path, number)
    found = " ".join(text[start:end] for start, end in fragments)
    if covered is not None and found.split() != covered.split():
        problem = f"the annotation says {covered!r}, but the .txt has {found!r} there."
        raise CorpusError(problem, path, number)
