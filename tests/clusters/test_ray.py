"""The annotator in real Ray: two actors on this machine."""

from __future__ import annotations

import os
import signal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.clusters import local_ray
from spacy_nested_ner.scale import Annotator
from tests.scale import examples
from tests.scale.pipelines import TEXTS, assert_annotated

pytest.importorskip("ray.data", reason="ray[data] is not installed")


@pytest.fixture(scope="module")
def ray(folder):
    with local_ray(workers=2, object_store=200 * 2**20) as ray:
        yield ray


@pytest.fixture
def data(ray, tmp_path):
    """Sixty texts in six row groups of two files; one of them is null."""
    texts = [*TEXTS * 2, None, *TEXTS * 3, *TEXTS[1:]]
    table = pa.table({"id": [f"{i:02}" for i in range(60)], "text": texts})
    (tmp_path / "in").mkdir()
    for part in (0, 30):
        pq.write_table(table.slice(part, 30), tmp_path / "in" / f"{part}.parquet")
    return texts, ray.data.read_parquet(str(tmp_path / "in"), override_num_blocks=6)


def sorted_rows(dataset):
    return sorted(dataset.take_all(), key=lambda row: row["id"])


def test_two_actors(ray, data, model, tmp_path):
    texts, dataset = data
    found = dataset.map_batches(
        Annotator(model).actor,
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=2),
        batch_size=10,
        batch_format="pyarrow",
    )
    found.write_parquet(str(tmp_path / "out"))
    rows = pq.read_table(tmp_path / "out")
    assert rows.schema.equals(Annotator(model).schema)
    assert_annotated(sorted(rows.to_pylist(), key=lambda row: row["id"]), model, texts)


def test_an_actor_that_is_killed_loses_nothing(ray, data, model, tmp_path):
    texts, dataset = data
    annotator, killed = Annotator(model), tmp_path / "killed"

    class KilledOnce(annotator.actor):
        def __call__(self, table):
            if "20" in table["id"].to_pylist() and not killed.exists():
                killed.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return super().__call__(table)

    found = dataset.map_batches(
        KilledOnce, compute=ray.data.ActorPoolStrategy(size=2), batch_size=5, batch_format="pyarrow"
    )
    rows = sorted_rows(found)
    assert killed.exists()
    assert_annotated(rows, model, texts)


def test_the_example_of_the_guide(ray, model, folder):
    examples.prepare(folder, model)
    examples.run("ray")
    rows = pq.read_table(folder / "annotated-by-ray").to_pylist()
    assert sum(len(row["spans"]) for row in rows) > len(rows) == len(TEXTS)
