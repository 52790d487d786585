"""The notebooks of the docs run, and are kept with the output that they give."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Dict, List

import nbformat
import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("ipykernel")
    monkeypatch.syspath_prepend(str(ROOT))
    from docs.run_notebooks import run

    yield run
    for name in [name for name in sys.modules if name.split(".")[0] == "docs"]:
        del sys.modules[name]


def outputs(notebook: nbformat.NotebookNode) -> List[List[Dict[str, str]]]:
    """Of each cell the form and content of what it shows; errors and warnings have forms of their
    own."""
    found = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            shown = [
                each.get("data") or {each.get("name", each.output_type): each.get("text", "")}
                for each in cell.outputs
            ]
            found.append([dict(each) for each in shown])
    return found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(path: Path, run: Any) -> None:
    kept, now = outputs(nbformat.read(path, as_version=4)), outputs(run(path))
    # Another machine trains otherwise: other scores, other numbers.
    forms = [[sorted(each) for each in cell] for cell in now]
    assert [[sorted(each) for each in cell] for cell in kept] == forms
    assert {form for cell in forms for each in cell for form in each} == {
        "stdout",
        "text/html",
        "text/plain",
    }
    for given in (kept, now):
        pages = [each["text/html"] for cell in given for each in cell if "text/html" in each]
        tables = [page for page in pages if "<table" in page]
        drawn = [page for page in pages if 'class="spans"' in page]
        assert len(tables) == 2 and len(drawn) == 2
        assert "University of Oslo</td>" in tables[0] and "<th>parent</th>" in tables[0]
        assert all("GPE 0." in page or "GPE 1." in page for page in drawn)


def test_there_is_one() -> None:
    assert [path.name for path in NOTEBOOKS] == ["nested_ner.ipynb"]
