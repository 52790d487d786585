"""Processes that are forked while other threads work."""

import os
from typing import Callable


def in_forked_processes(renew: Callable[[], None]) -> None:
    """Call this first in each process that is forked. A lock that a thread held at that moment
    nobody would ever give back there."""
    if hasattr(os, "register_at_fork"):  # Windows does not fork
        os.register_at_fork(after_in_child=renew)
