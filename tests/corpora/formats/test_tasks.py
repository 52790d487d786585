"""What is written for annotation tools, and that `convert` reads it back after the tool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List

import pytest
import spacy
from hypothesis import given, settings
from hypothesis import strategies as st
from spacy.tokens import Doc

from spacy_nested_ner.corpora import ReadOptions, get_reader
from spacy_nested_ner.corpora.docs import record_to_doc
from spacy_nested_ner.corpora.export import export_tasks, task_of
from spacy_nested_ner.corpora.records import ScoredSpan, Task
from spacy_nested_ner.corpora.registry import task_writers

NLP = spacy.blank("en")
TEXT = "😀👍 Bo Li's lab, 🧪 and  Rome.\n"


def task(text: str, *places: Any, text_id: str = "in.txt:1") -> Task:
    """A task of spaCy's tokens. places: (first token, token behind the last, label, score)."""
    doc = NLP(text)
    spans = [
        ScoredSpan(doc[start:end].start_char, doc[start:end].end_char, label, score)
        for start, end, label, score in places
    ]
    return task_of(text_id, doc, spans)


TASKS = [
    task(TEXT, (2, 6, "ORG", 0.75), (2, 4, "PER", 0.5), (2, 4, "NAME", 0.5), (10, 11, "GPE", 0.9)),
    task("No entities, “quoted”\u2028and a tab\t."),
    task("p53", (0, 1, "DNA", 1.0)),
]


def write(tool: str, tasks: List[Task], folder: Path) -> Path:
    path = folder / ("tasks.json" if tool == "label-studio" else "tasks.jsonl")
    export_tasks(iter(tasks), tool, path)
    return path


def accept(tool: str, path: Path) -> Path:
    """What the tool exports if an annotator changes nothing."""
    text = path.read_text("utf8")
    if tool == "label-studio":
        tasks = json.loads(text)
        for number, each in enumerate(tasks):
            predictions = each.pop("predictions")
            annotation = {"id": number, "was_cancelled": False, **predictions[0]}
            each.update(id=number, annotations=[annotation], predictions=[])
        path.write_text(json.dumps(tasks), "utf8")
    else:
        lines = [json.loads(line) for line in text.split("\n")[:-1]]
        for number, each in enumerate(lines):
            if tool == "prodigy":
                each.update(answer="accept", _input_hash=number, _view_id="spans_manual")
            else:
                each.update(id=number, Comments=[])
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf8")
    return path


def read(tool: str, path: Path) -> List[Doc]:
    records = get_reader(tool)(path, ReadOptions())
    found = [record_to_doc(record, NLP) for record in records]
    assert not any(dropped for _, dropped in found)
    return [doc for doc, _ in found]


def spans_of(docs: List[Doc]) -> List[Any]:
    """Text and spans. A doc of known words and unknown spaces has the text beside it."""
    return [
        (
            doc.user_data.get("text", doc.text),
            sorted((s.start_char, s.end_char, s.label_) for s in doc.spans["sc"]),
        )
        for doc in docs
    ]


def expected(tasks: List[Task]) -> List[Any]:
    return [(each.text, sorted(span[:3] for span in each.spans)) for each in tasks]


@pytest.mark.parametrize("tool", task_writers.get_all())
def test_what_was_accepted_comes_back(tool, tmp_path):
    found = read(tool, accept(tool, write(tool, TASKS, tmp_path)))
    assert spans_of(found) == expected(TASKS)
    assert found[0].spans["sc"][0].text == "Bo Li's lab"


words = st.text(st.sampled_from(list("a😀👍 .\n\t-")), min_size=1, max_size=12)
places = st.lists(st.tuples(st.integers(0, 11), st.integers(1, 5), st.sampled_from("AB")))


@pytest.mark.parametrize("tool", task_writers.get_all())
@settings(deadline=None)  # files are written: their time is that of the disk
@given(words, places)
def test_any_text_and_spans_come_back(tool, tmp_path_factory, text, places):
    doc = NLP(text)
    spans = {
        (start, end, label)
        for start, length, label in places
        if (end := start + length) <= len(doc)
        and not doc[start].is_space
        and not doc[end - 1].is_space
    }
    if not text.strip():
        return
    tasks = [task(text, *((*span, 0.5) for span in sorted(spans)))]
    folder = tmp_path_factory.getbasetemp()
    found = read(tool, accept(tool, write(tool, tasks, folder)))
    assert spans_of(found) == expected(tasks)


def test_prodigy(tmp_path):
    path = write("prodigy", TASKS, tmp_path)
    first, second, third = (json.loads(line) for line in path.read_text("utf8").split("\n")[:-1])
    assert third == {
        "text": "p53",
        "meta": {"text_id": "in.txt:1"},
        "tokens": [{"text": "p53", "start": 0, "end": 3, "id": 0, "ws": False}],
        "spans": [
            {"start": 0, "end": 3, "label": "DNA", "score": 1.0, "token_start": 0, "token_end": 0}
        ],
    }
    assert second["spans"] == []
    lab = first["spans"][0]
    # The last token belongs to the span.
    covered = first["tokens"][lab["token_start"] : lab["token_end"] + 1]
    assert [token["text"] for token in covered] == ["Bo", "Li", "'s", "lab"]
    assert [token["ws"] for token in covered] == [True, False, True, False]
    for token in first["tokens"]:
        assert TEXT[token["start"] : token["end"]] == token["text"]


def test_doccano(tmp_path):
    path = write("doccano", TASKS[1:], tmp_path)
    first, second = (json.loads(line) for line in path.read_text("utf8").split("\n")[:-1])
    assert second == {"text": "p53", "label": [[0, 3, "DNA"]], "text_id": "in.txt:1"}
    assert first["label"] == []


def test_label_studio(tmp_path):
    first, second, third = json.loads(write("label-studio", TASKS, tmp_path).read_text("utf8"))
    assert third == {
        "data": {"text": "p53", "text_id": "in.txt:1"},
        "predictions": [
            {
                "result": [
                    {
                        "id": "3-1",
                        "from_name": "label",
                        "to_name": "text",
                        "type": "labels",
                        "value": {"start": 0, "end": 3, "text": "p53", "labels": ["DNA"]},
                        "score": 1.0,
                    }
                ]
            }
        ],
    }
    assert second["predictions"] == [{"result": []}]
    regions = first["predictions"][0]["result"]
    assert len({region["id"] for region in regions}) == 4
    values = [region["value"] for region in regions]
    assert [value["labels"] for value in values] == [["ORG"], ["PER"], ["NAME"], ["GPE"]]
    for value in values:
        assert TEXT[value["start"] : value["end"]] == value["text"]


def test_an_old_label_studio_counts_units_of_browsers(tmp_path):
    """What it exports for the same spans."""
    path = accept("label-studio", write("label-studio", TASKS, tmp_path))
    tasks: List[Dict[str, Any]] = json.loads(path.read_text("utf8"))
    for region in tasks[0]["annotations"][0]["result"]:
        value = region["value"]
        for name in ("start", "end"):
            value[name] = len(TEXT[: value[name]].encode("utf-16-le")) // 2
    assert tasks[0]["annotations"][0]["result"][0]["value"]["start"] == 5
    path.write_text(json.dumps(tasks), "utf8")
    assert spans_of(read("label-studio", path)) == expected(TASKS)


@pytest.mark.parametrize("tool", task_writers.get_all())
def test_nothing_is_written_if_it_fails(tool, tmp_path):
    def failing():
        yield TASKS[0]
        raise ValueError("in the middle")

    path = write(tool, TASKS[2:], tmp_path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="in the middle"):
        export_tasks(failing(), tool, path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
