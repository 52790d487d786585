"""Text with parts taken out or replaced, and where its spans go."""

from __future__ import annotations

import html
import io
import re
from array import array
from bisect import bisect_right
from typing import Iterable, Iterator, Optional, Tuple

Edit = Tuple[int, int, str]
"""First character, character after the last, and what comes in their place."""

_REFERENCE = re.compile(r"&(?:amp|lt|gt|quot|apos|#\d+|#x[0-9a-f]+);", re.IGNORECASE)


class Rewritten:
    """`text` after edits that do not overlap, given in their order.

    Takes some ten bytes for each edit: a text may hold hardly anything but tags.
    """

    def __init__(self, text: str, edits: Iterable[Edit]) -> None:
        self._starts, self._ends, self._shifts = array("q"), array("q"), array("q", [0])
        pieces = io.StringIO()
        position = 0
        for start, end, new in edits:
            pieces.write(text[position:start])
            pieces.write(new)
            position = end
            self._starts.append(start)
            self._ends.append(end)
            self._shifts.append(self._shifts[-1] + len(new) - (end - start))
        pieces.write(text[position:])
        self.text = pieces.getvalue()

    def place(self, start: int, end: int) -> Optional[Tuple[int, int]]:
        """Where a span of the old text is in the new one; None if an end of it was edited away."""
        first, last = self._moved(start), self._moved(end)
        return None if first is None or last is None or first >= last else (first, last)

    def _moved(self, position: int) -> Optional[int]:
        """A boundary between characters."""
        i = bisect_right(self._starts, position)
        if i and self._starts[i - 1] < position < self._ends[i - 1]:
            return None
        before = i if not i or position >= self._ends[i - 1] else i - 1
        return position + self._shifts[before]


def too_long(length: int, covered: str) -> bool:
    """Whether a place of that many characters cannot be the text with references (`&amp;`) and
    more whitespace. Saves looking through it."""
    return length > 12 * len(covered) + 1000


def tag_places(text: str) -> Iterator[Tuple[int, int]]:
    """Characters of each tag, from a `<` to the next `>`. Where no `>` follows, none is left: each
    character is looked at once."""
    position = 0
    while (start := text.find("<", position)) >= 0 and (end := text.find(">", start)) >= 0:
        position = end + 1
        yield start, position


def reference_edits(text: str, start: int = 0, end: Optional[int] = None) -> Iterator[Edit]:
    """Edits that put the character in the place of `&amp;`, `&lt;` and the like."""
    for match in _REFERENCE.finditer(text, start, len(text) if end is None else end):
        yield (*match.span(), html.unescape(match.group().lower()))
