"""What a corpus reader hands over: records of text and entities, on their way to `Doc`s.

No spaCy here: a reader knows its file format and nothing else.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Iterator, List, Optional, Protocol, Tuple

SPLITS = ("train", "dev", "test")

CharSpan = Tuple[int, int, str]
"""First character, character after the last, label."""

Dropped = Counter
"""How often something was left out, by `(reason, detail)`."""


class CorpusError(ValueError):
    """A corpus file that cannot be read. Says which file and line, and what was expected there."""

    def __init__(self, problem: str, path: object, line: Optional[int] = None) -> None:
        place = str(path) if line is None else f"{path}, line {line}"
        super().__init__(f"{place}: {problem}")
        self.path = path
        self.line = line


@dataclass(frozen=True)
class ReadOptions:
    """What the user may choose, whatever the format. A reader that cannot offer a choice raises
    `CorpusError`.

    tokens: "published" (the tokens of the published data set) or "spacy" (spaCy's tokenizer on
        the raw text).
    group: one doc per "sentence" or per "article".
    all_labels: keep every label of a span; otherwise one label per span.
    """

    tokens: str = "published"
    group: str = "sentence"
    all_labels: bool = False

    def __post_init__(self) -> None:
        _check_choice("tokens", self.tokens, ("published", "spacy"))
        _check_choice("group", self.group, ("sentence", "article"))


@dataclass
class Record:
    """One future doc.

    doc_id: name of the document it comes from; need not be unique.
    split: one of `SPLITS`.
    text: the text. With `words` it is these words joined by single spaces.
    spans: entities in characters of `text`, sorted by start, the longer first, then label.
    words: tokens given by the corpus; None where spaCy's tokenizer shall find them.
    sentence_starts: characters of `text` at which sentences begin.
    dropped: annotations that the reader left out.
    """

    doc_id: str
    split: str
    text: str
    spans: List[CharSpan]
    words: Optional[List[str]] = None
    sentence_starts: List[int] = field(default_factory=lambda: [0])
    dropped: Counter = field(default_factory=Counter)


class Reader(Protocol):
    """Reads one corpus format. Streams: a record is handed out before the next is read."""

    def __call__(self, path: Path, options: ReadOptions) -> Iterator[Record]: ...


def span_order(span: CharSpan) -> Tuple[int, int, str]:
    """Sort key: by start, the longer first, then label."""
    return span[0], -span[1], span[2]


def _check_choice(name: str, value: str, choices: Tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, not {value!r}.")
