"""The JSON of the papers in and out."""

from __future__ import annotations

import json
from collections import Counter

import pytest
import spacy
from hypothesis import given, settings
from hypothesis import strategies as st
from spacy.tokens import Doc, Span

from spacy_nested_ner.corpora import CorpusError, ReadOptions, get_reader
from spacy_nested_ner.corpora.docs import record_to_doc
from spacy_nested_ner.corpora.export import export_docs
from tests.corpora.comparing import check_malformed, in_words, read


def test_papers_json(samples):
    sample = samples / "genia" / "papers_json"
    found = read("papers-json", sample)
    assert Counter(record.split for record in found) == {"train": 20, "dev": 6, "test": 6}
    for split in ("train", "dev", "test"):
        rows = json.loads((sample / f"genia_{split}_context.json").read_text("utf8"))
        records = [record for record in found if record.split == split]
        assert [in_words(record)[1:] for record in records] == [
            (row["tokens"], sorted((e["start"], e["end"], e["type"]) for e in row["entities"]))
            for row in rows
        ]
        assert [record.doc_id for record in records] == [row["org_id"] for row in rows]


@pytest.mark.parametrize(
    "ids, expected",
    [
        ({"org_id": 0}, "0"),
        ({"org_id": "", "orig_id": 3}, "3"),
        ({"org_id": None}, "all.jsonl:1"),
        ({}, "all.jsonl:1"),
    ],
)
def test_the_document_that_papers_json_names(tmp_path, ids, expected):
    path = tmp_path / "all.jsonl"
    path.write_text(json.dumps({"tokens": ["a"], "entities": [], **ids}), encoding="utf8")
    assert [record.doc_id for record in read("papers-json", path)] == [expected]


def test_whitespace_around_tokens_belongs_to_none(tmp_path):
    path = tmp_path / "all.jsonl"
    entities = [{"start": i, "end": i + 1, "type": "X"} for i in range(3)]
    item = {"tokens": ["a ", "New York", "\u3000x"], "entities": entities}
    path.write_text(json.dumps(item), encoding="utf8")
    (record,) = read("papers-json", path)
    assert record.words == ["a", "New York", "x"] and not record.dropped
    assert [record.text[start:end] for start, end, _ in record.spans] == record.words


def test_both_papers_hold_the_same(samples):
    sample = samples / "genia"
    ours = [
        [in_words(record) for record in read(name, sample / folder)]
        for name, folder in [("papers-json", "papers_json"), ("mrc-json", "mrc_json")]
    ]
    assert ours[0] == ours[1] and len(ours[0]) == 32
    assert sum(len(spans) for _, _, spans in ours[0]) == 107


def docs_of(records):
    nlp = spacy.blank("en")
    return [record_to_doc(record, nlp)[0] for record in records]


@pytest.mark.parametrize("group", ["sentence", "article"])
def test_papers_json_out_is_what_came_in(samples, tmp_path, group):
    sample = samples / "genia" / "papers_json" / "genia_train_context.json"
    records = get_reader("papers-json")(sample, ReadOptions(group=group))
    out = tmp_path / "out.json"
    count, dropped = export_docs(docs_of(records), "papers-json", out, "sc")
    assert count == 20 and not dropped
    written = json.loads(out.read_text("utf8"))
    original = json.loads(sample.read_text("utf8"))
    assert len(written) == len(original) == 20
    for ours, theirs in zip(written, original):
        for row in (ours, theirs):
            row["entities"].sort(key=lambda e: (e["start"], e["end"], e["type"]))
    # The sample was cut out of longer documents, whose last neighbours it does not hold.
    for key in ("tokens", "entities", "relations", "org_id", "ltokens"):
        assert [row[key] for row in written] == [row[key] for row in original]
    differing = [i for i in range(20) if written[i]["rtokens"] != original[i]["rtokens"]]
    assert all(written[i]["rtokens"] == [] for i in differing) and len(differing) <= 1


def test_mrc_json_out_and_in(samples, tmp_path):
    sample = samples / "genia" / "mrc_json" / "mrc-ner.test"
    records = read("mrc-json", sample)
    out = tmp_path / "mrc-ner.test"
    export_docs(docs_of(records), "mrc-json", out, "sc", lambda label: f"Which {label}?")
    again = read("mrc-json", out)
    assert [in_words(record) for record in again] == [in_words(record) for record in records]
    assert [record.doc_id for record in again] == [record.doc_id for record in records]
    item = json.loads(out.read_text("utf8"))[0]
    assert item["query"] == f"Which {item['entity_label']}?"
    theirs = {
        (row["context"], row["entity_label"]): (row["start_position"], row["end_position"])
        for row in json.loads(sample.read_text("utf8"))
    }
    for row in json.loads(out.read_text("utf8")):
        start, end = theirs[row["context"], row["entity_label"]]
        assert sorted(zip(row["start_position"], row["end_position"])) == sorted(zip(start, end))
        assert row["impossible"] == (not start)


WORDS = st.lists(st.sampled_from(["a", "b'", "ü", '"', "😀", ","]), min_size=1, max_size=7)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(WORDS, st.data()), min_size=1, max_size=4), st.booleans())
@pytest.mark.parametrize("name", ["papers-json", "mrc-json"])
def test_round_trips_lose_nothing(tmp_path_factory, name, sentences, several):
    vocab = spacy.blank("en").vocab
    docs, expected = [], []
    for i, (words, data) in enumerate(sentences):
        span = st.tuples(st.integers(0, len(words) - 1), st.integers(1, len(words)))
        places = data.draw(st.lists(span.filter(lambda s: s[0] < s[1]), max_size=4))
        spans = sorted({(a, b, label) for a, b in places for label in ("X", "Y")})
        doc = Doc(vocab, words=words)
        doc.spans["sc"] = [Span(doc, a, b, label=label) for a, b, label in spans]
        doc.user_data["doc_id"] = f"d{i // 2 if several else i}"
        docs.append(doc)
        expected.append((words, spans))
    path = tmp_path_factory.mktemp("out") / "train.json"
    if name == "mrc-json" and not any(spans for _, spans in expected):
        with pytest.raises(ValueError, match="no label that BERT-MRC could ask for"):
            export_docs(docs, name, path, "sc")
        return
    export_docs(docs, name, path, "sc")
    assert [in_words(record)[1:] for record in read(name, path)] == expected


@pytest.mark.parametrize(
    "name, item, problem",
    [
        ("papers-json", '{"tokens": ["a"]}', "expected a list as 'entities'"),
        (
            "papers-json",
            '{"tokens": ["a"], "entities": [{"type": "X", "start": 0, "end": 2}]}',
            "0 <= start < end <= 1",
        ),
        ("papers-json", '{"tokens": ["a"], "entities": [{"start": 0, "end": 1}]}', "'type'"),
        ("mrc-json", '{"context": "a", "qas_id": "1.1"}', "expected text as 'entity_label'"),
        (
            "mrc-json",
            '{"context": "a", "entity_label": "X", "span_position": ["0;1"], "qas_id": "1.1"}',
            "0 <= start < end <= 1",
        ),
        (
            "mrc-json",
            '{"context": "a", "entity_label": "X", "span_position": ["0"], "qas_id": "1.1"}',
            "of X",
        ),
        (
            "mrc-json",
            '{"context": "a", "entity_label": "X", "start_position": [0], "end_position": []}',
            "differ in length: 1 in 'start_position', 0 in 'end_position'",
        ),
    ],
)
def test_malformed_items_can_be_skipped(tmp_path, name, item, problem):
    path = tmp_path / "test.json"
    path.write_text(f"[\n{item}\n]", encoding="utf8")
    check_malformed(name, path, "line 2", problem, [])


@pytest.mark.parametrize("number", ["1e999", "Infinity", "NaN", "0.0", '"0"', "true", "null"])
def test_positions_that_are_no_whole_numbers(tmp_path, number):
    path = tmp_path / "test.json"
    item = '{"context": "a b", "entity_label": "X", "start_position": [%s], "end_position": [1]}'
    path.write_text(item % number, encoding="utf8")
    with pytest.raises(CorpusError, match=r"test\.json, line 1: (entity|.* is not a JSON number)"):
        read("mrc-json", path)


def test_positions_in_two_forms_must_agree(tmp_path):
    path = tmp_path / "test.json"
    item = '{"context": "a b", "entity_label": "X", "span_position": ["0;1"], "start_position": []}'
    path.write_text(item, encoding="utf8")
    with pytest.raises(CorpusError, match="0 in 'start_position', 1 in 'span_position'"):
        read("mrc-json", path)
