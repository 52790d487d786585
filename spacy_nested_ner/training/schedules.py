"""Learning rate schedules for training in two stages; the encoder may rest in the first."""

from itertools import chain, islice
from typing import Iterable

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


def _check_order(name: str, steps: int, total_steps: int) -> None:
    if not 0 <= steps <= total_steps:
        raise ValueError(f"{name} ({steps}) must lie between 0 and total_steps ({total_steps}).")
