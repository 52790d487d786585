"""Trainings in processes of their own."""

from __future__ import annotations

import os

import pytest
import srsly

from spacy_nested_ner.comparison.trainings import Task, Unfinished, train_each


def die(task: Task) -> dict:
    os._exit(9)


def test_a_process_that_dies_is_named(tmp_path) -> None:
    with pytest.raises(ChildProcessError, match=r"a_seed0\.json: the process .* again to continue"):
        train_each([Task({}, tmp_path / "a_seed0.json")], die, print)
    assert list(tmp_path.iterdir()) == []


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
