"""Trainings that end after a time, whatever they get done in it."""

from __future__ import annotations

import random
import time
from itertools import repeat
from typing import Any, Callable, Dict, Iterator, List, Optional, Union

from spacy_nested_ner.training.schedules import check_rate

WARMUP_LINEAR = "spacy_nested_ner.warmup_linear.v1"
UNTIL_TIME_IS_UP = "spacy_nested_ner.until_time_is_up.v1"
MINUTES = "${training.batcher.minutes}"
LINEAR_OVER_TIME = "spacy_nested_ner.linear_over_time.v1"


class Clock:
    """The time that one training may take, from its first batch on, and the steps it made.

    budget, begin: seconds. begin: None before the first batch.
    """

    def __init__(self) -> None:
        self.budget = 0.0
        self.begin: Optional[float] = None
        self.steps = 0
        self.now: Callable[[], float] = time.perf_counter

    def start(self, minutes: float, cpu_clock: bool) -> None:
        """Begin to count. cpu_clock: CPU time of this process, of each of its threads."""
        self.now = _cpu_seconds if cpu_clock else time.perf_counter
        self.budget, self.begin, self.steps = 60 * minutes, self.now(), 0

    def share(self) -> float:
        """How much of the budget is used up, 0 to 1; 0 before the first batch."""
        if self.begin is None:
            return 0.0
        return min(1.0, (self.now() - self.begin) / self.budget)


def _cpu_seconds() -> float:
    import torch

    return time.process_time() / torch.get_num_threads()


CLOCK = Clock()
"""Of the training of this process: batches and learning rates share it."""


def until_time_is_up(batcher: Callable, minutes: float, cpu_clock: bool = False) -> Callable:
    """`spacy_nested_ner.until_time_is_up.v1`, for `[training.batcher]`: batches of one pass after
    the other; the last comes when the time is up. Wants `max_epochs = 1` and `max_steps = 0`.

    batcher: what makes the batches of one pass. minutes: from the first batch on, scores on dev
    included. cpu_clock: count CPU time of each thread, for a machine that is shared.

    Raises ValueError for a time that is not above 0, and for a second epoch, which would start the
    clock anew: a training would never end. Another training takes another one of these.
    """
    if not minutes > 0:
        raise ValueError(f"{UNTIL_TIME_IS_UP}: minutes must be more than 0, got {minutes}.")
    begun = False

    def batches(examples: Any) -> Iterator[List[Any]]:
        nonlocal begun
        if begun:
            raise ValueError(
                f"{UNTIL_TIME_IS_UP}: the time is up, but the training begins another epoch and "
                "would never end. Set max_epochs = 1 and max_steps = 0 in [training]."
            )
        begun = True
        examples = list(examples)
        CLOCK.start(minutes, cpu_clock)
        while True:
            steps = CLOCK.steps
            for batch in batcher(examples):
                if CLOCK.share() >= 1:
                    return
                CLOCK.steps += 1
                yield batch
            if CLOCK.steps == steps:
                raise ValueError(
                    f"{UNTIL_TIME_IS_UP}: its batcher makes no batch of the "
                    "training data. Are all docs longer than a batch, and left out?"
                )
            random.shuffle(examples)

    return batches


def linear_over_time(
    initial_rate: float, warmup: float, minutes: Union[float, str, None] = None
) -> Iterator[float]:
    """`spacy_nested_ner.linear_over_time.v1`: `warmup_linear.v1` over the time of
    `until_time_is_up.v1` instead of a number of steps.

    warmup: share of the time in which the rate rises, 0 to 1 exclusive. It has to be made before
    the first batch: a time that has begun by then is taken for that of an earlier training.
    minutes: `${training.batcher.minutes}`, so that a loop of your own, which has no such batcher,
    is told from `spacy train`: there the rate stays at its peak.

    Raises ValueError for another share, for a rate below 0, and for a second rate before the time
    has begun.
    """
    check_rate("initial_rate", initial_rate)
    if not 0 <= warmup < 1:
        raise ValueError(f"{LINEAR_OVER_TIME}: warmup must be a share of the time, got {warmup}.")
    if isinstance(minutes, str):  # spaCy has not filled it in
        return repeat(initial_rate)
    return _rates(initial_rate, warmup, CLOCK.begin)


def _rates(initial_rate: float, warmup: float, earlier: Optional[float]) -> Iterator[float]:
    """earlier: when the time of a training before this one began, in the same process."""
    while True:
        share = 0.0 if CLOCK.begin == earlier else CLOCK.share()
        yield initial_rate * min(share / warmup if warmup else 1.0, (1 - share) / (1 - warmup))
        # An optimizer takes the first one when it is made; the next comes after the first batch.
        if CLOCK.begin == earlier:
            raise ValueError(
                f"{LINEAR_OVER_TIME}: no time is measured, so the rate would never change. Set the "
                f"batcher of [training] to {UNTIL_TIME_IS_UP}, or use {WARMUP_LINEAR}."
            )


def limit_time(training: Dict[str, Any], minutes: float, cpu_clock: bool = False) -> None:
    """Make a training end after so many minutes, with learning rates that decay over them.

    training: section of a config, which is changed; learning rates of `warmup_linear.v1` follow the
    time. An earlier limit is replaced.
    """
    steps = training["max_steps"]
    training.update(max_steps=0, max_epochs=1)
    batcher = training["batcher"]
    if batcher["@batchers"] == UNTIL_TIME_IS_UP:
        batcher = batcher["batcher"]
    training["batcher"] = {
        "@batchers": UNTIL_TIME_IS_UP,
        "batcher": batcher,
        "minutes": minutes,
        "cpu_clock": cpu_clock,
    }
    optimizer = training["optimizer"]
    for key in ("learn_rate", "head_learn_rate"):
        rate = optimizer.get(key)
        if isinstance(rate, dict) and rate["@schedules"] == WARMUP_LINEAR:
            warmup = rate["warmup_steps"]
            if warmup >= 1:  # steps; the total may be a reference to max_steps
                total = rate["total_steps"]
                warmup = min(0.5, warmup / max(1, total if isinstance(total, int) else steps))
            optimizer[key] = {
                "@schedules": LINEAR_OVER_TIME,
                "initial_rate": rate["initial_rate"],
                "warmup": warmup,
                "minutes": MINUTES,
            }
