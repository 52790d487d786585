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
    NamedTuple,
    Optional,
    Protocol,
    Sequence,
    TextIO,
    Tuple,
    Union,
)

from spacy_nested_ner.corpora.errors import CorpusError, Problems
from spacy_nested_ner.corpora.spans import CharSpan, Dropped, WordSpan, check_span, clean_spans
from spacy_nested_ner.files import as_written

SPLITS = ("train", "dev", "test")
TOKENS = ("published", "spacy", "character", "cut")
GROUPS = ("sentence", "article")
SENTENCES = ("corpus", "lines", "rules")
NOT_ANNOTATED = ("not annotated", "")
"""Why an item is left out, see `Dropped`."""
NOT_ANNOTATED_REMEDY = (
    "An item with only the fields that `nested-ner pick` writes counts as not annotated: if it is, "
    "give it another one, such as an id."
)

_logger = logging.getLogger("spacy_nested_ner")


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
        known = {"tokens": TOKENS, "group": GROUPS, "sentences": SENTENCES}
        for name, choices in known.items():
            value = getattr(self, name)
            if value not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, not {value!r}.")

    @property
    def one_label(self) -> bool:
        """One label per span, for the formats that keep all by default."""
        return self.all_labels is False

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

    def __post_init__(self) -> None:
        self.doc_id = as_written(self.doc_id)  # of a file whose name is not UTF-8


def text_record(
    doc_id: str,
    split: str,
    text: str,
    spans: Iterable[CharSpan],
    options: ReadOptions,
    dropped: Optional[Dropped] = None,
) -> Record:
    """A record of a text whose words and sentences nobody knows. dropped: what was left out
    before.

    Raises CorpusError for a span that is none of the text, see `check_span`.
    """
    spans = list(spans)
    _check_spans(spans, len(text), doc_id)
    kept, cleaned = clean_spans(text, spans, options.one_label)
    all_dropped = Dropped(dropped)
    all_dropped.update(cleaned)
    return Record(doc_id, split, text, kept, sentence_starts=[], dropped=all_dropped)


class DocumentIds:
    """Ids of documents whose files have a name: two texts of one name, as in the folders of an
    export, are two documents."""

    def __init__(self) -> None:
        self._numbers: Dict[str, Dict[int, int]] = {}

    def __call__(self, name: str, text: str) -> str:
        """`note`, or `note#2` for the second text of that name."""
        of_name = self._numbers.setdefault(name, {})
        number = of_name.setdefault(hash(text), len(of_name) + 1)
        return name if number == 1 else f"{name}#{number}"


def words_record(
    doc_id: str,
    split: str,
    words: List[str],
    spans: Iterable[WordSpan],
    options: ReadOptions,
) -> Record:
    """A record of one sentence from its words and entities.

    The words are joined by blanks; with character tokens only where two Latin words meet.

    Raises CorpusError for a span that is none of the words, see `check_span`.
    """
    spans = list(spans)
    _check_spans(spans, len(words), doc_id)
    separators = [" "] * len(words)
    if options.tokens == "character":
        separators = [_between(*pair) for pair in zip(words, [*words[1:], ""])]
    begins, ends, length = [], [], 0
    for word, separator in zip(words, separators):
        begins.append(length)
        ends.append(length + len(word))
        length += len(word) + len(separator)
    text = "".join(part for pair in zip(words, separators) for part in pair)
    text = text[: ends[-1]] if ends else ""
    places = [(begins[start], ends[end - 1], label) for start, end, label in spans]
    kept, dropped = clean_spans(text, places, options.one_label)
    has_text = options.tokens == "character"
    return Record(doc_id, split, text, kept, words, dropped=dropped, has_text=has_text)


def _check_spans(spans: Sequence[CharSpan | WordSpan], length: int, doc_id: str) -> None:
    for start, end, label in spans:
        try:
            check_span(start, end, label, length)
        except ValueError as err:
            raise CorpusError(str(err), doc_id) from err


def _between(word: str, following: str) -> str:
    latin = all(part.isascii() and part.isalnum() for part in (word[-1:], following[:1]))
    return " " if latin and len(word) > 1 and len(following) > 1 else ""


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
        remedy = f" {NOT_ANNOTATED_REMEDY}" if NOT_ANNOTATED in pending else ""
        _logger.warning("All items were left out: %s.%s", reasons, remedy)


@dataclass
class WordSentence:
    """A sentence on its way out to another format, its entities counted in words. doc_id: its
    document, "" if that has no name."""

    doc_id: str
    words: List[str]
    spans: List[WordSpan]


class ScoredSpan(NamedTuple):
    """An entity that a pipeline found, in characters of the text, end exclusive."""

    start: int
    end: int
    label: str
    score: float


@dataclass(frozen=True)
class Task:
    """A text on its way to an annotation tool.

    text_id: name of the text. tokens: first character of each, and the one after its last. spans:
    begin and end where tokens do; they are what the tool shows at first.
    """

    text_id: str
    text: str
    tokens: List[Tuple[int, int]]
    spans: List[ScoredSpan]


Question = Callable[[str], str]
"""The question that asks for a label, for formats that hold questions."""


class Reader(Protocol):
    """Reads one corpus format. Streams: a record is handed out before the next is read."""

    def __call__(self, path: Path, options: ReadOptions) -> Iterator[Record]: ...


class Writer(Protocol):
    """Writes a file of one format."""

    def __call__(
        self, sentences: Iterable[WordSentence], file: TextIO, question: Question
    ) -> None: ...


class TaskWriter(Protocol):
    """Writes texts to annotate, as an annotation tool imports them."""

    def __call__(self, tasks: Iterable[Task], file: TextIO) -> None: ...
