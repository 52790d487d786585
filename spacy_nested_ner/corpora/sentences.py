"""Sentences to articles and back, on records."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from io import StringIO
from itertools import groupby, pairwise
from typing import Any, Iterable, Iterator, List, Sequence, Tuple

from spacy_nested_ner.corpora.records import Record
from spacy_nested_ner.corpora.spans import stripped


def grouped(records: Iterable[Record], group: str) -> Iterator[Record]:
    """Records of sentences as they are, or with `group="article"` neighbours of one document and
    split joined."""
    if group == "sentence":
        yield from records
        return
    for _, parts in groupby(records, key=lambda record: (record.doc_id, record.split)):
        yield joined(list(parts))


def joined(parts: List[Record]) -> Record:
    """Sentences of one article, in one split, joined by single spaces."""
    whole = Record(parts[0].doc_id, parts[0].split, "", [], sentence_starts=[])
    whole.words = None if parts[0].words is None else []
    whole.has_text = parts[0].has_text
    position = 0
    for part in parts:
        whole.sentence_starts.append(position)
        whole.spans += [
            (start + position, end + position, label) for start, end, label in part.spans
        ]
        whole.dropped.update(part.dropped)
        if whole.words is not None:
            whole.words += part.words or []
        position += len(part.text) + 1
    whole.text = " ".join(part.text for part in parts)
    return whole


def split_at_sentences(record: Record) -> Iterator[Record]:
    """One record per sentence. Sentences that an entity bridges stay together, as in the papers
    on ACE (Lu and Roth 2015). What was dropped is counted with the first."""
    is_one = record.sentence_starts == [0] and record.text == record.text.strip()
    if is_one or not record.sentence_starts or not record.text.strip():
        yield record
        return
    starts = unbridged_starts(record)
    spans = _by_sentence(starts, record.spans)
    words: List[Any] = [[] for _ in starts]
    if record.words is not None:
        words = _by_sentence(starts, word_places(record.text, record.words))
    dropped = record.dropped
    for i, (start, end) in enumerate(pairwise([*starts, len(record.text)])):
        place = stripped(record.text, start, end)
        if place is None:
            continue
        part = Record(record.doc_id, record.split, record.text[slice(*place)], [], dropped=dropped)
        part.spans = [(a - place[0], b - place[0], label) for a, b, label in spans[i]]
        part.words = None
        if record.words is not None:  # without whitespace around the sentence
            cut = ((max(a, place[0]), min(b, place[1])) for a, b in words[i])
            part.words = [record.text[a:b] for a, b in cut if a < b]
        part.has_text = record.has_text
        dropped = Counter()
        yield part


def outside_words(starts: List[int], text: str, words: List[str]) -> List[int]:
    """The starts of sentences that do not cut a word of the text."""
    places = word_places(text, words) if words else []
    inside = {place for start, end in places for place in range(start + 1, end)}
    return [start for start in starts if start not in inside]


def line_starts(text: str) -> List[int]:
    """Where the lines begin that are not blank."""
    starts, position = [], 0
    for line in StringIO(text, newline=""):  # `splitlines` knows ends that editors do not show
        if line.strip():
            starts.append(position + len(line) - len(line.lstrip()))
        position += len(line)
    return starts


def word_places(text: str, words: Iterable[str]) -> List[Tuple[int, int]]:
    """Characters of each word in the text.

    Raises ValueError if the text is not these words with at most whitespace between them.
    """
    places, position = [], 0
    for word in words:
        while not text.startswith(word, position):
            if not text[position : position + 1].isspace():
                raise ValueError(
                    f"the text does not have the word {word!r} at character {position}, it has "
                    f"{text[position : position + len(word) + 5]!r}."
                )
            position += 1
        places.append((position, position + len(word)))
        position += len(word)
    if text[position:].strip():
        raise ValueError(
            f"the text goes on after the last word: {text[position : position + 20]!r}."
        )
    return places


def unbridged_starts(record: Record) -> List[int]:
    """Sentence starts of a record that are not inside an entity; the first is 0."""
    kept, reach, spans = [], 0, iter(record.spans)
    span = next(spans, None)
    for start in sorted({0, *record.sentence_starts}):
        while span is not None and span[0] < start:
            reach = max(reach, span[1])
            span = next(spans, None)
        if reach <= start:
            kept.append(start)
    return kept


def _by_sentence(starts: List[int], items: Sequence[Any]) -> List[List[Any]]:
    """Items, whose first field is a character, in a list per sentence."""
    found: List[List[Any]] = [[] for _ in starts]
    for item in items:
        found[bisect_right(starts, item[0]) - 1].append(item)
    return found
