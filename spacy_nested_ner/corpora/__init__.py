"""Corpus files to spaCy docs: one reader per format, one way from its records to `.spacy` files."""

from spacy_nested_ner.corpora import genia  # registers its reader
from spacy_nested_ner.corpora.records import SPLITS, CorpusError, Reader, ReadOptions, Record
from spacy_nested_ner.corpora.registry import get_reader, readers

__all__ = [
    "SPLITS",
    "CorpusError",
    "ReadOptions",
    "Reader",
    "Record",
    "genia",
    "get_reader",
    "readers",
]
