"""Weibo NER (Peng and Dredze 2015): characters with their place in the word, such as `科0`."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator

from spacy_nested_ner.corpora.formats.columns import ColumnSettings, column_records
from spacy_nested_ner.corpora.records import ReadOptions, Record
from spacy_nested_ner.corpora.registry import readers


@readers.register("weibo")
def read_weibo(path: Path, options: ReadOptions) -> Iterator[Record]:
    """Weibo NER: Chinese characters, each with its place in the word"""
    return column_records(path, options, ColumnSettings(tags=(-1,), first_character=True))
