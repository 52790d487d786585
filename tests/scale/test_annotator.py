from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
import threading

import pyarrow as pa
import pytest
import spacy
import torch
from spacy.language import Language

from spacy_nested_ner.scale import Annotator, inputs, pipelines
from spacy_nested_ner.scale.inputs import checked
from tests.conftest import SMALL_MODELS, add_own_ner, make_pipeline, train
from tests.scale.pipelines import TEXTS, assert_annotated


def table(texts, ids=None, text="text", id="id") -> pa.Table:
    return pa.table({id: ids or [f"t{i}" for i in range(len(texts))], text: texts})


@Language.component("scale_test_fails")
def fails(doc):
    if "fail" in doc.text:
        raise KeyError(f"cannot read {doc.text!r}")
    return doc


@Language.component("scale_test_fails_on_two_words")
def fails_on_two_words(doc):
    assert doc.text != "Two words."
    return doc


@Language.factory("scale_test_drops")
class Drops:
    """Leaves docs out of its stream."""

    def __init__(self, nlp, name):
        pass

    def __call__(self, doc):
        return doc

    def pipe(self, docs, batch_size):
        return (doc for doc in docs if "drop" not in doc.text)


def test_rows_are_those_of_the_texts(model):
    texts = [*TEXTS, None, "", " ", *TEXTS[:3]]
    found = Annotator(model)(table(texts))
    assert found.schema == Annotator(model).schema
    rows = found.to_pylist()
    assert [row["id"] for row in rows] == [f"t{i}" for i in range(len(texts))]
    assert rows[11]["spans"] == [] and rows[11]["n_tokens"] == 0 and rows[11]["error"] is None
    assert len({row["model"] for row in rows}) == 1 and "en_pipeline-0.0.0@" in rows[0]["model"]
    assert_annotated(rows, model, texts)


def test_beside_a_component_that_takes_no_error_handler(model, tmp_path):
    nlp = spacy.load(model)
    add_own_ner(nlp)
    nlp.to_disk(tmp_path)
    assert_annotated(Annotator(tmp_path)(table(TEXTS)).to_pylist(), tmp_path, TEXTS)


@pytest.mark.parametrize("factory", SMALL_MODELS)
def test_every_system_finds_the_same_in_memory_zones(factory, tmp_path, monkeypatch):
    monkeypatch.setattr(pipelines, "LEARNED_CHARACTERS", 100)
    nlp = train(make_pipeline(factory), 30)
    nlp.get_pipe("ner").cfg["threshold"] = 0.05  # so that all of them find something
    nlp.to_disk(tmp_path)
    texts = [f"{text} and X{i}-{text[::-1]}" for i in range(3) for text in TEXTS]
    rows = Annotator(tmp_path, batch_size=4)(table(texts)).to_pylist()
    assert_annotated(rows, tmp_path, texts)


def test_record_batch_in_is_record_batch_out(model):
    [batch] = table(TEXTS).to_batches()
    annotator = Annotator(model, batch_size=3)
    found = annotator(batch)
    assert isinstance(found, pa.RecordBatch) and found.num_rows == len(TEXTS)
    assert found.equals(annotator(table(TEXTS)).combine_chunks().to_batches()[0])
    empty = annotator(batch.slice(0, 0))
    assert empty.num_rows == 0 and empty.schema == annotator.schema


def test_details_are_text_and_depth(model):
    rows = Annotator(model, details=True)(table(TEXTS)).to_pylist()
    for text, row in zip(TEXTS, rows):
        for span in row["spans"]:
            assert span["text"] == text[span["start"] : span["end"]]
    assert {span["depth"] for row in rows for span in row["spans"]} >= {1, 2}
    court, place = rows[0]["spans"][0], rows[0]["spans"][1]
    assert (court["text"], court["depth"]) == ("The US Supreme Court", 1)
    assert (place["text"], place["depth"]) == ("US", 2)


def test_offsets_are_code_points(model):
    text = "\N{GRINNING FACE}\N{DNA DOUBLE HELIX} in Washington and The US Supreme Court"
    [row] = Annotator(model, details=True)(table([text])).to_pylist()
    assert {"Washington", "The US Supreme Court", "US"} <= {span["text"] for span in row["spans"]}
    assert all(text[span["start"] : span["end"]] == span["text"] for span in row["spans"])


def test_a_text_that_fails_has_its_error_and_costs_nobody_else(model, tmp_path):
    nlp = spacy.load(model)
    nlp.add_pipe("scale_test_fails")
    nlp.add_pipe("scale_test_drops")
    nlp.max_length = 200
    nlp.to_disk(tmp_path)
    texts = [*TEXTS, "fail", None, "drop it", "x" * 201, *TEXTS]
    annotator = Annotator(tmp_path)
    annotator.load().nlp.max_length = 200
    rows = annotator(table(texts)).to_pylist()
    errors = [row["error"] for row in rows[10:14]]
    assert "KeyError" in errors[0] and "cannot read 'fail'" in errors[0]
    assert "null" in errors[1] and "drops the doc" in errors[2]
    assert "201 characters" in errors[3] and "200" in errors[3]
    assert all(row["spans"] is None and row["n_tokens"] is None for row in rows[10:14])
    assert_annotated(rows[:10] + rows[14:], model, TEXTS * 2)
    with pytest.raises(ValueError, match=r"'t10'.*cannot read 'fail'"):
        Annotator(tmp_path, on_error="raise")(table(texts))


def test_a_batch_of_long_texts_has_fewer(model, tmp_path, monkeypatch):
    nlp = spacy.load(model)
    nlp.add_pipe("scale_test_fails")
    nlp.to_disk(tmp_path)
    monkeypatch.setattr(inputs, "BATCH_CHARACTERS", 2 * max(map(len, TEXTS)))
    texts = [*TEXTS, " ".join(TEXTS), "fail", None, *TEXTS]
    annotator, sizes = Annotator(tmp_path, batch_size=4), []
    for batch in annotator.spark(table(texts).to_batches()):
        sizes.append(batch.num_rows)
    assert sum(sizes) == len(texts) and min(sizes) == 1 and 1 < max(sizes) <= 4
    rows = annotator(table(texts)).to_pylist()
    assert [row["id"] for row in rows] == [f"t{i}" for i in range(len(texts))]
    assert "cannot read 'fail'" in rows.pop(11)["error"]
    assert_annotated(rows, model, [*texts[:11], *texts[12:]])


def test_memory_does_not_grow_with_the_number_of_long_texts(model, monkeypatch):
    annotator, together = Annotator(model), []
    monkeypatch.setattr(inputs, "BATCH_CHARACTERS", 1000)
    real = Annotator._rows
    monkeypatch.setattr(
        Annotator,
        "_rows",
        lambda self, nlp, texts: together.append(sum(map(len, texts))) or real(self, nlp, texts),
    )
    annotator(table(["word " * 80] * 20))
    assert together == [800] * 10


def test_a_key_without_spans_is_an_error_that_names_the_keys(model):
    annotator = Annotator(model, spans_key="nest")
    with pytest.raises(ValueError, match="under spans key 'nest'; it uses: 'sc'"):
        annotator(table(["p53"]))
    with pytest.raises(ValueError, match="under spans key 'nest'"):
        annotator.actor()


def test_a_pipeline_that_fails_on_other_texts_is_no_pipeline_without_the_key(model, tmp_path):
    nlp = spacy.load(model)
    nlp.add_pipe("scale_test_fails_on_two_words", first=True)
    nlp.to_disk(tmp_path)
    assert_annotated(Annotator(tmp_path)(table(TEXTS)).to_pylist(), model, TEXTS)


@pytest.mark.parametrize(
    "column",
    [
        pa.array(TEXTS, pa.large_string()),
        pa.array(TEXTS, pa.string_view()),
        pa.array(TEXTS).dictionary_encode(),
    ],
    ids=str,
)
def test_all_kinds_of_strings(model, column):
    rows = Annotator(model, text="body", id="n")(
        pa.table({"n": range(len(column)), "body": column, "other": [None] * len(column)})
    ).to_pylist()
    assert [row["id"] for row in rows] == [str(i) for i in range(len(column))]
    assert_annotated(rows, model, TEXTS)


def test_what_is_no_text_is_an_error_of_its_rows(model):
    annotator = Annotator(model)
    rows = annotator(table(pa.array([1, 2]), ["a", None])).to_pylist()
    assert [row["id"] for row in rows] == ["a", None]
    assert all("'text' is int64, not text" in row["error"] for row in rows)
    broken = pa.array([b"p53", b"\xff\xfe", None]).cast(pa.binary()).view(pa.string())
    rows = annotator(table(broken)).to_pylist()
    assert rows[0]["error"] is None and "null" in rows[2]["error"]
    assert rows[1]["error"] == "the text is not UTF-8: byte 0xFF; save the file in UTF-8"


def test_errors_are_those_of_the_files(model):
    texts = ["IL-2\0gene", "half a pair: \ud800", "\udcff", "p53"]
    errors = Annotator(model).annotate(["1", "2", "3", "4"], texts)["error"].to_pylist()
    assert errors[:3] == [checked(text).problem for text in texts[:3]] and errors[3] is None
    assert errors[0] == "the text holds a NUL character; remove it, or save the file in UTF-8"
    assert "the text is not UTF-8: 'utf-8' codec can't encode" in errors[1]
    rows = Annotator(model)(table(["IL-2\0gene"])).to_pylist()
    assert rows[0]["error"] == errors[0]


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_binary()], ids=str)
def test_an_id_that_is_not_utf8_costs_no_other_row_anything(model, kind):
    ids = pa.array([b"a\xc3\xa4", b"b\xff", None])
    ids = ids.view(kind) if kind == pa.string() else ids.cast(kind)
    rows = Annotator(model)(pa.table({"id": ids, "text": TEXTS[:3]})).to_pylist()
    assert [row["id"] for row in rows] == ["aä", r"b\xff", None]
    assert_annotated(rows, model, TEXTS[:3])


def test_missing_columns_are_named(model):
    with pytest.raises(ValueError, match=r"no column 'text'\. Its columns: 'id', 'body'"):
        Annotator(model)(table(TEXTS, text="body"))
    with pytest.raises(ValueError, match=r"no column 'id'"):
        Annotator(model)(table(TEXTS, id="number"))
    with pytest.raises(ValueError, match="Ids must be strings or numbers, not list"):
        Annotator(model)(table(["p53"], [[1]]))


def test_it_carries_no_weights_and_loads_once(model):
    annotator = Annotator(model)
    again = pickle.loads(pickle.dumps(annotator))
    assert len(pickle.dumps(annotator)) < 2_000
    assert again.load() is annotator.load()
    assert again(table(TEXTS)) == annotator(table(TEXTS))


def test_another_pipeline_at_the_same_place_is_refused(model, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(model, folder)
    before = Annotator(folder)
    assert before.hash == Annotator(model).hash  # wherever it lies
    config = folder / "config.cfg"
    config.write_text(config.read_text("utf8") + "\n", "utf8")
    assert Annotator(folder).hash != before.hash
    with pytest.raises(ValueError, match=f"made for {before.hash[:12]}"):
        before(table(TEXTS))


def test_what_is_no_pipeline_or_setting_is_refused(model, tmp_path):
    with pytest.raises(ValueError, match=r"no trained pipeline there\..* install the package"):
        Annotator(tmp_path)
    with pytest.raises(ValueError, match="on_error is 'skip'; expected one of column, raise"):
        Annotator(model, on_error="skip")
    with pytest.raises(ValueError, match="at least 1"):
        Annotator(model, batch_size=0)


def test_threads_take_turns(model):
    annotator, found = Annotator(model, batch_size=2), {}

    def work(number: int) -> None:
        found[number] = annotator(table(TEXTS)).to_pylist()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for rows in found.values():
        assert_annotated(rows, model, TEXTS)


def test_words_of_texts_are_forgotten(model, monkeypatch):
    annotator = Annotator(model)
    nlp = annotator.load().nlp
    annotator(table(["Usual words stay known."]))
    words = len(nlp.vocab.strings)
    assert "Usual" in nlp.vocab.strings
    monkeypatch.setattr(pipelines, "LEARNED_CHARACTERS", 0)
    annotator(table([f"new{i} p{i}" for i in range(500)]))
    assert len(nlp.vocab.strings) == words


NO_ARROW = """
import json, sys
sys.modules["pyarrow"] = None
import spacy
import torch
import spacy_nested_ner.scale as scale
import spacy.cli
nlp = spacy.blank("en")
nlp.add_pipe("piqn_ner")
heavy = [name for name in ("pyspark", "ray", "pandas") if name in sys.modules]
try:
    scale.Annotator(sys.argv[1]).schema
except ImportError as error:
    print(json.dumps([heavy, str(error)]))
"""


def test_without_pyarrow_only_the_annotator_fails_with_the_remedy(model):
    output = subprocess.run(
        [sys.executable, "-c", NO_ARROW, str(model)], check=True, capture_output=True, text=True
    ).stdout
    heavy, error = json.loads(output)
    assert heavy == [] and "pip install 'spacy_nested_ner[scale]'" in error


def test_schema_in_words_is_the_schema(model):
    plain, details = Annotator(model).ddl, Annotator(model, details=True).ddl
    assert plain == (
        "id string, spans array<struct<start: int, end: int, label: string, score: float>>, "
        "n_tokens int, error string, model string"
    )
    assert "text: string, depth: int>>" in details


def test_threads_are_at_least_1(model):
    with pytest.raises(ValueError, match="at least 1"):
        Annotator(model, threads=0)


def test_torch_has_the_threads_of_the_annotator(model):
    before = torch.get_num_threads()
    try:
        for threads in (2, 1):
            Annotator(model, threads=threads)(table(TEXTS[:1]))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_entities_under_another_key(model, tmp_path):
    nlp = spacy.load(model)
    nlp.get_pipe("ner").cfg["spans_key"] = "nest"
    nlp.to_disk(tmp_path)
    rows = Annotator(tmp_path, spans_key="nest")(table(TEXTS)).to_pylist()
    assert_annotated(rows, model, TEXTS)


def test_the_gpu_of_the_annotator_is_asked_for(model, monkeypatch):
    asked = []
    monkeypatch.setattr(spacy, "require_gpu", asked.append)
    monkeypatch.setattr(pipelines, "_loaded", {})
    Annotator(model).load()
    Annotator(model, gpu_id=3).load()
    assert asked == [3]
