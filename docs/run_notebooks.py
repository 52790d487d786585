"""Runs the notebooks in docs/notebooks and keeps what they print: python -m docs.run_notebooks"""

import os
from pathlib import Path
from typing import List

import nbformat
from nbclient import NotebookClient

from spacy_nested_ner.files import written_together

NOTEBOOKS: List[Path] = sorted((Path(__file__).parent / "notebooks").glob("*.ipynb"))
# tqdm, which many packages import, warns wherever ipywidgets are missing.
ENVIRONMENT = {"PYTHONWARNINGS": "ignore:IProgress"}


def run(path: Path) -> nbformat.NotebookNode:
    """The notebook with what its cells give now. Raises CellExecutionError if one fails."""
    notebook = nbformat.read(path, as_version=4)
    # Without the times of each cell, which would be others each time.
    client = NotebookClient(notebook, timeout=300, record_timing=False)
    client.execute(env={**os.environ, **ENVIRONMENT})
    return notebook


if __name__ == "__main__":
    for path in NOTEBOOKS:
        with written_together([path]) as drafts:
            nbformat.write(run(path), drafts[path])
