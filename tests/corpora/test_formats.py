"""Which formats there are, and what they may import."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import catalogue
import pytest

from spacy_nested_ner import corpora
from spacy_nested_ner.corpora import (
    CorpusError,
    Problems,
    ReadOptions,
    Record,
    get_reader,
    get_writer,
    readers,
    writers,
)

PACKAGE = Path(corpora.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "guide" / "corpora.md"


def test_the_page_on_corpora_names_every_format_and_no_other():
    rows = re.findall(r"^\| `([\w-]+)` \| `convert ([\w-]+) ", PAGE.read_text("utf8"), re.MULTILINE)
    assert all(name == command for name, command in rows)
    assert sorted(name for name, _ in rows) == sorted(readers.get_all())


def test_every_format_says_what_it_is():
    for name, function in [*readers.get_all().items(), *writers.get_all().items()]:
        assert re.match(r"\S.{15,90}$", function.__doc__.splitlines()[0]), name


def test_what_can_be_written_can_be_read():
    assert set(writers.get_all()) == {"mrc-json", "papers-json"} <= set(readers.get_all())


@pytest.mark.parametrize("get", [get_reader, get_writer])
def test_unknown_formats(get):
    with pytest.raises(ValueError, match=r"'nope'\. Known formats: .*papers-json"):
        get("nope")
    for typed in ("paper-json", "papersjson", "PAPERS-JSON"):
        with pytest.raises(ValueError, match=r"Did you mean 'papers-json'\? Known formats"):
            get(typed)


def test_a_reader_of_ones_own(tmp_path):
    """The example of the page."""
    (code,) = (
        c for c in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf8"), re.S) if "def " in c
    )

    def parse(file, number, line, split):
        text, tab, spans = line.partition("\t")
        if not tab:
            raise CorpusError("no tab.", file, number)
        places = [span.split() for span in filter(None, spans.split(";"))]
        return Record(file.name, split, text, [(int(a), int(b), label) for a, b, label in places])

    path = tmp_path / "dev.txt"
    path.write_text("New York\t0 8 GPE;4 8 GPE\nbad\nno\t\n", encoding="utf8")
    try:
        exec(code, {"parse": parse})
        problems = Problems(skip=True, quiet=True)
        records = list(get_reader("bracketed")(path, ReadOptions(problems=problems)))
        with pytest.raises(CorpusError, match=r"dev\.txt, line 2: no tab"):
            list(get_reader("bracketed")(path, ReadOptions()))
    finally:
        catalogue.REGISTRY.pop(("spacy_nested_ner", "readers", "bracketed"))
    assert [(r.split, r.text, len(r.spans)) for r in records] == [
        ("dev", "New York", 2),
        ("dev", "no", 0),
    ]
    assert problems.count == 1


@pytest.mark.parametrize("options", [{"tokens": "bert"}, {"group": "page"}])
def test_unknown_options(options):
    with pytest.raises(ValueError, match="must be one of"):
        ReadOptions(**options)


def test_formats_are_imported_when_they_are_asked_for():
    code = """
import sys
from spacy_nested_ner.corpora import readers
formats = [name for name in sys.modules if "corpora.formats" in name]
known = readers.get_all()
heavy = {"spacy", "torch", "thinc", "numpy", "cassis"} & set(sys.modules)
print(len(formats), len(known) > 15, sorted(heavy))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split(maxsplit=2) == ["0", "True", "[]\n"]


def imported(file: Path):
    """Modules of the package that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(file.read_text("utf8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        yield from (name for name in names if name.split(".")[0] in ("spacy_nested_ner", "torch"))


MAY_IMPORT = {
    "parsing": ("parsing", "errors", "spans"),
    "formats": (
        "formats",
        "parsing",
        "errors",
        "spans",
        "records",
        "sentences",
        "splits",
        "registry",
    ),
}


# How docs are made of texts, and kept.
DOCS = [
    f"spacy_nested_ner.{name}"
    for name in ("pipeline.sentences", "pipeline.tokens", "files", "msgpack")
]


def test_imports_point_one_way():
    """Formats know nothing of docs, parsing nothing of records, the rest no single format."""
    for file in PACKAGE.rglob("*.py"):
        room = file.parent.name
        for name in imported(file):
            if name in DOCS:
                assert room not in MAY_IMPORT, f"{file}: {name}"
                continue
            package, _, module = name.partition("spacy_nested_ner.corpora.")
            assert package == "" and module, f"{file}: {name}"
            if room in MAY_IMPORT:
                assert module.split(".")[0] in MAY_IMPORT[room], f"{file}: {name}"
            else:
                assert module.split(".")[0] != "formats", f"{file}: {name}"
