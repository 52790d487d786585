"""The benchmark of the ways to annotate, on tiny sizes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import spacy
import srsly
import typer

from benchmarks import annotate, tables
from tests.conftest import make_examples
from tests.scale.pipelines import TEXTS

ROOT = Path(__file__).parents[2]


def test_sentences_exchange_entities_of_one_label():
    docs = [eg.reference for eg in make_examples(spacy.blank("en"))]
    texts = list(annotate.exchanged(docs, 200))
    assert texts == list(annotate.exchanged(docs, 200)) and len(texts) == 200
    assert "nothing to see here . " in texts  # no entities, nothing to exchange
    assert annotate.outermost(docs[0]) == [(0, 20, "ORG"), (24, 34, "GPE")]
    towns = {text.split(" in ")[1] for text in texts if text.startswith("The US Supreme Court in ")}
    assert len(towns) > 1
    new = list(annotate.with_new_words(texts))
    words = [word for text, old in zip(new, texts) for word in set(text.split()) - {*old.split()}]
    assert len({word for word in words if word not in ("and", "with")}) == 2 * len(texts)


def test_speed_of_a_loop_and_of_one_worker(model, tmp_path):
    (tmp_path / "model").symlink_to(model)
    ids = [f"{i:06}" for i in range(30)]
    pq.write_table(pa.table({"id": ids, "text": TEXTS * 3}), tmp_path / annotate.SENTENCES)
    output = tmp_path / "speed.json"
    command = [sys.executable, "-m", "benchmarks.annotate", "speed", str(tmp_path), "--limit", "20"]
    command += ["--way", "bare", "--way", "one", "--output", str(output)]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    cells = srsly.read_json(output)["cells"]
    assert set(cells) == {"bare, 1", "one, 1"}
    for cell in cells.values():
        assert cell["sentences"] == 20 and cell["seconds"] > 0 and cell["cpu_seconds"] > 0.5
    assert cells["one, 1"]["output_mib"] > 0


def test_tables_of_ways_and_of_a_plan():
    cell = {"sentences": 80, "sentences_per_second": 10, "words_per_second": 300, "load_before": 1}
    cell |= {"seconds": 8, "cpu_seconds": 9}
    twice = {**cell, "seconds": 4}
    found = {"bare, 1": cell, "one, 1": cell, "one, 2": {**cell, "seconds": 10}, "two, 1": twice}
    lines = tables.annotation(found).splitlines()
    assert len(lines) == 5
    assert lines[3].endswith("| 9 | 9 | 1.0 | 0.89 of a loop over `nlp.pipe` | 1.00 |")
    assert "| 2.25 of `nested-ner annotate`, one worker |" in lines[4]
    plan = tables.plan(1e9, 36, [{"system": "a", "words_per_cpu_second": 1000, "mib": 512}])
    assert plan.splitlines()[2] == "| `a` | 1000 | 10,000 | 100.0 | 50 |"


def test_rows_that_differ_in_spans_or_in_scores():
    def row(name, *spans):
        names = ("start", "end", "label", "score")
        return {"id": name, "spans": [dict(zip(names, span)) for span in spans]}

    expected = [row("a", (0, 2, "A", 0.5), (1, 2, "B", 0.5)), row("b", (0, 1, "A", 0.5)), row("c")]
    found = [row("a", (0, 2, "A", 0.5), (1, 2, "B", 0.6)), row("b", (0, 1, "B", 0.5)), row("c")]
    assert annotate.differences(expected, found) == {
        "texts": 3,
        "spans": 3,
        "other_spans": 1,
        "other_scores": 2,
    }


@pytest.mark.parametrize(("other", "code"), [(0, 0), (1, 1)])
def test_kills_are_counted(other, code, tmp_path, monkeypatch):
    class Run:
        """Each second process is gone before it can be killed."""

        def __init__(self, *_):
            self.dead, self.tried = 0, []

        def undisturbed(self):
            return 10.0, b"rows"

        def disturbed(self, what, seconds):
            self.tried.append(what)
            assert 1 <= seconds <= 9
            self.dead += len(self.tried) % 2
            return b"other" if other and self.tried == ["worker"] else b"rows"

        take_dead = annotate.Run.take_dead

    shown: list = []
    monkeypatch.setattr(annotate, "Run", Run)
    monkeypatch.setattr(
        annotate.tables, "measurements", lambda result: shown.extend(result["cells"])
    )
    try:
        annotate.kills(tmp_path, runs=2)
        ended = 0
    except typer.Exit as exit:
        ended = exit.exit_code
    assert ended == code and [tuple(cell.values()) for cell in shown] == [
        ("worker", 3, 3 - other, 2),
        ("parent", 4, 4, 2),
    ]


def test_peaks_of_both_halves(tmp_path, monkeypatch):
    texts = [str(i) for i in range(10)]
    pq.write_table(pa.table({"id": texts, "text": texts}), tmp_path / annotate.NEW_WORDS)
    read: list = []
    annotator = SimpleNamespace(batch_size=2, annotate=lambda ids, texts: read.extend(texts))
    monkeypatch.setattr(annotate, "Annotator", lambda model: annotator)
    monkeypatch.setattr(annotate, "peak", lambda: 100.0 + len(read))
    found = annotate.halves(tmp_path, 0)
    assert read == texts and found["growth"] == pytest.approx(110 / 106 - 1)
    assert (found["texts"], found["mib"], found["second_mib"]) == (10, 106, 110)


def test_rate_is_words_per_cpu_second(tmp_path, monkeypatch):
    texts = ["a b c"] * 5
    pq.write_table(pa.table({"id": texts, "text": texts}), tmp_path / annotate.SENTENCES)

    class Watch:
        cpu, seconds = 4.0, 9.0

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    def words(ids, texts):
        return {"n_tokens": pa.array([len(text.split()) for text in texts])}

    annotator = SimpleNamespace(batch_size=2, annotate=words)
    monkeypatch.setattr(annotate, "Annotator", lambda model: annotator)
    monkeypatch.setattr(annotate, "Stopwatch", Watch)
    monkeypatch.setattr(annotate, "peak", lambda: 77.0)
    found = annotate.rate(tmp_path, tmp_path, 4)
    assert found == {"words_per_cpu_second": 3.0, "mib": 77.0}


def test_time_and_memory_of_a_tree_of_processes(monkeypatch):
    tree, own, other = annotate.Tree(), os.getpid(), 2**22 + 1  # there is no such process
    seconds = {own: 2.0, other: 3.0}
    monkeypatch.setattr(annotate, "below", lambda pid: [other])
    monkeypatch.setattr(annotate, "cpu_of", seconds.__getitem__)
    tree.look()
    monkeypatch.setattr(annotate, "below", lambda pid: [])
    seconds[own] = 5.0
    tree.look()
    assert tree.cpu_seconds == 8.0  # what has ended counts, too
    assert 10 < tree.mib < 1.1 * annotate.peak()
    most = tree.mib = 1e6
    tree.look()
    assert tree.mib == most


def test_figures_of_a_way(tmp_path, monkeypatch):
    cell = {"seconds": 4.0, "cpu_seconds": 6.0, "output_mib": 1.0}
    monkeypatch.setattr(annotate, "in_process", lambda *_: cell)
    monkeypatch.setattr(annotate, "words_of", lambda folder, limit: (60, 8))
    found = annotate.measured(tmp_path, "two", 8)
    assert found.pop("load_before") >= 0 and found == {
        **cell,
        "workers": 2,
        "sentences": 8,
        "sentences_per_second": 2.0,
        "words_per_second": 15.0,
    }
