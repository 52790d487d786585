"""Prodigy (`db-out`): spans count characters, end exclusive."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator, List

from spacy_nested_ner.corpora.errors import CorpusError, Place
from spacy_nested_ner.corpora.formats.json_documents import (
    Object,
    Outcome,
    checked_span,
    json_records,
    name_of,
)
from spacy_nested_ner.corpora.parsing.json import field, objects
from spacy_nested_ner.corpora.parsing.settings import no_settings
from spacy_nested_ner.corpora.records import ReadOptions, Record, text_record
from spacy_nested_ner.corpora.registry import readers
from spacy_nested_ner.corpora.sentences import word_places
from spacy_nested_ner.corpora.spans import Dropped


@readers.register("prodigy")
def read_prodigy(path: Path, options: ReadOptions) -> Iterator[Record]:
    """Prodigy JSONL (db-out): accepted answers, with Prodigy's tokens"""
    no_settings(options.settings)
    return json_records(path, options, _record)


def _record(item: Object, place: Place, split: str, options: ReadOptions) -> Outcome:
    answer = item.get("answer", "accept")
    if answer != "accept":
        return Dropped({("not accepted", str(answer)): 1})
    text = field(item, "text", str, *place)
    spans = [
        checked_span(span.get("start"), span.get("end"), span.get("label"), len(text), place)
        for span in objects(item, "spans", *place)
    ]
    doc_id = item.get("_input_hash", name_of(place))
    record = text_record(str(doc_id), split, text, spans, options)
    tokens = objects(item, "tokens", *place)
    if tokens:
        record.words = [field(token, "text", str, *place) for token in tokens]
        _check_words(text, record.words, place)
    return record


def _check_words(text: str, words: List[str], place: Place) -> None:
    try:
        word_places(text, words)
    except ValueError as err:
        raise CorpusError(f"tokens: {err}", *place) from err
