"""Read a corpus of one or several files or folders into records with a split."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable, Iterable, Iterator, Optional, Sequence

from spacy_nested_ner.corpora.errors import CorpusError, Problems
from spacy_nested_ner.corpora.parsing.paths import check_input
from spacy_nested_ner.corpora.records import SPLITS, Reader, ReadOptions, Record
from spacy_nested_ner.corpora.registry import get_reader
from spacy_nested_ner.corpora.splits import DEFAULT_FRACTIONS, Fractions, random_split

DIVIDING = "Dividing into train, dev and test"
Progress = Callable[[Iterable[Record], str], Iterable[Record]]
"""Shows on a terminal how records pass; the second argument says what is being done."""


@dataclass(frozen=True)
class Source:
    """A file or folder, and the split that all of it belongs to ("" if its reader knows)."""

    path: Path
    split: str = ""

    @classmethod
    def parse(cls, text: str) -> Source:
        """`PATH` or `SPLIT=PATH`, such as `dev=eng.testa`. Raises ValueError if the path is empty:
        it would be the current folder."""
        split, sign, path = text.partition("=")
        if not sign or split not in SPLITS:
            split, path = "", text
        if not path:
            raise ValueError(f"an input without a path: '{text}'. Give a file or a folder.")
        return cls(Path(path), split)


@dataclass(frozen=True)
class SplitOptions:
    """How documents are divided where the corpus has no split of its own.

    redo: divide by chance even if the corpus has one.
    """

    fractions: Fractions = DEFAULT_FRACTIONS
    seed: int = 0
    redo: bool = False


def _unshown(records: Iterable[Record], _: str) -> Iterable[Record]:
    return records


def read_corpus(
    corpus_format: str,
    sources: Sequence[Source],
    options: Optional[ReadOptions] = None,
    split: Optional[SplitOptions] = None,
    progress: Progress = _unshown,
) -> Iterator[Record]:
    """Records of all sources, each with a split: that of its source, of the corpus, or one drawn
    by document. To draw, the corpus is read twice.

    Raises ValueError if there is no such format, CorpusError if a source cannot be read, if some
    sources have a split and others none, or if all of them together hold nothing.
    """
    reader = get_reader(corpus_format)
    options = options or ReadOptions()
    split = split or SplitOptions()
    records = _records(reader, sources, options)
    first = next(records, None)
    if first is None:
        raise _nothing(corpus_format, sources, options.problems)
    records = _prepend(first, records)
    if first.split and not split.redo:
        yield from progress(_with_own_split(records, sources), "Converting")
        return
    quiet = replace(options, problems=Problems(options.problems.skip, quiet=True))
    known = progress(_records(reader, sources, quiet), DIVIDING)
    split_of = random_split((record.doc_id for record in known), split.fractions, split.seed)
    for record in progress(records, "Converting"):
        if record.split and not split.redo:
            raise _mixed(sources)
        record.split = split_of(record.doc_id)
        yield record


def _records(reader: Reader, sources: Sequence[Source], options: ReadOptions) -> Iterator[Record]:
    for source in sources:
        check_input(source.path)
        for record in options.problems.stop(reader(source.path, options)):
            record.split = source.split or record.split
            yield record


def _with_own_split(records: Iterable[Record], sources: Sequence[Source]) -> Iterator[Record]:
    for record in records:
        if not record.split:
            raise _mixed(sources)
        yield record


def _prepend(first: Record, records: Iterator[Record]) -> Iterator[Record]:
    yield first
    yield from records


def _nothing(corpus_format: str, sources: Sequence[Source], problems: Problems) -> CorpusError:
    problem = f"no documents in the format {corpus_format!r}."
    if problems.count:
        problem = (
            f"nothing is left after {problems.count} errors. The first: {problems.messages[0]}"
        )
    return CorpusError(problem, _paths(sources))


def _paths(sources: Sequence[Source]) -> str:
    return ", ".join(str(source.path) for source in sources)


def _mixed(sources: Sequence[Source]) -> CorpusError:
    return CorpusError(
        "some inputs belong to train, dev or test by their name and others do not. Say which is "
        "which: write train=PATH, dev=PATH or test=PATH, or split them all with --resplit.",
        _paths(sources),
    )
