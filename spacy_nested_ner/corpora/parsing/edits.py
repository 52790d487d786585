"""Text with parts taken out or replaced, and where its spans go."""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from typing import Iterator, List, Optional, Sequence, Tuple

Edit = Tuple[int, int, str]
"""First character, character after the last, and what comes in their place."""

_REFERENCE = re.compile(r"&(?:amp|lt|gt|quot|apos|#\d+|#x[0-9a-f]+);", re.IGNORECASE)


class Rewritten:
    """`text` after edits that do not overlap."""

    def __init__(self, text: str, edits: Sequence[Edit]) -> None:
        self._edits = sorted(edits)
        self._starts = [start for start, _, _ in self._edits]
        self._shifts = [0]
        pieces: List[str] = []
        position = 0
        for start, end, new in self._edits:
            pieces += [text[position:start], new]
            position = end
            self._shifts.append(self._shifts[-1] + len(new) - (end - start))
        self.text = "".join([*pieces, text[position:]])

    def place(self, start: int, end: int) -> Optional[Tuple[int, int]]:
        """Where a span of the old text is in the new one; None if an end of it was edited away."""
        first, last = self._moved(start), self._moved(end)
        return None if first is None or last is None or first >= last else (first, last)

    def _moved(self, position: int) -> Optional[int]:
        """A boundary between characters."""
        i = bisect_right(self._starts, position)
        if i and self._edits[i - 1][0] < position < self._edits[i - 1][1]:
            return None
        before = i if not i or position >= self._edits[i - 1][1] else i - 1
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


def reference_edits(text: str, start: int = 0, end: Optional[int] = None) -> List[Edit]:
    """Edits that put the character in the place of `&amp;`, `&lt;` and the like."""
    found = _REFERENCE.finditer(text, start, len(text) if end is None else end)
    return [(*match.span(), html.unescape(match.group().lower())) for match in found]
