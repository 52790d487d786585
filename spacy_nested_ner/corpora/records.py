"""What a corpus reader hands over: records of text and entities, on their way to `Doc`s.

No spaCy here: a reader knows its file format and nothing else.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Protocol,
    Tuple,
    TypeVar,
    Union,
)

SPLITS = ("train", "dev", "test")
TOKENS = ("published", "spacy", "character", "cut")
GROUPS = ("sentence", "article")
SENTENCES = ("corpus", "lines", "rules")
MESSAGES_KEPT = 20

CharSpan = Tuple[int, int, str]
"""First character, character after the last, label."""

Dropped = Counter
"""How often something was left out, by `(reason, detail)`."""


T = TypeVar("T")

_logger = logging.getLogger("spacy_nested_ner")


class CorpusError(ValueError):
    """A corpus file that cannot be read. Says which file and line, and what was expected there."""

    def __init__(self, problem: str, path: object, line: Optional[int] = None) -> None:
        place = str(path) if line is None else f"{path}, line {line}"
        super().__init__(f"{place}: {problem}")
        self.path = path
        self.line = line


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
            self.messages.append(str(error))
            if not self.quiet:
                _logger.warning("Skipped: %s", error)

    def attempt(self, function: Callable[..., T], *args: Any) -> Optional[T]:
        """The result of the function, or None if it raised CorpusError and errors are skipped."""
        try:
            return function(*args)
        except CorpusError as error:
            self.report(error)
            return None

    def stop(self, items: Iterable[T]) -> Iterator[T]:
        """The items up to an error. For input that cannot be taken up again behind it."""
        try:
            yield from items
        except CorpusError as error:
            self.report(error)


@dataclass(frozen=True)
class ReadOptions:
    """What the user may choose, whatever the format. A reader that cannot offer a choice raises
    `CorpusError`.

    tokens: "published" (the tokens that the corpus comes with, spaCy's where it is plain text),
        "spacy" (spaCy's tokenizer on the text), "character" (every character but whitespace), or
        "cut" (as "published", and cut at the edges of entities too, so that none is lost).
    group: one doc per "sentence" or per "article". A document without sentence boundaries stays
        whole.
    sentences: where the corpus marks no sentences: leave it so ("corpus"), take "lines", or
        spaCy's "rules" (its sentencizer).
    all_labels: keep every label of a span, or one label per span (the alphabetically last). None
        does as the published data set: one for GENIA, all for the others.
    settings: settings of one format, see its reader.
    problems: receives the errors that can be skipped.
    """

    tokens: str = "published"
    group: str = "sentence"
    all_labels: Optional[bool] = None
    sentences: str = "corpus"
    settings: Mapping[str, str] = field(default_factory=dict)
    problems: Problems = field(default_factory=Problems, compare=False)

    def __post_init__(self) -> None:
        check_choice("tokens", self.tokens, TOKENS)
        check_choice("group", self.group, GROUPS)
        check_choice("sentences", self.sentences, SENTENCES)

    def to_dict(self) -> Dict[str, Any]:
        """The choices, ready for JSON."""
        return {
            "tokens": self.tokens,
            "group": self.group,
            "sentences": self.sentences,
            "all_labels": self.all_labels,
            "settings": dict(self.settings),
        }


@dataclass
class Record:
    """One future doc.

    doc_id: name of the document it comes from; need not be unique.
    split: one of `SPLITS`, or "" where the corpus has no split of its own.
    text: the text. With `words` it holds these in order, with at most whitespace between them.
    spans: entities in characters of `text`, sorted by start, the longer first, then label.
    words: tokens given by the corpus; None where spaCy's tokenizer shall find them.
    sentence_starts: characters of `text` at which sentences begin; empty if nobody knows.
    dropped: annotations that the reader left out.
    has_text: False where `text` is only the words, joined by blanks of the reader's own.
    """

    doc_id: str
    split: str
    text: str
    spans: List[CharSpan]
    words: Optional[List[str]] = None
    sentence_starts: List[int] = field(default_factory=lambda: [0])
    dropped: Counter = field(default_factory=Counter)
    has_text: bool = True


def with_omissions(items: Iterable[Union[Record, Dropped]]) -> Iterator[Record]:
    """The records; counts of whole items that were left out go to the record behind or, at the
    end, before them. Without any record they are logged."""
    held: Optional[Record] = None
    pending: Dropped = Dropped()
    for item in items:
        if not isinstance(item, Record):
            pending.update(item)
            continue
        if held is not None:
            yield held
        held = item
        held.dropped.update(pending)
        pending.clear()
    if held is not None:
        held.dropped.update(pending)
        yield held
    elif pending:
        reasons = ", ".join(f"{count} {reason}" for (reason, _), count in pending.items())
        _logger.warning("All items were left out: %s.", reasons)


class Reader(Protocol):
    """Reads one corpus format. Streams: a record is handed out before the next is read."""

    def __call__(self, path: Path, options: ReadOptions) -> Iterator[Record]: ...


def span_order(span: CharSpan) -> Tuple[int, int, str]:
    """Sort key: by start, the longer first, then label."""
    return span[0], -span[1], span[2]


def check_choice(name: str, value: str, choices: Tuple[str, ...]) -> None:
    """Raise ValueError, with the known values, unless the value is one of them."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, not {value!r}.")
