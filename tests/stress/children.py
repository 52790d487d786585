"""Commands in processes of their own, which may be killed: forks of this one, which has imported
all that they need."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Optional, Sequence

FULL = "full disk"
WATCHED = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir")
"""Audit events of Python that touch files; writing to an open file has none."""


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit code, or minus the signal; None: it had to be stopped."""

    code: Optional[int]
    output: str

    @property
    def has_traceback(self) -> bool:
        return "Traceback (most recent call last)" in self.output


def in_child(
    act: Callable[[], Any], seconds: float, after: float = -1.0, number: int = signal.SIGKILL
) -> Ended:
    """Run a function in a fork; its SystemExit is the exit code.

    seconds: until it is stopped. after: seconds until the signal `number` is sent to it.
    """
    reading, writing = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _run(act, writing)
    os.close(writing)
    begin, output, sent, stopped = time.monotonic(), b"", after < 0, False
    while True:
        ready, _, _ = select.select([reading], [], [], 0.002 if not sent else 0.05)
        chunk = os.read(reading, 65536) if ready else b""
        output += chunk
        passed = time.monotonic() - begin
        if ready and not chunk:
            break
        if not sent and passed >= after:
            sent = True
            os.kill(pid, number)
        if passed > seconds and not stopped:
            stopped = True
            os.kill(pid, signal.SIGKILL)
    os.close(reading)
    _, status = os.waitpid(pid, 0)
    code = None if stopped else os.waitstatus_to_exitcode(status)
    return Ended(code, output.decode("utf8", "replace"))


def _run(act: Callable[[], Any], writing: int) -> None:
    code: Any = 0
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.dup2(writing, 1)
        os.dup2(writing, 2)
        os.close(writing)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        act()
    except SystemExit as err:
        code = err.code
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def spacy_command(*args: Any) -> Callable[[], None]:
    """`python -m spacy ...` as a function."""

    def act() -> None:
        from spacy.cli import app

        import spacy_nested_ner.cli  # noqa: F401

        app([str(arg) for arg in args], prog_name="python -m spacy")

    return act


def watching(folder: Path, happen: Callable[[int, str, Sequence[Any]], None]) -> None:
    """Call `happen` for each audit event that touches a folder, with its number."""
    count, inside, prefix = 0, False, str(folder)

    def hook(event: str, args: Sequence[Any]) -> None:
        nonlocal count, inside
        if inside or event not in WATCHED:
            return
        if any(isinstance(arg, (str, os.PathLike)) and str(arg).startswith(prefix) for arg in args):
            inside = True
            try:
                happen(count, event, args)
            finally:
                count, inside = count + 1, False

    sys.addaudithook(hook)


def struck(act: Callable[[], None], folder: Path, at: int, kind: Any) -> Callable[[], None]:
    """A function that meets a signal at the event `at`, or a disk that is full from there on."""

    def strike(number: int, event: str, args: Sequence[Any]) -> None:
        if kind != FULL:
            if number == at:
                os.kill(os.getpid(), kind)
        elif number >= at and (event == "os.mkdir" or (event == "open" and _writes(args))):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(args[0]))

    def watched() -> None:
        watching(folder, strike)
        act()

    return watched


def _writes(args: Sequence[Any]) -> bool:
    flags = args[2] if len(args) > 2 and isinstance(args[2], int) else 0
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def with_little_space(act: Callable[[], None], size: int) -> Callable[[], None]:
    """A function whose files cannot grow beyond a number of bytes: to write more is an error."""
    import resource

    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        act()

    return limited
