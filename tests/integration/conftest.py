"""Data, configs and a trained pipeline on disk, as spaCy's command line wants them."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import pytest
import spacy
import spacy.cli
import srsly
import torch
from spacy.cli import app
from spacy.cli.init_config import fill_config
from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.training.initialize import init_nlp
from thinc.api import Config
from typer.testing import CliRunner

from tests.conftest import (
    SENTENCES,
    SMALL_CNN,
    SMALL_MODELS,
    assert_same_found,
    found_in,
    make_examples,
)

Overrides = Dict[str, Any]
LISTENER = {"@architectures": "spacy.Tok2VecListener.v1", "width": 32, "upstream": "tok2vec"}
ADAM = {"@optimizers": "Adam.v1", "learn_rate": 0.003}

# Ops on tensors of this size run in torch's threads. A forked process inherits them as if they
# were there and waits for ever for one that is not.
SCRIPT = """
import multiprocessing
import sys
import spacy
import srsly
import torch

if __name__ == "__main__":
    method, path, texts = sys.argv[1:]
    multiprocessing.set_start_method(method)
    torch.set_num_threads(2)
    nlp = spacy.load(path)
    words = torch.rand(3000, 3000)
    assert float((words @ words).exp().sum()) > 0
    docs = nlp.pipe(srsly.read_json(texts), n_process=2, batch_size=3)
    found = [[[s.start, s.end, s.label_] for s in doc.spans["sc"]] for doc in docs]
    assert torch.get_num_threads() == 2
    print(srsly.json_dumps(found))
"""


def run_spacy(*args: Any, code: int = 0) -> str:
    """`python -m spacy ...` in this process. RETURNS: what it printed."""
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return result.output


def set_in(config: Dict[str, Any], overrides: Overrides) -> None:
    """Set values by their dotted paths."""
    for path, value in overrides.items():
        *sections, last = path.split(".")
        place = config
        for section in sections:
            place = place.setdefault(section, {})
        place[last] = value


def training_config(corpus: Path) -> Config:
    """A shared tok2vec and a small `piqn_ner` that listens to it."""
    model = {**SMALL_MODELS["piqn_ner"], "tok2vec": LISTENER}
    config = Config(
        {
            "nlp": {"lang": "en", "pipeline": ["tok2vec", "piqn_ner"]},
            "components": {
                "tok2vec": {"factory": "tok2vec", "model": dict(SMALL_CNN)},
                "piqn_ner": {"factory": "piqn_ner", "model": model},
            },
            "paths": {"train": str(corpus), "dev": str(corpus)},
        }
    )
    training = {
        "training.max_steps": 60,
        "training.eval_frequency": 20,
        "training.dropout": 0.0,
        "training.optimizer": ADAM,
        "training.batcher": {"@batchers": "spacy.batch_by_sequence.v1", "size": 10},
    }
    set_in(config, training)
    return config


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny models gain nothing from threads and lose much when other processes want them."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> Path:
    """The ten nested sentences as a DocBin; docs carry a text category beside the spans."""
    nlp = spacy.blank("en")
    docs = [eg.reference for eg in make_examples(nlp)]
    for doc in docs:
        doc.cats = {"long": float(len(doc) > 5), "short": float(len(doc) <= 5)}
    path = tmp_path_factory.mktemp("corpus") / "train.spacy"
    DocBin(docs=docs, store_user_data=True).to_disk(path)
    return path


@pytest.fixture
def write_config(corpus, tmp_path) -> Callable[..., Path]:
    """Writes the filled training config with some values changed. RETURNS: its path."""

    def write(name: str = "config.cfg", base: Any = None, **overrides: Any) -> Path:
        config = training_config(corpus) if base is None else Config(base)
        set_in(config, {path.replace("__", "."): value for path, value in overrides.items()})
        config.to_disk(tmp_path / "base.cfg")
        fill_config(tmp_path / name, tmp_path / "base.cfg", silent=True)
        return tmp_path / name

    return write


@pytest.fixture(scope="session")
def model_path(corpus, tmp_path_factory) -> Path:
    """What `spacy train` makes of the ten sentences. Not to be changed by a test."""
    folder = tmp_path_factory.mktemp("trained")
    training_config(corpus).to_disk(folder / "base.cfg")
    fill_config(folder / "config.cfg", folder / "base.cfg", silent=True)
    run_spacy("train", folder / "config.cfg", "--output", folder)
    return folder / "model-best"


def docs_of(nlp: Language) -> List[Doc]:
    """The ten sentences, words split at spaces, without annotation."""
    return [Doc(nlp.vocab, words=text.split(" ")) for text, _ in SENTENCES]


def untrained(config_path: Path) -> Language:
    """The pipeline as `spacy train` begins with it."""
    return init_nlp(spacy.util.load_config(config_path))


def run_or_kill(command: list, seconds: int) -> str:
    """Runs a process; kills it with all its children if it hangs."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        pytest.fail(f"no result after {seconds} seconds")
    assert process.returncode == 0, errors
    return output


def found_by_two_processes(
    method: str, model: Path, texts: List[str], folder: Path
) -> List[List[tuple]]:
    """Spans of each text as two processes find them after torch has used its threads.

    method: to start processes. folder: for files.
    """
    script, data = folder / "script.py", folder / "texts.json"
    script.write_text(SCRIPT, encoding="utf8")
    srsly.write_json(data, texts)
    command = [sys.executable, str(script), method, str(model), str(data)]
    found = srsly.json_loads(run_or_kill(command, seconds=60))
    return [[tuple(span) for span in spans] for spans in found]


def assert_threads_agree(nlp: Language, texts: List[str]) -> None:
    """Four threads at once get what one thread gets afterwards; more than 20 spans in all."""

    def one_by_one(_: int) -> List[Any]:
        return [found for text in texts for found in found_in(nlp, [nlp.make_doc(text)])]

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # threads take turns much more often than they usually do
    try:
        with ThreadPoolExecutor(4) as threads:
            at_once = list(threads.map(one_by_one, range(4)))
    finally:
        sys.setswitchinterval(before)
    expected = one_by_one(0)
    for found in at_once:
        assert_same_found(found, expected)
