"""What counts as input: regular files, and folders of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import List, NoReturn, Set, Tuple

from spacy_nested_ner.corpora.errors import CorpusError


def check_is_file(path: Path, expected: str) -> None:
    """Raise CorpusError unless there is a regular file, or a link to one. To read from a named
    pipe or a device may take for ever."""
    if not path.is_file():
        raise CorpusError(f"{_kind(path)}. Expected {expected}.", path)


def check_input(path: Path) -> None:
    """Raise CorpusError unless there is a regular file or a folder, or a link to one."""
    if not path.is_file() and not path.is_dir():
        raise CorpusError(f"{_kind(path)}. Expected a file or a folder.", path)


def walk(folder: Path) -> List[Path]:
    """All that lies below a folder at any depth and is no folder, sorted. Links to folders are
    followed. What has a name that begins with a dot, as macOS adds to archives, is left out.

    Raises CorpusError if a folder is reached twice, as links can do without an end. Raises OSError
    if one cannot be read.
    """
    found: List[Path] = []
    seen: Set[Tuple[int, int]] = set()
    for root, folders, names in os.walk(folder, onerror=_raise, followlinks=True):
        facts = os.stat(root)
        if (facts.st_dev, facts.st_ino) in seen:
            problem = "a link leads to this folder, which has already been read. Remove the link."
            raise CorpusError(problem, root)
        seen.add((facts.st_dev, facts.st_ino))
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(root, name) for name in names if not name.startswith(".")]
    return sorted(found)


def _raise(error: OSError) -> NoReturn:
    raise error


def _kind(path: Path) -> str:
    if path.is_dir():
        return "a folder"
    if path.exists():
        return "neither a file nor a folder, but a named pipe, a socket or a device"
    return "a broken link" if path.is_symlink() else "no such file or folder"
