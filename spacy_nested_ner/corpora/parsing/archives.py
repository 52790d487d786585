"""Compressed files and archives."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from pathlib import Path
from typing import IO, Iterator, Tuple

DAMAGE = (EOFError, zlib.error, tarfile.TarError, gzip.BadGzipFile)
"""What reading a damaged archive raises."""


def is_gzip(path: Path) -> bool:
    """Whether a file begins as gzipped ones do."""
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def is_tar(path: Path) -> bool:
    """Whether a file is a tar archive, plain or compressed."""
    try:
        return tarfile.is_tarfile(path)
    except (EOFError, zlib.error):  # too short to tell: reading it as gzip names the damage
        return False


def members(archive: tarfile.TarFile, suffix: str) -> Iterator[Tuple[str, IO[bytes]]]:
    """Name and content of the files with this ending, in the order of the archive. Each is open
    until the next is asked for."""
    for member in archive:
        content = archive.extractfile(member) if member.name.endswith(suffix) else None
        if content is not None:
            with content:
                yield member.name, content
