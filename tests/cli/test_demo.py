"""`nested-ner demo` from the command line."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from urllib.request import Request, urlopen

import pytest
import spacy
import srsly

from spacy_nested_ner.cli.pipelines import short_names
from tests.cli.commands import run
from tests.conftest import heed_interrupts, make_pipeline, train

URL = "http://127.0.0.1:"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("demo") / "model"
    train(make_pipeline("piqn_ner"), 3).to_disk(path)
    return path


LOADS = """
from spacy.util import load_model_from_init_py

def load(**overrides):
    return load_model_from_init_py(__file__, **overrides)
"""


@pytest.fixture
def installed(model, tmp_path):
    """A folder of packages with that pipeline, one that is of no use here, and what was left of
    another."""
    spacy.blank("en").to_disk(tmp_path / "plain")
    for name, source in (("nested_tiny", model), ("plain", tmp_path / "plain")):
        package = tmp_path / "site" / f"en_{name}"
        shutil.copytree(source, package / f"en_{name}-1.2.0")
        facts = {**srsly.read_json(source / "meta.json"), "name": name, "version": "1.2.0"}
        srsly.write_json(package / "meta.json", facts)
        (package / "__init__.py").write_text(LOADS)
        info = tmp_path / "site" / f"en_{name}-1.2.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: en_{name}\nVersion: 1.2.0\n")
        (info / "entry_points.txt").write_text(f"[spacy_models]\nen_{name} = en_{name}\n")
    rest = tmp_path / "site" / "en_gone-1.0.0.dist-info"
    rest.mkdir()
    (rest / "METADATA").write_text("Metadata-Version: 2.1\nName: en_gone\nVersion: 1.0.0\n")
    (rest / "entry_points.txt").write_text("[spacy_models]\nen_gone = en_gone\n")
    return tmp_path / "site"


def test_the_command_shows_installed_pipelines_until_it_is_interrupted(installed):
    path = os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "spacy", "nested-ner", "demo", "--port", "0", "--no-open"]
    with subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    ) as process:
        lines = []
        while not lines or not lines[-1].startswith(URL):
            lines.append(process.stdout.readline())
            assert lines[-1], lines
        assert any("'en_gone' is left out" in line for line in lines)
        with urlopen(f"{lines[-1].strip()}panes") as answer:
            panes = json.load(answer)["panes"]
        assert "en_nested_tiny" in [pane["pipeline"] for pane in panes]
        assert "en_plain" not in [pane["pipeline"] for pane in panes]
        # A text that takes long does not hold the server up.
        asked = [threading.Thread(target=ask, args=[lines[-1].strip()]) for _ in range(2)]
        for each in asked:
            each.start()
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        assert "The server has stopped." in process.stdout.read()
        assert "Traceback" not in process.stderr.read()
        for each in asked:
            each.join()
    assert process.returncode == 0


def ask(url):
    """For the entities of a long text, whatever becomes of it."""
    body = json.dumps({"pane": 0, "text": "The IL-2 gene promoter in T cells. " * 25_000})
    with suppress(OSError):
        urlopen(Request(f"{url}annotate", body.encode(), {"Content-Type": "application/json"}))


def test_pipelines_are_called_by_the_ends_of_their_paths():
    """Every one is called model-best unless somebody renames it."""
    assert short_names(["runs/a/model-best"], least=2) == ["a/model-best"]
    assert short_names(["en_nested_tiny", "m"], least=2) == ["en_nested_tiny", "m"]
    paths = ["x/a/model-best", "y/a/model-best"]
    assert short_names(paths, least=2) == paths


def test_there_is_no_pipeline(monkeypatch):
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: [])
    output = run("demo", "--port", 0, code=1)
    assert "MODEL is missing" in output and "spacy train" in output


def test_what_cannot_be_shown(model, tmp_path):
    spacy.blank("en").to_disk(tmp_path / "plain")
    for args, problem in (
        ([tmp_path / "none"], "no trained pipeline there"),
        ([tmp_path / "plain"], "plain: no component that finds nested entities"),
        ([model, "--host", "nowhere.invalid"], "Cannot listen on nowhere.invalid"),
    ):
        output = run("demo", *args, "--port", 0, code=1)
        assert "Cannot show the page." in output and problem in output


def test_the_port_is_taken(model):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        output = run("demo", model, "--port", port, code=1)
    assert f"port {port}" in output and "Give another --port" in output


@pytest.mark.parametrize("missing", ["starlette", "uvicorn"])
def test_the_extra_is_missing(model, monkeypatch, missing):
    monkeypatch.delitem(sys.modules, "spacy_nested_ner.demo.server", raising=False)
    for name in [name for name in sys.modules if name.split(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    output = run("demo", model, code=1)
    assert "python -m pip install 'spacy_nested_ner[demo]'" in output


@pytest.mark.parametrize("host, warns", [("127.0.0.1", False), ("0.0.0.0", True)])
def test_who_can_reach_the_page(model, monkeypatch, host, warns):
    """The browser is opened at the address that is printed."""
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr("uvicorn.Server.run", lambda server, sockets: None)
    output = run("demo", model, "--host", host, "--port", 0)
    assert ("There is no password" in output) == warns
    (address,) = opened
    assert address.startswith(URL) and address in output


def test_a_damaged_pipeline_beside_others(model, tmp_path, monkeypatch):
    found = [str(tmp_path / "gone"), str(model)]
    monkeypatch.setattr("spacy_nested_ner.cli.demo.installed_pipelines", lambda: found)
    monkeypatch.setattr("uvicorn.Server.run", lambda server, sockets: None)
    assert "is left out." in run("demo", "--port", 0, "--no-open")
    found[1] = str(tmp_path / "gone, too")
    assert "No installed pipeline can be loaded" in run("demo", "--port", 0, "--no-open", code=1)
    assert "no trained pipeline there" in run("demo", found[0], "--port", 0, code=1)
