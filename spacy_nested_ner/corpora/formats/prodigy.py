"""Prodigy: spans count characters, end exclusive, and tokens, end inclusive. Read is what `db-out`
writes, written is what `spans.manual` takes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Optional, TextIO

from spacy_nested_ner.corpora.errors import CorpusError, Place, Problems
from spacy_nested_ner.corpora.formats.json_documents import (
    Object,
    Outcome,
    checked_span,
    document_id,
    outcomes_of_file,
)
from spacy_nested_ner.corpora.parsing.json import field, objects, read_items, write_lines
from spacy_nested_ner.corpora.parsing.settings import no_settings
from spacy_nested_ner.corpora.records import (
    NOT_ANNOTATED,
    ReadOptions,
    Record,
    Task,
    text_record,
    with_omissions,
)
from spacy_nested_ner.corpora.registry import readers, task_writers
from spacy_nested_ner.corpora.sentences import word_places
from spacy_nested_ner.corpora.spans import Dropped
from spacy_nested_ner.corpora.splits import named_files


@readers.register("prodigy")
def read_prodigy(path: Path, options: ReadOptions) -> Iterator[Record]:
    """Prodigy JSONL (db-out): accepted answers, with Prodigy's tokens"""
    no_settings(options.settings)
    outcomes = (
        outcome
        for file, split in named_files(Path(path))
        for outcome in options.problems.stop(_outcomes(file, split, options))
    )
    yield from with_omissions(outcomes)


def _outcomes(file: Path, split: str, options: ReadOptions) -> Iterator[Outcome]:
    """Of several accepted answers to one input the last counts, which corrects those before. To
    know it, the file is read once before."""
    quiet = Problems(skip=True, quiet=True)
    items = quiet.stop(read_items(file, quiet))
    left = Counter(_input(item) for _, item in items if _is_whole(item))

    def make(item: Object, place: Place, name: str, split: str, options: ReadOptions) -> Outcome:
        if _is_untouched(item):
            return Dropped({NOT_ANNOTATED: 1})
        answer = _answer(item)
        if answer != "accept":
            return Dropped({("not accepted", str(answer)): 1})
        if not _is_whole(item):
            return Dropped({("answer about one span alone", ""): 1})
        if (given := _input(item)) is not None:
            left[given] -= 1
            if left[given] > 0:
                return Dropped({("earlier accepted answer", ""): 1})
        return _record(item, place, name, split, options)

    yield from outcomes_of_file(file, split, options, make)


def _answer(item: Object) -> Any:
    return item.get("answer", "accept")


def _is_untouched(item: Object) -> bool:
    """Whether it is as `nested-ner pick` wrote it: its spans are predictions."""
    spans = item.get("spans")
    return (
        item.keys() == {"text", "meta", "tokens", "spans"}
        and isinstance(item["meta"], dict)
        and item["meta"].keys() == {"text_id"}
        and isinstance(spans, list)
        and all(isinstance(span, dict) and "score" in span for span in spans)
    )


def _is_whole(item: Object) -> bool:
    """Accepted, and about the whole text: those of `ner.teach` do not say what else is in it."""
    return _answer(item) == "accept" and not item.get("_is_binary")


def _input(item: Object) -> Optional[int]:
    """What the answers to one input have in common, None if Prodigy did not say it."""
    if item.get("_input_hash") is None:
        return None
    return hash((str(item["_input_hash"]), str(item.get("text"))))


_OF_OTHERS = ("label", "labels", "entities")
"""What other tools, and Prodigy's tasks about whole texts, call what was annotated."""


def _record(item: Object, place: Place, name: str, split: str, options: ReadOptions) -> Record:
    text = field(item, "text", str, *place)
    others = [name for name in _OF_OTHERS if name in item]
    if "spans" not in item and others:
        raise CorpusError(f"no spans, but {others[0]!r}, which Prodigy's entities lack.", *place)
    spans = [
        checked_span(span.get("start"), span.get("end"), span.get("label"), len(text), place)
        for span in objects(item, "spans", *place)
    ]
    doc_id = document_id(item.get("meta"), own=item.get("_input_hash"), otherwise=name)
    record = text_record(doc_id, split, text, spans, options)
    tokens = objects(item, "tokens", *place)
    if tokens:
        record.words = [field(token, "text", str, *place) for token in tokens]
        _check_words(text, record.words, place)
    return record


def _check_words(text: str, words: List[str], place: Place) -> None:
    if "" in words:
        raise CorpusError(f"tokens: token {words.index('')} is empty.", *place)
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
