"""Label Studio: spans count characters, or UTF-16 units as old releases did, end exclusive."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Optional, Set, TextIO, Tuple

from spacy_nested_ner.corpora.errors import CorpusError, Place, shortened
from spacy_nested_ner.corpora.formats.json_documents import (
    Object,
    Outcome,
    checked_span,
    document_id,
    json_records,
)
from spacy_nested_ner.corpora.parsing.json import field, objects, write_items
from spacy_nested_ner.corpora.parsing.settings import with_settings
from spacy_nested_ner.corpora.records import (
    NOT_ANNOTATED,
    ReadOptions,
    Record,
    ScoredSpan,
    Task,
    text_record,
)
from spacy_nested_ner.corpora.registry import readers, task_writers
from spacy_nested_ner.corpora.spans import Dropped


@dataclass(frozen=True)
class LabelStudioSettings:
    """text: the field of a task's data with the text, `value="$text"` in the labelling setup.
    to_name: the tag of that text in the setup, where several are annotated; only its regions are
    read. annotator: id or email; only the annotations of this one are read."""

    text: str = "text"
    to_name: str = ""
    annotator: str = ""


@readers.register("label-studio")
def read_label_studio(path: Path, options: ReadOptions) -> Iterator[Record]:
    """Label Studio JSON or JSON-MIN (settings: text, to_name, annotator)"""
    settings = with_settings(LabelStudioSettings(), options.settings)
    read: Set[int] = set()

    def make(item: Object, place: Place, name: str, split: str, options: ReadOptions) -> Outcome:
        task = _task_of(item, place, settings.text)
        if task in read:
            return Dropped({_FURTHER: 1})
        outcome = _record(item, place, name, split, options, settings)
        if task is not None and isinstance(outcome, Record):
            read.add(task)
        return outcome

    return json_records(path, options, make)


def _task_of(item: Object, place: Place, text_field: str) -> Optional[int]:
    """What the items of one task have in common in JSON-MIN, which has one for each annotation."""
    if "data" in item or item.get("id") is None:
        return None
    return hash((place[0], str(item["id"]), str(item.get(text_field))))


def _record(
    item: Object,
    place: Place,
    name: str,
    split: str,
    options: ReadOptions,
    settings: LabelStudioSettings,
) -> Outcome:
    text = field(item.get("data", item), settings.text, str, *place)
    regions, omitted = _regions(item, place, settings)
    if regions is None:
        return omitted
    spans = []
    units = _Units(text)
    for region in regions:
        labels = region.get("labels", region.get("hypertextlabels"))
        if labels and not isinstance(labels, list):
            raise CorpusError(f"expected a list of labels, not {labels!r}.", *place)
        if not labels and ("start" in region or "globalOffsets" in region):
            omitted["region without a label", ""] += 1
        if labels:
            start, end = _characters(region, text, units, place)
            spans += [checked_span(start, end, label, len(text), place) for label in labels]
    doc_id = document_id(item.get("data"), item, own=item.get("id"), otherwise=name)
    record = text_record(doc_id, split, text, spans, options)
    record.dropped.update(omitted)
    return record


def _regions(
    item: Object, place: Place, settings: LabelStudioSettings
) -> Tuple[Optional[List[Object]], Dropped]:
    """Values of the annotation that counts, None without any, and what was left out: the ground
    truth if one is marked, otherwise the first that was not cancelled."""
    annotator, to_name = settings.annotator, settings.to_name
    if "data" not in item:
        listed = _regions_of_min(item, place)
        if listed is not None and not _is_by(item.get("annotator"), annotator):
            return None, Dropped({_OF_ANOTHER: 1})
        return listed, Dropped() if listed is not None else Dropped({NOT_ANNOTATED: 1})
    annotations = objects(item, "annotations" if "annotations" in item else "completions", *place)
    valid = [annotation for annotation in annotations if not annotation.get("was_cancelled")]
    if not valid:
        return None, Dropped({NOT_ANNOTATED: 1})
    mine = [each for each in valid if _is_by(each.get("completed_by"), annotator)]
    if not mine:
        return None, Dropped({_OF_ANOTHER: len(valid)})
    omitted = +Dropped({_OF_ANOTHER: len(valid) - len(mine), _FURTHER: len(mine) - 1})
    chosen = next((a for a in mine if a.get("ground_truth")), mine[0])
    results = [each for each in objects(chosen, "result", *place) if _marks_text(each)]
    wanted = [each for each in results if each.get("to_name", to_name) == to_name or not to_name]
    omitted += Dropped({("region of another text", ""): len(results) - len(wanted)})
    names = sorted({str(each["to_name"]) for each in wanted if "to_name" in each})
    if len(names) > 1:
        raise CorpusError(
            f"regions in several texts: {', '.join(names)}. Name one with --set to_name=NAME, and "
            "the field that holds it with --set text=FIELD.",
            *place,
        )
    return [field(result, "value", dict, *place) for result in wanted], omitted


def _marks_text(result: Object) -> bool:
    """Not a choice, a rating or a relation."""
    return "value" in result and result.get("type") in (None, "labels", "hypertextlabels")


def _is_by(who: Any, annotator: str) -> bool:
    """who: an id, or the object of a person."""
    names = [who.get("id"), who.get("email")] if isinstance(who, dict) else [who]
    return not annotator or annotator.casefold() in (str(name).casefold() for name in names)


_FURTHER = ("further annotation of a task", "")
_OF_ANOTHER = ("annotation of another annotator", "")


def _regions_of_min(item: Object, place: Place) -> Optional[List[Object]]:
    """Regions of an item of JSON-MIN, which holds them under the name of the labelling tag, beside
    the fields of the task. None if nobody annotated it."""
    names = [name for name, value in item.items() if _are_regions(value)]
    if len(names) > 1:
        raise CorpusError(
            f"regions under several names: {', '.join(names)}. Export as JSON instead of "
            "JSON-MIN: there, the annotation is separate from the task's fields, and each region "
            "says which text it is in.",
            *place,
        )
    if names:
        return objects(item, names[0], *place)
    if isinstance(item.get("label"), list):
        return objects(item, "label", *place)
    annotation = item.get("annotation_id", item.get("annotator"))
    return None if annotation in (None, "") else []


def _are_regions(value: Any) -> bool:
    return (
        isinstance(value, list)
        and all(isinstance(each, dict) and {"start", "globalOffsets"} & set(each) for each in value)
        and any(each.get("labels") or each.get("hypertextlabels") for each in value)
    )


class _Units:
    """Counts a text as browsers do: characters beyond U+FFFF, such as emoji, are two units."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def _pairs(self) -> List[int]:
        """The first unit of each character that has two."""
        wide = (i for i, character in enumerate(self._text) if character > "\uffff")
        return [i + before for before, i in enumerate(wide)]

    def character(self, unit: int) -> int:
        """The character that begins at a unit."""
        return unit - bisect_left(self._pairs, unit)


def _characters(region: Object, text: str, units: _Units, place: Place) -> Tuple[int, int]:
    """Characters of a region. The covered text tells whether it counts these or units."""
    offsets = region.get("globalOffsets", region)
    if not isinstance(offsets, dict):
        raise CorpusError(f"expected start and end in globalOffsets, not {offsets!r}.", *place)
    start, end = offsets.get("start"), offsets.get("end")
    if not (type(start) is type(end) is int and 0 <= start < end):
        problem = f"expected whole numbers with 0 <= start < end, not start {start!r}, end {end!r}."
        raise CorpusError(problem, *place)
    covered = region.get("text")
    counts = (start, end), (units.character(start), units.character(end))
    fitting = [(a, b) for a, b in counts if b <= len(text) and _are_alike(text[a:b], covered)]
    if fitting:
        return next((each for each in fitting if text[slice(*each)] == covered), fitting[0])
    if all(b > len(text) for _, b in counts):
        problem = f"a region ends at {end}, but the text has {len(text)} characters."
        raise CorpusError(problem, *place)
    raise CorpusError(
        f"a region at {start} is {covered!r}, but the text has "
        f"{shortened(text[start:end], 200)!r} there.",
        *place,
    )


def _are_alike(text: str, covered: Any) -> bool:
    """Whether a text is the covered one, in which white space is often another: one blank for
    several, nothing or a backslash and an "n" for the end of a line."""
    return covered is None or _WHITE.sub("", text) == _WHITE.sub("", str(covered))


_WHITE = re.compile(r"\\[nr]|\s+")


@task_writers.register("label-studio")
def write_tasks(tasks: Iterable[Task], file: TextIO) -> None:
    """JSON with predictions for this setup, which is that of the tool's template for entities:

    <View><Labels name="label" toName="text">...</Labels><Text name="text" value="$text"/></View>

    A span with two labels is two regions. Offsets count characters, as the editor does today.
    """
    write_items((_task(number, task) for number, task in enumerate(tasks, start=1)), file)


def _task(number: int, task: Task) -> Dict[str, Any]:
    regions = [_region(f"{number}-{i}", task.text, span) for i, span in enumerate(task.spans, 1)]
    return {
        "data": {"text": task.text, "text_id": task.text_id},
        "predictions": [{"result": regions}],
    }


def _region(region_id: str, text: str, span: ScoredSpan) -> Dict[str, Any]:
    covered = text[span.start : span.end]
    return {
        "id": region_id,
        "from_name": "label",
        "to_name": "text",
        "type": "labels",
        "value": {"start": span.start, "end": span.end, "text": covered, "labels": [span.label]},
        "score": span.score,
    }
