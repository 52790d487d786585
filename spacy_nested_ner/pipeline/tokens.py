"""Tokens of raw text."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import List

from spacy.language import Language
from spacy.tokenizer import Tokenizer
from spacy.tokens import Doc

LONGEST_WORD, MOST_MARKS = 1000, 100
"""Characters that spaCy's tokenizer is given in one piece, and marks among these: in a row, or
anywhere if they are none of which URLs have many."""

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
