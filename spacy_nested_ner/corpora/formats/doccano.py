"""doccano: spans count characters, end exclusive."""

from __future__ import annotations

import itertools
from typing import Any, Iterable, List, TextIO, Tuple

from spacy_nested_ner.corpora.errors import CorpusError, Place
from spacy_nested_ner.corpora.formats.json_documents import (
    Object,
    Outcome,
    checked_span,
    document_id,
    json_reader,
)
from spacy_nested_ner.corpora.parsing.json import field, objects, write_lines
from spacy_nested_ner.corpora.records import NOT_ANNOTATED, ReadOptions, Task, text_record
from spacy_nested_ner.corpora.registry import task_writers
from spacy_nested_ner.corpora.spans import Dropped


@json_reader("doccano")
def read_record(item: Object, place: Place, name: str, split: str, options: ReadOptions) -> Outcome:
    """doccano JSONL, sequence labelling (with relations or without)"""
    if item.keys() == {"text", "label", "text_id"}:  # as `pick` wrote it, not as doccano exports it
        return Dropped({NOT_ANNOTATED: 1})
    text = field(item, "text" if "text" in item else "data", str, *place)
    found: List[Tuple[Any, Any, Any]] = [
        (entity.get("start_offset"), entity.get("end_offset"), entity.get("label"))
        for entity in objects(item, "entities", *place)
    ]
    given: List[Any] = [item[name] or [] for name in ("label", "labels") if name in item]
    if not {"entities", "label", "labels"} & set(item) or not all(
        isinstance(triples, list) for triples in given
    ):
        raise CorpusError("expected the spans as 'label', 'labels' or 'entities'.", *place)
    for triple in itertools.chain(*given):
        if not isinstance(triple, list) or len(triple) != 3:
            raise CorpusError(f"expected [start, end, label], not {triple!r}.", *place)
        found.append((triple[0], triple[1], triple[2]))
    spans = [checked_span(*span, len(text), place) for span in found]
    doc_id = document_id(item, item.get("meta"), own=item.get("id"), otherwise=name)
    return text_record(doc_id, split, text, spans, options)


@task_writers.register("doccano")
def write_tasks(tasks: Iterable[Task], file: TextIO) -> None:
    """JSON lines; doccano has no place for scores, and takes other fields for metadata."""
    items = (
        {
            "text": task.text,
            "label": [[span.start, span.end, span.label] for span in task.spans],
            "text_id": task.text_id,
        }
        for task in tasks
    )
    write_lines(items, file)
