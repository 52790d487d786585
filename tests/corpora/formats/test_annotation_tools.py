"""Exports of annotation tools. The samples are written after the tools' documentation."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import spacy

from spacy_nested_ner.corpora import CorpusError, Problems, ReadOptions, get_reader
from spacy_nested_ner.corpora.docs import record_to_doc
from tests.corpora.comparing import check_malformed, entities

TOOLS = Path(__file__).parents[1] / "samples" / "annotation_tools"


def read(name, path, **options):
    return list(get_reader(name)(path, ReadOptions(**options)))


def test_prodigy():
    first, second = read("prodigy", TOOLS / "prodigy.jsonl")
    assert entities(first) == [("Dr. Bo Li\u2019s lab", "ORG"), ("Bo Li", "PER"), ("Paris", "GPE")]
    assert first.words[2:6] == ["Li", "\u2019s", "lab", "😀"] and first.doc_id == "1842734674"
    assert second.words is None and entities(second) == [("Rome", "GPE")]
    dropped = first.dropped + second.dropped
    assert dropped == {("not accepted", "reject"): 1, ("not accepted", "ignore"): 1}


def test_prodigy_keeps_the_last_accepted_answer_to_an_input(tmp_path):
    rome = {"text": "Rome", "_input_hash": 7}
    spans = {label: [{"start": 0, "end": 4, "label": label}] for label in ("PER", "GPE")}
    lines = [
        {**rome, "spans": spans["PER"], "answer": "accept", "_session_id": "a"},
        {"text": "another segment", "_input_hash": 7},
        {**rome, "spans": spans["PER"], "_session_id": "b"},
        {**rome, "spans": spans["GPE"], "answer": "accept"},
        {**rome, "spans": [], "answer": "reject"},
        {"text": "Rome", "spans": spans["PER"]},
        {"text": "Rome", "spans": spans["PER"]},
    ]
    for name in ("train.jsonl", "dev.jsonl"):
        (tmp_path / name).write_text("\n".join(map(json.dumps, lines)), encoding="utf8")
    records = read("prodigy", tmp_path)
    assert [(record.split, record.text, entities(record)) for record in records] == [
        (split, text, [(text, label)] if label else [])
        for split in ("train", "dev")
        for text, label in [
            ("another segment", ""),
            ("Rome", "GPE"),
            ("Rome", "PER"),
            ("Rome", "PER"),
        ]
    ]
    dropped = sum((record.dropped for record in records), Counter())
    assert dropped == {
        ("earlier accepted answer", ""): 4,
        ("not accepted", "reject"): 2,
    }


def test_answers_about_one_span_are_no_annotation_of_a_text(tmp_path):
    item = {"text": "IL-2 gene", "spans": [{"start": 0, "end": 4, "label": "PROT"}]}
    path = tmp_path / "a.jsonl"
    lines = [{**item, "_input_hash": 1}, {**item, "_is_binary": True, "_input_hash": 1}]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf8")
    (record,) = read("prodigy", path)
    assert record.dropped == {("answer about one span alone", ""): 1}


@pytest.mark.parametrize(
    "name, item",
    [
        ("doccano", {"id": 7, "text": "IL-2", "label": [], "text_id": "a:1"}),
        ("doccano", {"id": 7, "text": "IL-2", "label": [], "meta": {"text_id": "a:1"}}),
        ("prodigy", {"text": "IL-2", "_input_hash": 7, "meta": {"text_id": "a:1"}}),
        (
            "label-studio",
            {"id": 7, "data": {"text": "IL-2", "text_id": "a:1"}, "annotations": [{"result": []}]},
        ),
        ("label-studio", {"id": 7, "text": "IL-2", "text_id": "a:1", "annotation_id": 3}),
    ],
)
def test_ids_of_picked_texts_come_back(tmp_path, name, item):
    """Sentences of one document stay together in a split."""
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(item), encoding="utf8")
    assert [record.doc_id for record in read(name, path)] == ["a:1"]


@pytest.mark.parametrize("number", [0, 5, 5.0])
def test_ids_that_are_numbers(tmp_path, number):
    """As those of a column of a table are, with gaps or without."""
    path = tmp_path / "a.jsonl"
    meta = {"text": "IL-2", "meta": {"text_id": number}}
    path.write_text(json.dumps({**meta, "id": 7, "label": []}), encoding="utf8")
    assert [record.doc_id for record in read("doccano", path)] == [str(int(number))]
    path.write_text(json.dumps({**meta, "_input_hash": 7}), encoding="utf8")
    assert [record.doc_id for record in read("prodigy", path)] == [str(int(number))]


@pytest.mark.parametrize("value", [None, True, 0.5, "", ["a"]])
def test_ids_that_are_none(tmp_path, value):
    path = tmp_path / "a.jsonl"
    item = {"id": 7, "text": "IL-2", "label": [], "text_id": value}
    path.write_text(json.dumps(item), encoding="utf8")
    assert [record.doc_id for record in read("doccano", path)] == ["7"]


@pytest.mark.parametrize(
    "name, item",
    [
        ("doccano", {"id": None, "text": "IL-2", "label": []}),
        ("prodigy", {"_input_hash": None, "text": "IL-2", "answer": "accept"}),
        (
            "label-studio",
            {"id": None, "data": {"text": "IL-2"}, "annotations": [{"result": []}]},
        ),
    ],
)
def test_a_tool_that_has_no_ids(tmp_path, name, item):
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join([json.dumps(item)] * 2), encoding="utf8")
    assert [record.doc_id for record in read(name, path)] == ["a.jsonl:1", "a.jsonl:2"]


def test_whitespace_around_labels(tmp_path):
    path = tmp_path / "a.jsonl"
    spans = [[0, 4, "PROT"], [0, 4, "PROT "], [5, 9, " DNA"]]
    path.write_text(json.dumps({"text": "IL-2 gene", "label": spans}), encoding="utf8")
    (record,) = read("doccano", path)
    assert [label for _, _, label in record.spans] == ["PROT", "DNA"]
    path.write_text(json.dumps({"text": "IL-2", "label": [[0, 4, " "]]}), encoding="utf8")
    with pytest.raises(CorpusError, match="and a label"):
        read("doccano", path)


def test_prodigy_counts_answers_in_malformed_files_too(tmp_path):
    path = tmp_path / "out.jsonl"
    line = '{"text": "Rome", "_input_hash": 7}\n'
    path.write_text(f"{line}[1]\n{line}", encoding="utf8")
    problems = Problems(skip=True, quiet=True)
    (record,) = read("prodigy", path, problems=problems)
    assert problems.count == 1
    assert record.dropped == {("earlier accepted answer", ""): 1}


def test_tokens_of_prodigy_keep_the_text_where_the_tokenizer_agrees():
    nlp = spacy.blank("en")
    record = read("prodigy", TOOLS / "prodigy.jsonl")[0]
    doc, _ = record_to_doc(record, nlp)
    assert doc.text == record.text and not doc.has_unknown_spaces
    record.words = ["Dr.", "Bo", "Li\u2019s", *record.words[4:]]
    doc, dropped = record_to_doc(record, nlp)
    assert [token.text for token in doc] == record.words and doc.has_unknown_spaces
    assert dropped == {("misaligned", "PER"): 1}


def test_doccano():
    records = read("doccano", TOOLS / "doccano.jsonl")
    assert [entities(record) for record in records] == [
        [("Bo Li's lab", "ORG"), ("Bo Li", "PER"), ("Paris", "GPE")],
        [("Rome", "GPE")],
        [("Rome's mayor", "PER"), ("Rome", "GPE")],
    ]
    assert [record.doc_id for record in records] == ["1", "2", "3"]


def test_gliner():
    first, second = read("gliner", TOOLS / "gliner.json")
    assert entities(first) == [("IL-2 gene", "DNA"), ("IL-2", "protein")]
    assert first.words == ["The", "IL-2", "gene", "is", "active", "."] and not second.spans


def test_label_studio():
    first, second = read("label-studio", TOOLS / "label_studio.json")
    assert entities(first) == [("Bo Li's lab", "ORG"), ("Bo Li", "NAME"), ("Bo Li", "PER")]
    assert entities(second) == [("Rome", "GPE")] and second.doc_id == "12"
    assert first.dropped == {("further annotation of a task", ""): 1}
    assert second.dropped == {("not annotated", ""): 1}


def test_label_studio_counts_of_characters(tmp_path):
    """The first file counts the emoji as two, as browsers do; Python counts one."""
    items = json.loads((TOOLS / "label_studio.json").read_text("utf8"))[:1]
    for result in items[0]["annotations"][2]["result"][:2]:
        result["value"]["start"] -= 1
        result["value"]["end"] -= 1
    path = tmp_path / "export.json"
    path.write_text(json.dumps(items), encoding="utf8")
    assert entities(read("label-studio", path)[0])[0] == ("Bo Li's lab", "ORG")
    items[0]["annotations"][2]["result"][0]["value"]["start"] += 3
    path.write_text(json.dumps(items), encoding="utf8")
    with pytest.raises(CorpusError, match='line 1: a region at 5 is "Bo Li\'s lab", but'):
        read("label-studio", path)


def annotation(end: int, label: str, **more):
    value = {"start": 0, "end": end, "labels": [label]}
    return {"result": [{"type": "labels", "value": value}], **more}


BOB = {"id": 7, "email": "bob@x.org"}


@pytest.mark.parametrize("bob, name", [(7, "7"), (BOB, "7"), (BOB, "Bob@x.org")])
def test_one_annotator_of_label_studio(tmp_path, bob, name):
    items = [
        {
            "id": 1,
            "data": {"text": "IL-2 gene"},
            "annotations": [
                annotation(4, "PROT", completed_by=3, ground_truth=True),
                annotation(9, "DNA", completed_by=bob),
            ],
        },
        {
            "id": 2,
            "data": {"text": "IL-3 gene"},
            "annotations": [annotation(4, "PROT", completed_by=3)],
        },
    ]
    path = tmp_path / "export.json"
    path.write_text(json.dumps(items), encoding="utf8")
    (record,) = read("label-studio", path, settings={"annotator": name})
    assert entities(record) == [("IL-2 gene", "DNA")]
    assert record.dropped == {("annotation of another annotator", ""): 2}
    both = read("label-studio", path)
    assert [entities(each) for each in both] == [[("IL-2", "PROT")], [("IL-3", "PROT")]]


def test_one_annotator_of_label_studio_min(tmp_path):
    task = {"text": "The US Court", "id": 1}
    path = write_min(
        tmp_path,
        {**task, "label": [region(4, 12, "US Court", "ORG")], "annotator": 1, "annotation_id": 11},
        {**task, "label": [region(4, 12, "US Court", "PER")], "annotator": 2, "annotation_id": 12},
        {"text": "Rome", "id": 2, "label": [], "annotator": 2, "annotation_id": 13},
    )
    first, second = read("label-studio", path, settings={"annotator": "2"})
    assert entities(first) == [("US Court", "PER")] and not second.spans
    assert first.dropped + second.dropped == {("annotation of another annotator", ""): 1}


def test_label_studio_min():
    (record,) = read("label-studio", TOOLS / "label_studio_min.json")
    assert entities(record) == [("Rome", "GPE")]
    assert record.dropped == {("not annotated", ""): 1}


def region(start, end, text, label):
    return {"start": start, "end": end, "text": text, "labels": [label]}


def write_min(tmp_path, *items):
    path = tmp_path / "min.json"
    path.write_text(json.dumps(items), encoding="utf8")
    return path


def test_label_studio_min_without_entities(tmp_path):
    path = write_min(
        tmp_path,
        {"text": "nothing here", "id": 2, "annotator": 1, "annotation_id": 13},
        {"text": "of an old release", "id": 3, "annotator": "bo@li.org"},
        {"text": "Nobody looked.", "id": 4, "annotator": None, "annotation_id": None},
    )
    first, second = read("label-studio", path)
    assert first.text == "nothing here" and not first.spans and not second.spans
    assert first.dropped + second.dropped == {("not annotated", ""): 1}


def test_label_studio_min_of_two_annotators(tmp_path):
    task = {"text": "The US Court", "id": 1}
    path = write_min(
        tmp_path,
        {**task, "label": [region(4, 12, "US Court", "ORG")], "annotator": 1, "annotation_id": 11},
        {"text": "Rome", "id": 2, "annotator": 1, "annotation_id": 13},
        {**task, "label": [region(4, 12, "US Court", "PER")], "annotator": 2, "annotation_id": 12},
        {**task, "annotator": 3, "annotation_id": 14},
        {"text": "Rome", "id": 1, "label": [region(0, 4, "Rome", "GPE")], "annotation_id": 1},
        {"text": "Rome", "label": []},
        {"text": "Rome", "label": []},
    )
    records = read("label-studio", path)
    assert [record.text for record in records] == ["The US Court", *["Rome"] * 4]
    assert [entities(record) for record in records[:3]] == [
        [("US Court", "ORG")],
        [],
        [("Rome", "GPE")],
    ]
    dropped = sum((record.dropped for record in records), Counter())
    assert dropped == {("further annotation of a task", ""): 2}


def test_label_studio_min_after_a_malformed_annotation(tmp_path):
    task = {"text": "Rome", "id": 1}
    path = write_min(
        tmp_path,
        {**task, "label": [region(0, 9, "Rome", "GPE")]},
        {**task, "label": [region(0, 4, "Rome", "GPE")]},
    )
    problems = Problems(skip=True, quiet=True)
    (record,) = read("label-studio", path, problems=problems)
    assert entities(record) == [("Rome", "GPE")] and problems.count == 1


def test_label_studio_min_with_a_tag_of_another_name(tmp_path):
    item = {
        "text": "Rome is old.",
        "label": "news",
        "parts": [{"start": 0, "end": 4, "text": "Rome"}],
        "ner": [region(0, 4, "Rome", "GPE"), {"start": 5, "end": 7, "text": "is", "labels": []}],
        "annotation_id": 4,
    }
    (record,) = read("label-studio", write_min(tmp_path, item))
    assert entities(record) == [("Rome", "GPE")]
    assert record.dropped == {("region without a label", ""): 1}
    item["parts"] = item["ner"]
    with pytest.raises(CorpusError, match="line 1: regions under several names: parts, ner"):
        read("label-studio", write_min(tmp_path, item))


def test_label_studio_text_field(tmp_path):
    path = tmp_path / "export.json"
    path.write_text('[{"data": {"body": "Rome"}, "annotations": [{"result": []}]}]', "utf8")
    with pytest.raises(CorpusError, match="expected text as 'text'; the object has: body"):
        read("label-studio", path)
    assert read("label-studio", path, settings={"text": "body"})[0].text == "Rome"


def test_only_what_was_left_out(tmp_path, caplog):
    path = tmp_path / "none.jsonl"
    path.write_text('{"text": "a", "answer": "reject"}\n', encoding="utf8")
    assert read("prodigy", path) == []
    assert "All items were left out: 1 not accepted" in caplog.text


@pytest.mark.parametrize(
    "name, line, problem",
    [
        ("prodigy", '{"spans": []}', "expected text as 'text'; the object has: spans"),
        ("prodigy", '{"text": "ab", "spans": [{"start": 1}]}', "0 <= start < end <= 2"),
        ("prodigy", '{"text": "ab", "spans": [1]}', "a list of objects as 'spans'"),
        ("prodigy", '{"text": "ab", "tokens": [{"text": "b"}]}', "does not have the word 'b'"),
        ("doccano", '{"text": "ab"}', "the spans as 'label', 'labels' or 'entities'"),
        ("doccano", '{"text": "ab", "label": [[0, 1]]}', r"expected \[start, end, label\]"),
        ("doccano", '{"text": "ab", "label": [[0, 9, "X"]]}', "0 <= start < end <= 2"),
        ("gliner", '{"tokenized_text": ["a"], "ner": [[0, 1, "X"]]}', "0 <= start < end <= 1"),
        ("gliner", '{"tokenized_text": ["a", ""], "ner": []}', "only non-empty texts"),
        ("gliner", '{"tokenized_text": ["a"], "ner": [["0", "0", "X"]]}', "first token"),
        ("label-studio", '{"data": {"text": 1}}', "expected text as 'text'"),
        ("label-studio", '{"data": "a"}', "expected an object with 'text', not 'a'"),
        ("label-studio", '{"text": "a", "label": [1]}', "a list of objects as 'label'"),
        (
            "label-studio",
            '{"text": "a", "label": [{"start": 0, "end": 1, "labels": "X"}]}',
            "expected a list of labels, not 'X'",
        ),
        ("gliner", "[1]", "expected a JSON object"),
        ("gliner", '{"a": ', "Expecting value"),
    ],
)
def test_malformed_items_can_be_skipped(tmp_path, name, line, problem):
    good = {
        "prodigy": '{"text": "ok"}',
        "doccano": '{"text": "ok", "label": []}',
        "gliner": '{"tokenized_text": ["ok"], "ner": []}',
        "label-studio": '{"data": {"text": "ok"}, "annotations": [{"result": []}]}',
    }[name]
    path = tmp_path / "data.jsonl"
    path.write_text(f"{good}\n\n{line}\n{good}\n", encoding="utf8")
    check_malformed(name, path, "line 3", problem, ["ok", "ok"])


def test_no_settings():
    with pytest.raises(ValueError, match="has no settings, got text"):
        read("gliner", TOOLS / "gliner.json", settings={"text": "a"})
    with pytest.raises(ValueError, match="has no settings, got text"):
        read("genia", TOOLS / "gliner.json", settings={"text": "a"})


TASK = '{"data": {"text": "Rome"}, "annotations": [{"result": [{"value": %s}]}]}'


@pytest.mark.parametrize(
    "name, text, problem",
    [
        ("label-studio", '["a"]', "expected a JSON object, not 'a'"),
        ("label-studio", "[null]", "expected a JSON object, not 'None'"),
        ("label-studio", '[{"data": [1]}]', r"expected an object with 'text', not \[1\]"),
        ("label-studio", '[{"data": null}]', "expected an object with 'text', not None"),
        (
            "label-studio",
            TASK % '{"globalOffsets": "a", "labels": ["X"]}',
            "expected start and end in globalOffsets, not 'a'",
        ),
        ("label-studio", TASK % "[1]", r"expected an object as 'value', not \[1\]"),
        ("label-studio", '[{"data": {"text": null}}]', "expected text as 'text', not null"),
        (
            "label-studio",
            TASK % '{"start": "0", "end": 4, "labels": ["X"]}',
            "expected whole numbers with 0 <= start < end, not start '0', end 4",
        ),
        (
            "label-studio",
            TASK % '{"start": 0, "end": 9, "labels": ["X"]}',
            "a region ends at 9, but the text has 4 characters",
        ),
        ("prodigy", '{"text": "a", "tokens": [{"text": "a"}, {"text": ""}]}', "token 1 is empty"),
        ("doccano", '{"text": "ab", "label": [], "labels": "a"}', "the spans as"),
    ],
)
def test_values_of_wrong_types(tmp_path, name, text, problem):
    path = tmp_path / "export.json"
    path.write_text(text, encoding="utf8")
    with pytest.raises(CorpusError, match=f"line 1: .*{problem}"):
        read(name, path)


def test_a_region_without_a_label_is_counted(tmp_path):
    path = tmp_path / "export.json"
    path.write_text(TASK % '{"start": 0, "end": 4, "labels": []}', encoding="utf8")
    (record,) = read("label-studio", path)
    assert not record.spans and record.dropped == {("region without a label", ""): 1}


def test_both_names_of_labels_count_in_doccano(tmp_path):
    path = tmp_path / "all.jsonl"
    path.write_text('{"text": "ab", "label": [[0, 1, "X"]], "labels": [[1, 2, "Y"]]}', "utf8")
    assert entities(read("doccano", path)[0]) == [("a", "X"), ("b", "Y")]


def test_what_was_left_out_of_one_file_is_counted_in_the_next(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"text": "a", "answer": "reject"}\n', encoding="utf8")
    (tmp_path / "dev.jsonl").write_text('{"text": "b"}\n', encoding="utf8")
    (record,) = read("prodigy", tmp_path)
    assert record.dropped == {("not accepted", "reject"): 1}


def test_a_list_on_one_line_has_many_records(tmp_path):
    """Names decide where a record goes, so that equal ones would all go into one split."""
    items = [{"tokenized_text": ["IL-2"], "ner": [[0, 0, "Gene"]]} for _ in range(3)]
    (tmp_path / "data.json").write_text(json.dumps(items))
    records = read("gliner", tmp_path / "data.json")
    assert [each.doc_id for each in records] == ["data.json:1", "data.json:1#2", "data.json:1#3"]
    (tmp_path / "data.json").write_text("\n".join(map(json.dumps, items)))
    records = read("gliner", tmp_path / "data.json")
    assert [each.doc_id for each in records] == ["data.json:1", "data.json:2", "data.json:3"]


@pytest.mark.parametrize(
    "covered", ["Bank\\nof China", "Bankof China", "Bank of China", "Bank\nof  China"]
)
def test_white_space_of_covered_text_may_be_another(tmp_path, covered):
    """Label Studio writes a line break as a backslash and an n, or leaves it out."""
    text = "😀 the Bank\nof  China left"
    value = {"start": 6, "end": 20, "text": covered, "labels": ["ORG"]}
    for moved in (0, 1):  # characters, and units of old releases
        value.update(start=6 + moved, end=20 + moved)
        path = tmp_path / "export.json"
        items = [{"data": {"text": text}, "annotations": [{"result": [{"value": value}]}]}]
        path.write_text(json.dumps(items), encoding="utf8")
        assert entities(read("label-studio", path)[0]) == [("Bank\nof  China", "ORG")]
    value.update(text="Bank of Chin")
    path.write_text(json.dumps(items), encoding="utf8")
    with pytest.raises(CorpusError, match="a region at 7 is 'Bank of Chin', but"):
        read("label-studio", path)


def two_texts(**title):
    regions = [
        {"to_name": "text", "type": "labels", "value": {"start": 0, "end": 4, "labels": ["GPE"]}},
        {"to_name": "title", "type": "labels", "value": {"start": 0, "end": 5, "labels": ["ORG"]}},
        {"to_name": "kind", "type": "choices", "value": {"choices": ["news"]}},
    ]
    data = {"text": "Rome won.", "title": "Derby"}
    return {"data": data, "annotations": [{"result": regions}]}


def test_regions_of_one_of_two_texts(tmp_path):
    path = tmp_path / "export.json"
    path.write_text(json.dumps([two_texts()]), encoding="utf8")
    with pytest.raises(CorpusError, match=r"in several texts: text, title. .*--set to_name=NAME"):
        read("label-studio", path)
    (record,) = read("label-studio", path, settings={"to_name": "text"})
    assert entities(record) == [("Rome", "GPE")]
    assert record.dropped == {("region of another text", ""): 1}
    (record,) = read("label-studio", path, settings={"to_name": "title", "text": "title"})
    assert record.text == "Derby" and entities(record) == [("Derby", "ORG")]


def test_errors_say_which_item_of_a_line(tmp_path):
    good = {"data": {"text": "ok"}, "annotations": [{"result": []}]}
    path = tmp_path / "export.json"
    path.write_text(json.dumps([good, good, {"data": {}}]), encoding="utf8")
    with pytest.raises(CorpusError, match=r"export\.json, line 1, item 3: expected text"):
        read("label-studio", path)


@pytest.mark.parametrize(
    "item", [{"label": [[0, 4, "GPE"]]}, {"label": "SPORT", "answer": "accept"}]
)
def test_other_annotation_is_no_prodigy(tmp_path, item):
    path = tmp_path / "data.jsonl"
    path.write_text(json.dumps({"text": "Rome won.", **item}), encoding="utf8")
    with pytest.raises(CorpusError, match="line 1: no spans, but 'label'"):
        read("prodigy", path)
    path.write_text(json.dumps({"text": "Rome won.", "spans": [], **item}), encoding="utf8")
    assert not read("prodigy", path)[0].spans
