"""Tag sequences of the column formats: BIO, IOB1, BIOES and its relatives, IO."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Dict, List, Optional, Sequence, Set, Tuple

from spacy_nested_ner.corpora.spans import WordSpan

SCHEMES = ("BIO", "IOB1", "BIOES", "BMES", "IO")
OUTSIDE = "O"

_PREFIXED = re.compile(r"([BIESMLU])[-_](.+)", re.DOTALL)
_SAME = {"M": "I", "L": "E", "U": "S"}
"""Letters of BMES and BILOU with their meaning in BIOES."""

_ALLOWED = {"BIO": "BI", "IOB1": "BI", "BIOES": "BIESLU", "BMES": "BMES", "IO": ""}


class TagError(ValueError):
    """A tag that does not fit. `index` is its token."""

    def __init__(self, problem: str, index: int) -> None:
        super().__init__(problem)
        self.index = index


def decode_tags(tags: Sequence[str], scheme: str) -> List[WordSpan]:
    """The entities that the tags of one sentence, at one level, stand for.

    scheme: "BIO" (IOB2), "IOB1" (B- only where an entity touches another of its label), "BIOES"
    (BILOU is read as well), "BMES", or "IO" (the label alone, or I- before it everywhere).

    Raises TagError at the first tag that the scheme does not have or does not allow there.
    """
    if scheme == "IO":
        _check_io(tags)
    spans: List[WordSpan] = []
    start, label = 0, ""
    for i, tag in enumerate(tags):
        letter, name = _letter_and_label(tag, scheme, i)
        if label and (letter in "OBS" or name != label):
            _check_closed(tags, scheme, i)
            spans.append((start, i, label))
            label = ""
        if letter == "O":
            continue
        if not label:
            _check_opening(letter, tag, tags, scheme, i)
            start, label = i, name
        if letter in "ES":
            spans.append((start, i + 1, label))
            label = ""
    if label:
        _check_closed(tags, scheme, len(tags))
        spans.append((start, len(tags), label))
    return spans


def _letter_and_label(tag: str, scheme: str, index: int) -> Tuple[str, str]:
    """Letter of the scheme (in BIOES terms) and label."""
    if tag == OUTSIDE:
        return "O", ""
    match = _PREFIXED.fullmatch(tag)
    if scheme == "IO":
        return "I", match.group(2) if match and match.group(1) == "I" else tag
    if match is None or match.group(1) not in _ALLOWED[scheme]:
        letters = ", ".join(f"{letter}-" for letter in _ALLOWED[scheme])
        raise TagError(f"{tag!r} is not a tag of {scheme} (O, or a label after {letters}).", index)
    return _SAME.get(match.group(1), match.group(1)), match.group(2)


def _check_io(tags: Sequence[str]) -> None:
    letters = [match.group(1) if (match := _PREFIXED.fullmatch(tag)) else "" for tag in tags]
    if {"B", "I"} <= set(letters):
        index = letters.index("B")
        raise TagError(f"{tags[index]} beside I- does not fit IO, which has no B-.", index)


def _check_opening(letter: str, tag: str, tags: Sequence[str], scheme: str, index: int) -> None:
    if scheme in ("BIO", "BIOES", "BMES") and letter in "IE":
        before = f"after {tags[index - 1]}" if index else "at the start of a sentence"
        raise TagError(f"{tag} {before} does not fit {scheme}, where B- opens an entity.", index)


def _check_closed(tags: Sequence[str], scheme: str, index: int) -> None:
    if scheme in ("BIOES", "BMES"):
        problem = (
            f"the entity that ends here with {tags[index - 1]} has no E-, which {scheme} needs."
        )
        raise TagError(problem, index - 1)


@dataclass
class Evidence:
    """What the tags of a file say about their scheme. Numbers are lines, None for never."""

    letters: Dict[str, int] = field(default_factory=dict)
    bare: Optional[int] = None
    small: Dict[str, int] = field(default_factory=dict)
    b_after_outside: Optional[int] = None
    i_without_b: Optional[int] = None

    def add(self, tag: str, before: str, line: int) -> None:
        """Take in a tag, the one before it in the sentence ("O" at its start), and its line."""
        if tag == OUTSIDE:
            return
        match = _PREFIXED.fullmatch(tag)
        if match is None:
            self.bare = self.bare or line
            if tag[1:2] in ("", "-", "_") and tag[0] in "bio":
                self.small.setdefault(tag[0], line)
            return
        letter, label = match.groups()
        self.letters.setdefault(letter, line)
        if letter == "B" and before == OUTSIDE:
            self.b_after_outside = self.b_after_outside or line
        if letter == "I" and before[2:] != label:
            self.i_without_b = self.i_without_b or line

    def scheme(self) -> str:
        """The scheme.

        Raises TagError, with a line as index, if the tags fit none or several.
        """
        seen: Set[str] = set(self.letters)
        if self.bare is not None:
            if seen:
                raise TagError(
                    f"a tag without a letter such as B- (line {self.bare}), but others have one.",
                    min(self.letters.values()),
                )
            if "o" in self.small or len(self.small) > 1:
                raise TagError(
                    "b-, i- and o are no tags, they need capitals. As labels they would be IO.",
                    min(self.small.values()),
                )
            return "IO"
        if "M" in seen:
            return "BMES"
        if seen & set("ESLU"):
            return "BIOES"
        if self.b_after_outside and self.i_without_b:
            raise TagError(
                f"I- without B- before it (as in IOB1), while B- opens an entity after O in line "
                f"{self.b_after_outside} (as in BIO).",
                self.i_without_b,
            )
        return "IOB1" if self.i_without_b else "BIO"
