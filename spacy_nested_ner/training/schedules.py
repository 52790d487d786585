"""Learning rate schedules, and how often to score, all by the length of the training.

A number of steps below 1 is a share of `total_steps` everywhere here, so that a training of another
length keeps its shape. A loop of your own, around `nlp.resume_training()` or
`nlp.create_optimizer()`, has no length: spaCy hands over `total_steps = "${training.max_steps}"` as
it stands, and the rate stays at its peak.
"""

import math
from itertools import chain, count, islice, repeat
from numbers import Integral
from typing import Any, Iterable, Iterator, TypeGuard, Union

from thinc import schedules

from spacy_nested_ner.settings import Setting

DEFAULT_FREQUENCY = 500
RATE = Setting(least=0)


# A whole number, or a variable of the config that spaCy has not filled in.
Steps = Union[int, str]


def warmup_linear(initial_rate: float, warmup_steps: float, total_steps: Steps) -> Iterable[float]:
    """`spacy_nested_ner.warmup_linear.v1`: linear warm-up, then linear decay to 0.

    Thinc's `warmup_linear.v1`, which takes whole steps only.

    initial_rate: the peak. warmup_steps: step at which it is reached, or a share of the steps.
    total_steps: step at which the rate is 0.

    Raises ValueError unless 0 <= warmup_steps <= total_steps, 0 < total_steps and
    0 <= initial_rate.
    """
    check_rate("initial_rate", initial_rate)
    if not _is_known(total_steps):
        return repeat(initial_rate)
    warmup = _whole_steps("warmup_steps", warmup_steps, total_steps)
    return schedules.warmup_linear(initial_rate, warmup, total_steps)


def two_stage_linear(
    first_rate: float,
    second_rate: float,
    split_step: float,
    total_steps: Steps,
    warmup: float = 0.1,
) -> Iterable[float]:
    """`spacy_nested_ner.two_stage_linear.v1`: two stages, each with own warm-up and decay to 0.

    The recipe of PIQN (Shen et al. 2022, appendix B and the authors' code): the encoder takes
    `first_rate = 0`, the head the same rate in both stages.

    first_rate, second_rate: peaks of the stages.
    split_step: step at which the second stage begins, or a share of the steps. total_steps: step at
    which it ends at 0.
    warmup: share of each stage's own steps spent on warm-up, 0 to 1.

    Raises ValueError unless 0 <= split_step <= total_steps, 0 < total_steps, 0 <= warmup <= 1 and
    neither rate is below 0.
    """
    check_rate("first_rate", first_rate)
    check_rate("second_rate", second_rate)
    if not _is_known(total_steps):
        return repeat(second_rate)
    split = _whole_steps("split_step", split_step, total_steps)
    if not 0 <= warmup <= 1:
        raise ValueError(f"warmup must be a share of the steps, from 0 to 1, not {warmup}.")
    rest = total_steps - split
    first = schedules.warmup_linear(first_rate, round(warmup * split), split)
    second = schedules.warmup_linear(second_rate, round(warmup * rest), rest)
    return chain(islice(first, split), second)


def warmup_cosine(initial_rate: float, warmup_steps: float, total_steps: Steps) -> Iterable[float]:
    """`spacy_nested_ner.warmup_cosine.v1`: linear warm-up, then half a cosine down to 0.

    The schedule of the proposer and regressor (Wen et al. 2023, section 4.2).

    initial_rate: the peak. warmup_steps: step at which it is reached, or a share of the steps.
    total_steps: step at which the rate is 0.

    Raises ValueError unless 0 <= warmup_steps <= total_steps, 0 < total_steps and
    0 <= initial_rate.
    """
    check_rate("initial_rate", initial_rate)
    if not _is_known(total_steps):
        return repeat(initial_rate)
    warmup = _whole_steps("warmup_steps", warmup_steps, total_steps)
    return _warmup_cosine(initial_rate, warmup, total_steps)


def eval_frequency(max_steps: int, evaluations: int = 5) -> int:
    """`spacy_nested_ner.eval_frequency.v1`: the steps between two scores on dev, so that the last
    step is scored.

    `spacy train` scores step 0 and each multiple of the frequency, and ends with step `max_steps`.
    Where no number of evaluations near the wanted one divides the steps (there is none for a
    prime), the fewest steps possible come after the last score; their learning rate is nearly 0.

    max_steps: length of the training; 0, no limit, gives every 500 steps.
    evaluations: how many are wanted beside that of step 0. Between half and twice as many are made.

    Raises ValueError for fewer than 1.
    """
    if evaluations < 1:
        raise ValueError(f"evaluations must be at least 1, not {evaluations}.")
    if max_steps < 1:
        return DEFAULT_FREQUENCY
    fewest, most = (evaluations + 1) // 2, 2 * evaluations
    candidates = range(math.ceil(max_steps / most), max(1, max_steps // fewest) + 1)
    return min(candidates, key=lambda f: (max_steps % f, abs(max_steps / f - evaluations)))


def _warmup_cosine(initial_rate: float, warmup_steps: int, total_steps: int) -> Iterator[float]:
    for step in count():
        if step < warmup_steps:
            yield initial_rate * step / warmup_steps
        else:
            share = (step - warmup_steps) / max(1, total_steps - warmup_steps)
            yield initial_rate * (1 + math.cos(math.pi * min(1.0, share))) / 2


def _is_known(total_steps: Steps) -> TypeGuard[int]:
    """Whether it is a number, not a variable. Raises ValueError for what is neither."""
    if isinstance(total_steps, Integral):
        return True
    if isinstance(total_steps, str) and total_steps.startswith("${"):
        return False
    raise ValueError(f"total_steps must be a number of steps, not {total_steps!r}.")


def check_rate(name: str, rate: Any) -> None:
    """Raise ValueError for what is no rate of learning."""
    if not RATE.holds(rate, float):
        raise ValueError(f"{name} must be {RATE.expected(float)}, not {rate!r}.")


def _whole_steps(name: str, steps: float, total_steps: int) -> int:
    if total_steps < 1:
        raise ValueError(
            f"total_steps is {total_steps}: a rate that falls to 0 needs an end. Set "
            "training.max_steps, or use a rate that does not change."
        )
    if not 0 <= steps <= total_steps:
        raise ValueError(f"{name} ({steps}) must lie between 0 and total_steps ({total_steps}).")
    return round(steps * total_steps) if steps < 1 else round(steps)
