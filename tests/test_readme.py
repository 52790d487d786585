"""What the README and the guide print is what their code prints."""

import io
import os
import re
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Tuple

import pytest

from spacy_nested_ner.systems import all_systems

ROOT = Path(__file__).parents[1]


def example(file: str) -> Tuple[str, str]:
    """The code in a file that prints something, and what it prints."""
    text = (ROOT / file).read_text("utf8")
    (found,) = re.findall(r"```python\n([^`]*)```\n\nprints\n\n```\n([^`]*)```", text)
    return found


def printed(code: str) -> str:
    output = io.StringIO()
    with redirect_stdout(output):
        exec(code, {"__name__": "__main__"})
    return output.getvalue()


def test_ready_pipeline(ready_pipelines) -> None:
    code, output = example("README.md")
    installed = os.pathsep.join([str(ready_pipelines), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": installed},
    )
    assert done.returncode == 0 and done.stdout == output, done.stderr


@pytest.mark.parametrize("factory", [system.factory for system in all_systems()])
def test_training(factory: str) -> None:
    """The words and labels for every factory; the scores are those of the one that is shown."""
    code, output = example("docs/guide/training.md")
    assert '"piqn_ner"' in code
    # One training in some fifty, from another start, has not learned all after so few steps.
    assert "fix_random_seed(0)" in code
    lines = [line.split() for line in printed(code.replace("piqn_ner", factory)).splitlines()]
    shown = [line.split() for line in output.splitlines()]
    assert [line[:-1] for line in lines] == [line[:-1] for line in shown]
    if factory == "piqn_ner":  # processors round otherwise
        scores = [float(line[-1]) for line in lines]
        assert scores == pytest.approx([float(line[-1]) for line in shown], abs=0.03)
