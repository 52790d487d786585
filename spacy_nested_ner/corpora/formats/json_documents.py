"""What the formats share that are JSON with one object per document or sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, Iterator, TypeVar, Union

from spacy_nested_ner.corpora.errors import CorpusError, Place
from spacy_nested_ner.corpora.parsing.json import read_items
from spacy_nested_ner.corpora.parsing.settings import no_settings
from spacy_nested_ner.corpora.records import ReadOptions, Record, with_omissions
from spacy_nested_ner.corpora.registry import readers
from spacy_nested_ner.corpora.spans import CharSpan, Dropped, check_span
from spacy_nested_ner.corpora.splits import named_files

Object = Dict[str, Any]

Outcome = Union[Record, Dropped]
"""A record, or why there is none."""

Make = Callable[[Object, Place, str, ReadOptions], Outcome]
"""Makes a record of an object, its place, the split that it belongs to and the options."""

T = TypeVar("T")


def json_reader(name: str) -> Callable[[Make], Make]:
    """Decorator that registers a format without settings by what makes a record of one object. The
    docstring of that is the format's."""

    def register(make: Make) -> Make:
        def read(path: Path, options: ReadOptions) -> Iterator[Record]:
            no_settings(options.settings)
            return json_records(path, options, make)

        read.__doc__ = make.__doc__
        readers.register(name, func=read)
        return make

    return register


def json_records(path: Path, options: ReadOptions, make: Make) -> Iterator[Record]:
    """Records of a file or folder, made from one object each."""
    outcomes = (
        outcome
        for file, split in named_files(Path(path))
        for outcome in options.problems.stop(outcomes_of_file(file, split, options, make))
    )
    yield from with_omissions(outcomes)


def outcomes_of_file(
    file: Path,
    split: str,
    options: ReadOptions,
    make: Callable[[Object, Place, str, ReadOptions], T],
) -> Iterator[T]:
    """What `make(object, place, split, options)` gives for each object of a file, without those
    that are malformed."""
    items = read_items(file, options.problems)
    calls = ((item, (file, line), split, options) for line, item in items)
    return options.problems.attempt_each(make, calls)


def name_of(place: Place) -> str:
    """An id for an object that has none."""
    file, line = place
    return f"{file.name}:{line}"


def checked_span(start: Any, end: Any, label: Any, length: int, place: Place) -> CharSpan:
    """The span, end exclusive. Raises CorpusError unless it is one of a text of that length."""
    try:
        check_span(start, end, label, length)
    except ValueError as err:
        raise CorpusError(str(err), *place) from err
    return start, end, label
