"""The benchmark of the ways to annotate, on tiny sizes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import spacy
import srsly

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
