"""Malformed input: the error that names file and line, and what becomes of it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, List, Optional, Tuple, TypeVar, Union

from spacy_nested_ner.files import as_written

MESSAGES_KEPT = 20
MESSAGE_LENGTH = 1000

Line = Union[int, str]
"""The number of a line, or what also says which of its items: "1, item 17"."""

Place = Tuple[Path, Line]
"""File and line, for errors."""

T = TypeVar("T")

_logger = logging.getLogger("spacy_nested_ner")


class CorpusError(ValueError):
    """A corpus file that cannot be read. Says which file and line, and what was expected there."""

    def __init__(self, problem: str, path: object, line: Optional[Line] = None) -> None:
        place = str(path) if line is None else f"{path}, line {line}"
        super().__init__(f"{place}: {shortened(problem)}")


def shortened(text: str, most: int = MESSAGE_LENGTH) -> str:
    """The text, its middle left out if it has more characters."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]} [...] {text[-most // 2 :]}"


class Problems:
    """What happens to malformed input: the first error ends the conversion, or all are counted.

    skip: count and go on. quiet: do not log what is skipped.
    """

    def __init__(self, skip: bool = False, quiet: bool = False) -> None:
        self.skip = skip
        self.quiet = quiet
        self.count = 0
        self.messages: List[str] = []

    def report(self, error: CorpusError) -> None:
        """Raise the error, or count it and keep its message (the first 20)."""
        if not self.skip:
            raise error
        self.count += 1
        if len(self.messages) < MESSAGES_KEPT:
            self.messages.append(as_written(str(error)))
            if not self.quiet:
                _logger.warning("Skipped: %s", self.messages[-1])

    def attempt(self, function: Callable[..., T], *args: Any) -> Optional[T]:
        """The result of the function, or None if it raised CorpusError and errors are skipped."""
        try:
            return function(*args)
        except CorpusError as error:
            self.report(error)
            return None

    def attempt_each(
        self, function: Callable[..., T], calls: Iterable[Tuple[Any, ...]]
    ) -> Iterator[T]:
        """The results of the function for each tuple of arguments, without the attempts that
        failed."""
        for args in calls:
            result = self.attempt(function, *args)
            if result is not None:
                yield result

    def stop(self, items: Iterable[T]) -> Iterator[T]:
        """The items up to an error. For input that cannot be taken up again behind it."""
        try:
            yield from items
        except CorpusError as error:
            self.report(error)
