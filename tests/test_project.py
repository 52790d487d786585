"""The variables of project.yml reach the commands that they are for, and a corpus of one's own goes
through all of them."""

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Dict, List

import pytest
import spacy
from spacy import util
from spacy.cli._util import parse_config_overrides
from spacy.training.initialize import init_nlp
from weasel.util import load_project_config

from tests.evaluation.test_callbacks import saved_docs

ROOT = Path(__file__).parents[1]


def commands(**variables: str) -> Dict[str, List[str]]:
    """The words of each command of the project, by name."""
    overrides = {f"vars.{name}": value for name, value in variables.items()}
    project = load_project_config(ROOT, overrides=overrides)
    return {each["name"]: shlex.split(" ".join(each["script"])) for each in project["commands"]}


def test_language_and_length_reach_the_training(tmp_path) -> None:
    words = commands(lang="de", max_steps="60", corpus="germeval")["train"]
    start = next(i for i, word in enumerate(words) if word.startswith("--paths"))
    end = words.index("--gpu-id")
    overrides = parse_config_overrides(words[start:end], env_var=None)
    overrides.update(dict.fromkeys(("paths.train", "paths.dev"), saved_docs(tmp_path / "d.spacy")))
    nlp = init_nlp(util.load_config(ROOT / words[words.index("train") + 1], overrides=overrides))
    assert nlp.lang == "de" and nlp.config["training"]["max_steps"] == 60
    assert nlp.tokenizer.explain("z.B.")[0][0] == "SPECIAL-1"  # a rule of German alone


@pytest.mark.parametrize("folder", ["training", "metrics", "pages"])
def test_one_corpus_does_not_overwrite_what_another_gave(folder) -> None:
    name = f"{folder}/{{}}_locate_and_label_cnn"
    for corpus in ("genia", "litbank"):
        found = " ".join(" ".join(words) for words in commands(corpus=corpus).values())
        assert name.format(corpus) in found and f"{folder}/locate" not in found


def test_tokens_are_those_of_the_pipeline() -> None:
    words = commands()["convert"]
    assert words[words.index("--tokens") + 1] == "spacy"


def doccano(path: Path, lines: int) -> None:
    """An export with nested entities, no line twice."""
    with path.open("w", encoding="utf8") as file:
        for number in range(lines):
            name = f"Stadt {number}"
            text = f"Die Universität von {name} ruft."
            end = text.index(" ruft")
            label = [[4, end, "ORG"], [end - len(name), end, "ORT"]]
            file.write(json.dumps({"id": number, "text": text, "label": label}) + "\n")


def test_ones_own_corpus_from_the_export_to_a_package(tmp_path) -> None:
    shutil.copy(ROOT / "project.yml", tmp_path)
    doccano(tmp_path / "export.jsonl", 40)
    card = tmp_path / "packages" / "de_staedte-0.0.1" / "README.md"  # of an older build
    card.parent.mkdir(parents=True)
    card.write_text("old")
    own = {"corpus": "staedte", "format": "doccano", "source": "export.jsonl", "lang": "de"}
    variables = [word for name, value in own.items() for word in (f"--vars.{name}", value)]

    def run(what: str) -> str:
        command = [sys.executable, "-m", "spacy", "project", "run", what, str(tmp_path), *variables]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("own")
    scores = json.loads((tmp_path / "metrics" / "staedte.json").read_text("utf8"))
    (pipeline,) = scores["pipelines"]
    assert pipeline["strict"]["micro"]["f"] > 0.9
    assert list((tmp_path / "packages").rglob("de_staedte-0.0.1.tar.gz"))
    assert "ORG" in card.read_text("utf8")
    nlp = spacy.load(tmp_path / "training" / "staedte" / "model-best")
    doc = nlp("Die Universität von Stadt 99 ruft.")
    assert {(span.text, span.label_) for span in doc.spans["sc"]} == {
        ("Universität von Stadt 99", "ORG"),
        ("Stadt 99", "ORT"),
    }
    assert "Skipping 'train-own'" in run("train-own")  # no later step changes what it made
