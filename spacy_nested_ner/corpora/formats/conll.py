"""CoNLL 2002 and 2003 (Tjong Kim Sang 2002, with De Meulder 2003), OntoNotes and their like."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator

from spacy_nested_ner.corpora.formats.columns import ColumnSettings, column_records
from spacy_nested_ner.corpora.records import ReadOptions, Record
from spacy_nested_ner.corpora.registry import readers


@readers.register("conll")
def read_conll(path: Path, options: ReadOptions) -> Iterator[Record]:
    """CoNLL 2002/2003, OntoNotes and others: the tags are in the last column"""
    return column_records(path, options, ColumnSettings(tags=(-1,)))
