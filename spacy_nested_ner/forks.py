"""Processes: how they are started, what a fork needs while other threads work, and the end of those
without a parent."""

import multiprocessing
import os
import signal
import sys
import threading
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any, Callable, Iterator, Tuple

from thinc.compat import has_cupy_gpu, has_torch_cuda_gpu


def in_forked_processes(renew: Callable[[], None]) -> None:
    """Call this first in each process that is forked. A lock that a thread held at that moment
    nobody would ever give back there."""
    if hasattr(os, "register_at_fork"):  # Windows does not fork
        os.register_at_fork(after_in_child=renew)


def forking_context(module: str) -> Any:
    """The context of `multiprocessing` to start processes in that use torch and spaCy. A fork of
    this process would inherit torch's threads as if they were there, and wait for them. On Linux
    they are forked from a process that has imported what they need and done nothing else, which
    takes seconds, but once, and they share this memory. But what has looked for a GPU cannot be
    forked to use it, and that process looks for modules where it is, as `python -m spacy` does and
    `spacy` does not. Where there is a GPU, in the latter case, and on other systems each process
    starts from nothing.

    module: that they need beside the pipeline components. It must start no thread.
    """
    has_gpu = has_cupy_gpu or has_torch_cuda_gpu
    if sys.platform != "linux" or has_gpu or not {"", os.getcwd()}.intersection(sys.path):
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([module, "spacy_nested_ner.preload"])
    return context


class Child:
    """A process that calls `work` with a connection to this one and with arguments. It ends with
    this process, and leaves Ctrl-C to it.

    handles: one of them is ready for `multiprocessing.connection.wait` when there is something to
        hear, or when the process has ended.

    RAISES (EOFError, OSError): If it cannot be started: for one, what processes are forked from has
        died, or its socket is gone, since a long run outlives files in the folder for temporary
        ones. One that starts from nothing asks for less.
    """

    def __init__(self, context: Any, work: Callable[..., Any], *arguments: Any) -> None:
        self.is_forked = context.get_start_method() == "forkserver"
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_begin, args=(theirs, work, arguments), daemon=True)
        with _interrupts_wait():
            self.process.start()
        theirs.close()  # so that the end of the process is the end of the connection
        self.handles = [self.connection]
        if not self.is_forked:  # whose sentinel is the end of what it was forked from, too
            # On Windows the connection of one that dies at once stays open.
            self.handles.append(self.process.sentinel)

    def hear(self) -> Any:
        """What it has sent, once a handle is ready.

        RAISES (EOFError, OSError): If it has ended, perhaps in the middle of it.
        """
        if not self.connection.poll():
            raise EOFError
        return self.connection.recv()


def _begin(connection: Connection, work: Callable[..., Any], arguments: Tuple[Any, ...]) -> None:
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of where `_interrupts_wait` does not reach
    work(connection, *arguments)


@contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Ctrl-C reaches every process of a terminal; one started in this block does not hear it, this
    process hears it after the block."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # whose start would let interrupts in again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent() -> None:
    """Call this in a process that `multiprocessing` has started: it ends when its parent is gone,
    for which it works."""
    threading.Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
