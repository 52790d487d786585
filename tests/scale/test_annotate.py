"""`nested-ner annotate` with real worker processes, some of which die."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Dict, List

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import spacy
from typer.testing import CliRunner

from benchmarks.annotate import below
from spacy_nested_ner.cli import nested_ner_cli
from spacy_nested_ner.files import DRAFT
from spacy_nested_ner.scale import inputs, workers
from spacy_nested_ner.scale.annotator import Annotator
from spacy_nested_ner.scale.outputs import MANIFEST, withdraw
from spacy_nested_ner.scale.outputs import write as write_fragment
from tests.conftest import IN_PROC, heed_interrupts, is_alive, wait_for
from tests.scale import examples
from tests.scale.pipelines import TEXTS, assert_annotated

START_METHOD = workers.forking_context(workers.__name__).get_start_method()
ARE_FORKED = START_METHOD == "forkserver"
WHERE_FORKED = pytest.mark.skipif(not ARE_FORKED, reason="workers start from nothing here")
ENTRY_POINTS = "[spacy_factories]\ndies = dies:Dies\n"
# A component that ends its process, as the system does when memory runs out.
DIES = """
import os, signal, time
from spacy.language import Language

@Language.factory("dies")
class Dies:
    def __init__(self, nlp, name, once: str):
        self.once = once

    def __call__(self, doc):
        if doc.text == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if doc.text == "die once" and not os.path.exists(self.once):
            open(self.once, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        if doc.text == "sleep":
            open(self.once, "w").close()
            time.sleep(60)
        return doc

    def to_disk(self, path, **_):
        pass

    def from_disk(self, path, **_):
        return self
"""


@pytest.fixture(scope="module")
def parts(tmp_path_factory) -> Path:
    """Five Parquet files of ten texts each."""
    folder = tmp_path_factory.mktemp("input")
    for i in range(5):
        write(folder / f"{i}.parquet", TEXTS, f"{i}-")
    return folder


def write(path: Path, texts: List[Any], prefix: str = "") -> None:
    path.parent.mkdir(exist_ok=True)
    ids = [f"{prefix}{i:02}" for i in range(len(texts))]
    pq.write_table(pa.table({"id": ids, "text": texts}), path)


@pytest.fixture(scope="module")
def whole(model, parts, tmp_path_factory) -> Path:
    """The output of an undisturbed run."""
    output = tmp_path_factory.mktemp("output") / "whole"
    annotate(model, parts, output)
    return output


@pytest.fixture(scope="module")
def mortal(model, tmp_path_factory):
    """Environment, and a pipeline with the component that dies."""
    folder = tmp_path_factory.mktemp("dies")
    (folder / "dies.py").write_text(DIES)
    info = folder / "dies-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: dies\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    paths = [str(folder), os.getcwd(), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    code = (
        "import spacy, sys; nlp = spacy.load(sys.argv[1]); "
        "nlp.add_pipe('dies', config={'once': sys.argv[2]}); nlp.to_disk(sys.argv[3])"
    )
    command = [sys.executable, "-c", code, str(model), str(folder / "once"), str(folder / "model")]
    subprocess.run(command, check=True, env=environment)
    return environment, folder / "model", folder / "once"


def annotate(*args: Any, code: int = 0) -> str:
    result = CliRunner().invoke(nested_ner_cli, ["annotate", *map(str, args)])
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return " ".join(result.output.split())


def start(environment: Dict[str, str], *args: Any) -> subprocess.Popen:
    command = [sys.executable, "-m", "spacy", "nested-ner", "annotate", *map(str, args)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(
        command, env=environment, start_new_session=True, preexec_fn=heed_interrupts, **pipes
    )


def files(folder: Path) -> Dict[str, bytes]:
    """Contents of all fragments; there is nothing else beside them but the manifest."""
    found = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert MANIFEST in found
    return {name: content for name, content in found.items() if name != MANIFEST}


def test_output_is_one_fragment_for_each_row_group(model, whole):
    assert sorted(files(whole)) == [f"fragment-{i:07}.parquet" for i in range(5)]
    rows = pq.read_table(whole).to_pylist()
    assert [row["id"] for row in rows] == [f"{i}-{j:02}" for i in range(5) for j in range(10)]
    assert_annotated(rows, model, TEXTS * 5)
    manifest = json.loads((whole / MANIFEST).read_text("utf8"))
    assert manifest["rows"] == 50 and manifest["fragments"] == 5
    assert rows[0]["model"] == manifest["model"]["name"]


def test_output_is_read_by_pandas_and_duckdb(whole):
    frame = pd.read_parquet(whole)
    count = frame["spans"].str.len().sum()
    query = f"SELECT count(*) FROM (SELECT unnest(spans) FROM '{whole}/*.parquet')"
    assert len(frame) == 50 and duckdb.sql(query).fetchall() == [(count,)]


def test_the_guide_reads_the_output_in_pandas_and_duckdb(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    examples.prepare(tmp_path, model)
    examples.run_command()
    rows = pq.read_table("annotated").to_pylist()
    spans = [(row["id"], span) for row in rows for span in row["spans"]]
    texts = Counter((span["label"], span["text"]) for _, span in spans)
    pairs = Counter(
        (a["label"], b["label"])
        for (x, a), (y, b) in itertools.product(spans, spans)
        if x == y
        and b["start"] <= a["start"]
        and a["end"] <= b["end"]
        and b["end"] - b["start"] > a["end"] - a["start"]
    )
    frames, tables = examples.run("pandas"), examples.run("duckdb")
    top = tables["top"].fetchall()
    assert frames["top"].sum() == sum(number for *_, number in top)
    for found in (frames["top"].to_dict(), {(label, text): n for label, text, n in top}):
        assert found and all(texts[key] == number for key, number in found.items())
    nested = tables["nested"].fetchall()
    for found in (frames["nested"].to_dict(), {(a, b): n for a, b, n in nested}):
        assert found and all(pairs[key] == number for key, number in found.items())
        assert max(found.values()) == max(pairs.values())


def test_two_workers_write_the_same(model, parts, whole, tmp_path):
    printed = annotate(model, parts, tmp_path / "out", "--workers", 2)
    assert "Several texts" not in printed
    assert files(tmp_path / "out") == files(whole)


@pytest.mark.parametrize("failures, code", [(2, 0), (3, 1)])
def test_a_worker_that_cannot_be_started_is_tried_again(
    model, parts, whole, tmp_path, monkeypatch, failures, code
):
    methods: List[str] = []

    class Failing(workers._Worker):
        def __init__(self, context: Any, *args: Any) -> None:
            methods.append(context.get_start_method())
            if len(methods) <= failures:
                raise BlockingIOError("no process")
            super().__init__(context, *args)

    monkeypatch.setattr(workers, "_Worker", Failing)
    printed = annotate(model, parts, tmp_path / "out", code=code)
    assert methods == [START_METHOD, "spawn", "spawn"]
    if code:
        assert "3 workers ended before they had loaded the pipeline: BlockingIOError" in printed
    else:
        assert files(tmp_path / "out") == files(whole)


def test_resume_does_what_is_missing(model, parts, whole, tmp_path):
    output = tmp_path / "out"
    shutil.copytree(whole, output)
    kept = (output / "fragment-0000000.parquet").stat().st_mtime_ns
    (output / "fragment-0000001.parquet").unlink()
    cut_off = output / "fragment-0000002.parquet"
    cut_off.write_bytes(cut_off.read_bytes()[:-10])
    draft = output / f"{DRAFT}of a killed run"
    (draft / "new").mkdir(parents=True)
    (draft / "new" / "fragment-0000003.parquet").write_text("not whole")
    (draft / "lock").touch()
    assert "Give another folder" in annotate(model, parts, output, code=1).replace("give", "Give")
    annotate(model, parts, output, "--resume")
    assert files(output) == files(whole)
    assert (output / "fragment-0000000.parquet").stat().st_mtime_ns == kept


def test_resume_refuses_what_has_changed(model, parts, tmp_path):
    output, path = tmp_path / "out", tmp_path / "in" / "a.parquet"
    write(path, TEXTS[:2])
    annotate(model, tmp_path / "in", output)
    before = files(output)
    run = (model, tmp_path / "in", output, "--resume")
    assert "with batch_size 250, not 3" in annotate(*run, "--batch-size", 3, code=1)
    assert "with details False, not True" in annotate(*run, "--details", code=1)
    write(tmp_path / "in" / "b.parquet", TEXTS[:1])
    assert "b.parquet is new in the input" in annotate(*run, code=1)
    (tmp_path / "in" / "b.parquet").unlink()
    write(path, TEXTS[:3])
    assert "a.parquet has changed since" in annotate(*run, code=1)
    assert files(output) == before


def test_resume_refuses_a_run_with_code_where_there_is_none_now(model, parts, tmp_path):
    code = tmp_path / "own.py"
    code.write_text("", "utf8")
    annotate(model, parts, tmp_path / "out", "--code", code)
    resumed = (model, parts, tmp_path / "out", "--resume")
    assert "not None" in annotate(*resumed, code=1)
    annotate(*resumed, "--code", code)


@pytest.fixture
def novels(tmp_path, monkeypatch) -> Path:
    """Ten texts, in rows of which two end a fragment."""
    path = tmp_path / "novels.jsonl"
    lines = [json.dumps({"text": text, "source": "x" * (200 - len(text))}) for text in TEXTS]
    path.write_text("\n".join(lines), "utf8")
    monkeypatch.setattr(inputs, "FRAGMENT_BYTES", 400)
    return path


def test_long_texts_are_shared_and_resumed(model, novels, tmp_path):
    run = (model, novels, tmp_path / "out")
    annotate(*run, "--workers", 2)
    found = files(tmp_path / "out")
    assert sorted(found) == [f"fragment-{i:07}.parquet" for i in range(5)]
    assert_annotated(pq.read_table(tmp_path / "out").to_pylist(), model, TEXTS)
    kept = (tmp_path / "out" / "fragment-0000004.parquet").stat().st_mtime_ns
    (tmp_path / "out" / "fragment-0000003.parquet").unlink()
    annotate(*run, "--resume")
    assert files(tmp_path / "out") == found
    assert (tmp_path / "out" / "fragment-0000004.parquet").stat().st_mtime_ns == kept


def begin_as_before(model: Path, texts: Path, output: Path, monkeypatch) -> Dict[str, Any]:
    """A run of a version that cut by rows alone; gives its files."""
    with monkeypatch.context() as older:
        older.setattr(inputs, "FRAGMENT_BYTES", sys.maxsize)
        annotate(model, texts, output)
    manifest = json.loads((output / MANIFEST).read_text("utf8"))
    assert manifest.pop("fragment_bytes") is None
    (output / MANIFEST).write_text(json.dumps(manifest), "utf8")
    return files(output)


# The second makes as many fragments as before, of other rows.
@pytest.mark.parametrize("rows, size, fragments", [(5000, 400, 1), (6, 1000, 2)])
def test_resume_refuses_long_texts_that_an_older_version_has_cut(
    model, novels, tmp_path, monkeypatch, rows, size, fragments
):
    monkeypatch.setattr(inputs, "FRAGMENT_ROWS", rows)
    monkeypatch.setattr(inputs, "FRAGMENT_BYTES", size)
    before = begin_as_before(model, novels, tmp_path / "out", monkeypatch)
    assert len(before) == fragments
    printed = annotate(model, novels, tmp_path / "out", "--resume", code=1)
    assert "another version of spacy_nested_ner, which cut long texts otherwise" in printed
    assert "has changed" not in printed and files(tmp_path / "out") == before


def test_resume_goes_on_with_short_texts_of_an_older_version(model, novels, tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "FRAGMENT_ROWS", 4)
    monkeypatch.setattr(inputs, "FRAGMENT_BYTES", 1000)
    before = begin_as_before(model, novels, tmp_path / "out", monkeypatch)
    assert len(before) == 3
    (tmp_path / "out" / "fragment-0000001.parquet").unlink()
    annotate(model, novels, tmp_path / "out", "--resume")
    assert files(tmp_path / "out") == before


def test_resume_says_when_texts_have_become_long(model, novels, tmp_path):
    content = novels.read_text("utf8")
    novels.write_text('{"text": "p53"}\n', "utf8")
    annotate(model, novels, tmp_path / "out")
    novels.write_text(content, "utf8")
    printed = annotate(model, novels, tmp_path / "out", "--resume", code=1)
    assert "novels.jsonl has changed since" in printed and "another version" not in printed


def test_each_batch_of_long_texts_is_reported(model, novels, tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "FRAGMENT_BYTES", sys.maxsize)
    monkeypatch.setattr(inputs, "BATCH_CHARACTERS", max(map(len, TEXTS)))
    columns = inputs.Columns()
    [fragment] = inputs.cut([(novels.name, novels)], columns)
    reports = write_fragment(Annotator(model), columns, fragment, tmp_path)
    counts = [texts for texts, *_ in reports]
    assert sum(counts) == len(TEXTS) and len(counts) > 5


def test_ids_of_long_texts_are_compared(model, tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "BATCH_CHARACTERS", 3)
    (tmp_path / "a.csv").write_text("id,text\nx,p53\ny,p53\nx,IL-2\n", "utf8")
    assert "Several texts have the id 'x'" in annotate(model, tmp_path / "a.csv", tmp_path / "out")


def test_what_cannot_be_run_writes_nothing(model, parts, tmp_path):
    output = tmp_path / "out"
    assert "no trained pipeline there" in annotate(tmp_path, parts, output, code=1)
    assert "no column 'body'" in annotate(model, parts, output, "--text", "body", code=1)
    (tmp_path / "in.txt").write_text("")
    assert "holds no texts" in annotate(model, tmp_path / "in.txt", output, code=1)
    assert not output.exists()
    output.mkdir()
    (output / "letter").write_text("kept")
    assert f"already exists and has no {MANIFEST}" in annotate(model, parts, output, code=1)
    assert [path.name for path in output.iterdir()] == ["letter"]


def test_a_spans_key_that_the_pipeline_does_not_write(model, parts, tmp_path):
    output, other = tmp_path / "out", tmp_path / "blank"
    printed = annotate(model, parts, output, "--spans-key", "ents", code=1)
    assert "predicts nothing under spans key 'ents'; it uses: 'sc'" in printed
    assert "Nothing was written" in printed and not output.exists()
    spacy.blank("en").to_disk(other)
    assert "it uses: none" in annotate(other, parts, output, code=1) and not output.exists()


def test_what_has_rows_is_not_withdrawn(whole, tmp_path):
    output = tmp_path / "out"
    shutil.copytree(whole, output)
    assert not withdraw(output) and files(output) == files(whole)


def test_a_run_killed_before_its_manifest_was_there(model, parts, tmp_path):
    output = tmp_path / "out"
    (output / f"{DRAFT}ab12" / "new").mkdir(parents=True)
    (output / f"{DRAFT}ab12" / "lock").touch()
    (output / f"{DRAFT}ab12" / "new" / MANIFEST).write_text("{")
    annotate(model, parts, output, "--limit", 3, "--resume")
    assert list(files(output)) == ["fragment-0000000.parquet"]


def test_errors_of_texts_are_counted_and_in_their_rows(model, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "p53"}\n{"text": null}\nno JSON\n')
    printed = annotate(model, tmp_path / "in.jsonl", tmp_path / "out", "--details")
    assert "2 texts have an error in their rows" in printed and "of 3 texts" in printed
    rows = pq.read_table(tmp_path / "out").to_pylist()
    assert [row["error"] is None for row in rows] == [True, False, False]
    assert [row["id"] for row in rows] == ["in.jsonl:1", "in.jsonl:2", "in.jsonl:3"]
    assert rows[0]["spans"][0]["text"] == "p53"


def test_errors_of_the_fragments_that_were_there_count_after_resume(model, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "p53"}\n{"text": null}\n')
    run = (model, tmp_path / "in.jsonl", tmp_path / "out")
    assert "1 text has an error in its row instead" in annotate(*run)
    assert "1 text has an error in its row instead" in annotate(*run, "--resume")


def test_a_run_without_any_entities_for_errors_alone_has_failed(model, tmp_path):
    (tmp_path / "in.jsonl").write_text(json.dumps({"text": "p53"}, indent=2))
    run = (model, tmp_path / "in.jsonl", tmp_path / "out")
    for printed in (annotate(*run, code=1), annotate(*run, "--resume", code=1)):
        assert "Every text has an error in its row instead of entities." in printed
        assert "The text with the id 'in.jsonl:1': the line is not JSON" in printed
        assert pq.read_table(tmp_path / "out").num_rows == 3


def test_an_id_that_comes_again_in_a_file_is_told_of(model, tmp_path):
    (tmp_path / "a.csv").write_text("id,text\nx,p53\ny,p53\nx,IL-2\n", "utf8")
    assert "Several texts have the id 'x'" in annotate(model, tmp_path / "a.csv", tmp_path / "out")


def test_files_that_count_their_texts_anew_are_told_of(model, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.csv").write_text("id,text\n1,p53\n", "utf8")
        (folder / f"{name}.txt").write_text("p53\n", "utf8")
    (folder / "_c.csv").write_text("id,text\n1,p53\n", "utf8")
    printed = annotate(model, folder, tmp_path / "out")
    assert "Several texts have the id '1'" in printed
    assert "name starts with _" in printed and "_c.csv" in printed


def test_a_worker_that_dies_is_replaced(mortal, tmp_path):
    environment, model, once = mortal
    for i, texts in enumerate([TEXTS, [*TEXTS, "die once"], TEXTS]):
        write(tmp_path / "in" / f"{i}.parquet", texts)
    once.unlink(missing_ok=True)
    process = start(environment, model, tmp_path / "in", tmp_path / "out", "--workers", 2)
    printed, _ = process.communicate(timeout=120)
    assert process.returncode == 0 and once.exists(), printed
    assert pq.read_table(tmp_path / "out").num_rows == 31
    assert len(files(tmp_path / "out")) == 3


def test_what_kills_three_workers_is_named_and_the_rest_goes_on(mortal, tmp_path):
    environment, model, _ = mortal
    for i, texts in enumerate([TEXTS, ["die"], TEXTS]):
        write(tmp_path / "in" / f"{i}.parquet", texts)
    process = start(environment, model, tmp_path / "in", tmp_path / "out")
    printed, _ = process.communicate(timeout=120)
    assert process.returncode == 1, printed
    assert "1.parquet, rows 1 to 1: the worker was killed by SIGKILL" in " ".join(printed.split())
    assert sorted(files(tmp_path / "out")) == [f"fragment-000000{i}.parquet" for i in (0, 2)]


@IN_PROC
@pytest.mark.parametrize("orphaned", [False, pytest.param(True, marks=WHERE_FORKED)])
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_ended_leaves_whole_fragments_and_no_process(
    mortal, tmp_path, sign, orphaned
):
    """orphaned: what the workers were forked from has died before."""
    environment, model, once = mortal
    for i, texts in enumerate([TEXTS, ["sleep"]]):
        write(tmp_path / "in" / f"{i}.parquet", texts)
    once.unlink(missing_ok=True)
    process = start(environment, model, tmp_path / "in", tmp_path / "out")
    wait_for(once.exists)
    started = below(process.pid)
    assert started
    if orphaned:
        (forker,) = (pid for pid in started if below(pid))
        os.kill(forker, signal.SIGKILL)
        wait_for(lambda: not is_alive(forker))
    if sign == signal.SIGINT:
        os.killpg(process.pid, sign)  # as a terminal does
    else:
        process.send_signal(sign)
    printed, _ = process.communicate(timeout=60)
    wait_for(lambda: not any(map(is_alive, started)))
    assert "Traceback" not in printed
    names = [path.name for path in (tmp_path / "out").glob("fragment-*")]
    assert names == ["fragment-0000000.parquet"]
    if sign == signal.SIGINT:
        assert process.returncode == 130 and "continue with --resume" in " ".join(printed.split())
        assert list(files(tmp_path / "out")) == names  # no drafts


@IN_PROC
def test_ctrl_c_while_workers_start(mortal, parts, tmp_path):
    environment, model, _ = mortal
    process = start(environment, model, parts, tmp_path / "out")
    wait_for(lambda: len(below(process.pid)) > 1)  # beside that of `multiprocessing` itself
    started = below(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    printed, _ = process.communicate(timeout=60)
    wait_for(lambda: not any(map(is_alive, started)))
    assert process.returncode == 130 and "Traceback" not in printed


@pytest.mark.parametrize("name", ["fragment-0000000.parquet", None])
def test_after_ctrl_c_it_is_said_whether_any_fragment_is_complete(
    model, parts, whole, tmp_path, monkeypatch, name
):
    def interrupted(job, *_: Any) -> None:
        if name is not None:
            shutil.copy(whole / name, job.folder / name)
        raise KeyboardInterrupt

    monkeypatch.setattr(workers, "run", interrupted)
    printed = annotate(model, parts, tmp_path / "out", code=130)
    is_said = "No fragment in" in printed and "complete yet: --resume starts" in printed
    assert is_said == (name is None)
    assert ("are complete: continue with --resume" in printed) == (name is not None)
    monkeypatch.undo()
    annotate(model, parts, tmp_path / "out", "--resume")
    assert files(tmp_path / "out") == files(whole)


def test_options_reach_the_workers(model, tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text("id,name,text\n1,x,p53\n2,x,p53\n")
    seen = []

    def run(job, fragments, number, report):
        seen.append((job.annotator.gpu_id, job.columns.id, number))
        raise KeyboardInterrupt

    monkeypatch.setattr(workers, "run", run)
    args = ("--workers", 3, "--gpu-id", 0, "--id", "name")
    printed = annotate(model, tmp_path / "a.csv", tmp_path / "out", *args, code=130)
    assert seen == [(0, "name", 3)] and "Several texts have the id 'x'" in printed


@pytest.mark.parametrize(
    "error, says",
    [
        (workers.WorkersFail("[E002] no such factory"), "give its Python file with --code"),
        (OSError(28, "No space left on device"), "No space left on device"),
    ],
)
def test_a_run_that_breaks_off_keeps_what_is_complete(
    model, parts, whole, tmp_path, monkeypatch, error, says
):
    def run(job, *_):
        shutil.copy(whole / "fragment-0000000.parquet", job.folder)
        raise error

    monkeypatch.setattr(workers, "run", run)
    printed = annotate(model, parts, tmp_path / "out", code=1)
    assert "Fix the problem and continue with --resume." in printed and says in printed
    assert list(files(tmp_path / "out")) == ["fragment-0000000.parquet"]
