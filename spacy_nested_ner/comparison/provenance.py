"""Where a result comes from: code, versions, machine, and the data it was measured on."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import datetime, timezone
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Dict, Iterable

import torch

CPUINFO = Path("/proc/cpuinfo")  # of Linux
PACKAGES = [
    "spacy_nested_ner",
    "spacy",
    "thinc",
    "torch",
    "numpy",
    "transformers",
    "spacy-transformers",
]


def provenance() -> Dict[str, Any]:
    """Day, versions and machine of a result; "commit" of the code where it runs from a clone, with
    "-dirty" behind it if files of the clone have changed since."""
    commit = _commit(Path(__file__))
    return {
        "date": datetime.now(timezone.utc).date().isoformat(),
        **({"commit": commit} if commit else {}),
        "versions": {name: found for name in PACKAGES if (found := _version(name))},
        "machine": f"{platform.system()}, {platform.machine()}, {_hardware()}",
    }


def digest(parts: Iterable[bytes]) -> str:
    """Tells files or configs that have changed from those that were measured."""
    found = blake2b(digest_size=8)
    for part in parts:
        found.update(part)
    return found.hexdigest()


def _commit(file: Path) -> str:
    """Of the clone whose file it is; empty for what is installed, be it inside another clone."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(file.parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", file.name)
        return git("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
    except (OSError, subprocess.CalledProcessError):
        return ""


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # transformers are an extra
        return ""


def _hardware() -> str:
    """Processor, its cores, and the GPU if there is one."""
    text = CPUINFO.read_text(encoding="utf8") if CPUINFO.exists() else ""
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"{_processor(text)}, {os.cpu_count()} cores{gpu}"


def _processor(cpuinfo: str) -> str:
    """Name, family and model of the first processor: in a cloud processors of different speed have
    one name."""
    first = cpuinfo.split("\n\n")[0]
    pairs = (line.split(":", 1) for line in first.splitlines() if ":" in line)
    found = {key.strip(): value.strip() for key, value in pairs}
    name = found.get("model name") or platform.processor()
    if "cpu family" not in found:
        return name
    return f"{name} family {found['cpu family']} model {found.get('model', '?')}"
