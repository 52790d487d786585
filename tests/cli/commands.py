"""How the tests of the commands call them."""

import json
from pathlib import Path

from typer.testing import CliRunner

from spacy_nested_ner.cli import nested_ner_cli


def run(*args, code=0) -> str:
    """What a command prints, in one line: wasabi wraps lines at the width of the terminal."""
    result = CliRunner().invoke(nested_ner_cli, [str(arg) for arg in args])
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


def page_data(path: Path) -> dict:
    """What a page of `visualize` draws."""
    start = '<script type="application/json" id="data">'
    return json.loads(path.read_text("utf8").split(start)[1].split("</script>")[0])
