"""Trainings that end after a time, whatever they get done in it."""

import random
import time
from typing import Any, Callable, Dict, Iterator, List, Optional

import thinc
from spacy import util

WARMUP_LINEAR = "spacy_nested_ner.warmup_linear.v1"


class Clock:
    """The seconds that one training may take, from its first batch on, and the steps it made."""

    budget: float = 0.0
    begin: Optional[float] = None
    steps: int = 0
    now: Callable[[], float] = staticmethod(time.perf_counter)

    def share(self) -> float:
        """How much of the budget is used up, 0 to 1; 0 before the first batch."""
        if self.begin is None:
            return 0.0
        return min(1.0, (self.now() - self.begin) / self.budget)


CLOCK = Clock()


@util.registry.batchers("benchmarks.until_time_is_up.v1")
def until_time_is_up(batcher: Any) -> Any:
    """Batches of one epoch after the other; the last comes when the budget is used up."""

    def batches(examples: List[Any]) -> Iterator[List[Any]]:
        examples = list(examples)
        CLOCK.begin = CLOCK.now()
        while True:
            for batch in batcher(examples):
                if CLOCK.share() >= 1:
                    return
                CLOCK.steps += 1
                yield batch
            random.shuffle(examples)

    return batches


@thinc.registry.schedules("benchmarks.linear_over_time.v1")
def linear_over_time(initial_rate: float, warmup: float) -> Iterator[float]:
    """Warm-up over a share of the budget, then linear decay over the rest."""
    while True:
        share = CLOCK.share()
        yield initial_rate * min(share / warmup, (1 - share) / (1 - warmup))


def limit_time(
    training: Dict[str, Any], minutes: float, now: Callable[[], float] = time.perf_counter
) -> None:
    """End after so many minutes, with learning rates that decay over them.

    now: seconds of the clock that counts.
    """
    CLOCK.now = now
    CLOCK.budget = 60 * minutes
    training.update(max_steps=0, max_epochs=1)
    training["batcher"] = {
        "@batchers": "benchmarks.until_time_is_up.v1",
        "batcher": training["batcher"],
    }
    optimizer = training["optimizer"]
    for key in ("learn_rate", "head_learn_rate"):
        rate = optimizer.get(key)
        if isinstance(rate, dict) and rate["@schedules"] == WARMUP_LINEAR:
            optimizer[key] = {
                "@schedules": "benchmarks.linear_over_time.v1",
                "initial_rate": rate["initial_rate"],
                "warmup": rate["warmup_steps"],
            }
