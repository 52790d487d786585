"""Training data of GLiNER: spans count tokens, end inclusive."""

from __future__ import annotations

from spacy_nested_ner.corpora.errors import CorpusError, Place
from spacy_nested_ner.corpora.formats.json_documents import (
    Object,
    checked_span,
    json_reader,
)
from spacy_nested_ner.corpora.parsing.json import field, string_list
from spacy_nested_ner.corpora.records import ReadOptions, Record, words_record


@json_reader("gliner")
def read_record(item: Object, place: Place, name: str, split: str, options: ReadOptions) -> Record:
    """GLiNER's training data: tokenized_text and ner"""
    words = string_list(item, "tokenized_text", *place)
    spans = []
    for triple in field(item, "ner", list, *place):
        if not isinstance(triple, list) or len(triple) != 3 or type(triple[1]) is not int:
            raise CorpusError(f"expected [first token, last token, label], not {triple!r}.", *place)
        first, last, label = triple
        spans.append(checked_span(first, last + 1, label, len(words), place))
    return words_record(name, split, words, spans, options)
