"""What the formats share that are JSON with one object per document or sentence."""

from __future__ import annotations

from itertools import groupby, product
from operator import itemgetter
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, Sequence, Tuple, TypeVar, Union

from spacy_nested_ner.corpora.errors import CorpusError, Line, Place
from spacy_nested_ner.corpora.parsing.json import Item, read_items
from spacy_nested_ner.corpora.parsing.settings import no_settings
from spacy_nested_ner.corpora.records import ReadOptions, Record, with_omissions
from spacy_nested_ner.corpora.registry import readers
from spacy_nested_ner.corpora.spans import CharSpan, Dropped, check_span
from spacy_nested_ner.corpora.splits import id_of, named_files

Object = Dict[str, Any]

Outcome = Union[Record, Dropped]
"""A record, or why there is none."""

Make = Callable[[Object, Place, str, str, ReadOptions], Outcome]
"""Makes a record of an object, its place, an id for it if it has none, the split that it belongs to
and the options."""

T = TypeVar("T")


def document_id(
    *holders: Any, own: Any = None, otherwise: str, names: Sequence[str] = ("text_id",)
) -> str:
    """The first name or whole number that a holder has under one of these names; or else its own
    from the tool, and else another. What has the same id is of one document and stays together.
    `nested-ner pick` writes a `text_id` into its tasks."""
    for holder, name in product(holders, names):
        found = holder.get(name) if isinstance(holder, dict) else None
        is_whole = type(found) is int or (isinstance(found, float) and found.is_integer())
        if (is_whole or type(found) is str) and (known := id_of(found)):
            return known
    return id_of(own) or otherwise


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
    make: Callable[[Object, Place, str, str, ReadOptions], T],
) -> Iterator[T]:
    """What `make` gives for each object of a file, without those that are malformed; see `Make`."""
    items = _named(read_items(file, options.problems), file.name)
    calls = ((item, (file, line), name, split, options) for line, item, name in items)
    return options.problems.attempt_each(make, calls)


def _named(items: Iterable[Item], file: str) -> Iterator[Tuple[Line, Object, str]]:
    """Line, object and an id: its file and line. A list on one line has many objects there, which
    are numbered."""
    for line, on_line in groupby(items, key=itemgetter(0)):
        for number, (_, item) in enumerate(on_line, start=1):
            if number == 1:
                yield line, item, f"{file}:{line}"
            else:
                yield f"{line}, item {number}", item, f"{file}:{line}#{number}"


def checked_span(
    start: Any, end: Any, label: Any, length: int, place: Place, what: str = ""
) -> CharSpan:
    """The span, end exclusive. Raises CorpusError, whose words begin with `what`, unless it is one
    of a text of that length."""
    try:
        check_span(start, end, label, length)
    except ValueError as err:
        raise CorpusError(f"{what}{err}", *place) from err
    return start, end, label
