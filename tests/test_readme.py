"""What the README prints is what its code prints."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from spacy_nested_ner.systems import all_systems

README = Path(__file__).parents[1] / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```\n\nprints\n\n```\n(.*?)```", README.read_text(), re.S)


def test_there_is_one_example() -> None:
    assert len(EXAMPLES) == 1 and '"piqn_ner"' in EXAMPLES[0][0]


@pytest.mark.parametrize("factory", [system.factory for system in all_systems()])
def test_example(factory: str) -> None:
    """The words and labels for every factory; the scores are those of the one that is shown."""
    code, output = EXAMPLES[0]
    run = [sys.executable, "-c", code.replace("piqn_ner", factory)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = [line.split()[:-1] for line in done.stdout.splitlines()]
    assert found == [line.split()[:-1] for line in output.splitlines()]
