"""Which output a run may continue, and which of its files are whole."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spacy_nested_ner.scale import pipelines
from spacy_nested_ner.scale.inputs import Columns, Fragment, cut, input_files
from spacy_nested_ner.scale.outputs import begin, is_whole, manifest_of


def manifest(path, columns=None, code=None, **changes):
    own = dict(name="a@1", hash="1", spans_key="sc", details=False, batch_size=250, gpu_id=-1)
    files, _ = input_files(path)
    columns = columns or Columns()
    fragments = list(cut(files, columns))
    return manifest_of(SimpleNamespace(**{**own, **changes}), columns, 0, fragments, code)


def test_a_run_is_not_resumed_as_another(tmp_path):
    texts, out, code = tmp_path / "in", tmp_path / "out", tmp_path / "own.py"
    texts.mkdir()
    (texts / "a.csv").write_text("text,body,id,n\na,b,1,2\n")
    (texts / "b.csv").write_text("text,body,id,n\na,b,1,2\n")
    code.write_text("1")
    begin(out, manifest(texts, code=code), resume=False)
    begin(out, manifest(texts, code=code), resume=True)
    for changes, says in (
        ({"name": "b@2", "hash": "2"}, "with the model a@1, not b@2"),
        ({"spans_key": "other"}, "with spans_key 'sc', not 'other'"),
        ({"columns": Columns(text="body")}, "with text 'text', not 'body'"),
        ({"columns": Columns(id="n")}, "with id None, not 'n'"),
        ({"gpu_id": 0}, "with device 'CPU', not 'GPU'"),
    ):
        with pytest.raises(ValueError, match=says):
            begin(out, manifest(texts, code=code, **changes), resume=True)
    code.write_text("2")
    with pytest.raises(ValueError, match="with code"):
        begin(out, manifest(texts, code=code), resume=True)
    code.write_text("1")
    os.utime(texts / "a.csv", ns=(0, 0))  # as many bytes and rows
    (texts / "b.csv").unlink()
    with pytest.raises(ValueError, match=r"a\.csv has changed since; b\.csv is no longer in the"):
        begin(out, manifest(texts, code=code), resume=True)


def test_a_manifest_that_is_damaged(tmp_path):
    (tmp_path / "_manifest.json").write_text("[]")
    with pytest.raises(ValueError, match="does not contain a JSON object"):
        begin(tmp_path, {}, resume=True)
    for content in ("{}", '{"model": []}', '{"model": {}, "settings": [], "input": {}}'):
        (tmp_path / "_manifest.json").write_text(content)
        with pytest.raises(ValueError, match=r"_manifest\.json is damaged"):
            begin(tmp_path, {"model": {}, "settings": {"a": 1}, "input": {}}, resume=True)


def test_a_fragment_of_fewer_rows_is_not_whole(tmp_path):
    fragment = Fragment(0, "a.txt", "a.txt", 0, 0, 2)
    for rows in (1, 2):
        pq.write_table(pa.table({"id": ["x"] * rows}), tmp_path / fragment.output)
        assert is_whole(tmp_path, fragment) == (rows == 2)


def test_what_a_machine_adds_to_a_pipeline_changes_no_hash(tmp_path):
    found = []
    for name in ("config.cfg", "ner/model", ".DS_Store", "__pycache__/a.pyc", "ner/.git/a"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
        found.append(pipelines.hash_of(str(tmp_path)))
    assert found[0] != found[1] and len(set(found[1:])) == 1
    (tmp_path / "ner" / "model").rename(tmp_path / "ner" / "cfg")
    assert pipelines.hash_of(str(tmp_path)) != found[1]
