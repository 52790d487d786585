"""Tokens of raw text, and which of them are whitespace."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import List
from unicodedata import category

import numpy as np
from spacy.attrs import IS_ALPHA, IS_ASCII, IS_SPACE
from spacy.language import Language
from spacy.tokenizer import Tokenizer
from spacy.tokens import Doc

LONGEST_WORD, MOST_MARKS = 1000, 100
"""Characters that spaCy's tokenizer is given in one piece, and marks among these: in a row, or
anywhere if they are none of which URLs have many."""

# Categories of characters that are not shown: control, format, and separators; and those among them
# that are: signs in front of Arabic, Syriac and Kaithi numbers.
NOT_SHOWN = ("Cc", "Cf", "Zl", "Zp", "Zs")
SHOWN = "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"

_LONG = re.compile(rf"\S{{{MOST_MARKS + 1},}}")
_MARKS_IN_A_ROW = re.compile(rf"(?:[^\w\s]|_){{{MOST_MARKS}}}")
_MARK = re.compile(r"[^\w\s/.=&%?#+:;,@~-]")


def make_doc(nlp: Language, text: str) -> Doc:
    """As `nlp.make_doc`, in a time that grows with the text: words beyond any length are cut first.
    spaCy's tokenizer takes affixes off one by one and reads the whole word each time, so that it
    would take minutes for ten thousand brackets.

    Raises ValueError if the text is longer than `nlp.max_length`.
    """
    if len(text) > nlp.max_length or not isinstance(nlp.tokenizer, Tokenizer):
        return nlp.make_doc(text)
    cuts = _cuts(text)
    if not cuts:
        return nlp.make_doc(text)
    docs = [nlp.make_doc(text[start:end]) for start, end in pairwise([0, *cuts, len(text)])]
    # Norms such as those of "n't" come from the tokenizer, too.
    return Doc.from_docs(docs, ensure_whitespace=False, attrs=["NORM"])


def _cuts(text: str) -> List[int]:
    """Where words are cut that are longer than any language has them."""
    found: List[int] = []
    for word in _LONG.finditer(text):
        marks = [match.end() for match in _MARK.finditer(text, *word.span())]
        rows = [match.end() for match in _MARKS_IN_A_ROW.finditer(text, *word.span())]
        ends = {word.start(), *rows, *marks[MOST_MARKS - 1 :: MOST_MARKS], word.end()}
        for begin, end in pairwise(sorted(ends)):
            found += [*range(begin + LONGEST_WORD, end, LONGEST_WORD), end]
        del found[-1]  # the end of the word
    return found


def is_space(doc: Doc) -> np.ndarray:
    """Which tokens are whitespace, `(tokens,)` bool: line ends, blanks but for single ones, and
    what is not shown either, such as blanks of no width and marks of direction."""
    flags: np.ndarray = doc.to_array(IS_SPACE) > 0
    is_ascii = doc.to_array(IS_ASCII) > 0
    if not is_ascii.all():  # most docs end here
        for place in np.flatnonzero(~(is_ascii | (doc.to_array(IS_ALPHA) > 0))).tolist():
            flags[place] = all(map(is_blank, doc[place].text))
    return flags


def is_blank(character: str) -> bool:
    """Whether it is whitespace or, beyond ASCII, not shown."""
    if character <= "\x7f":
        return character.isspace()
    return category(character) in NOT_SHOWN and character not in SHOWN
