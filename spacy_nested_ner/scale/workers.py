"""Worker processes of one machine. One that dies is replaced, and what it had in hand done again.

`concurrent.futures` gives up all its work when one process dies, and a `multiprocessing.Pool` waits
for ever for what a dead one had in hand.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Callable, Deque, Dict, Iterable, List, Optional, Tuple

from spacy.util import import_file

from spacy_nested_ner.files import settle
from spacy_nested_ner.forks import Child, forking_context
from spacy_nested_ner.scale.annotator import Annotator
from spacy_nested_ner.scale.inputs import Columns, Fragment
from spacy_nested_ner.scale.outputs import write

ATTEMPTS = 3
"""At a fragment, and at a start of a worker."""

PATIENCE = 5.0
"""Seconds that a worker has to end by itself."""

UNKNOWN = 255
"""Exit code of a forked process, where what forked it cannot tell."""

Report = Callable[[int, int, int], None]
"""Takes how many texts, tokens and failed texts are done beside those before; numbers below 0 when
they have to be done again."""


class WorkersFail(RuntimeError):
    """Workers cannot work at all. Says why."""


@dataclass(frozen=True)
class Job:
    """What all workers are to do with fragments.

    code: a Python file that they import first.
    """

    annotator: Annotator
    columns: Columns
    folder: Path
    code: Optional[Path] = None


def run(job: Job, fragments: Iterable[Fragment], workers: int, report: Report) -> Dict[str, str]:
    """Annotate fragments in that many processes.

    RETURNS: the fragments that are not there, and why.
    RAISES (WorkersFail): If the pipeline cannot be loaded, or lacks the spans key.
    """
    todo = deque(fragments)
    team = _Team(job, todo, report)
    try:
        while todo or team.workers:
            while todo and len(team.workers) < workers:
                team.hire()
            team.wait()
    finally:
        team.end()
    return team.lost


class _Worker(Child):
    """A process, and the fragment that it has in hand."""

    def __init__(self, context: Any, job: Job, fragment: Fragment) -> None:
        super().__init__(context, _work, job)
        self.is_ready = False
        self.give(fragment)

    def give(self, fragment: Fragment) -> None:
        self.fragment = fragment
        self.done = (0, 0, 0)
        with suppress(OSError):  # it is dead: that shows when it is waited for
            self.connection.send(fragment)

    def end(self) -> str:
        """End it if it has not ended; RETURNS how it ended."""
        self.connection.close()
        self.process.join(PATIENCE)
        self.process.kill()
        self.process.join()
        code = self.process.exitcode or 0
        if self.is_forked and code == UNKNOWN:  # what forked it has died: it may be alive
            _kill(self.process.pid)
        if code >= 0:
            return f"the worker ended with code {code}"
        name = signal.Signals(-code).name
        return f"the worker was killed by {name}" + (
            ", perhaps because memory ran out" if name == "SIGKILL" else ""
        )


def _kill(pid: int) -> None:
    """Kill a process that is no child of this one, and wait until it has ended."""
    with suppress(OSError):  # it has ended
        process = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(process, signal.SIGKILL)
            wait([process], PATIENCE)
        finally:
            os.close(process)


class _Team:
    """The workers that there are, and what is left to do."""

    def __init__(self, job: Job, todo: Deque[Fragment], report: Report) -> None:
        self.context = forking_context(__name__)
        self.job = job
        self.todo = todo
        self.report = report
        self.workers: List[_Worker] = []
        self.lost: Dict[str, str] = {}
        self.failures: Dict[Fragment, int] = {}
        self.failed_starts = 0

    def hire(self) -> None:
        fragment = self.todo.popleft()
        try:
            self.workers.append(_Worker(self.context, self.job, fragment))
        except (EOFError, OSError) as error:
            self._not_started(fragment, f"{type(error).__name__}: {error}")

    def wait(self) -> None:
        """Hear what the workers have to say."""
        by_handle: Dict[Any, _Worker] = {
            handle: worker for worker in self.workers for handle in worker.handles
        }
        for worker in dict.fromkeys(by_handle[each] for each in wait(list(by_handle))):
            try:
                kind, what = worker.hear()
            except (EOFError, OSError):
                self._bury(worker)
            else:
                self._hear(worker, kind, what)

    def _hear(self, worker: _Worker, kind: str, what: Any) -> None:
        if kind == "broken":
            raise WorkersFail(f"The pipeline cannot be used: {what}")
        if kind == "ready":
            worker.is_ready, self.failed_starts = True, 0
        elif kind == "batch":
            worker.done = tuple(a + b for a, b in zip(worker.done, what))
            self.report(*what)
        else:
            if kind == "failed":
                self._again(worker, what)
            self._next(worker)

    def _next(self, worker: _Worker) -> None:
        if self.todo:
            worker.give(self.todo.popleft())
        else:
            self.workers.remove(worker)
            worker.end()

    def _bury(self, worker: _Worker) -> None:
        self.workers.remove(worker)
        reason = worker.end()
        if worker.is_ready:
            self._again(worker, reason)
        else:
            self._not_started(worker.fragment, reason)

    def _not_started(self, fragment: Fragment, reason: str) -> None:
        self.context = multiprocessing.get_context("spawn")  # which asks for less
        self.todo.appendleft(fragment)
        self.failed_starts += 1
        if self.failed_starts == ATTEMPTS:
            raise WorkersFail(
                f"{ATTEMPTS} workers ended before they had loaded the pipeline: {reason}"
            )

    def _again(self, worker: _Worker, reason: str) -> None:
        """A fragment has failed: put it back, or give it up."""
        fragment = worker.fragment
        self.report(*(-number for number in worker.done))
        self.failures[fragment] = self.failures.get(fragment, 0) + 1
        if self.failures[fragment] < ATTEMPTS:
            self.todo.appendleft(fragment)
        else:
            self.lost[str(fragment)] = reason

    def end(self) -> None:
        for worker in self.workers:
            worker.process.kill()
        for worker in self.workers:
            worker.end()
        settle(self.job.folder)


def _work(connection: Connection, job: Job) -> None:
    """What a worker does until the connection ends."""
    try:
        if job.code is not None:
            import_file("python_code", job.code)
        job.annotator.load()
    except Exception as error:  # whatever it is: the others would meet it, too
        connection.send(("broken", f"{type(error).__name__}: {error}"))
        return
    connection.send(("ready", None))
    with suppress(EOFError, OSError):
        while True:
            fragment = connection.recv()
            connection.send(_attempt(job, fragment, connection))


def _attempt(job: Job, fragment: Fragment, connection: Connection) -> Tuple[str, Optional[str]]:
    try:
        for counts in write(job.annotator, job.columns, fragment, job.folder):
            connection.send(("batch", counts))
    except Exception as error:  # the parent tries again and says so in the end
        return "failed", f"{type(error).__name__}: {error}"
    return "done", None
