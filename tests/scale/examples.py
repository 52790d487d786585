"""The examples of the guide, run as they are printed."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any, Dict

import pyarrow as pa
import pyarrow.parquet as pq
from typer.testing import CliRunner

from spacy_nested_ner.cli import nested_ner_cli
from tests.scale.pipelines import TEXTS

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "many_documents.md"


def prepare(folder: Path, model: Path) -> None:
    """The files that the examples read."""
    shutil.copytree(model, folder / "model-best")
    ids = [str(i) for i in range(len(TEXTS))]
    pq.write_table(pa.table({"id": ids, "text": TEXTS}), folder / "abstracts.parquet")


def run_command() -> None:
    """The command of the page, in the working directory."""
    [line] = re.findall(r"^python -m spacy nested-ner (annotate .*)$", PAGE.read_text("utf8"), re.M)
    result = CliRunner().invoke(nested_ner_cli, shlex.split(line))
    assert result.exit_code == 0, result.output


def run(library: str) -> Dict[str, Any]:
    """The example that imports a library; RETURNS its variables."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf8"), re.S)
    pattern = rf"^(import|from) {library}\b"
    [block] = [block for block in blocks if re.search(pattern, block, re.M)]
    variables: Dict[str, Any] = {}
    exec(block, variables)
    return variables
