"""Tokens of raw text."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import List

from spacy.language import Language
from spacy.tokenizer import Tokenizer
from spacy.tokens import Doc

LONGEST_WORD, MOST_MARKS = 1000, 100
"""Characters that spaCy's tokenizer is given in one piece, and marks in a row in these."""

_LONG = re.compile(rf"\S{{{MOST_MARKS + 1},}}")
_MARKS = re.compile(rf"[^\w\s]{{{MOST_MARKS}}}(?=\S)")


def make_doc(nlp: Language, text: str) -> Doc:
    """As `nlp.make_doc`, in a time that grows with the text: words beyond any length are cut first.
    spaCy's tokenizer takes affixes off one by one and reads the whole word each time, so that it
    would take minutes for ten thousand brackets in a row.

    Raises ValueError if the text is longer than `nlp.max_length`.
    """
    if len(text) > nlp.max_length or not isinstance(nlp.tokenizer, Tokenizer):
        return nlp.make_doc(text)
    cuts = _cuts(text)
    if not cuts:
        return nlp.make_doc(text)
    docs = [nlp.make_doc(text[start:end]) for start, end in pairwise([0, *cuts, len(text)])]
    words = [token.text for doc in docs for token in doc]
    spaces = [bool(token.whitespace_) for doc in docs for token in doc]
    return Doc(nlp.vocab, words=words, spaces=spaces)


def _cuts(text: str) -> List[int]:
    """Where words are cut that are longer than any language has them."""
    found: List[int] = []
    for word in _LONG.finditer(text):
        ends = [match.end() for match in _MARKS.finditer(text, *word.span())]
        for begin, end in pairwise([word.start(), *ends, word.end()]):
            found += [*range(begin + LONGEST_WORD, end, LONGEST_WORD), end]
        del found[-1]  # the end of the word
    return found
