"""A trained pipeline as a Python package of its own."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest
import spacy
import srsly
from spacy.util import get_minor_version_range

from tests.conftest import SENTENCES, spans_of
from tests.integration.conftest import run_spacy

USE = """
import sys
import spacy
import srsly

nlp = spacy.load("en_nested_demo")
docs = nlp.pipe(srsly.read_json(sys.argv[1]))
found = [[[s.start, s.end, s.label_] for s in doc.spans["sc"]] for doc in docs]
print(srsly.json_dumps({"path": str(nlp.path), "found": found}))
"""


@pytest.fixture(scope="module")
def package(model_path, tmp_path_factory) -> Path:
    """The folder that `spacy package` writes. Built here without `build`, which would fetch
    setuptools."""
    output = tmp_path_factory.mktemp("package")
    name = ("--name", "nested_demo", "--version", "0.1.0")
    run_spacy("package", model_path, output, *name, "--build", "none")
    return output / "en_nested_demo-0.1.0"


def test_requirements_name_this_package(package) -> None:
    version = importlib.metadata.version("spacy_nested_ner")
    own = f"spacy_nested_ner{get_minor_version_range(version)}"
    assert own in srsly.read_json(package / "meta.json")["requirements"]
    assert "meta['requirements']" in (package / "setup.py").read_text().replace('"', "'")


def test_an_installed_package_finds_the_same_spans(package, model_path, tmp_path) -> None:
    """In another process that has nothing but the installed files."""
    install = ("install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation")
    target = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", *install, "--target", str(target), str(package)]
    subprocess.run(pip, check=True, timeout=60)
    # Also as an old pip installs it.
    (installed,) = importlib.metadata.distributions(path=[str(target)])
    required = installed.requires or []
    assert any(each.startswith("spacy_nested_ner") for each in required), required

    texts = [text for text, _ in SENTENCES]
    srsly.write_json(tmp_path / "texts.json", texts)
    code = f"import sys; sys.path.insert(0, {str(target)!r})\n{USE}"
    command = [sys.executable, "-c", code, str(tmp_path / "texts.json")]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    result = srsly.json_loads(done.stdout)
    assert Path(result["path"]).is_relative_to(target)
    docs = list(spacy.load(model_path).pipe(texts))
    expected = [[list(span) for span in spans_of(doc)] for doc in docs]
    assert result["found"] == expected and sum(map(len, expected)) > 10
