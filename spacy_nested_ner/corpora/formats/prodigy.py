"""Prodigy: spans count characters, end exclusive, and tokens, end inclusive. Read is what `db-out`
writes, written is what `spans.manual` takes."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, TextIO

from spacy_nested_ner.corpora.errors import CorpusError, Place
from spacy_nested_ner.corpora.formats.json_documents import (
    Object,
    Outcome,
    checked_span,
    json_reader,
)
from spacy_nested_ner.corpora.parsing.json import field, objects, write_lines
from spacy_nested_ner.corpora.records import ReadOptions, Task, text_record
from spacy_nested_ner.corpora.registry import task_writers
from spacy_nested_ner.corpora.sentences import word_places
from spacy_nested_ner.corpora.spans import Dropped


@json_reader("prodigy")
def read_record(item: Object, place: Place, name: str, split: str, options: ReadOptions) -> Outcome:
    """Prodigy JSONL (db-out): accepted answers, with Prodigy's tokens"""
    answer = item.get("answer", "accept")
    if answer != "accept":
        return Dropped({("not accepted", str(answer)): 1})
    text = field(item, "text", str, *place)
    spans = [
        checked_span(span.get("start"), span.get("end"), span.get("label"), len(text), place)
        for span in objects(item, "spans", *place)
    ]
    doc_id = item.get("_input_hash", name)
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


@task_writers.register("prodigy")
def write_tasks(tasks: Iterable[Task], file: TextIO) -> None:
    """JSON lines with the tokens of the pipeline, on which annotators select spans."""
    write_lines(map(_task, tasks), file)


def _task(task: Task) -> Dict[str, Any]:
    text, first, last = task.text, {}, {}
    tokens = []
    for i, (start, end) in enumerate(task.tokens):
        first[start] = last[end] = i
        is_before_space = text[end : end + 1] == " "
        tokens.append(
            {"text": text[start:end], "start": start, "end": end, "id": i, "ws": is_before_space}
        )
    spans = [
        {**span._asdict(), "token_start": first[span.start], "token_end": last[span.end]}
        for span in task.spans
    ]
    return {"text": text, "meta": {"text_id": task.text_id}, "tokens": tokens, "spans": spans}
