"""Corpus files to spaCy docs: one module per format, one way from its records to `.spacy` files.

Formats are imported when the first reader or writer is asked for.
"""

from spacy_nested_ner.corpora.errors import CorpusError, Problems
from spacy_nested_ner.corpora.records import SPLITS, Reader, ReadOptions, Record
from spacy_nested_ner.corpora.registry import get_reader, get_writer, readers, writers

__all__ = [
    "SPLITS",
    "CorpusError",
    "Problems",
    "ReadOptions",
    "Reader",
    "Record",
    "get_reader",
    "get_writer",
    "readers",
    "writers",
]
