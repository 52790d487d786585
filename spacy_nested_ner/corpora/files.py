"""Files that appear whole or not at all."""

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
