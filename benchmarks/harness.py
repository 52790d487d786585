"""How all benchmarks run and are recorded: processes, clocks, memory, and JSON with its source."""

import multiprocessing
import os
import re
import resource
import shlex
import signal
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated, Any, Callable, Dict, List, Optional, Sequence

import srsly
import torch
import typer
from thinc.compat import has_cupy_gpu

from benchmarks import tables
from spacy_nested_ner.comparison import provenance as origin
from spacy_nested_ner.comparison.trainings import Task, Unfinished, other_settings, train_each
from spacy_nested_ner.files import write_json, written_folder

# Options of several benchmarks.
Output = Annotated[Optional[Path], typer.Option(help="Also write JSON")]
Data = Annotated[Path, typer.Argument(help="A .spacy file")]

NO_RESULTS = "{folder}: no results. Use the command `run` first."
MADE_FROM = "made_from.json"


def provenance() -> Dict[str, Any]:
    """Code, versions, machine and command of a result."""
    return {**origin.provenance(), "command": command()}


def command() -> str:
    """What follows `python` in the command line of this process."""
    program, *arguments = sys.argv
    if Path(program).parent == Path(__file__).parent:
        return shlex.join(["-m", f"benchmarks.{Path(program).stem}", *arguments])
    return shlex.join([Path(program).name, *arguments])


def write_output(path: Optional[Path], result: Dict[str, Any]) -> None:
    """A result and its provenance, where a file is asked for."""
    if path is not None:
        write_json(path, {**provenance(), **result})


def results_of(folder: Path) -> List[Dict[str, Any]]:
    """The results in a folder; typer.BadParameter if there are none."""
    results = tables.results_in(folder)
    if not results:
        raise typer.BadParameter(NO_RESULTS.format(folder=folder))
    return results


def result_of(folder: Path, name: str) -> Dict[str, Any]:
    """The file of that name in a folder; typer.BadParameter if there is none."""
    if not (folder / name).exists():
        raise typer.BadParameter(NO_RESULTS.format(folder=folder))
    return srsly.read_json(folder / name)


def train_tasks(
    tasks: Sequence[Task],
    one: Callable[[Task], Dict[str, Any]],
    apart: Sequence[str] = (),
) -> List[Dict[str, Any]]:
    """As `train_each`. Results of one system whose files differ in the seed alone are averaged, so
    they have the same settings.

    apart: settings that differ from seed to seed.

    Raises typer.BadParameter for results of other settings; typer.Exit where a training failed.
    """
    for task in tasks:
        alike = {k: v for k, v in task.settings.items() if k not in ("seed", *apart)}
        for path in task.target.parent.glob(re.sub(r"_seed\d+\.", "_seed*.", task.target.name)):
            found = srsly.read_json(path)["settings"]
            if problem := other_settings(path, found, alike):
                raise typer.BadParameter(problem)
    try:
        return train_each(tasks, one, typer.echo, command=command())
    except ValueError as err:
        raise typer.BadParameter(str(err)) from err
    except Unfinished as err:
        typer.echo(str(err), err=True)
        raise typer.Exit(1) from err


def digest_of(corpus: Path) -> str:
    """That of a corpus; typer.BadParameter if it is none."""
    try:
        parts = ("train", "dev", "test")
        return origin.digest((corpus / f"{part}.spacy").read_bytes() for part in parts)
    except OSError as err:
        raise typer.BadParameter(f"{corpus} is no corpus: {err}") from err


def made_once(folder: Path, make: Callable[[Path], Any], **source: Any) -> Path:
    """A folder of what a benchmark makes for its trainings: it is there whole or not at all, and
    made once.

    make: fills the folder. source: all that it depends on, which is kept in it.

    Raises typer.BadParameter for a folder that was made from something else.
    """
    kept = folder / MADE_FROM
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with written_folder(folder, MADE_FROM) as draft:
            make(draft)
            write_json(draft / MADE_FROM, source)
    elif not kept.exists() or srsly.read_json(kept) != source:
        raise typer.BadParameter(
            f"{folder} was made from other data or settings. Give another output."
        )
    return folder


class Results:
    """The cells of one JSON file, which is written after each of them. Those that are there already
    need not be measured again."""

    def __init__(self, path: Optional[Path], part: str = "cells", **settings: Any) -> None:
        """path: of the file, which may be there; None keeps the cells in memory. part: their name
        in the file. settings: of this run, the same for all cells.

        Raises typer.BadParameter for a file of other settings, or of another benchmark.
        """
        self.path = path
        there = path is not None and path.exists()
        self.file = srsly.read_json(path) if there else {"runs": [], part: {}}
        if part not in self.file:
            raise typer.BadParameter(f"{path} is of another benchmark. Give another output.")
        self.cells: Dict[str, Any] = self.file[part]
        self.settings = settings
        self.is_new = True
        for run in self.file["runs"]:
            if problem := other_settings(path, run, settings):
                raise typer.BadParameter(problem)

    def add(self, key: str, cell: Dict[str, Any]) -> None:
        """Take a cell and write the file."""
        if self.is_new:
            self.file["runs"].append({**provenance(), **self.settings})
            self.is_new = False
        self.cells[key] = {**cell, "run": len(self.file["runs"]) - 1}
        if self.path is not None:
            write_json(self.path, self.file)


class Stopwatch:
    """Seconds of a `with` block: `seconds` by the clock on the wall, `cpu` of this process, and
    `used`, those of the CPU, or where this process uses a GPU those by the clock.

    A GPU has finished what it was given before the block begins and before it ends.
    """

    seconds: float
    cpu: float

    def __enter__(self) -> "Stopwatch":
        self.is_on_gpu = torch.cuda.is_initialized()
        self._wait()
        self.seconds, self.cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *error: Any) -> None:
        self._wait()
        self.cpu = time.process_time() - self.cpu
        self.seconds = time.perf_counter() - self.seconds
        self.used = self.seconds if self.is_on_gpu else self.cpu

    def _wait(self) -> None:
        if self.is_on_gpu:
            torch.cuda.synchronize()


def peak() -> float:
    """Largest resident size of this process so far, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def in_process(
    function: Callable[..., Dict[str, Any]],
    *arguments: Any,
    threads: int = 1,
    cpu_seconds: Optional[float] = None,
    gib: Optional[float] = None,
) -> Dict[str, Any]:
    """What a function returns in a process of its own; `{"limit": "time"}` or "memory" where it ran
    out of it, if it has a limit. Needs Linux.

    The process is a fork, which has imported all this one has: torch must not have computed
    anything here. Where Thinc has found a GPU the process is a fresh one: a fork could not use it.

    threads: of torch. cpu_seconds: CPU time that the process may take. gib: private memory that it
    may take.

    Raises RuntimeError where the function fails, or runs out of memory without a limit.
    """
    context: Any = multiprocessing.get_context("spawn" if has_cupy_gpu else "fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(sender, threads, gib, function, arguments))
    process.start()
    sender.close()
    while not receiver.poll(0.2):
        if cpu_seconds is not None and cpu_of(process.pid) > cpu_seconds:
            process.kill()
            process.join()
            return {"limit": "time"}
    try:
        found: Dict[str, Any] = receiver.recv()
    except EOFError:
        found = {}
    process.join()
    if not found and process.exitcode == -signal.SIGKILL:  # the system had no memory left
        found = {"limit": "memory"}
    if "limit" in found and cpu_seconds is None and gib is None:
        raise RuntimeError(f"{function.__name__}() ran out of memory.")
    if found:
        return found
    raise RuntimeError(f"{function.__name__}() ended with code {process.exitcode}.")


def cpu_of(pid: Any) -> float:
    """CPU time of another process. Not left to RLIMIT_CPU, under which a process reads its own
    clock in steps of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _answer(
    sender: Connection, threads: int, gib: Optional[float], function: Callable, arguments: Any
) -> None:
    torch.set_num_threads(threads)
    if gib is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (int(gib * 2**30), resource.RLIM_INFINITY))
    try:
        sender.send(function(*arguments))
    except (MemoryError, RuntimeError) as error:
        resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        # torch says so in words only.
        if not isinstance(error, MemoryError) and "allocate memory" not in str(error):
            raise
        sender.send({"limit": "memory"})
