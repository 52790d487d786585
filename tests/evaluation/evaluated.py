"""Docs with entities for the tests of the evaluation, and random ones."""

from __future__ import annotations

from typing import List, Optional, Sequence, Tuple

import numpy as np
import spacy
from hypothesis import strategies as st
from spacy.tokens import Doc, Span

from spacy_nested_ner.evaluation.scores.entities import EntityTable, entity_table, read_entities

NLP = spacy.blank("en")
WORDS = ["human", "IL-2", "gene", "in", "T", "cells", "."]
GOLD = [(0, 3, "DNA"), (1, 2, "protein"), (4, 6, "cell_type")]
FOUND = [(0, 3, "DNA"), (1, 2, "RNA"), (4, 5, "cell_type"), (2, 3, "DNA")]
SCORES = [0.9375, 0.625, 0.375, 0.25]

Spans = Sequence[Tuple[int, int, str]]
Pair = Tuple[List[Tuple[int, int, str]], List[Tuple[int, int, str]]]


def make_doc(words: Sequence[str], spans: Spans, scores: Optional[Sequence[float]] = None) -> Doc:
    doc = Doc(NLP.vocab, words=list(words))
    doc.spans["sc"] = [Span(doc, start, end, label=label) for start, end, label in spans]
    if scores is not None:
        doc.spans["sc"].attrs["scores"] = np.asarray(scores, dtype="float32")
    return doc


def table_of(golds: Sequence[Doc], found: Sequence[Doc]) -> EntityTable:
    return entity_table(golds, [read_entities(doc, "sc") or {} for doc in found], "sc", False)


def example_table() -> EntityTable:
    return table_of([make_doc(WORDS, GOLD)], [make_doc(WORDS, FOUND, SCORES)])


def random_table(pairs: Sequence[Pair], length: int = 8) -> EntityTable:
    words = [f"w{i}" for i in range(length)]
    docs = [(make_doc(words, gold), make_doc(words, found)) for gold, found in pairs]
    return table_of(*zip(*docs))


@st.composite
def spans(draw, length: int = 8, most: int = 4):
    """Distinct spans with labels, nested, crossing or on one place."""

    def span(pair):
        first, last, label = pair
        return (min(first, last), max(first, last) + 1, label)

    word = st.integers(0, length - 1)
    drawn = st.tuples(word, word, st.sampled_from("AB")).map(span)
    return draw(st.lists(drawn, max_size=most, unique=True))


def pairs(docs: int = 3):
    """Gold and predicted spans of some docs; predictions are often right."""

    def mix(parts):
        gold, other, kept = parts
        return gold, list(dict.fromkeys([*gold[:kept], *other]))

    return st.lists(
        st.tuples(spans(), spans(most=3), st.integers(0, 3)).map(mix), min_size=1, max_size=docs
    )
