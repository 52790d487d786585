"""What all commands do about colours, warnings and errors."""

from __future__ import annotations

import os
import re
import sys
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Iterable, Iterator, Optional, Sequence

import wasabi.util
from wasabi import msg

MAX_COLUMN = 80  # wasabi's own limit is shorter than many a path or label


@contextmanager
def plain_output() -> Iterator[None]:
    """Colours on a terminal alone, and none with NO_COLOR (no-color.org); warnings without the
    line of source that they come from; escapes of control characters, and of characters that the
    output cannot hold, such as a Chinese label in a file on Windows, which would end the command.
    """
    colours, form, encoding = msg.show_color, warnings.formatwarning, wasabi.util.ENCODING
    on_terminal = sys.stdout is not None and sys.stdout.isatty()
    msg.show_color = colours and on_terminal and not os.environ.get("NO_COLOR")
    warnings.formatwarning = _sentence
    # wasabi escapes, too, but reads what it has encoded as UTF-8.
    wasabi.util.ENCODING = "utf-8"
    with _escaping(sys.stdout), _escaping(sys.stderr), _without_control():
        try:
            yield
        finally:
            msg.show_color, warnings.formatwarning = colours, form
            wasabi.util.ENCODING = encoding


@contextmanager
def _without_control() -> Iterator[None]:
    """No message has control characters of a label or a text in it."""
    own, write = vars(msg).get("text"), msg.text

    def text(title: Any = "", text: Any = "", *args: Any, **settings: Any) -> Any:
        return write(shown(title), shown(text), *args, **settings)

    vars(msg)["text"] = text
    try:
        yield
    finally:
        vars(msg)["text"] = own
        if own is None:
            del vars(msg)["text"]


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def shown(text: Any) -> Any:
    """A text as a terminal may show it: a label could clear the screen, or forge what is on it."""
    if not isinstance(text, str):
        return text
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


@contextmanager
def _escaping(stream: Any) -> Iterator[None]:
    errors = getattr(stream, "errors", None)
    # Python has the second one in a locale without umlauts, for names of files alone.
    escaping = hasattr(stream, "reconfigure") and errors in ("strict", "surrogateescape")
    if escaping:
        stream.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        if escaping:
            with suppress(ValueError):  # it has been closed
                stream.reconfigure(errors=errors)


_TORCH_LACKS_MEMORY = re.compile("can(?:'t|not) allocate memory|(?:not enough|out of) memory", re.I)


def lacks_memory(error: Exception) -> bool:
    """Whether that is what an error says; torch does in words only."""
    is_torchs = isinstance(error, RuntimeError) and _TORCH_LACKS_MEMORY.search(str(error))
    return isinstance(error, MemoryError) or bool(is_torchs)


@contextmanager
def failing(what: str) -> Iterator[None]:
    """Whatever is wrong with files, options or the machine ends the command with exit code 1, and
    with words instead of a traceback. what: cannot be done then."""
    try:
        yield
    except BrokenPipeError:  # whoever reads the output has had enough, as `head` does: click ends
        raise
    except (ValueError, ImportError, OSError) as err:
        msg.fail(what, str(err), exits=1)
    except (MemoryError, RuntimeError) as err:
        if not lacks_memory(err):
            raise
        msg.fail(what, f"There is not enough memory. {err}", exits=1)


def keep_inputs(output: Optional[Path], *inputs: Path) -> None:
    """Raises ValueError if a file to write is one that is read: it would be lost.

    inputs: files, or folders whose `.spacy` files are read.
    """
    if output is None or not output.exists():
        return
    written = output.resolve()
    for path in (each.resolve() for each in inputs):
        if path == written or (path in written.parents and written.suffix == ".spacy"):
            raise ValueError(f"{output} is to be read and to be written. Choose another output.")


def check_replaced(output: Optional[Path], marker: str, *inputs: Optional[Path]) -> None:
    """Raises ValueError as `check_folder` for a folder to write, and if what is read lies in it: it
    would be lost with the folder. To be told before anything runs.
    """
    from spacy_nested_ner.files import check_folder

    if output is None:
        return
    check_folder(output, marker)
    for path in filter(None, inputs):
        if output.resolve() in path.resolve().parents:
            raise ValueError(
                f"{path} is in {output}, which is to be replaced. Choose another output."
            )


def warn_of(problems: Iterable[str]) -> None:
    """Print each as a warning."""
    for problem in problems:
        msg.warn(problem)


def print_table(rows: Sequence[Sequence[str]], header: Sequence[str], of_text: int = 1) -> None:
    """A table whose rows stay in line. of_text: how many columns are no numbers."""
    cells = [[shown(cell) for cell in row] for row in (header, *rows)]
    aligns = tuple("l" * of_text + "r" * (len(header) - of_text))
    msg.table(cells[1:], header=cells[0], max_col=MAX_COLUMN, divider=True, aligns=aligns)


def _sentence(message: Any, *_: Any, **__: Any) -> str:
    return f"Warning: {shown(str(message))}\n"
