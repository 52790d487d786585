"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Dict, Iterable, Iterator


@contextmanager
def written_together(paths: Iterable[Path]) -> Iterator[Dict[Path, Path]]:
    """For each path a temporary file beside it, to be written in the `with` block.

    When the block ends, all take the names of their paths. When it raises, all vanish and the
    files that had these names before stay as they were.
    """
    temporary = {path: _reserve(path) for path in paths}
    try:
        yield temporary
        for path, draft in temporary.items():
            os.replace(draft, path)
    finally:
        for draft in temporary.values():
            draft.unlink(missing_ok=True)


@contextmanager
def written_folder(path: Path, marker: str) -> Iterator[Path]:
    """A temporary folder beside a path, to be filled in the `with` block.

    When the block ends, it takes the path's name; a folder that had it before vanishes. When it
    raises, the temporary folder vanishes and all else stays as it was.

    marker: file that a folder which may be replaced holds.

    Raises ValueError if something else is there: a file, or a folder with other contents.
    """
    is_new = not path.exists() or (path.is_dir() and not any(path.iterdir()))
    if not is_new and not (path / marker).is_file():
        raise ValueError(f"{path} is there and holds no {marker}. Give another folder.")
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        draft, old = Path(folder) / "new", Path(folder) / "old"
        draft.mkdir()
        yield draft
        if path.exists():
            os.replace(path, old)
        try:
            os.replace(draft, path)
        except OSError:
            if old.exists():
                os.replace(old, path)
            raise


def _reserve(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    os.chmod(name, 0o666 & ~_umask())  # mkstemp makes files that only their owner can read
    return Path(name)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
