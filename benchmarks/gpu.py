"""Tests, speed, memory and waits on a GPU, part by part; each takes minutes and no network.

python -m benchmarks.gpu tests results/gpu/tests.json --room heads
python -m benchmarks.gpu learn corpus/genia/train.spacy results/gpu/learn.json --transformer DIRECTORY
python -m benchmarks.gpu predict corpus/genia/dev.spacy results/gpu/predict.json --transformer DIRECTORY
python -m benchmarks.gpu memory corpus/genia/dev.spacy results/gpu/memory.json --transformer DIRECTORY
python -m benchmarks.gpu waits corpus/genia/dev.spacy results/gpu/waits.json --transformer DIRECTORY

`--device cpu` does the same without a GPU, to try a part. What the output has already is not
measured again. A GPU needs cupy: `pip install cupy-cuda12x`, or what fits its CUDA.
"""  # noqa: E501

import re
from dataclasses import dataclass
from itertools import cycle, islice
from math import ceil
from pathlib import Path
from typing import Annotated, Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

import pytest
import spacy
import torch
import typer
from spacy.language import Language
from spacy.tokens import Doc
from thinc.api import set_gpu_allocator
from thinc.compat import cupy

from benchmarks import tables
from benchmarks.harness import Data, Results, in_process, peak
from benchmarks.inference import beside_encoder
from benchmarks.passes import seconds, training_seconds
from benchmarks.systems import (
    FINDING,
    SYSTEMS,
    UNFILTERED,
    Systems,
    read,
    shipped_config,
    shipped_optimizer,
    untrained_system,
)
from benchmarks.waits import counted_waits
from benchmarks.where_time_goes import score_of_rank

app = typer.Typer(add_completion=False, help=__doc__)

ROOT = Path(__file__).parents[1]
# The tests that make sense on a GPU; the others do not look at the device.
ROOMS = {
    "layers": ["tests/layers"],
    "heads": ["tests/systems", "tests/test_matching.py"],
    "encoders": ["tests/encoders", "tests/integration/test_transformer.py"],
    "pipelines": ["tests/pipeline", "tests/integration/test_documents.py"],
    "training": ["tests/training", "tests/test_configs.py"],
}
BATCH_SIZES = [1, 8, 64, 256]

Output = Annotated[Path, typer.Argument(help="JSON file")]
Device = Annotated[str, typer.Option(help="cuda:0, or another number, or cpu")]
Sizes = Annotated[List[int], typer.Option(help="Docs in a batch; repeat for several")]
Transformer = Annotated[
    Optional[str], typer.Option(help="Directory or hub name; a CNN from scratch without it")
]


def in_process_on(device: str, function: Callable[..., None], *arguments: Any) -> None:
    """Call a function in a process of its own that uses a device.

    Raises typer.BadParameter for a device that is not there.
    """
    found = in_process(with_device, checked(device), function, *arguments)
    if "no_device" in found:
        raise typer.BadParameter(f"{device}: {found['no_device']}. Use --device cpu to try a part.")


def with_device(device: str, function: Callable[..., None], *arguments: Any) -> Dict[str, Any]:
    """Let spaCy, Thinc and torch of this process use a device, then call the function."""
    if device != "cpu":
        try:
            spacy.require_gpu(int(device.removeprefix("cuda:")))
        except ValueError as err:
            return {"no_device": str(err)}
        set_gpu_allocator("pytorch")
    function(*arguments)
    return {"done": True}


def checked(device: str) -> str:
    """The name of a device; typer.BadParameter for anything else."""
    if not re.fullmatch(r"cpu|cuda:\d+", device):
        raise typer.BadParameter(f"--device must be cpu or cuda:0 (or 1, ...), not {device}.")
    return device


@dataclass(frozen=True)
class Task:
    """What a part measures: docs of a file, in systems on an encoder. settings: all else, as it
    stands in the output."""

    data: Path
    output: Path
    transformer: Optional[str]
    settings: Dict[str, Any]

    @property
    def docs(self) -> List[Doc]:
        """As many as wanted, over and over where the file has fewer."""
        wanted = self.settings["docs"]
        return list(islice(cycle(read(spacy.blank("en"), self.data, wanted)), wanted))

    def results(self) -> Results:
        """What is in the output."""
        what = {"gold": str(self.data), "transformer": self.transformer, **self.settings}
        return Results(self.output, **what)


Cells = Iterator[Tuple[str, Dict[str, Any]]]
# From a task, a system and names of cells to these names and cells.
Measure = Callable[[Task, str, List[str]], Cells]


def measure_each(task: Task, systems: List[str], names: Iterable[Any], measure: Measure) -> None:
    """Measure the cells that the output lacks, in a process of its own."""
    there = task.results().cells
    missing = {
        system: [str(name) for name in names if f"{system}, {name}" not in there]
        for system in systems
    }
    if any(missing.values()):
        in_process_on(task.settings["device"], add_cells, task, missing, measure)


def add_cells(task: Task, missing: Dict[str, List[str]], measure: Measure) -> None:
    """Measure systems. Asks for the GPU's name, which its process alone may."""
    results = task.results()
    for system, names in missing.items():
        for name, cell in measure(task, system, names) if names else ():
            results.add(f"{system}, {name}", {"system": system, **cell})


def learner(system: str, docs: List[Doc], transformer: Optional[str], **changes: Any) -> Language:
    """An untrained system that learns in mixed precision where it has a transformer."""
    if transformer is not None:
        tok2vec = shipped_config(system, transformer)["components"]["ner"]["model"]["tok2vec"]
        changes["model"] = {"tok2vec": {**tok2vec, "mixed_precision": True}}
    return untrained_system(system, docs, transformer, **changes)


@app.command("tests")
def run_tests(
    output: Output,
    room: Annotated[List[str], typer.Option(help="Repeat for several")] = list(ROOMS),  # noqa: B006
    workers: Annotated[int, typer.Option(help="Processes of pytest-xdist; 0: none")] = 0,
    device: Device = "cuda:0",
) -> None:
    """Run the tests that make sense on a GPU, room by room; code 1 where one fails."""
    if unknown := set(room) - set(ROOMS):
        raise typer.BadParameter(f"No room {', '.join(unknown)}; there are {', '.join(ROOMS)}.")
    results = Results(output, "rooms", device=checked(device))
    for name in room:
        if name not in results.cells:
            results.add(name, in_process(outcome, ROOMS[name], device, workers))
    typer.echo(tables.rooms(results.cells))
    failed = [test for cell in results.cells.values() for test in cell["failed"]]
    if failed:
        typer.echo("\n".join(["Failed:", *failed]), err=True)
        raise typer.Exit(1)


def outcome(files: List[str], device: str, workers: int) -> Dict[str, Any]:
    """How many tests pass, which fail and which are skipped, with the reasons."""
    seen = Outcomes()
    args = [*(str(ROOT / file) for file in files), "--device", device, "-q", "--tb=short"]
    args += ["-n", str(workers)] if workers else []
    code = pytest.main([*args, "-p", "no:cacheprovider", f"--rootdir={ROOT}"], plugins=[seen])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        seen.failed[", ".join(files)] = f"pytest ended with code {int(code)}"
    return vars(seen)


class Outcomes:
    """A plugin of pytest that keeps what became of each test."""

    def __init__(self) -> None:
        self.passed = 0
        self.failed: Dict[str, str] = {}
        self.skipped: Dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed[report.nodeid] = report.longreprtext.splitlines()[-1]
        elif report.skipped:
            reason = report.longrepr
            self.skipped[report.nodeid] = str(reason[2] if isinstance(reason, tuple) else reason)
        elif report.when == "call":
            self.passed += 1

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed[report.nodeid] = report.longreprtext.splitlines()[-1]


@app.command()
def learn(
    data: Data,
    output: Output,
    transformer: Transformer = None,
    system: Systems = SYSTEMS,
    batch_size: Sizes = [16, 64],  # noqa: B006
    docs: int = 1024,
    device: Device = "cuda:0",
) -> None:
    """Sentences per second and ms of a training step, in mixed precision.

    What is learned in some minutes: `python -m benchmarks.compare run` with --gpu-id 0.
    """
    task = Task(data, output, transformer, {"device": device, "docs": docs})
    measure_each(task, system, batch_size, learning_speed)
    typer.echo(
        tables.by_batch(list(task.results().cells.values()), "sentences_per_second", "step_ms")
    )


def learning_speed(task: Task, system: str, names: List[str]) -> Cells:
    """Steps on so many docs each, the optimizer included."""
    docs = task.docs
    nlp = learner(system, docs[:64], task.transformer)
    optimizer = shipped_optimizer(system, task.transformer)
    training_seconds(nlp, docs, optimizer)  # a GPU is slow until it has seen many shapes
    for size in map(int, names):
        training_seconds(nlp, docs[: 2 * size], optimizer, size)
        taken = training_seconds(nlp, docs, optimizer, size)
        step = 1000 * taken / ceil(len(docs) / size)
        found = {"sentences_per_second": len(docs) / taken, "step_ms": step}
        yield str(size), {"batch_size": size, **found}


@app.command()
def predict(
    data: Data,
    output: Output,
    transformer: Transformer = None,
    system: Systems = SYSTEMS,
    batch_size: Sizes = BATCH_SIZES,
    docs: int = 256,
    repeats: int = 3,
    device: Device = "cuda:0",
) -> None:
    """t(pipeline) / t(encoder alone), medians of pairs, with random weights; of at most 32 batches.

    Nothing reaches the threshold of 1, so that predicted spans cost nothing.
    """
    settings = {"device": device, "docs": docs, "repeats": repeats}
    task = Task(data, output, transformer, settings)
    measure_each(task, system, batch_size, ratios)
    typer.echo(tables.by_batch(list(task.results().cells.values()), "ratio"))


def ratios(task: Task, system: str, names: List[str]) -> Cells:
    """Of one system at each batch size."""
    docs = task.docs
    nlp = untrained_system(system, docs[:64], task.transformer)
    seconds(nlp, docs, 16)  # a GPU is slow until it has seen many shapes
    for size in map(int, names):
        seconds(nlp, docs[:size], size)
        found = beside_encoder(nlp, docs[: 32 * size], size, task.settings["repeats"])
        del found["mib"]
        yield str(size), {"batch_size": size, **found}


@app.command()
def memory(
    data: Data,
    output: Output,
    transformer: Transformer = None,
    system: Systems = SYSTEMS,
    batch_size: Sizes = BATCH_SIZES,
    device: Device = "cuda:0",
) -> None:
    """What a batch adds to the peak of the GPU's memory, or of the process on a CPU, in prediction
    and, with gradients and the optimizer's moments, in a training step; random weights."""
    sizes = sorted(batch_size)
    task = Task(data, output, transformer, {"device": device, "docs": sizes[-1]})
    for what in ("prediction", "training step"):
        names = [f"{what}, {size}" for size in sizes]
        for each in system:  # the peak of a process never falls
            measure_each(task, [each], names, peaks)
    typer.echo(tables.by_batch(list(task.results().cells.values()), "mib"))


def peaks(task: Task, system: str, names: List[str]) -> Cells:
    """Of one system, smaller batches first: the peak of a process never falls."""
    docs = task.docs
    nlp = learner(system, docs[:64], task.transformer, **UNFILTERED.get(system, {}))
    optimizer = shipped_optimizer(system, task.transformer)
    before = memory_now()
    for name in names:
        what, size = name.split(", ")
        batch = docs[: int(size)]
        if torch.cuda.is_initialized():
            torch.cuda.reset_peak_memory_stats()
        if what == "prediction":
            seconds(nlp, batch, len(batch))
        else:
            training_seconds(nlp, batch, optimizer, len(batch))
        yield name, {"what": what, "batch_size": len(batch), **memory_beside(before)}


def memory_now() -> float:
    """MiB in use on the GPU; without one, the peak of this process so far."""
    return torch.cuda.memory_allocated() / 2**20 if torch.cuda.is_initialized() else peak()


def memory_beside(before: float) -> Dict[str, float]:
    """MiB at the start, what the peak is above them, and what cupy holds that is not torch's."""
    if not torch.cuda.is_initialized():
        return {"before_mib": before, "mib": peak() - before}
    most = torch.cuda.max_memory_allocated() / 2**20
    cupy_mib = cupy.get_default_memory_pool().total_bytes() / 2**20
    return {"before_mib": before, "mib": most - before, "cupy_mib": cupy_mib}


@app.command()
def waits(
    data: Data,
    output: Output,
    transformer: Transformer = None,
    system: Systems = SYSTEMS,
    docs: int = 64,
    device: Device = "cuda:0",
) -> None:
    """How often the host waits for the GPU in the prediction of all docs at once and in a training
    step on 16, by the line that makes it wait.

    On a CPU nothing waits: counted are the operations that would, see `counted_waits`.
    """
    task = Task(data, output, transformer, {"device": device, "docs": docs})
    measure_each(task, system, ["waits"], lines_that_wait)
    rows = []
    for cell in task.results().cells.values():
        for what in ("prediction", "training step"):
            lines = sorted(cell[what].items(), key=lambda line: -line[1])
            rows.append([f"`{cell['system']}`", what, "all", f"{sum(cell[what].values()):g}"])
            rows += [["", "", f"`{line}`", f"{number:g}"] for line, number in lines]
    if device == "cpu":
        typer.echo("There is no device to wait for. What would wait on a GPU:\n")
    typer.echo(tables.markdown(["system", "in", "line", "waits"], rows))


def lines_that_wait(task: Task, system: str, names: List[str]) -> Cells:
    """Of one system; as many spans reach the threshold as there are entities."""
    docs = task.docs
    nlp = learner(system, docs, task.transformer, **FINDING.get(system, {}))
    pipe: Any = nlp.get_pipe("ner")
    n_entities = sum(len(doc.spans["sc"]) for doc in docs)
    pipe.cfg["threshold"] = score_of_rank(nlp, docs, n_entities)
    with counted_waits() as predicting:
        seconds(nlp, docs, len(docs))
    optimizer = shipped_optimizer(system, task.transformer)
    training_seconds(nlp, docs[:16], optimizer)  # the first step makes the optimizer's moments
    with counted_waits() as learning:
        training_seconds(nlp, docs, optimizer)
    steps = ceil(len(docs) / 16)
    each = {line: number / steps for line, number in learning.items()}
    yield names[0], {"prediction": dict(predicting), "training step": each}


if __name__ == "__main__":
    app()
