"""Learning rate schedules of the papers, as endless iterables."""

import math
from itertools import chain, count, islice
from typing import Iterable, Iterator

from thinc.schedules import warmup_linear


def two_stage_linear(
    first_rate: float,
    second_rate: float,
    split_step: int,
    total_steps: int,
    warmup: float = 0.1,
) -> Iterable[float]:
    """`spacy_nested_ner.two_stage_linear.v1`: two stages, each with own warm-up and decay to 0.

    The recipe of PIQN (Shen et al. 2022, appendix B and the authors' code): the encoder takes
    `first_rate = 0`, the head the same rate in both stages.

    first_rate, second_rate: peaks of the stages.
    split_step: step at which the second stage begins. total_steps: step at which it ends at 0.
    warmup: share of each stage's own steps spent on warm-up, 0 to 1.

    Raises ValueError unless split_step <= total_steps and 0 <= warmup <= 1.
    """
    _check_order("split_step", split_step, total_steps)
    if not 0 <= warmup <= 1:
        raise ValueError(f"warmup is a share of the steps, between 0 and 1, not {warmup}.")
    rest = total_steps - split_step
    first = warmup_linear(first_rate, round(warmup * split_step), split_step)
    return chain(islice(first, split_step), warmup_linear(second_rate, round(warmup * rest), rest))


def warmup_cosine(initial_rate: float, warmup_steps: int, total_steps: int) -> Iterable[float]:
    """`spacy_nested_ner.warmup_cosine.v1`: linear warm-up, then half a cosine down to 0.

    The schedule of the proposer and regressor (Wen et al. 2023, section 4.2).

    initial_rate: the peak. warmup_steps: step at which it is reached. total_steps: step at which
    the rate is 0.

    Raises ValueError unless 0 <= warmup_steps <= total_steps.
    """
    _check_order("warmup_steps", warmup_steps, total_steps)
    return _warmup_cosine(initial_rate, warmup_steps, total_steps)


def _warmup_cosine(initial_rate: float, warmup_steps: int, total_steps: int) -> Iterator[float]:
    for step in count():
        if step < warmup_steps:
            yield initial_rate * step / warmup_steps
        else:
            share = (step - warmup_steps) / max(1, total_steps - warmup_steps)
            yield initial_rate * (1 + math.cos(math.pi * min(1.0, share))) / 2


def _check_order(name: str, steps: int, total_steps: int) -> None:
    if not 0 <= steps <= total_steps:
        raise ValueError(f"{name} ({steps}) must lie between 0 and total_steps ({total_steps}).")
