"""Trainings that end after a time."""

from __future__ import annotations

from itertools import islice
from typing import Any, Dict, Iterator, List

import pytest
import spacy
from spacy.training.loop import create_train_batches

from spacy_nested_ner.training import budget
from spacy_nested_ner.training.optimizer import AdamW


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> List[float]:
    """What the clock shows; to be set."""
    now = [100.0]
    monkeypatch.setattr(budget, "CLOCK", budget.Clock())
    monkeypatch.setattr(budget.time, "perf_counter", lambda: now[0])
    return now


def pairs(examples: Any) -> Iterator[List[Any]]:
    examples = list(examples)
    for i in range(0, len(examples), 2):
        yield examples[i : i + 2]


def test_batches_until_the_time_is_up(seconds) -> None:
    found = []
    for batch in budget.until_time_is_up(pairs, minutes=0.1)(iter(range(6))):
        found.append(batch)
        seconds[0] += 1
    # Six seconds: two passes, the second one shuffled.
    assert found[:3] == [[0, 1], [2, 3], [4, 5]]
    assert sorted(each for batch in found[3:] for each in batch) == list(range(6))
    assert budget.CLOCK.steps == len(found) == 6


def test_a_second_training_has_a_time_of_its_own(seconds) -> None:
    first = budget.until_time_is_up(pairs, minutes=0.1)(range(2))
    next(first)
    seconds[0] += 60
    assert list(first) == []
    second = budget.until_time_is_up(pairs, minutes=0.1)(range(2))
    assert len(list(islice(second, 3))) == budget.CLOCK.steps == 3


def test_a_second_epoch_is_refused(seconds) -> None:
    """With spaCy's own max_epochs = 0 the training would never end."""
    batches = budget.until_time_is_up(pairs, minutes=0.1)

    def corpus(nlp: Any) -> Any:
        return range(6)

    nlp, trained = spacy.blank("en"), 0
    with pytest.raises(ValueError, match=r"Set max_epochs = 1 and max_steps = 0"):
        for _ in create_train_batches(nlp, corpus, batches, 0):
            trained += 1
            seconds[0] += 1
    assert trained == 6


@pytest.mark.parametrize("minutes", [0, -1, float("nan")])
def test_a_time_must_be_more_than_nothing(minutes: float) -> None:
    with pytest.raises(ValueError, match=f"minutes must be more than 0, got {minutes}"):
        budget.until_time_is_up(pairs, minutes=minutes)


def test_rates_follow_the_time(seconds) -> None:
    rates = budget.linear_over_time(0.01, warmup=0.25)
    assert next(rates) == 0  # nothing has begun
    next(budget.until_time_is_up(pairs, minutes=1)(range(2)))
    found = []
    for second in (0, 15, 30, 60, 61):
        seconds[0] = 100.0 + second
        found.append(next(rates))
    assert found == pytest.approx([0, 0.01, 0.01 * 2 / 3, 0, 0])


def test_rates_without_a_time_are_an_error(seconds) -> None:
    """An optimizer takes the first when it is made, and the next after a step."""
    optimizer = AdamW(budget.linear_over_time(0.01, warmup=0.25))
    with pytest.raises(ValueError, match=r"batcher .* to spacy_nested_ner.until_time_is_up.v1"):
        optimizer.step_schedules()


def test_rates_do_not_follow_the_time_of_an_earlier_training(seconds) -> None:
    next(budget.until_time_is_up(pairs, minutes=1)(range(2)))
    seconds[0] += 60
    rates = budget.linear_over_time(0.01, warmup=0)
    assert next(rates) == 0.01
    with pytest.raises(ValueError, match="no time is measured"):
        next(rates)
    rates = budget.linear_over_time(0.01, warmup=0)
    next(rates)
    next(budget.until_time_is_up(pairs, minutes=1)(range(2)))
    seconds[0] += 30
    assert next(rates) == pytest.approx(0.005)


def test_a_rate_below_zero_is_named() -> None:
    with pytest.raises(ValueError, match=r"initial_rate must be a number of at least 0, not -0.1"):
        budget.linear_over_time(-0.1, warmup=0)


def test_the_first_rate_may_be_taken_after_the_first_batch(seconds) -> None:
    rates = budget.linear_over_time(0.01, warmup=0)
    next(budget.until_time_is_up(pairs, minutes=1)(range(2)))
    assert next(rates) == 0.01
    seconds[0] += 30
    assert next(rates) == pytest.approx(0.005)


def test_cpu_time_is_counted_for_each_thread(seconds, monkeypatch) -> None:
    import torch

    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(budget.time, "process_time", lambda: 4 * seconds[0])
    next(budget.until_time_is_up(pairs, minutes=1, cpu_clock=True)(range(2)))
    seconds[0] += 30
    assert budget.CLOCK.share() == pytest.approx(0.5)


def test_a_config_is_limited() -> None:
    rate = {"@schedules": "spacy_nested_ner.warmup_linear.v1", "initial_rate": 0.002}
    training: Dict[str, Any] = {
        "max_steps": 2500,
        "max_epochs": 0,
        "optimizer": {"learn_rate": {**rate, "warmup_steps": 0.08, "total_steps": 2500}},
        "batcher": {"@batchers": "spacy.batch_by_words.v1", "size": 600},
    }
    budget.limit_time(training, 3)
    # A limit inside another would start the clock anew with each pass, and never end.
    budget.limit_time(training, 5, cpu_clock=True)
    assert (training["max_steps"], training["max_epochs"]) == (0, 1)
    assert training["optimizer"]["learn_rate"] == {
        "@schedules": "spacy_nested_ner.linear_over_time.v1",
        "initial_rate": 0.002,
        "warmup": 0.08,
        "minutes": "${training.batcher.minutes}",
    }
    batcher = training["batcher"]
    assert batcher["batcher"]["size"] == 600
    assert (batcher["minutes"], batcher["cpu_clock"]) == (5, True)


@pytest.mark.parametrize(
    "total, share", [(2500, 0.1), ("${training.max_steps}", 0.1), (400, 0.5), (0, 0.5)]
)
def test_a_warm_up_in_steps_becomes_a_share(total, share) -> None:
    rate = {"@schedules": "spacy_nested_ner.warmup_linear.v1", "initial_rate": 0.002}
    training: Dict[str, Any] = {
        "max_steps": 2500,
        "optimizer": {"learn_rate": {**rate, "warmup_steps": 250, "total_steps": total}},
        "batcher": {"@batchers": "spacy.batch_by_words.v1", "size": 600},
    }
    budget.limit_time(training, 3)
    assert training["optimizer"]["learn_rate"]["warmup"] == share
    with pytest.raises(ValueError, match=r"warmup must be a share of the time, got 250"):
        next(budget.linear_over_time(0.002, 250))


def test_in_a_loop_of_ones_own_the_rate_stays(seconds) -> None:
    rates = budget.linear_over_time(0.01, warmup=0.25, minutes="${training.batcher.minutes}")
    assert list(islice(rates, 3)) == [0.01] * 3
    assert next(budget.linear_over_time(0.01, warmup=0.25, minutes=3.0)) == 0


def test_a_batcher_without_a_batch_is_an_error(seconds) -> None:
    batches = budget.until_time_is_up(lambda examples: iter([]), minutes=1)
    with pytest.raises(ValueError, match="makes no batch"):
        next(batches([1, 2]))


def test_a_warm_up_in_steps_of_a_training_by_epochs() -> None:
    rate = {"@schedules": "spacy_nested_ner.warmup_linear.v1", "initial_rate": 0.002}
    rate |= {"warmup_steps": 250, "total_steps": "${training.max_steps}"}
    training: Dict[str, Any] = {
        "max_steps": 0,
        "optimizer": {"learn_rate": rate},
        "batcher": {"@batchers": "spacy.batch_by_words.v1", "size": 600},
    }
    budget.limit_time(training, 3)
    assert training["optimizer"]["learn_rate"]["warmup"] == 0.5
