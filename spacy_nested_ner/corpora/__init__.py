"""Corpus files to spaCy docs: one reader per format, one way from its records to `.spacy` files."""

from spacy_nested_ner.corpora import (  # each registers its readers
    ace,
    annotation_tools,
    brat,
    columns,
    genia,
    nne,
    papers_json,
    rich_ere,
    xmi,
)
from spacy_nested_ner.corpora.records import (
    SPLITS,
    CorpusError,
    Problems,
    Reader,
    ReadOptions,
    Record,
)
from spacy_nested_ner.corpora.registry import get_reader, readers

__all__ = [
    "SPLITS",
    "CorpusError",
    "Problems",
    "ReadOptions",
    "Reader",
    "Record",
    "ace",
    "annotation_tools",
    "brat",
    "columns",
    "genia",
    "get_reader",
    "nne",
    "papers_json",
    "readers",
    "rich_ere",
    "xmi",
]
