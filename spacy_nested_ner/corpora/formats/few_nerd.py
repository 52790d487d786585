"""Few-NERD (Ding et al. 2021): a token and its bare label."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator

from spacy_nested_ner.corpora.formats.columns import ColumnSettings, column_records
from spacy_nested_ner.corpora.records import ReadOptions, Record
from spacy_nested_ner.corpora.registry import readers


@readers.register("few-nerd")
def read_few_nerd(path: Path, options: ReadOptions) -> Iterator[Record]:
    """Few-NERD: labels without prefixes, adjacent words with the same label are one entity"""
    return column_records(path, options, ColumnSettings(tags=(1,), scheme="IO"))
