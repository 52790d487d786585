"""What the README prints is what its code prints."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from spacy_nested_ner.systems import all_systems

README = Path(__file__).parents[1] / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```\n\nprints\n\n```\n(.*?)```", README.read_text(), re.S)


def printed(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_there_are_two_examples() -> None:
    assert len(EXAMPLES) == 2
    assert "spacy.load" in EXAMPLES[0][0] and '"piqn_ner"' in EXAMPLES[1][0]


def test_ready_pipeline(ready_pipelines) -> None:
    code, output = EXAMPLES[0]
    installed = os.pathsep.join([str(ready_pipelines), os.environ.get("PYTHONPATH", "")])
    assert printed(code, PYTHONPATH=installed) == output


@pytest.mark.parametrize("factory", [system.factory for system in all_systems()])
def test_training(factory: str) -> None:
    """The words and labels for every factory; the scores are those of the one that is shown."""
    code, output = EXAMPLES[1]
    found = [line.split()[:-1] for line in printed(code.replace("piqn_ner", factory)).splitlines()]
    assert found == [line.split()[:-1] for line in output.splitlines()]
