"""Processes: what a fork needs while other threads work, and the end of those without a parent."""

import multiprocessing
import os
import threading
from typing import Callable


def in_forked_processes(renew: Callable[[], None]) -> None:
    """Call this first in each process that is forked. A lock that a thread held at that moment
    nobody would ever give back there."""
    if hasattr(os, "register_at_fork"):  # Windows does not fork
        os.register_at_fork(after_in_child=renew)


def end_with_parent() -> None:
    """Call this in a process that `multiprocessing` has started: it ends when its parent is gone,
    for which it works."""
    threading.Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
