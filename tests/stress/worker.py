"""A process that converts corpora, watched from outside: it may take too long, or too much memory.

The process is started once and used again; one that does not answer in time is killed.
"""

from __future__ import annotations

import json
import multiprocessing
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional

HIGHEST = Path("/proc/self/status")
RESET = Path("/proc/self/clear_refs")


@dataclass
class Job:
    """One conversion. command: through the command line itself. group: see `ReadOptions`."""

    format: str
    source: Path
    output: Path
    skip: bool = False
    command: bool = False
    group: str = "sentence"
    settings: Dict[str, str] = field(default_factory=dict)


@dataclass
class Outcome:
    """What became of it.

    kind: "converted", "refused" (an error that the command names), "traceback" or "hang".
    report: the content of report.json. memory: bytes that the process grew by at most; 0 where
    the system does not tell. seconds: CPU time.
    """

    kind: str
    message: str = ""
    report: Dict[str, Any] = field(default_factory=dict)
    written: List[str] = field(default_factory=list)
    seconds: float = 0.0
    memory: int = 0


class Worker:
    """Context manager around the process."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._process: Any = None

    def __enter__(self) -> Worker:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def run(self, job: Job, limit: float) -> Outcome:
        """limit: seconds after which the process is killed."""
        begin = time.monotonic()
        self._pipe.send(job)
        if self._pipe.poll(limit):
            try:
                return self._pipe.recv()  # type: ignore[no-any-return]
            except EOFError:
                self._stop()
                self._start()
                return Outcome("traceback", "the process died")
        self._stop()
        self._start()
        return Outcome("hang", f"no end after {limit:.0f} s", seconds=time.monotonic() - begin)

    def _start(self) -> None:
        self._pipe, other = self._context.Pipe()
        self._process = self._context.Process(target=_serve, args=(other,), daemon=True)
        self._process.start()
        other.close()
        self._pipe.recv()  # it has imported everything

    def _stop(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()


def _serve(pipe: Any) -> None:
    import logging

    import spacy

    from spacy_nested_ner.corpora import readers

    logging.getLogger("spacy_nested_ner").addHandler(logging.NullHandler())
    logging.getLogger("spacy_nested_ner").propagate = False
    nlp = spacy.blank("en")
    readers.get_all()
    pipe.send("ready")
    for number, job in enumerate(iter(pipe.recv, None)):
        if number % 500 == 499:
            nlp = spacy.blank("en")  # its vocabulary grows with every input
        pipe.send(_measured(job, nlp))


def _measured(job: Job, nlp: Any) -> Outcome:
    before = _memory("VmRSS")
    if RESET.exists():
        RESET.write_text("5", encoding="ascii")
    begin = time.process_time()
    outcome = _command(job) if job.command else _attempt(job, nlp)
    outcome.seconds = time.process_time() - begin
    outcome.memory = max(0, _memory("VmHWM") - before)
    outcome.written = sorted(file.name for file in job.output.glob("*"))
    report = job.output / "report.json"
    if report.is_file():
        outcome.report = json.loads(report.read_text("utf8"))
    return outcome


def _attempt(job: Job, nlp: Any) -> Outcome:
    """What the command does, with what it catches."""
    from spacy_nested_ner.corpora import Problems, ReadOptions
    from spacy_nested_ner.corpora.convert import convert_corpus
    from spacy_nested_ner.corpora.read import Source, read_corpus

    problems = Problems(job.skip, quiet=True)
    options = ReadOptions(group=job.group, settings=job.settings, problems=problems)
    try:
        records = read_corpus(job.format, [Source(job.source)], options)
        convert_corpus(records, job.output, nlp, options=options)
    except (ValueError, ImportError, OSError) as err:
        return Outcome("refused", str(err))
    except BaseException:
        return Outcome("traceback", traceback.format_exc())
    return Outcome("converted")


def _command(job: Job) -> Outcome:
    from typer.testing import CliRunner

    from spacy_nested_ner.cli import nested_ner_cli

    args = ["convert", job.format, str(job.source), str(job.output)]
    args += [part for pair in job.settings.items() for part in ("--set", "=".join(pair))]
    result = CliRunner().invoke(nested_ner_cli, args + ["--skip-errors"] * job.skip)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        error = result.exception
        return Outcome("traceback", "".join(traceback.format_exception(error)))
    if result.exit_code == 0:
        return Outcome("converted")
    kind = "refused" if "Cannot convert the corpus" in result.output else "traceback"
    return Outcome(kind, result.output)


def _memory(name: str) -> int:
    if not HIGHEST.exists():
        return 0
    line: Optional[str] = next(
        (line for line in HIGHEST.read_text("ascii").splitlines() if line.startswith(name)), None
    )
    return 1024 * int(line.split()[1]) if line else 0
