"""Imports point one way, and what names a system lives in its folder."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path
from typing import Iterator, List, Set, Tuple

import pytest

import spacy_nested_ner
from spacy_nested_ner.systems import all_systems

ROOT = Path(spacy_nested_ner.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))
BELOW = ("layers", "matching")
# What the modules of each room may import beside their own room and `ANYWHERE`.
ANYWHERE = ("about", "device", "settings", "files", "forks", "msgpack", "warn")
MAY_IMPORT = {
    "cli": (
        "scale",
        "demo",
        "comparison",
        "evaluation",
        "corpora",
        "pipeline",
        "model",
        "training",
        "encoders",
        "systems",
        "tables",
    ),
    "comparison": ("evaluation", "training"),
    "demo": ("evaluation", "pipeline", "model", "tables"),
    "scale": ("evaluation", "corpora", "pipeline", "tables"),
    # Whether entities nest or cross is counted in one place.
    "evaluation": ("corpora.statistics", "pipeline", "model", "training", "encoders", "systems"),
    "corpora": ("pipeline",),
    "pipeline": ("model", "training", "encoders", "systems"),
    "model": ("encoders", "systems", *BELOW),
    "training": ("encoders", "systems", *BELOW),
    # Which encoder a system reads.
    "systems": ("encoders", *BELOW),
    "encoders": BELOW,
    "layers": ("matching",),
    "matching": (),
    "device": (),
    "files": (),
    "forks": (),
    "msgpack": (),
    "preload": (),
    "warn": (),
    "settings": (),
    # How entities nest is counted in one place.
    "tables": ("corpora.spans", "corpora.statistics"),
    "displacy": ("tables",),
    "about": (),
    "": ("tables", "displacy"),
}
# Formats of files are called as their authors call them.
FORMATS = (ROOT / "corpora" / "formats" / "mrc_json.py",)
FORMAT_NAMES = r"mrc[-_]json"
TABLE = ROOT / "systems" / "__init__.py"


def room(module: str) -> str:
    """Of `spacy_nested_ner.cli.analyze` it is `cli`."""
    return f"{module}.".split(".")[1]


def imports(path: Path) -> Iterator[Tuple[int, str]]:
    """Line and module of every import from this package, wherever in the file it stands."""
    for node in ast.walk(ast.parse(path.read_text("utf8"))):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: a relative import"
            names = [node.module or ""]
            if names == ["spacy_nested_ner"]:
                names = [f"spacy_nested_ner.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            if name.split(".")[0] == "spacy_nested_ner":
                yield node.lineno, name


def test_imports_point_one_way() -> None:
    wrong, seen = [], Counter()
    for path in MODULES:
        inside = path.relative_to(ROOT).with_suffix("").parts
        own = inside[0] if inside != ("__init__",) else ""
        assert own in MAY_IMPORT, f"{path}: where may this room import from? Add it to MAY_IMPORT"
        for line, module in imports(path):
            other = room(module)
            seen[own, other] += 1
            allowed = (own, *ANYWHERE, *MAY_IMPORT[own])
            within = module.removeprefix("spacy_nested_ner.")
            if not any(f"{within}.".startswith(f"{name}.") for name in allowed):
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {module}")
    assert not wrong, "\n".join(wrong)
    # Something was looked at.
    assert seen["cli", "evaluation"] and seen["model", "systems"] and seen["systems", "layers"]


def names_in(path: Path) -> Iterator[Tuple[int, str]]:
    """Identifiers, imported modules and strings of a module, but for docstrings."""
    tree = ast.parse(path.read_text("utf8"))
    docstrings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if id(node) in docstrings:
            continue
        for field in ("id", "attr", "name", "asname", "arg", "module", "value"):
            value = getattr(node, field, None)
            if isinstance(value, str):
                yield getattr(node, "lineno", 0), value


def system_names() -> Set[str]:
    """Of all systems, as words of lower case: "locate and label", "locateandlabel"."""
    systems = all_systems()
    names = {system.name.replace("_", " ") for system in systems}
    return names | {system.architecture.lower() for system in systems}


def named(text: str) -> List[str]:
    """The systems that a text names, alone or as a part of a longer name."""
    words = " ".join(re.findall(r"[A-Za-z]+", re.sub(FORMAT_NAMES, "", text))).lower()
    return [name for name in system_names() if re.search(rf"\b{name}\b", words)]


@pytest.mark.parametrize(
    "text, found",
    [
        ("piqn_ner", ["piqn"]),
        ("spacy_nested_ner.systems.mrc.head", ["mrc"]),
        ("spacy_nested_ner.LocateAndLabel.v1", ["locateandlabel"]),
        ("write_mrc_json", []),
        ("mrc-json: a set of questions", []),
        ("a_located_mention", []),
    ],
)
def test_what_names_a_system(text: str, found: List[str]) -> None:
    assert named(text) == found


def test_a_system_is_named_in_its_own_folder_only() -> None:
    folders = [ROOT / "systems" / system.name for system in all_systems()]
    assert all(folder.is_dir() for folder in folders)
    wrong = []
    for path in MODULES:
        if path in (TABLE, *FORMATS) or any(folder in path.parents for folder in folders):
            continue
        for line, text in names_in(path):
            for name in named(text):
                wrong.append(f"{path.relative_to(ROOT)}:{line} names {name}: {text[:60]!r}")
    assert not wrong, "\n".join(wrong)
    assert any(named(text) for _, text in names_in(TABLE))  # what is looked for can be found


def test_a_system_imports_no_other() -> None:
    names = [system.name for system in all_systems()]
    for name in names:
        for path in sorted((ROOT / "systems" / name).rglob("*.py")):
            for line, module in imports(path):
                other = f"{module}...".split(".")[2]
                own = module.split(".")[1:2] != ["systems"] or other not in names or other == name
                assert own, f"{path}:{line} imports {module}"
