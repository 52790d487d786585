"""`nested-ner compare`: trains systems in equal time and names the best one."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Callable, List

import numpy as np
import pytest
import spacy
import srsly
from spacy.tokens import Doc, DocBin, Span
from thinc.api import Config
from typer.testing import CliRunner

from spacy_nested_ner.cli import _recipe, nested_ner_cli
from spacy_nested_ner.cli.compare import Plan, _configs
from spacy_nested_ner.comparison import trainings
from tests.conftest import make_examples


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    """The spans are under another key than that of the shipped configs."""
    folder = tmp_path_factory.mktemp("corpus")
    docs = [eg.reference for eg in make_examples(spacy.blank("en"))]
    for doc in docs:
        doc.spans["mine"] = list(doc.spans.pop("sc"))
    for part in ("train", "dev", "test"):
        DocBin(docs=docs).to_disk(folder / f"{part}.spacy")
    return folder


def run(corpus: Path, output: Path, *options, code=0) -> str:
    paths = [corpus / f"{part}.spacy" for part in ("train", "dev", "test")]
    args = ["compare", *paths, output, "--spans-key", "mine", *options]
    result = CliRunner().invoke(nested_ner_cli, [str(arg) for arg in args])
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return " ".join(result.output.split())


def test_two_systems_in_equal_time(corpus, tmp_path) -> None:
    systems = ("--system", "locate_and_label_ner", "--system", "spancat")
    output, options = tmp_path / "out", (*systems, "--minutes", 0.01, "--cpu-clock")
    printed = run(corpus, output, *options)
    assert "Trainings: 2, 0.01 CPU minutes each" in printed
    found = {}
    for name in ("locate_and_label_ner", "spancat"):
        assert f"| `{name}` | 0 |" in printed
        found[name] = srsly.read_json(output / f"{name}_seed0.json")
        training, settings = found[name]["training"], found[name]["settings"]
        assert training["steps"] > 1 and training["cpu_minutes"] >= 0.01
        assert training["curve"][0][0] == 0
        assert (settings["minutes"], settings["system"]) == (0.01, name)
        nlp = spacy.load(output / f"{name}_seed0" / "model")
        assert nlp.get_pipe("ner").key == "mine"
        assert nlp.get_pipe("ner").cfg["threshold"] == found[name]["threshold_tuned"]
        # It can learn more in a loop of one's own.
        assert nlp.resume_training().learn_rate > 0
    best = max(found, key=lambda name: found[name]["f1_tuned"])
    assert f"Best: {best}, F1 {100 * found[best]['f1_tuned']:.1f}" in printed
    assert "repeat --seed" in printed
    # What is there is not made again, and not taken for what it is not.
    again = run(corpus, output, *options)
    assert again.count("done already") == 2 and again.endswith(printed[printed.index("| system") :])
    shutil.copytree(corpus, tmp_path / "moved")
    assert run(tmp_path / "moved", output, *options).count("done already") == 2
    other = run(corpus, output, *systems, "--minutes", 1, code=1)
    assert "was made with other settings: minutes 0.01, cpu_clock True" in other


def made_up(tasks: List[trainings.Task], f1: dict) -> List[dict]:
    """Results with these F1 on test, by system and seed."""
    training = {"steps": 2, "minutes": 1, "cpu_minutes": 1, "curve": [[0, 0.0]], "peak_mib": 1}
    return [
        {
            "settings": task.settings,
            "training": training,
            "f1": 0.5,
            "f1_tuned": f1[task.settings["system"]][task.settings["seed"]],
            "threshold_tuned": 0.5,
            "words_per_second": 9.0,
        }
        for task in tasks
    ]


def test_the_pipeline_is_one_of_the_system_that_is_named(corpus, tmp_path, monkeypatch) -> None:
    """The best in the mean of the seeds, though another has the best training."""
    f1 = {"locate_and_label_ner": (0.70, 0.72), "spancat": (0.60, 0.75)}
    monkeypatch.setattr(trainings, "train_each", lambda tasks, *_, **__: made_up(tasks, f1))
    systems = ("--system", "spancat", "--system", "locate_and_label_ner")
    printed = run(corpus, tmp_path / "out", *systems, "--seed", 0, "--seed", 1)
    assert "Best: locate_and_label_ner, F1 71.0" in printed
    assert printed.endswith(str(tmp_path / "out" / "locate_and_label_ner_seed0" / "model"))


def test_those_that_did_not_fail_are_compared(corpus, tmp_path, monkeypatch) -> None:
    n_made = 1

    def train_each(tasks, *_, **__):
        results = made_up(tasks[:n_made], {"piqn_ner": (0.7,)})
        raise trainings.Unfinished(["spancat_seed0.json: no memory."], results)

    monkeypatch.setattr(trainings, "train_each", train_each)
    arguments = (corpus, tmp_path / "out", "--system", "piqn_ner", "--system", "spancat")
    printed = run(*arguments, code=1)
    best, failed = printed.index("Best: piqn_ner, F1 70.0."), printed.index("Not all trainings")
    assert best < printed.index("piqn_ner_seed0/model") < failed
    assert "spancat_seed0.json: no memory. Finished trainings are kept" in printed[failed:]
    n_made = 0
    printed = run(*arguments, code=1)
    assert "Cannot compare systems." in printed and "no memory." in printed


@pytest.mark.parametrize("minutes", [0, "nan", "inf"])
def test_a_length_that_is_none(corpus, tmp_path, minutes) -> None:
    problem = "--minutes must be a number above 0"
    assert problem in run(corpus, tmp_path / "out", "--minutes", minutes, code=1)
    paths = [corpus / "train.spacy", corpus / "dev.spacy", tmp_path / "config.cfg"]
    args = ["init", *paths, "--spans-key", "mine", "--minutes", minutes]
    result = CliRunner().invoke(nested_ner_cli, [str(arg) for arg in args])
    assert result.exit_code == 1 and problem in " ".join(result.output.split())


def test_results_of_other_data_are_not_taken_for_these(corpus, tmp_path) -> None:
    own = tmp_path / "corpus"
    shutil.copytree(corpus, own)
    output, options = tmp_path / "out", ("--system", "spancat", "--minutes", 0.01, "--cpu-clock")
    run(own, output, *options)
    docs = list(DocBin().from_disk(own / "test.spacy").get_docs(spacy.blank("en").vocab))
    DocBin(docs=docs[:1]).to_disk(own / "test.spacy")
    assert "was made with other settings: data" in run(own, output, *options, code=1)


@pytest.fixture
def adversarial(tmp_path, tiny_bert, monkeypatch) -> Callable[..., float]:
    """That of the training that would be run on a corpus. The shipped config of `mrc_ner` has
    none."""
    tasks: List[trainings.Task] = []

    def planned(corpus: Path, system: str = "mrc_ner") -> float:
        options = ("--system", system, "--encoder", tiny_bert, "--minutes", 0.02)

        def train_each(found, *_, **__):
            tasks.extend(found)
            raise ValueError("nothing is trained")

        monkeypatch.setattr(trainings, "train_each", train_each)
        assert "nothing is trained" in run(corpus, tmp_path / "out", *options, code=1)
        config = Config().from_str(tasks.pop().config, interpolate=False)
        return config["components"]["ner"].get("adversarial", 0)

    return planned


def test_adversarial_training_on_few_sentences_is_for_those_that_gain(
    corpus, adversarial, monkeypatch
) -> None:
    for limit, system, found in (
        (500, "mrc_ner", 1),
        (0, "mrc_ner", 0),
        (500, "proposer_regressor_ner", 0),
        (0, "proposer_regressor_ner", 1),
    ):
        monkeypatch.setattr(_recipe, "FEW_SENTENCES", limit)
        assert adversarial(corpus, system) == found


def test_sentences_of_docs_without_boundaries_are_counted_by_rule(
    corpus, adversarial, tmp_path, monkeypatch
) -> None:
    """One doc of 20 sentences is no little data."""
    monkeypatch.setattr(_recipe, "FEW_SENTENCES", 10)
    long = tmp_path / "corpus"
    shutil.copytree(corpus, long)
    doc = spacy.blank("en")("IL-2 rose. It fell. " * 10)
    doc.spans["mine"] = [Span(doc, 0, 1, "PER")]
    DocBin(docs=[doc]).to_disk(long / "train.spacy")
    assert adversarial(long) == 0


def test_a_pretrained_encoder_is_compared(corpus, tmp_path, tiny_bert) -> None:
    systems = ("--system", "locate_and_label_ner", "--system", "spancat")
    run(corpus, tmp_path, *systems, "--encoder", tiny_bert, "--minutes", 0.01, "--cpu-clock")
    nlp = spacy.load(tmp_path / "locate_and_label_ner_seed0" / "model")
    assert nlp.get_pipe("ner").cfg["adversarial"] == 1
    assert (tmp_path / "spancat_seed0.json").exists()


def test_long_docs_are_batched_by_words(tmp_path, tiny_bert, capsys) -> None:
    nlp = spacy.blank("en")
    doc = nlp("IL-2 rose. " * 600)
    doc.spans["sc"] = [Span(doc, 0, 1, "protein")]
    for part in ("train", "dev", "test"):
        DocBin(docs=[doc]).to_disk(tmp_path / f"{part}.spacy")
    train, dev, test = (tmp_path / f"{part}.spacy" for part in ("train", "dev", "test"))
    plan = Plan(train, dev, test, str(tiny_bert), 1.0, False, "sc", "en", -1)
    found = _configs(["piqn_ner", "spancat"], plan)
    assert {each["training"]["batcher"]["size"] for each in found.values()} == {1000}
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.count("1,000 words or one longer doc") == 1 and "longest doc" not in printed
    DocBin(docs=[Doc.from_docs([doc, doc])]).to_disk(train)
    _configs(["piqn_ner"], plan)
    assert "The longest doc of the training data has" in capsys.readouterr().out
    found = _configs(["piqn_ner", "spancat"], replace(plan, encoder="cnn"))
    assert found["piqn_ner"]["training"]["batcher"]["size"] == 600
    of_data = ("Label 'protein' has 2 entities", "1 sentences of dev (100.0 %)", "Vectors: ")
    for line in capsys.readouterr().out.splitlines():  # nothing of long docs or batches
        assert any(words in line for words in of_data)


def test_what_cannot_be_compared(corpus, tmp_path) -> None:
    output = tmp_path / "out"
    unknown = run(corpus, output, "--system", "ner", code=1)
    assert "There is no system 'ner'. Choose from: locate_and_label_ner" in unknown
    assert "Leave out --cpu-clock" in run(corpus, output, "--cpu-clock", "--gpu-id", 0, code=1)
    empty = tmp_path / "empty"
    empty.mkdir()
    for part in ("train", "dev"):
        (empty / f"{part}.spacy").write_bytes((corpus / f"{part}.spacy").read_bytes())
    DocBin(docs=[spacy.blank("en")("Nothing here.")]).to_disk(empty / "test.spacy")
    assert "test.spacy has no entities under spans key 'mine'" in run(empty, output, code=1)
    assert not output.exists()


def test_what_the_data_lack_and_ngrams_miss_is_told(tmp_path, monkeypatch) -> None:
    nlp = spacy.blank("en")
    doc = nlp("The old man who sold the boats at the harbour left . " * 30)
    doc.spans["sc"] = [doc[0:10], doc[0:3], doc[0:200]]
    for span, label in zip(doc.spans["sc"], "ABC"):
        span.label_ = label
    for name in ("train", "dev", "test"):
        DocBin(docs=[doc]).to_disk(tmp_path / f"{name}.spacy")
    f1 = {"spancat": (0.5,)}
    monkeypatch.setattr(trainings, "train_each", lambda tasks, *_, **__: made_up(tasks, f1))
    printed = run(tmp_path, tmp_path / "out", "--system", "spancat", "--spans-key", "sc")
    assert "spancat cannot find 2 entities of the training data." in printed
    assert "1 entities of train cannot be used for training (across segments)" in printed


def plan_of(folder: Path, encoder: str) -> Plan:
    paths = [folder / f"{part}.spacy" for part in ("train", "dev", "test")]
    return Plan(*paths, encoder, 1.0, False, "mine", "en", -1)


@pytest.mark.parametrize("encoder", ["cnn", "listener"])
def test_a_folder_called_cnn_is_no_encoder(corpus, tmp_path, monkeypatch, encoder) -> None:
    monkeypatch.chdir(tmp_path)
    plan = plan_of(corpus, encoder)
    before = plan.to_dict()
    Path(encoder).mkdir()
    Path(encoder, "spancat_seed0.json").write_text("{}")
    assert plan.to_dict() == before


def test_all_that_a_result_depends_on_is_in_its_digest(tmp_path) -> None:
    paths = [tmp_path / name for name in ("train", "dev.spacy", "test.spacy", "bert", "words")]
    for folder in (paths[0], paths[3], paths[4] / "vocab"):
        folder.mkdir(parents=True)
    files = [paths[0] / "a.spacy", paths[0] / "b.spacy", *paths[1:3], paths[3] / "weights"]
    files.append(paths[4] / "vocab" / "vectors")
    for file in files:
        file.write_bytes(b"1")
    plan = Plan(*paths[:3], str(paths[3]), 1.0, False, "sc", "en", -1, str(paths[4]))
    found = [plan.to_dict()["data"]]
    (paths[3] / ".DS_Store").write_bytes(b"2")
    assert plan.to_dict()["data"] == found[0]
    for file in files:
        file.write_bytes(b"2")
        found.append(plan.to_dict()["data"])
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("words, limit", [(0, 1), (10**6, 10)])
def test_dev_is_scored_by_its_first_words(corpus, monkeypatch, words, limit) -> None:
    monkeypatch.setattr("spacy_nested_ner.cli.compare.SCORED_WORDS", words)
    found = _configs(["spancat"], plan_of(corpus, "cnn"))
    assert found["spancat"]["corpora"]["dev"]["limit"] == limit


def test_a_cnn_that_reads_static_vectors(corpus, tmp_path, capsys) -> None:
    nlp = spacy.blank("en")
    nlp.vocab.set_vector("gene", np.ones(3, dtype="f"))
    nlp.to_disk(tmp_path / "words")
    vectors = str(tmp_path / "words")
    systems = ["spancat", "piqn_ner"]
    found = _configs(systems, replace(plan_of(corpus, "cnn"), vectors=vectors))
    assert "words has no vector for 9" in " ".join(capsys.readouterr().out.split())
    for config in found.values():
        assert config["paths"]["vectors"] == vectors
        assert config["components"]["ner"]["model"]["tok2vec"]["pretrained_vectors"] is True
    with pytest.raises(ValueError, match="--vectors applies only to a CNN"):
        _configs(systems, replace(plan_of(corpus, "some/bert"), vectors=vectors))


@pytest.mark.parametrize(("lang", "known"), [("en", True), ("de", False)])
def test_a_cnn_reads_the_english_words_of_the_package(corpus, capsys, lang, known) -> None:
    systems = ["spancat", "mrc_ner"]
    found = _configs(systems, replace(plan_of(corpus, "cnn"), lang=lang))
    assert ("Vectors: those of English words" in capsys.readouterr().out) is known
    for name in systems:
        tok2vec = found[name]["components"]["ner"]["model"]["tok2vec"]
        assert (tok2vec["@architectures"] == "spacy_nested_ner.EnglishCNN.v1") is known


def test_each_training_has_its_seed_and_the_score_of_its_key(corpus, tmp_path, monkeypatch) -> None:
    tasks: List[trainings.Task] = []

    def train_each(found, *_, **__):
        tasks.extend(found)
        return made_up(found, {"spancat": (0.5, 0.6)})

    monkeypatch.setattr(trainings, "train_each", train_each)
    run(corpus, tmp_path / "out", "--system", "spancat", "--seed", 0, "--seed", 1)
    configs = [Config().from_str(task.config, interpolate=False) for task in tasks]
    assert [each["system"]["seed"] for each in configs] == [0, 1]
    others = dict.fromkeys(("spans_sc_f", "spans_sc_p", "spans_sc_r"))  # spaCy would add these
    weights = {**others, "spans_mine_f": 1.0}
    assert all(each["training"]["score_weights"] == weights for each in configs)
