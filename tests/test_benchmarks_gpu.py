"""The parts of the benchmark for a GPU, on the CPU and on tiny sizes."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, List

import pytest
import srsly
import torch
from typer.testing import CliRunner

from benchmarks import gpu, harness, waits
from spacy_nested_ner.matching import assign_cheapest, assign_rows
from tests.test_benchmarks import all_of, invoke, write_docs

ROOT = Path(__file__).parents[1]
CPU = ("--device", "cpu")


@pytest.fixture
def data(tmp_path) -> Path:
    write_docs(*(tmp_path / f"{part}.spacy" for part in ("train", "dev", "test")))
    return tmp_path / "dev.spacy"


@pytest.fixture
def here(monkeypatch) -> None:
    """Measure in this process: one of its own takes seconds."""
    monkeypatch.setattr(gpu, "in_process", lambda function, *args, **_: function(*args))


def run(*args: Any) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "benchmarks.gpu", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


def test_speed_and_what_is_there_already(data, tiny_bert, tmp_path, here) -> None:
    output = tmp_path / "predict.json"
    options = ("--transformer", tiny_bert, "--system", "piqn_ner", "--batch-size", 2, *CPU)
    args = ("predict", data, output, *options, "--docs", 12, "--repeats", 1)
    table = invoke(gpu.app, *args)
    cell = srsly.read_json(output)["cells"]["piqn_ner, 2"]
    assert cell["ratio"] > 1 and f"| `piqn_ner` | {cell['ratio']:.2f} |" in table
    before = output.read_bytes()
    assert invoke(gpu.app, *args) == table and output.read_bytes() == before


def test_memory(data, tiny_bert, tmp_path, here) -> None:
    output, sizes = tmp_path / "memory.json", ("--batch-size", 2, "--batch-size", 16)
    options = ("--transformer", tiny_bert, "--system", "piqn_ner", *sizes)
    table = invoke(gpu.app, "memory", data, output, *options, *CPU)
    cells = srsly.read_json(output)["cells"]
    assert [(cell["what"], cell["batch_size"]) for cell in cells.values()] == [
        (what, size) for what in ("prediction", "training step") for size in (2, 16)
    ]
    assert all(cell["mib"] >= 0 and cell["before_mib"] > 0 for cell in cells.values())
    small, large = (cells[f"piqn_ner, training step, {size}"]["mib"] for size in (2, 16))
    assert f"| `piqn_ner` | training step | {small:.0f} | {large:.0f} |" in table


def test_speed_of_learning(data, tiny_bert, tmp_path, here) -> None:
    output = tmp_path / "learn.json"
    options = ("--docs", 16, "--transformer", tiny_bert, "--system", "locate_and_label_ner", *CPU)
    table = invoke(gpu.app, "learn", data, output, "--batch-size", 4, "--batch-size", 16, *options)
    cells = srsly.read_json(output)["cells"].values()
    assert [cell["batch_size"] for cell in cells] == [4, 16]
    steps = " | ".join(f"{cell['step_ms']:.0f}" for cell in cells)
    assert table.rstrip().endswith(f" | {steps} |")
    for cell in cells:
        steps_per_second = 1000 / cell["step_ms"]
        assert cell["sentences_per_second"] == pytest.approx(cell["batch_size"] * steps_per_second)


def test_what_would_wait(data, tmp_path, here) -> None:
    output = tmp_path / "waits.json"
    options = ("--system", "piqn_ner", "--docs", 10, *CPU)
    assert "There is no device to wait for" in invoke(gpu.app, "waits", data, output, *options)
    (cell,) = srsly.read_json(output)["cells"].values()
    assert any(line.startswith("systems/piqn/head.py") for line in cell["prediction"])
    # The costs of the assignment, and nothing else of it.
    learning = cell["training step"]
    assert sum(n for line, n in learning.items() if line.startswith("matching.py")) == 1
    assert not any(line.startswith("systems/piqn/head.py") for line in learning)


def test_waits_are_counted_by_line() -> None:
    values = torch.arange(4.0)
    with waits.counted_waits() as found:
        values[values > 1], torch.nonzero(values), float(values.sum()), values.to("cpu")
        # These do not wait.
        values[[1, 2]], values.to("cpu", non_blocking=True), values.to(torch.float64)
    ((line, number),) = found.items()
    assert number == 4 and line.startswith("tests/test_benchmarks_gpu.py:")


def test_a_batch_is_assigned_after_one_wait() -> None:
    cost, real = torch.rand(3, 4, 2), torch.ones(3, 4, dtype=torch.bool)
    with waits.counted_waits() as found:
        assign_rows(assign_cheapest, cost, real, real[:, :2], torch.rand(3, 4))
    assert sum(found.values()) == 1


def test_rooms_of_tests(tmp_path) -> None:
    output = tmp_path / "tests.json"
    found = run("tests", output, "--room", "layers", *CPU)
    assert found.returncode == 0 and "| layers |" in found.stdout, found.stdout + found.stderr
    room = srsly.read_json(output)["rooms"]["layers"]
    assert room["passed"] > 20 and not room["failed"]


def test_outcomes_name_what_failed() -> None:
    seen = gpu.Outcomes()
    where = ("test_a.py", 1, "Skipped: why")
    for name, outcome, what in (("a", "failed", "E   assert 0"), ("b", "skipped", where)):
        report = pytest.TestReport(name, where, {}, outcome, what, "call")  # type: ignore[arg-type]
        seen.pytest_runtest_logreport(report)
    for when in ("setup", "call", "teardown"):
        report = pytest.TestReport("c", where, {}, "passed", None, when)
        seen.pytest_runtest_logreport(report)
    assert vars(seen) == {
        "passed": 1,
        "failed": {"a": "E   assert 0"},
        "skipped": {"b": "Skipped: why"},
    }


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there(data, tmp_path, here) -> None:
    args = ["waits", str(data), str(tmp_path / "out.json"), "--device", "cuda:0"]
    found = CliRunner().invoke(gpu.app, args)
    assert found.exit_code == 2 and "Use --device cpu" in all_of(found.output)
    output = tmp_path / "tests.json"
    assert run("tests", output, "--room", "layers", "--device", "cuda:0").returncode == 1
    assert srsly.read_json(output)["rooms"]["layers"]["failed"]


@pytest.mark.parametrize("args", [("--device", "gpu"), ("--room", "attic")])
def test_unknown_names(args, tmp_path) -> None:
    found = CliRunner().invoke(gpu.app, ["tests", str(tmp_path / "out.json"), *args])
    assert found.exit_code == 2


def test_a_stopwatch_waits_for_a_gpu(monkeypatch) -> None:
    calls: List[str] = []
    with harness.Stopwatch() as watch:
        pass
    assert watch.used == watch.cpu
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: calls.append("waited"))
    with harness.Stopwatch() as watch:
        calls.append("worked")
    assert calls == ["waited", "worked", "waited"] and watch.used == watch.seconds


def test_memory_of_a_gpu_in_mib(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 3 << 20)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 10 << 20)
    pool = SimpleNamespace(total_bytes=lambda: 5 << 20)
    cupy = SimpleNamespace(get_default_memory_pool=lambda: pool)
    monkeypatch.setattr(gpu, "cupy", cupy)
    found = gpu.memory_beside(gpu.memory_now())
    assert found == {"before_mib": 3, "mib": 7, "cupy_mib": 5}
