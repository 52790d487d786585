"""Trainings in processes of their own."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest
import spacy
import srsly
import torch
from spacy.language import Language
from spacy.tokens import DocBin, Span

from spacy_nested_ner import forks
from spacy_nested_ner.comparison import trainings
from spacy_nested_ner.comparison.trainings import Task, Trained, Unfinished, train_each
from spacy_nested_ner.evaluation.scores.fit_thresholds import Fit
from tests.conftest import IN_PROC, heed_interrupts, is_alive, wait_for


def die(task: Task) -> dict:
    os._exit(9)


def test_a_process_that_dies_is_named(tmp_path) -> None:
    with pytest.raises(ChildProcessError, match=r"a_seed0\.json: the process .* again to continue"):
        train_each([Task({}, tmp_path / "a_seed0.json")], die, print)
    assert list(tmp_path.iterdir()) == []


def tell(task: Task) -> dict:
    """Of its process."""
    torch.ones(300, 300) @ torch.ones(300, 300)  # which waits for ever for threads that are not
    return {
        "method": multiprocessing.get_start_method(),
        "pid": os.getpid(),
        "threads": torch.get_num_threads(),
    }


@pytest.mark.skipif(sys.platform != "linux", reason="trainings start from nothing here")
@pytest.mark.no_gpu("where there is one, trainings start from nothing")
@pytest.mark.parametrize("starts, seeds, method", [(True, 2, "forkserver"), (False, 1, "spawn")])
def test_a_training_has_its_own_process_and_the_threads_of_this_one(
    tmp_path, monkeypatch, starts, seeds, method
) -> None:
    def child(context, *what):
        if context.get_start_method() == "forkserver" and not starts:
            raise EOFError
        return forks.Child(context, *what)

    monkeypatch.setattr(trainings, "Child", child)
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        tasks = [Task({}, tmp_path / f"a_seed{seed}.json") for seed in range(seeds)]
        told = train_each(tasks, tell, print)
    finally:
        torch.set_num_threads(threads)
    assert len({os.getpid(), *(of["pid"] for of in told)}) == 1 + seeds
    assert {(of["method"], of["threads"]) for of in told} == {(method, 3)}


def lock_and_sleep(task: Task) -> dict:
    lock = multiprocessing.Lock()
    (task.target.parent / "sleeps").write_text(str(os.getpid()), encoding="utf8")
    time.sleep(60)
    return {"lock": str(lock)}


INTERRUPTED = """
import sys
from pathlib import Path
from spacy_nested_ner.comparison.trainings import Task, train_each
from tests.comparison.test_trainings import lock_and_sleep

if __name__ == "__main__":
    train_each([Task({}, Path(sys.argv[1]) / "a_seed0.json")], lock_and_sleep, print)
"""


@IN_PROC
def test_ctrl_c_ends_a_training_and_leaves_no_process_nor_lock(tmp_path) -> None:
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path)]
    process = subprocess.Popen(
        command,
        start_new_session=True,
        preexec_fn=heed_interrupts,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for((tmp_path / "sleeps").exists)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, printed = process.communicate(timeout=30)
    pid = int((tmp_path / "sleeps").read_text("utf8"))
    wait_for(lambda: not is_alive(pid))
    assert process.returncode == -signal.SIGINT
    assert printed.count("Traceback") == 1 and "leaked" not in printed


def test_where_no_process_can_be_started_others_are_tried(tmp_path, monkeypatch) -> None:
    def child(*_):
        raise BlockingIOError(11, "no more processes")

    monkeypatch.setattr(trainings, "Child", child)
    tasks = [Task({}, tmp_path / f"a_seed{seed}.json") for seed in range(2)]
    with pytest.raises(Unfinished, match=r"a_seed0\.json: no process .*a_seed1\.json: no process"):
        train_each(tasks, tell, print)


def fail_but_for_seed_2(task: Task) -> dict:
    seed = task.settings["seed"]
    if seed < 2:
        raise (ValueError, KeyError)[seed](f"no such {seed}")
    return {"f1": 0.5}


def test_those_that_fail_keep_no_other_from_being_trained(tmp_path) -> None:
    names = [f"a_seed{seed}.json" for seed in range(3)]
    tasks = [Task({"seed": seed}, tmp_path / name) for seed, name in enumerate(names)]
    said: list = []
    problem = r"^\S+a_seed0\.json: no such 0 \S+a_seed1\.json: 'no such 1' .* to continue"
    with pytest.raises(Unfinished, match=problem) as caught:
        train_each(tasks, fail_but_for_seed_2, said.append)
    assert [found["settings"]["seed"] for found in caught.value.results] == [2]
    assert [path.name for path in tmp_path.iterdir()] == names[2:]
    # An error in the code, which has no words for users, is told with its place.
    placed = [line for line in said if "in fail_but_for_seed_2" in line]
    assert len(placed) == 1 and "KeyError: 'no such 1'" in placed[0]


def test_a_result_of_other_settings_is_refused_before_anything_is_trained(tmp_path) -> None:
    new, old = tmp_path / "a_seed0.json", tmp_path / "b_seed0.json"
    srsly.write_json(old, {"settings": {"minutes": 5}})
    # Settings that a result of an older version did not know are no others.
    settings = {"minutes": 20, "clock": "cpu"}
    made = "was made with other settings:"
    with pytest.raises(ValueError, match=rf"b_seed0\.json {made} minutes 5\. Give"):
        train_each([Task(settings, new), Task(settings, old)], die, print)
    srsly.write_json(new, {"settings": {"minutes": 0.3}})
    assert len(train_each([Task({"minutes": 0.3}, new)], die, print)) == 1
    # Of files the contents count, where they were read.
    read = {"train": "a.spacy", "data": "1", "minutes": 5}
    srsly.write_json(new, {"settings": read})
    assert len(train_each([Task({**read, "train": "b.spacy"}, new)], die, print)) == 1
    with pytest.raises(ValueError, match=rf"a_seed0\.json {made} data 1\. Give"):
        train_each([Task({**read, "data": "2"}, new)], die, print)
    srsly.write_json(new, {"settings": {"train": "a.spacy"}})
    with pytest.raises(ValueError, match=rf"{made} train a\.spacy"):
        train_each([Task({**read, "train": "b.spacy"}, new)], die, print)
    srsly.write_json(new, {"settings": {"gpu_id": 0}})
    assert len(train_each([Task({"gpu_id": 3}, new)], die, print)) == 1
    with pytest.raises(ValueError, match=rf"{made} gpu_id 0\. Give .*gpu_id -1"):
        train_each([Task({"gpu_id": -1}, new)], die, print)
    (found,) = train_each([Task({"minutes": 5, "clock": "cpu"}, old)], die, print)
    assert found == {"settings": {"minutes": 5}}
    # What an older version did without.
    words = {"minutes": 5, "vectors": None, "english_words": True}
    with pytest.raises(ValueError, match=rf"{made} english_words False\. Give .*words True"):
        train_each([Task(words, old)], die, print)
    assert train_each([Task({**words, "english_words": False}, old)], die, print) == [found]
    srsly.write_json(old, {"settings": {"config": "1"}})
    with pytest.raises(ValueError, match=rf"{made} config 1\. Give .*An update of this package"):
        train_each([Task({"config": "2"}, old)], die, print)


@Language.factory("tests_scored")
class Scored:
    """Its first word has a score of 0.9, its second one of 0.4."""

    def __init__(self, nlp, name) -> None:
        self.key, self.labels, self.cfg = "sc", ["A"], {"threshold": 0.5}

    def __call__(self, doc):
        scores = [score for score in (0.9, 0.4) if score >= self.cfg["threshold"]]
        doc.spans["sc"] = [Span(doc, i, i + 1, "A") for i in range(len(scores))]
        doc.spans["sc"].attrs["scores"] = scores
        return doc


@pytest.fixture
def scored() -> Language:
    nlp = spacy.blank("en")
    nlp.add_pipe("tests_scored", name="ner")
    return nlp


@pytest.mark.parametrize("tuned, f1", [(0.3, 1.0), (0.95, 0.0)])
def test_test_is_scored_at_both_thresholds(scored, tmp_path, tuned, f1) -> None:
    doc = scored.make_doc("IL-2 binds")
    doc.spans["sc"] = [Span(doc, 0, 1, "A"), Span(doc, 1, 2, "A")]
    DocBin(docs=[doc]).to_disk(tmp_path / "test.spacy")
    kept = Trained(scored, "model-last", "ner", Fit(tuned, 0.1, 0.5, 0.2))
    found = trainings.scores_of(kept, tmp_path / "test.spacy")
    assert found["f1"] == pytest.approx(2 / 3) and found["f1_tuned"] == pytest.approx(f1)
    assert (found["threshold"], found["threshold_tuned"]) == (0.5, tuned)


@pytest.mark.parametrize(
    "fs, name",
    [((0.8, 0.8), "model-last"), ((0.9, 0.8), "model-best"), ((None, None), "model-last")],
)
def test_the_better_model_or_the_last(scored, tmp_path, monkeypatch, fs, name) -> None:
    fits = iter([{} if f is None else {"ner": Fit(0.3, f, 0.5, 0.1)} for f in fs])
    monkeypatch.setattr(trainings.spacy, "load", lambda path: scored)
    monkeypatch.setattr(trainings, "examples_of", lambda *_: [])
    monkeypatch.setattr(trainings, "fit_thresholds", lambda *_: (next(fits), {}))
    assert trainings.better(tmp_path, tmp_path).name == name
