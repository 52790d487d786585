"""What all commands do about colours and warnings."""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import contextmanager
from typing import Any, Iterator

from wasabi import msg


@contextmanager
def plain_output() -> Iterator[None]:
    """Colours on a terminal alone, and none with NO_COLOR (no-color.org); warnings without the
    line of source that they come from."""
    colours, form = msg.show_color, warnings.formatwarning
    on_terminal = sys.stdout is not None and sys.stdout.isatty()
    msg.show_color = colours and on_terminal and not os.environ.get("NO_COLOR")
    warnings.formatwarning = _sentence
    try:
        yield
    finally:
        msg.show_color, warnings.formatwarning = colours, form


def _sentence(message: Any, *_: Any, **__: Any) -> str:
    return f"Warning: {message}\n"
