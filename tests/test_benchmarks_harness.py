"""What all benchmarks run in and how they are recorded."""

import ast
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import srsly
import typer

from benchmarks import harness, tables
from spacy_nested_ner.comparison import trainings

ROOT = Path(__file__).parents[1]

LIMITED = """
import os
import signal
import time
import numpy
from benchmarks.harness import in_process


def spin():
    while True:
        time.process_time()


def fill():
    return {"sum": float(numpy.ones(2**29).sum())}


def fail():
    raise ValueError("no")


def die():
    os.kill(os.getpid(), signal.SIGKILL)


print(in_process(lambda a, b: {"sum": a + b}, 1, 2, cpu_seconds=60, gib=8))
print(in_process(spin, cpu_seconds=0, gib=8))
print(in_process(fill, cpu_seconds=60, gib=3))
print(in_process(die, gib=8))
for function, limits in ((fail, {"cpu_seconds": 60, "gib": 8}), (die, {})):
    try:
        in_process(function, **limits)
    except RuntimeError as error:
        print(error)
"""


def test_a_process_that_runs_out_of_something_says_so() -> None:
    command = [sys.executable, "-c", LIMITED]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.splitlines() == [
        "{'sum': 3}",
        "{'limit': 'time'}",
        "{'limit': 'memory'}",
        "{'limit': 'memory'}",
        "fail() ended with code 1.",
        "die() ran out of memory.",
    ]


def test_what_is_made_once_is_made_from_the_same(tmp_path) -> None:
    folder, made = tmp_path / "a" / "data", []

    def make(draft: Path) -> None:
        made.append(draft)
        (draft / "train").write_text("1")
        if len(made) == 1:
            raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        harness.made_once(folder, make, limit=3)
    assert not folder.exists()
    for _ in range(2):
        assert harness.made_once(folder, make, limit=3) == folder
    assert len(made) == 2 and (folder / "train").read_text() == "1"
    with pytest.raises(typer.BadParameter, match="made from other data or settings"):
        harness.made_once(folder, make, limit=4)
    (tmp_path / "older").mkdir()
    with pytest.raises(typer.BadParameter, match="made from other data or settings"):
        harness.made_once(tmp_path / "older", make, limit=3)


def test_a_file_of_another_benchmark_is_refused(tmp_path) -> None:
    harness.Results(tmp_path / "a.json", "rooms").add("heads", {"passed": 1})
    with pytest.raises(typer.BadParameter, match="of another benchmark"):
        harness.Results(tmp_path / "a.json")


def test_a_training_that_fails_ends_a_command_with_its_reason(monkeypatch, capsys) -> None:
    def train_each(*_: object, **__: object) -> None:
        raise trainings.Unfinished(["piqn.json: no memory."], [])

    monkeypatch.setattr(harness, "train_each", train_each)
    with pytest.raises(typer.Exit):
        harness.train_tasks([], lambda task: {})
    assert "piqn.json: no memory. Finished trainings are kept" in capsys.readouterr().err


def test_the_command_can_be_typed_again(monkeypatch) -> None:
    program = str(ROOT / "benchmarks" / "ablation.py")
    monkeypatch.setattr(sys, "argv", [program, "piqn", "--only", "quantity 0.2"])
    assert harness.command() == "-m benchmarks.ablation piqn --only 'quantity 0.2'"


@pytest.mark.parametrize(
    ("recorded", "typed"),
    [
        ("benchmarks/compare.py run a.py b", "-m benchmarks.compare run a.py b"),
        ("benchmarks/locate_and_label_ablation.py a", "-m benchmarks.ablation locate_and_label a"),
        ("-m benchmarks.growth run a", "-m benchmarks.growth run a"),
    ],
)
def test_commands_of_older_files_can_be_typed_too(recorded, typed) -> None:
    assert tables.runnable(recorded) == typed


def test_results_go_on_with_the_same_settings_only(tmp_path) -> None:
    path = tmp_path / "new" / "out.json"
    first = harness.Results(path, steps=1)
    assert not path.exists()
    first.add("a", {"f": 0.5})
    first.add("b", {"f": 0.6})
    second = harness.Results(path, steps=1)
    second.add("c", {"f": 0.75})
    result = srsly.read_json(path)
    assert result["cells"]["c"] == {"f": 0.75, "run": 1}
    assert [cell["run"] for cell in result["cells"].values()] == [0, 0, 1]
    assert all(run["versions"] and run["machine"] for run in result["runs"])
    with pytest.raises(typer.BadParameter, match="steps 1"):
        harness.Results(path, steps=2)


def test_no_benchmark_uses_private_names_of_the_package() -> None:
    """Imports and attributes; those of the benchmarks' own objects start with `self.`."""
    found = []
    for path in (ROOT / "benchmarks").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf8"))):
            if isinstance(node, ast.Attribute) and not is_self(node.value):
                found += [(path.name, node.attr)] if is_private(node.attr) else []
            if isinstance(node, ast.ImportFrom):
                names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
                found += [(path.name, name) for name in names if is_private(name)]
    assert found == [("compare.py", "_util")]  # spacy.cli._util.setup_gpu


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_asdict"


def test_cpu_time_of_a_process_is_that_of_user_and_system(monkeypatch) -> None:
    stat = "7 (a) b) S " + " ".join(str(100 * 2**i) for i in range(20))
    monkeypatch.setattr(harness, "Path", lambda path: SimpleNamespace(read_text=lambda **_: stat))
    monkeypatch.setattr(harness.os, "sysconf", lambda name: 100)
    # Fields 14 and 15 of proc(5).
    assert harness.cpu_of(7) == 2**10 + 2**11
