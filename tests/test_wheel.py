"""What `pip install` puts on a machine that has no clone of the repository."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).parents[1]


def files_of(folder: Path) -> set:
    paths = (path.relative_to(ROOT) for path in folder.rglob("*") if path.is_file())
    return {path.as_posix() for path in paths if "__pycache__" not in path.parts}


def test_the_wheel_holds_every_file_of_the_package_and_the_configs(tmp_path):
    source = tmp_path / "source"  # what a build leaves behind stays out of the repository
    source.mkdir()
    for name in ("spacy_nested_ner", "configs"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    words = ROOT / "assets" / "english_words"
    shutil.copytree(words, source / "assets" / "english_words")
    for name in ("setup.py", "README.md", "pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "setup.py", "-q", "bdist_wheel", "--dist-dir", str(tmp_path)]
    subprocess.run(command, cwd=source, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        (about,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        licence = re.search(r"^License.*: (.+)$", archive.read(about).decode("utf8"), re.MULTILINE)
    configs = {f"spacy_nested_ner/{name}" for name in files_of(ROOT / "configs")}
    english = {f"spacy_nested_ner/english_words/{path.name}" for path in words.iterdir()}
    assert names == files_of(ROOT / "spacy_nested_ner") | configs | english
    assert licence and licence[1] == "MIT AND Apache-2.0"  # of code; of vectors
    assert any(name.endswith("/page.js") for name in names) and len(configs) > 10
