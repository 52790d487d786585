"""JSON files item by item."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_nested_ner.corpora import CorpusError, Problems
from spacy_nested_ner.corpora.parsing import json as json_items

ITEMS = st.lists(
    st.dictionaries(st.text(max_size=5), st.one_of(st.text(), st.integers(), st.none())),
    max_size=6,
)


@settings(max_examples=60, deadline=None)
@given(ITEMS, st.sampled_from([None, 1]), st.integers(1, 40))
def test_lists_are_read_in_pieces_of_any_size(tmp_path_factory, items, indent, chunk):
    path = tmp_path_factory.mktemp("json") / "list.json"
    path.write_text(json.dumps(items, indent=indent), encoding="utf8")
    original, json_items.CHUNK = json_items.CHUNK, chunk
    try:
        found = list(json_items.read_items(path, Problems()))
    finally:
        json_items.CHUNK = original
    assert [item for _, item in found] == items
    lines = path.read_text("utf8").splitlines()
    assert all(lines[line - 1].strip().startswith(("{", "[{")) for line, _ in found)


@pytest.mark.parametrize(
    "text, problem",
    [
        ('[{"a": 1},\n{"b": 2]', "line 2: malformed JSON or the file ends too early"),
        ('[{"a": 1},\n{"b": 2', "line 2: malformed JSON or the file ends too early"),
        ('[{"a": 1}\n{"b": 2}]', "line 2: expected , or ] here, not '{'"),
        ('[{"a": 1}', "not the end of the file"),
        ('[{"a": 1},\n 2]', "line 2: expected a JSON object"),
        (
            '[{"a": 1}]\n[{"b": 2}]',
            r"line 2: expected the end of the file behind the list, not '\['",
        ),
        ("[]\n{}", "line 2: expected the end of the file"),
        ("{\n}", "line 1: .* Expected a JSON list, or one JSON object on each line"),
    ],
)
def test_malformed_json(tmp_path, text, problem):
    path = tmp_path / "bad.json"
    path.write_text(text, encoding="utf8")
    with pytest.raises(CorpusError, match=problem):
        list(json_items.read_items(path, Problems()))


def test_a_list_is_handed_out_before_the_file_is_read(tmp_path):
    path = tmp_path / "long.json"
    path.write_text("[" + '{"a": 1},' * 100_000 + "broken", encoding="utf8")
    items = json_items.read_items(path, Problems())
    assert [next(items)[1] for _ in range(1000)] == [{"a": 1}] * 1000
