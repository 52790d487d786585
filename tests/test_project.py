"""The variables of project.yml reach the commands that they are for."""

import shlex
from pathlib import Path
from typing import Dict, List

import pytest
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
    name = f"{folder}/{{}}_piqn_cnn"
    for corpus in ("genia", "litbank"):
        found = " ".join(" ".join(words) for words in commands(corpus=corpus).values())
        assert name.format(corpus) in found and f"{folder}/piqn" not in found


def test_tokens_are_those_of_the_pipeline() -> None:
    words = commands()["convert"]
    assert words[words.index("--tokens") + 1] == "spacy"
