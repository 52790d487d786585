"""JSON files item by item."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_nested_ner.corpora import CorpusError, Problems, ReadOptions, get_reader
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
            r"line 2: expected the end of the file after the list, not '\['",
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


STRICT = [
    ('{"a": [1, NaN]}', "NaN is not a JSON number"),
    ('{"a": -Infinity}', "-Infinity is not a JSON number"),
    ('{"a": 1e999}', "1e999 is not a JSON number"),
    ('{"a": 1, "b": 2, "a": 3}', "an object has the key 'a' twice"),
    (r'{"a": "\ud83d"}', r"'\\ud83d' is half of a surrogate pair"),
    ('{"a":' + "[" * 100 + "]" * 100 + "}", "nested more than 100 deep"),
    ("[" * 200_000, "nested more than 100 deep"),
    ('{"a":' * 200_000, "nested more than 100 deep"),
]


@pytest.mark.parametrize("value, problem", STRICT)
def test_strict_json(tmp_path, value, problem):
    path = tmp_path / "bad.json"
    path.write_text(f'[{{"a": 1}},\n{value}]', encoding="utf8")
    with pytest.raises(CorpusError, match=f"line 2: .*{problem}"):
        list(json_items.read_items(path, Problems()))
    path.write_text(f'{{"a": 1}}\n{value}\n{{"a": 2}}', encoding="utf8")
    problems = Problems(skip=True, quiet=True)
    assert [item for _, item in json_items.read_items(path, problems)] == [{"a": 1}, {"a": 2}]
    assert problems.count == 1 and problem.replace("\\\\", "\\") in problems.messages[0]


def test_what_strict_json_allows(tmp_path):
    deep = "[" * 99 + "]" * 99
    path = tmp_path / "good.json"
    path.write_text(f'[{{"a": "\\ud83d\\ude00", "b": 1.5e3, "c": {deep}}}]', encoding="utf8")
    ((_, item),) = json_items.read_items(path, Problems())
    assert item["a"] == "😀" and item["b"] == 1500.0


@pytest.mark.parametrize("other", ["1", "null", '"a"', "[]"])
def test_what_is_no_object_in_a_list_can_be_skipped(tmp_path, other):
    path = tmp_path / "list.json"
    path.write_text(f'[{{"a": 1}}, {other},\n{{"a": 2}}]', encoding="utf8")
    problems = Problems(skip=True, quiet=True)
    assert len(list(json_items.read_items(path, problems))) == 2 and problems.count == 1


def test_a_long_item_is_read_in_linear_time(tmp_path, monkeypatch):
    """Each attempt at an item that is not complete has twice the text."""
    attempts = []

    class Counting(json_items.StrictDecoder):
        def raw_decode(self, s, idx=0):
            attempts.append(len(s) - idx)
            return super().raw_decode(s, idx)

    monkeypatch.setattr(json_items, "_DECODER", Counting())
    path = tmp_path / "long.json"
    path.write_text(json.dumps([{"a": "x" * 5_000_000}]), encoding="utf8")
    assert len(list(json_items.read_items(path, Problems()))) == 1
    assert sum(attempts) < 4 * path.stat().st_size


def test_a_list_is_handed_out_before_the_file_is_read(tmp_path):
    path = tmp_path / "long.json"
    path.write_text("[" + '{"a": 1},' * 100_000 + "broken", encoding="utf8")
    items = json_items.read_items(path, Problems())
    assert [next(items)[1] for _ in range(1000)] == [{"a": 1}] * 1000


@pytest.mark.parametrize(
    "name", ["papers-json", "mrc-json", "prodigy", "doccano", "gliner", "label-studio"]
)
def test_deep_nesting_in_every_format(tmp_path, name):
    path = tmp_path / "train.json"
    for text in ('[{"tokens": ' + "[" * 100_000, '{"text": ' * 100_000):
        path.write_text(text, encoding="utf8")
        with pytest.raises(CorpusError, match=r"train\.json, line 1: .* are nested more than"):
            list(get_reader(name)(path, ReadOptions()))
