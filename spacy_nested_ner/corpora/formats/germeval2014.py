"""GermEval 2014 (Benikova et al. 2014): number, token, outer and inner tag; `#` opens a source."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator

from spacy_nested_ner.corpora.formats.columns import ColumnSettings, column_records
from spacy_nested_ner.corpora.records import ReadOptions, Record
from spacy_nested_ner.corpora.registry import readers


@readers.register("germeval2014")
def read_germeval2014(path: Path, options: ReadOptions) -> Iterator[Record]:
    """GermEval 2014 (NER-de-*.tsv): German, two levels"""
    return column_records(
        path, options, ColumnSettings(token=1, tags=(2, 3), scheme="BIO", comment="#")
    )
