"""JSON files item by item, in and out: a list, or one object per line."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, NoReturn, TextIO, Tuple

from spacy_nested_ner.corpora.errors import CorpusError, Line, Problems, shortened
from spacy_nested_ner.corpora.parsing.text import opened_text

CHUNK = 1 << 16

DEEPEST = 100
"""How deep lists and objects may lie in one another."""

_BLANKS = re.compile(r"\s*")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")

Item = Tuple[int, Dict[str, Any]]
"""Line on which an object begins, and the object."""


def read_items(path: Path, problems: Problems) -> Iterator[Item]:
    """The objects of a JSON list or of a JSON Lines file, while the file is being read.

    path: UTF-8, plain or gzipped.

    A line that is no object can be skipped; a list cannot be taken up again behind an error.

    Raises CorpusError, with the line, if the file is missing, damaged or neither of the two.
    """
    with opened_text(path) as file:
        stream = _Stream(path, file)
        if stream.next_character() == "[":
            yield from stream.array(problems)
            return
    with opened_text(path) as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                item = problems.attempt(_parse_line, path, number, line)
                if item is not None:
                    yield number, item


class Refused(ValueError):
    """JSON that Python could read, but that says nothing or not the same everywhere."""


class StrictDecoder(json.JSONDecoder):
    """Reads JSON as its standard has it, and not deeper than `DEEPEST`.

    Raises Refused, a ValueError, for deeper nesting, NaN, infinity and numbers beyond what a float
    holds, a name twice in one object, and half a surrogate pair.
    """

    def __init__(self) -> None:
        super().__init__(
            object_pairs_hook=_object_of_pairs, parse_constant=_refuse_number, parse_float=_finite
        )

    def raw_decode(self, s: str, idx: int = 0) -> Tuple[Any, int]:
        """The value that begins at `idx`, and the character behind it."""
        try:
            value, end = super().raw_decode(s, idx)
        except RecursionError as err:
            raise _too_deep() from err
        _check_depth(value)
        if _SURROGATE.search(s, idx, end):
            _check_surrogates(value)
        return value, end


def _object_of_pairs(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        raise Refused(f"an object has the key {counts.most_common(1)[0][0]!r} twice")
    return made


def _refuse_number(text: str) -> NoReturn:
    raise Refused(f"{text[:40]} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse_number(text)


def _check_depth(value: Any) -> None:
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(DEEPEST):
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return
    raise _too_deep()


def _too_deep() -> Refused:
    return Refused(f"lists and objects are nested more than {DEEPEST} deep")


def _check_surrogates(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf8")
    except UnicodeEncodeError as err:
        raise Refused(f"{err.object[err.start]!r} is half of a surrogate pair") from err


_DECODER = StrictDecoder()


def _parse_line(path: Path, number: int, line: str) -> Dict[str, Any]:
    try:
        value = _DECODER.decode(line)
    except Refused as err:
        raise CorpusError(f"{err}.", path, number) from err
    except ValueError as err:
        problem = f"{err}. Expected a JSON list, or one JSON object on each line."
        raise CorpusError(problem, path, number) from err
    return _object(value, path, number)


def _object(value: Any, path: Path, line: int) -> Dict[str, Any]:
    if not isinstance(value, dict):
        raise CorpusError(f"expected a JSON object, not {str(value)[:40]!r}.", path, line)
    return value


class _Stream:
    """Text of a file of which the part that was parsed is thrown away."""

    def __init__(self, path: Path, file: TextIO) -> None:
        self._path = path
        self._file = file
        self._text = ""
        self._position = 0
        self._line = 1

    def array(self, problems: Problems) -> Iterator[Item]:
        """The objects of the list that begins here. What is no object can be skipped."""
        self._skip(1)
        if self.next_character() == "]":
            self._end()
            return
        while True:
            self.next_character()
            line = self._line
            item = problems.attempt(_object, self._value(), self._path, line)
            if item is not None:
                yield line, item
            character = self.next_character()
            if character == "]":
                self._end()
                return
            if character != ",":
                found = repr(character) if character else "the end of the file"
                raise CorpusError(f"expected , or ] here, not {found}.", self._path, self._line)
            self._skip(1)

    def _end(self) -> None:
        """Nothing but whitespace may stand behind the list."""
        self._skip(1)
        if character := self.next_character():
            problem = f"expected the end of the file after the list, not {character!r}."
            raise CorpusError(problem, self._path, self._line)

    def next_character(self) -> str:
        """The next character that is no whitespace, which stays; "" at the end."""
        while True:
            blanks = _BLANKS.match(self._text, self._position)
            self._skip(len(blanks.group()) if blanks else 0)
            if self._position < len(self._text):
                return self._text[self._position]
            if not self._more(CHUNK):
                return ""

    def _value(self) -> Any:
        """Parse one value, with ever more text as long as it is not complete."""
        size = CHUNK
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._position)
            except Refused as err:
                raise CorpusError(f"{err}.", self._path, self._line) from err
            except ValueError as err:
                if self._more(size):
                    size *= 2
                    continue
                place = getattr(err, "pos", 0)
                line = self._line + self._text.count("\n", self._position, place)
                reason = getattr(err, "msg", err)
                problem = f"malformed JSON or the file ends too early: {reason}."
                raise CorpusError(problem, self._path, line) from err
            self._skip(end - self._position)
            return value

    def _skip(self, count: int) -> None:
        end = self._position + count
        self._line += self._text.count("\n", self._position, end)
        self._position = end

    def _more(self, size: int) -> bool:
        """Read on; False at the end of the file."""
        added = self._file.read(size)
        self._text = self._text[self._position :] + added
        self._position = 0
        return bool(added)


def field(item: Dict[str, Any], name: str, kind: type, path: Path, line: Line) -> Any:
    """A field that has to be there.

    Raises CorpusError with the name if it is missing or of another type.
    """
    if not isinstance(item, dict):
        raise CorpusError(f"expected an object with {name!r}, not {item!r}.", path, line)
    value = item.get(name)
    if not isinstance(value, kind):
        kinds: Dict[type, str] = {list: "a list", str: "text", dict: "an object"}
        if name in item:
            found = f", not {shortened(json.dumps(value), 60)}."
        else:
            found = f"; the object has: {', '.join(item) or 'nothing'}."
        raise CorpusError(f"expected {kinds[kind]} as {name!r}{found}", path, line)
    return value


def string_list(item: Dict[str, Any], name: str, path: Path, line: Line) -> List[str]:
    """The texts of a field, without whitespace around them. Raises CorpusError unless it is a list
    of non-empty texts."""
    values = field(item, name, list, path, line)
    for value in values:
        if not isinstance(value, str) or not value.strip():
            problem = f"expected only non-empty texts in {name!r}, not {value!r}."
            raise CorpusError(problem, path, line)
    return [value.strip() for value in values]


def objects(item: Dict[str, Any], name: str, path: Path, line: Line) -> List[Dict[str, Any]]:
    """A field that is absent or a list of objects. Raises CorpusError otherwise."""
    values = item.get(name) or []
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise CorpusError(f"expected a list of objects as {name!r}.", path, line)
    return values


def write_items(items: Iterable[Any], file: TextIO) -> None:
    """Write a JSON list with one item on a line."""
    separator = "["
    for item in items:
        file.write(f"{separator}\n{json.dumps(item, ensure_ascii=False)}")
        separator = ","
    file.write("[]\n" if separator == "[" else "\n]\n")


def write_lines(items: Iterable[Any], file: TextIO) -> None:
    """Write JSON lines."""
    for item in items:
        file.write(f"{json.dumps(item, ensure_ascii=False)}\n")
