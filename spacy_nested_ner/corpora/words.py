"""Records of formats that give words, with entities counted in words."""

from __future__ import annotations

from typing import Any, Iterable, List, Tuple

from spacy_nested_ner.corpora.records import ReadOptions, Record
from spacy_nested_ner.corpora.spans import clean_spans


def words_record(
    doc_id: str,
    split: str,
    words: List[str],
    spans: Iterable[Tuple[int, int, str]],
    options: ReadOptions,
) -> Record:
    """A record of one sentence from words and entities `(first, after the last, label)` in words.

    The words are joined by blanks; with character tokens only where two Latin words meet.
    """
    separators = [" "] * len(words)
    if options.tokens == "character":
        separators = [_between(*pair) for pair in zip(words, [*words[1:], ""])]
    begins, ends, text = [], [], ""
    for word, separator in zip(words, separators):
        begins.append(len(text))
        text += word
        ends.append(len(text))
        text += separator
    text = text[: ends[-1]] if ends else ""
    places = [(begins[start], ends[end - 1], label) for start, end, label in spans]
    kept, dropped = clean_spans(text, places, one_label=options.all_labels is False)
    has_text = options.tokens == "character"
    return Record(doc_id, split, text, kept, words, dropped=dropped, has_text=has_text)


def _between(word: str, following: str) -> str:
    latin = all(part.isascii() and part.isalnum() for part in (word[-1:], following[:1]))
    return " " if latin and len(word) > 1 and len(following) > 1 else ""


def check_span(start: Any, end: Any, label: Any, length: int) -> None:
    """Raise ValueError unless it is a labelled span, end exclusive, of a text of that length."""
    numbers = type(start) is int and type(end) is int
    if not numbers or not 0 <= start < end <= length or not isinstance(label, str) or not label:
        raise ValueError(
            f"expected an entity with 0 <= start < end <= {length} and a label, "
            f"not start {start!r}, end {end!r} (exclusive), label {label!r}."
        )
