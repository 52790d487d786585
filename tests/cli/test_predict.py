"""`nested-ner predict`, and the examples of the guide that are made with it."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import spacy
from spacy.language import Language
from spacy.tokens import Doc, DocBin, Span, SpanGroup
from typer.testing import CliRunner

from spacy_nested_ner import to_dicts, to_frame
from spacy_nested_ner.cli import nested_ner_cli
from spacy_nested_ner.cli.predict import _fail
from spacy_nested_ner.tables import COLUMNS
from tests.conftest import SENTENCES
from tests.scale.pipelines import save_pipeline

TEXTS = [text for text, _ in SENTENCES]
GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "notebooks_and_tables.md"


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """A trained pipeline on disk. Not to be changed by a test."""
    return save_pipeline(tmp_path_factory.mktemp("predict") / "model-best", updates=120)


def predict(*args: Any, code: int = 0, stdin: Optional[bytes] = None):
    result = CliRunner().invoke(nested_ner_cli, ["predict", *map(str, args)], input=stdin)
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return result


def lines(output: str) -> List[Dict[str, Any]]:
    return [json.loads(line) for line in output.split("\n")[:-1]]


def said(result) -> str:
    return " ".join(result.stderr.split())


def assert_same(
    found: List[Dict[str, Any]], expected: List[Dict[str, Any]], differ: float = 1e-4
) -> None:
    """The same but for the last digits of scores, which depend on what is in a batch."""
    assert len(found) == len(expected) and sum(len(each["spans"]) for each in expected) > 0
    for one, other in zip(found, expected):
        assert one["text"] == other["text"] and len(one["spans"]) == len(other["spans"])
        for a, b in zip(one["spans"], other["spans"]):
            assert a["score"] == pytest.approx(b["score"], abs=differ)
            assert {**a, "score": 0} == {**b, "score": 0}


def test_a_text(model):
    text = "😀 in Washington and The US Supreme Court"
    result = predict(model, text)
    assert_same(lines(result.stdout), to_dicts(spacy.load(model)(text)))
    [found] = lines(result.stdout)
    outer, inner = found["spans"][1:]
    assert text[outer["start"] : outer["end"]] == "The US Supreme Court"
    assert (inner["text"], inner["depth"], inner["parent"]) == ("US", 2, 1)
    assert result.stderr == ""


@pytest.mark.parametrize("suffix", ["txt", "jsonl", "csv", "parquet", "spacy"])
def test_files_of_texts(model, tmp_path, suffix):
    path, texts = tmp_path / f"in.{suffix}", [*TEXTS, "", "a, \"b\" 'c'"]
    if suffix == "txt":
        path.write_text("\n".join(texts) + "\n", encoding="utf8")
    elif suffix == "jsonl":
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    elif suffix == "csv":
        pd.DataFrame({"n": range(len(texts)), "text": texts}).to_csv(path, index=False)
    elif suffix == "parquet":
        pq.write_table(pa.table({"text": texts}), path)
    else:
        blank = spacy.blank("en")
        DocBin(docs=[blank(text) for text in texts]).to_disk(path)
    expected = to_dicts(spacy.load(model).pipe(texts))
    assert_same(lines(predict(model, path).stdout), expected)


def test_standard_input(model):
    content = "\ufeffp53\r\n\r\nhuman T cells".encode()
    expected = to_dicts(spacy.load(model).pipe(["p53", "", "human T cells"]))
    for args in ([model], [model, "-"]):
        assert_same(lines(predict(*args, stdin=content).stdout), expected)


@Language.component("tests_linker")
def linker(doc: Doc) -> Doc:
    group = doc.spans["sc"]
    spans = [Span(doc, s.start, s.end, label=s.label, kb_id="KB-1") for s in group]
    doc.spans["sc"] = SpanGroup(doc, attrs=group.attrs, spans=spans)
    return doc


def test_links_are_in_json_and_not_in_csv(model, tmp_path):
    nlp = spacy.load(model)
    nlp.add_pipe("tests_linker")
    nlp.to_disk(tmp_path / "linked")
    [found] = lines(predict(tmp_path / "linked", TEXTS[0]).stdout)
    assert found["spans"] and all(span["kb_id"] == "KB-1" for span in found["spans"])
    shown = predict(tmp_path / "linked", TEXTS[0], "--format", "csv").stdout
    rows = list(csv.DictReader(io.StringIO(shown, newline="")))
    assert [*rows[0]] == [*COLUMNS] and len(rows) == len(found["spans"])


def test_csv_is_the_table(model, tmp_path):
    (tmp_path / "in.txt").write_text("\n".join(TEXTS))
    output = tmp_path / "new" / "out.csv"
    printed = predict(model, tmp_path / "in.txt", "-o", output).stdout
    assert str(output.resolve()) in printed and "entities in 10 texts" in printed
    frame = pd.read_csv(output, dtype=COLUMNS, keep_default_na=False, na_values=MISSING)
    expected = to_frame(spacy.load(model).pipe(TEXTS))
    ids = frame.pop("id")
    assert ids.tolist() == [f"in.txt:{i + 1}" for i in frame["doc"]]
    pd.testing.assert_frame_equal(frame, expected, rtol=1e-3)
    assert frame["parent"].notna().any() and len(frame) > 15
    shown = predict(model, tmp_path / "in.txt", "--format", "csv").stdout
    rows = list(csv.DictReader(io.StringIO(shown, newline="")))
    assert [row["text"] for row in rows] == expected["text"].tolist()


def test_ids_of_the_texts(model, tmp_path):
    """As `annotate` gives them; a text that is no file has none."""
    pd.DataFrame({"id": ["007", ""], "text": ["p53", "IL-2"]}).to_csv(tmp_path / "a.csv")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"p53\n"))
    ids = ["007", "a.csv:2", "b.txt.gz:1"]
    assert [each["id"] for each in lines(predict(model, tmp_path).stdout)] == ids
    shown = predict(model, tmp_path, "--format", "csv").stdout
    for row in csv.DictReader(io.StringIO(shown, newline="")):
        assert row["id"] == ids[int(row["doc"])]
    for found in (predict(model, "p53"), predict(model, stdin=b"p53\n")):
        assert set(lines(found.stdout)[0]) == {"text", "spans"}


MISSING = {"score": [""], "parent": [""]}


def test_the_format_is_that_of_the_name_or_the_one_asked_for(model, tmp_path):
    for args, head in (
        (["-o", tmp_path / "a.jsonl"], '{"text"'),
        (["-o", tmp_path / "a.csv"], "doc,start"),
        (["-o", tmp_path / "a.tsv", "--format", "jsonl"], '{"text"'),
        (["-o", tmp_path / "b.jsonl", "--format", "csv"], "doc,start"),
    ):
        predict(model, "p53", *args)
        assert args[1].read_text("utf8").startswith(head)
    assert "a.xml is neither .jsonl nor .csv" in all_of(
        predict(model, "p53", "-o", "a.xml", code=1)
    )


def all_of(result) -> str:
    return " ".join(result.output.split())


def test_a_lower_threshold_finds_more(model):
    counts = [
        len(lines(predict(model, "IL-2 gene promoter", "--threshold", value).stdout)[0]["spans"])
        for value in (0.0, 0.5, 1.0)
    ]
    assert counts[0] > counts[1] > counts[2] == 0
    assert "finds no entity. A lower --threshold" in said(
        predict(model, "IL-2 gene promoter", "--threshold", 1.0)
    )


def save_rules(path: Path, *keys: str) -> Path:
    nlp = spacy.blank("en")
    for key in keys:
        ruler = nlp.add_pipe("span_ruler", name=key, config={"spans_key": key})
        ruler.add_patterns([{"label": "GPE", "pattern": "US"}])  # type: ignore[attr-defined]
    nlp.to_disk(path)
    return path


def test_pipelines_without_scores_thresholds_or_spans(tmp_path):
    rules = save_rules(tmp_path / "rules", "sc")
    [found] = lines(predict(rules, "the US").stdout)
    assert found["spans"][0]["score"] is None
    assert predict(rules, "the US", "--format", "csv").stdout.splitlines()[1] == (
        "0,4,6,1,2,US,GPE,,1,"
    )
    result = predict(rules, "the US", "--threshold", 0.5, code=1)
    assert "No component of the pipeline (sc) has a threshold" in said(result)
    result = predict(save_rules(tmp_path / "other", "nest"), "the US", code=1)
    assert "predicts nothing under spans key 'sc'; it uses: 'nest'" in said(result)
    assert lines(predict(tmp_path / "other", "the US", "--spans-key", "nest").stdout)
    result = predict(save_rules(tmp_path / "none"), "the US", code=1)
    assert "it uses: none" in said(result) and result.stdout == ""


@pytest.mark.parametrize(
    "name, content, says",
    [
        ("none.txt", None, "none.txt: no such file or folder"),
        ("in.md", b"text", "has an unknown file type. Expected .parquet"),
        ("in.txt", b"", "holds no texts"),
        ("in.csv", b"", "holds no texts"),
        (
            "in.csv",
            b"body\nx\n",
            "no column 'text'. Its columns: 'body'. Name the right one with --text",
        ),
        ("in.jsonl", b'{"text": "p53"}\n{"text": null}\n', "'in.jsonl:2': there is no text"),
        ("in.txt", b"p53\n\xff\n", "'in.txt:2': the text is not UTF-8"),
        ("long.txt", b"p53\n" + b"a " * 500_001, "'long.txt:2': 1000002 characters"),
    ],
)
def test_what_cannot_be_read_is_named_and_nothing_is_written(model, tmp_path, name, content, says):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    output = tmp_path / "out.jsonl"
    output.write_text("kept")
    result = predict(model, tmp_path / name, "-o", output, code=1)
    assert "Cannot predict." in result.output and says in all_of(result)
    assert output.read_text() == "kept"
    assert {path.name for path in tmp_path.iterdir()} <= {name, "out.jsonl"}
    assert says in said(predict(model, tmp_path / name, code=1))


@Language.component("fails_at_cells")
def fails_at_cells(doc):
    return {"cells": doc}["cells" if "cells" not in doc.text else "no such key"]


def test_where_another_component_fails_the_text_is_named(model, tmp_path):
    nlp = spacy.load(model)
    nlp.add_pipe("fails_at_cells", first=True)
    nlp.to_disk(tmp_path / "model")
    (tmp_path / "in.txt").write_text("p53\nhuman T cells\n", encoding="utf8")
    result = predict(tmp_path / "model", tmp_path / "in.txt", "-o", tmp_path / "out.jsonl", code=1)
    printed = " ".join(result.output.split())
    assert "'fails_at_cells' fails on the text with the id 'in.txt:2': KeyError:" in printed
    assert not (tmp_path / "out.jsonl").exists()


def test_that_lines_are_texts_is_said_where_files_may_be(model, tmp_path):
    (tmp_path / "notes").mkdir()
    for name in "ab":
        (tmp_path / "notes" / f"{name}.txt").write_text("p53\nhuman T cells\n", encoding="utf8")
        said_so = "Each line of a .txt file is read as one text" in said(
            predict(model, tmp_path / "notes")
        )
        assert said_so == (name == "b")


@pytest.mark.parametrize(
    ("text", "said_so"),
    [
        ("The Supreme Court of the\nUnited States has ruled\nthat it may,\nif it is\nso.\n", 1),
        ("IL-2 rose.\np53 binds DNA.\nc-fos was induced.\nIt fell.\np53 is bound.\n", 0),
        ("Where is my parcel?\nparcel lost, help!\nnothing works :(\nThanks\nok\n", 0),
        ("It binds the promoter of the gene.\nIt does so in human T cells alone.\n", 0),
        ("it binds the promoter of the gene\nit does so in human t cells alone\n", 0),
        ("p53\nIL-2 gene\nhuman T cells\n", 0),
        ("\n1\n", 0),
    ],
    ids=["wrapped", "genes", "messages", "sentences", "lower case", "names", "no letters"],
)
def test_lines_of_one_text_are_told_of(model, tmp_path, text, said_so):
    (tmp_path / "in.txt").write_text(text, encoding="utf8")
    result = predict(model, tmp_path / "in.txt")
    assert said(result).count("Each line of a .txt file is read as one text") == said_so


def test_an_empty_standard_input(model):
    assert "The standard input holds no texts" in said(predict(model, stdin=b"", code=1))


@pytest.mark.parametrize("closed, says", [("1", "--output"), ("0", "Give a text or a file")])
def test_a_standard_stream_that_is_closed(model, closed, says):
    command = [sys.executable, "-m", "spacy", "nested-ner", "predict", str(model)]
    command += ["IL-2 gene"] if closed == "1" else []
    shell = f"{shlex.join(command)} {closed}>&-"
    done = subprocess.run(shell, shell=True, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "Cannot predict." in done.stderr and says in done.stderr


def test_a_parquet_file_without_pyarrow(model, tmp_path, monkeypatch):
    pq.write_table(pa.table({"text": TEXTS}), tmp_path / "in.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    result = predict(model, tmp_path / "in.parquet", code=1)
    assert "in.parquet cannot be read" in said(result)
    assert "pip install 'spacy_nested_ner[scale]'" in said(result)


def test_texts_that_look_like_none(model):
    for text in ("", "a" * 5000, "p53 in a/b.md", "no\nend"):
        assert lines(predict(model, text).stdout)[0]["text"] == text


def test_hostile_texts_are_one_line_each(model, tmp_path):
    texts = ["=SUM(A1)", '"quoted", and', "two\nlines\u2028three", "<script>", "null"]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    found = lines(predict(model, tmp_path / "in.jsonl", "--threshold", 0.0).stdout)
    assert [each["text"] for each in found] == texts


def test_a_reader_that_leaves(model, tmp_path):
    (tmp_path / "in.txt").write_text("\n".join(TEXTS * 300))
    command = [sys.executable, "-m", "spacy", "nested-ner", "predict", model, tmp_path / "in.txt"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    first = process.stdout.readline()
    process.stdout.close()
    assert json.loads(first)["text"] == TEXTS[0]
    printed = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait(60) == 1 and "Cannot predict" not in printed and "Error" not in printed


def test_convert_reads_the_json_lines(model, tmp_path):
    (tmp_path / "in.txt").write_text("\n".join(TEXTS))
    predict(model, tmp_path / "in.txt", "-o", tmp_path / "found.jsonl")
    args = ["convert", "prodigy", tmp_path / "found.jsonl", tmp_path / "corpus"]
    result = CliRunner().invoke(nested_ner_cli, [str(arg) for arg in args])
    assert result.exit_code == 0, result.output
    report = json.loads((tmp_path / "corpus" / "report.json").read_text("utf8"))
    entities = [
        each for doc in lines((tmp_path / "found.jsonl").read_text("utf8")) for each in doc["spans"]
    ]
    assert sum(split["entities"] for split in report["splits"].values()) == len(entities) > 15


def test_the_guide(model, tmp_path, monkeypatch):
    """Its commands and its code, as printed, and what it says they print."""
    text = GUIDE.read_text("utf8")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(model, "model-best")
    Path("texts.txt").write_text("\n".join(TEXTS))
    pd.DataFrame({"id": range(10), "abstract": TEXTS}).to_csv("abstracts.csv", index=False)
    commands = re.findall(r"^python -m spacy nested-ner (predict .*?)(?: < (\S+))?$", text, re.M)
    assert len(commands) == 4
    shown = None
    for command, source in commands:
        stdin = Path(source).read_bytes() if source else None
        result = CliRunner().invoke(nested_ner_cli, shlex.split(command), input=stdin)
        assert result.exit_code == 0, result.output
        shown = shown or lines(result.stdout)
    block = re.search(r"```json\n(.*?)```", text, re.S)
    assert block and shown
    assert_same(shown, lines(block[1]), differ=0.3)  # another machine trains otherwise
    printed: List[str] = []
    variables: Dict[str, Any] = {"print": lambda value: printed.append(str(value))}
    blocks = re.findall(r"```python\n(.*?)```(?:\n\n```\n(.*?)```)?", text, re.S)
    assert len(blocks) == 5
    for code, output in blocks:
        printed.clear()
        exec(code, variables)
        assert without_scores("\n".join(printed)) == without_scores(output)
    assert len(variables["frame"]) > 15 and "GPE 0." in variables["html"]


def without_scores(text: str) -> List[str]:
    return [word for word in text.split() if not re.fullmatch(r"\d\.\d+", word)]


def test_what_was_written_into_the_folder_of_the_texts_is_not_read(model, tmp_path):
    (tmp_path / "texts.txt").write_text(TEXTS[0] + "\n", encoding="utf8")
    written = []
    for _ in range(2):
        predict(model, tmp_path, "-o", tmp_path / "found.csv")
        written.append((tmp_path / "found.csv").read_text("utf8"))
    assert written[0] == written[1] and TEXTS[0].split()[0] in written[0]


def test_a_batch_that_fails_is_tried_text_by_text():
    docs = [spacy.blank("en").make_doc(text) for text in ("fine", "bad")]
    for doc, name in zip(docs, "ab"):
        doc._context = name

    def pipe(doc):
        if doc.text == "bad":
            _fail("own", pipe, [doc], KeyError("x"))

    with pytest.raises(ValueError, match="'own' fails on the text with the id 'b': KeyError"):
        _fail("own", pipe, docs, KeyError("x"))
    with pytest.raises(ValueError, match="a text from 'a' to 'b'"):
        _fail("own", lambda doc: doc, docs, KeyError("x"))
    with pytest.raises(MemoryError):
        _fail("own", pipe, docs, MemoryError())
