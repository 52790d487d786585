"""What annotation tools export as JSON: Prodigy, Label Studio, doccano; and GLiNER's data.

Spans of the tools count characters, end exclusive; GLiNER's count tokens, end inclusive.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple, Union

from spacy_nested_ner.corpora.json_items import field, read_items, string_list
from spacy_nested_ner.corpora.records import (
    CharSpan,
    CorpusError,
    Dropped,
    ReadOptions,
    Record,
    with_omissions,
)
from spacy_nested_ner.corpora.registry import readers
from spacy_nested_ner.corpora.sentences import word_places
from spacy_nested_ner.corpora.settings import no_settings, with_settings
from spacy_nested_ner.corpora.spans import clean_spans
from spacy_nested_ner.corpora.text import named_files
from spacy_nested_ner.corpora.words import check_span, words_record

Object = Dict[str, Any]
Place = Tuple[Path, int]
"""File and line, for errors."""

Outcome = Union[Record, Dropped]
"""A record, or why there is none."""


@readers.register("prodigy")
def read_prodigy(path: Path, options: ReadOptions) -> Iterator[Record]:
    """Prodigy JSONL (db-out): accepted answers, with Prodigy's tokens"""
    no_settings(options.settings)
    return _read(path, options, _prodigy)


@readers.register("doccano")
def read_doccano(path: Path, options: ReadOptions) -> Iterator[Record]:
    """doccano JSONL, sequence labelling (with relations or without)"""
    no_settings(options.settings)
    return _read(path, options, _doccano)


@readers.register("gliner")
def read_gliner(path: Path, options: ReadOptions) -> Iterator[Record]:
    """GLiNER's training data: tokenized_text and ner"""
    no_settings(options.settings)
    return _read(path, options, _gliner)


@dataclass(frozen=True)
class LabelStudioSettings:
    """text: the field of a task's data with the text, `value="$text"` in the labelling setup."""

    text: str = "text"


@readers.register("label-studio")
def read_label_studio(path: Path, options: ReadOptions) -> Iterator[Record]:
    """Label Studio JSON or JSON-MIN (setting: text)"""
    settings = with_settings(LabelStudioSettings(), options.settings)

    def make(item: Object, place: Place, split: str, options: ReadOptions) -> Outcome:
        return _label_studio(item, place, split, options, settings.text)

    return _read(path, options, make)


def _read(
    path: Path, options: ReadOptions, make: Callable[[Object, Place, str, ReadOptions], Outcome]
) -> Iterator[Record]:
    for file, split in named_files(Path(path)):
        outcomes = _outcomes(file, split, options, make)
        yield from with_omissions(options.problems.stop(outcomes))


def _outcomes(
    file: Path,
    split: str,
    options: ReadOptions,
    make: Callable[[Object, Place, str, ReadOptions], Outcome],
) -> Iterator[Outcome]:
    for line, item in read_items(file, options.problems):
        outcome = options.problems.attempt(make, item, (file, line), split, options)
        if outcome is not None:
            yield outcome


def _text_record(
    doc_id: object, split: str, text: str, spans: List[CharSpan], options: ReadOptions
) -> Record:
    kept, dropped = clean_spans(text, spans, one_label=options.all_labels is False)
    return Record(str(doc_id), split, text, kept, sentence_starts=[], dropped=dropped)


def _checked(start: Any, end: Any, label: Any, text: str, place: Place) -> CharSpan:
    try:
        check_span(start, end, label, len(text))
    except ValueError as err:
        raise CorpusError(str(err), *place) from err
    return start, end, label


def _prodigy(item: Object, place: Place, split: str, options: ReadOptions) -> Outcome:
    answer = item.get("answer", "accept")
    if answer != "accept":
        return Dropped({("not accepted", str(answer)): 1})
    text = field(item, "text", str, *place)
    spans = [
        _checked(span.get("start"), span.get("end"), span.get("label"), text, place)
        for span in _objects(item, "spans", place)
    ]
    doc_id = item.get("_input_hash", f"{place[0].name}:{place[1]}")
    record = _text_record(doc_id, split, text, spans, options)
    tokens = _objects(item, "tokens", place)
    if tokens:
        record.words = [field(token, "text", str, *place) for token in tokens]
        _check_words(text, record.words, place)
    return record


def _check_words(text: str, words: List[str], place: Place) -> None:
    try:
        word_places(text, words)
    except ValueError as err:
        raise CorpusError(f"tokens: {err}", *place) from err


def _objects(item: Object, name: str, place: Place) -> List[Object]:
    """A list of objects that may be absent."""
    values = item.get(name) or []
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise CorpusError(f"expected a list of objects as {name!r}.", *place)
    return values


def _doccano(item: Object, place: Place, split: str, options: ReadOptions) -> Outcome:
    text = field(item, "text" if "text" in item else "data", str, *place)
    found: List[Tuple[Any, Any, Any]] = [
        (entity.get("start_offset"), entity.get("end_offset"), entity.get("label"))
        for entity in _objects(item, "entities", place)
    ]
    triples: Any = item.get("label", item.get("labels")) or []
    if not {"entities", "label", "labels"} & set(item) or not isinstance(triples, list):
        raise CorpusError("expected the spans as 'label', 'labels' or 'entities'.", *place)
    for triple in triples:
        if not isinstance(triple, list) or len(triple) != 3:
            raise CorpusError(f"expected [start, end, label], not {triple!r}.", *place)
        found.append((triple[0], triple[1], triple[2]))
    spans = [_checked(*span, text, place) for span in found]
    doc_id = item.get("id", f"{place[0].name}:{place[1]}")
    return _text_record(doc_id, split, text, spans, options)


def _gliner(item: Object, place: Place, split: str, options: ReadOptions) -> Outcome:
    words = string_list(item, "tokenized_text", *place)
    spans = []
    for triple in field(item, "ner", list, *place):
        if not isinstance(triple, list) or len(triple) != 3 or type(triple[1]) is not int:
            raise CorpusError(f"expected [first token, last token, label], not {triple!r}.", *place)
        span = triple[0], triple[1] + 1, triple[2]
        try:
            check_span(*span, len(words))
        except ValueError as err:
            raise CorpusError(str(err), *place) from err
        spans.append(span)
    return words_record(f"{place[0].name}:{place[1]}", split, words, spans, options)


def _label_studio(
    item: Object, place: Place, split: str, options: ReadOptions, text_field: str
) -> Outcome:
    text = field(item.get("data", item), text_field, str, *place)
    regions, omitted = _regions(item, place)
    if regions is None:
        return omitted
    spans = []
    for region in regions:
        labels = region.get("labels", region.get("hypertextlabels"))
        if labels and not isinstance(labels, list):
            raise CorpusError(f"expected a list of labels, not {labels!r}.", *place)
        if labels:
            start, end = _label_studio_place(region, text, place)
            spans += [_checked(start, end, label, text, place) for label in labels]
    doc_id = item.get("id", f"{place[0].name}:{place[1]}")
    record = _text_record(doc_id, split, text, spans, options)
    record.dropped.update(omitted)
    return record


def _regions(item: Object, place: Place) -> Tuple[Optional[List[Object]], Dropped]:
    """Values of the annotation that counts, None without any, and what was left out: the ground
    truth if one is marked, otherwise the first that was not cancelled."""
    if "data" not in item:  # JSON-MIN
        label = item.get("label")
        if not isinstance(label, list):
            return None, _NOT_ANNOTATED
        return _objects(item, "label", place), Dropped()
    annotations = _objects(item, "annotations" if "annotations" in item else "completions", place)
    valid = [annotation for annotation in annotations if not annotation.get("was_cancelled")]
    if not valid:
        return None, _NOT_ANNOTATED
    chosen = next((a for a in valid if a.get("ground_truth")), valid[0])
    omitted = Dropped({("further annotation of a task", ""): len(valid) - 1})
    results = _objects(chosen, "result", place)
    return [
        result["value"] for result in results if isinstance(result.get("value"), dict)
    ], +omitted


_NOT_ANNOTATED = Dropped({("not annotated", ""): 1})


def _label_studio_place(region: Object, text: str, place: Place) -> Tuple[int, int]:
    """Characters of a region. Browsers count characters beyond U+FFFF, such as emoji, as two; the
    covered text tells which count it is."""
    offsets = region.get("globalOffsets", region)
    start, end = offsets.get("start"), offsets.get("end")
    covered = region.get("text")
    _checked(start, end, "label", text + "\0" * len(text), place)
    if covered is None or text[start:end] == covered:
        return start, end
    units = text.encode("utf-16-le")
    if units[2 * start : 2 * end].decode("utf-16-le", "replace") == covered:
        first = len(units[: 2 * start].decode("utf-16-le"))
        return first, first + len(covered)
    raise CorpusError(
        f"a region at {start} is {covered!r}, but the text has {text[start:end]!r} there.", *place
    )
