"""Schedules on numbers worked out by hand."""

from itertools import islice
from typing import Iterable, List

import numpy as np
import pytest
import spacy

from spacy_nested_ner.training.optimizer import AdamW
from spacy_nested_ner.training.schedules import (
    eval_frequency,
    two_stage_linear,
    warmup_cosine,
    warmup_linear,
)


def first(schedule: Iterable[float], n: int) -> List[float]:
    return list(islice(schedule, n))


def test_two_stage_linear() -> None:
    schedule = two_stage_linear(0.2, 0.8, split_step=6, total_steps=16, warmup=0.2)
    # Stage 1: round(0.2 * 6) = 1 step up, 5 down. Stage 2: 2 up, 8 down.
    stage_1 = [0, 0.2, 0.16, 0.12, 0.08, 0.04]
    stage_2 = [0, 0.4, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]
    assert first(schedule, 18) == pytest.approx([*stage_1, *stage_2, 0, 0])


def test_encoder_and_head_share_the_second_stage() -> None:
    encoder = first(two_stage_linear(0.0, 1.0, split_step=20, total_steps=120), 125)
    head = first(two_stage_linear(1.0, 1.0, split_step=20, total_steps=120), 125)
    assert encoder[:20] == [0.0] * 20 and encoder[20:] == head[20:]
    assert max(head[:20]) == 1.0


def test_warmup_cosine() -> None:
    schedule = warmup_cosine(0.4, warmup_steps=2, total_steps=8)
    # Six steps down: cos(0), cos(30 degrees), ..., cos(180 degrees).
    root = 3**0.5 / 2
    down = [0.2 * (1 + cosine) for cosine in (1, root, 0.5, 0, -0.5, -root, -1)]
    assert first(schedule, 11) == pytest.approx([0, 0.2, *down, 0, 0])
    assert first(warmup_cosine(0.4, warmup_steps=0, total_steps=1), 2) == [0.4, 0.0]
    with pytest.raises(ValueError, match=r"warmup_steps \(9\)"):
        warmup_cosine(0.4, warmup_steps=9, total_steps=8)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"split_step": 11, "total_steps": 10}, "split_step"),
        ({"split_step": 1, "total_steps": 10, "warmup": 10}, "share"),
    ],
)
def test_impossible_settings(settings: dict, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        two_stage_linear(0.1, 0.1, **settings)


def test_warmup_linear() -> None:
    up_and_down = [0, 0.2, 0.4, 0.3, 0.2, 0.1, 0, 0]
    assert first(warmup_linear(0.4, warmup_steps=2, total_steps=6), 8) == pytest.approx(up_and_down)


@pytest.mark.parametrize(("share", "steps"), [(0.5, 5), (0.08, 1), (0, 0)])
def test_steps_below_1_are_a_share(share: float, steps: int) -> None:
    for schedule in (warmup_linear, warmup_cosine):
        by_share, by_steps = schedule(0.4, share, 10), schedule(0.4, steps, 10)
        assert first(by_share, 12) == first(by_steps, 12)
    by_share, by_steps = (two_stage_linear(0.1, 0.3, split, 10) for split in (share, steps))
    assert first(by_share, 12) == first(by_steps, 12)


def test_a_rate_that_falls_to_0_needs_an_end() -> None:
    for schedule in (warmup_linear, warmup_cosine):
        with pytest.raises(ValueError, match="max_steps"):
            schedule(0.4, 0, 0)


@pytest.mark.parametrize(
    ("max_steps", "frequency"), [(2500, 500), (60, 12), (6, 1), (3, 1), (0, 500)]
)
def test_eval_frequency(max_steps: int, frequency: int) -> None:
    assert eval_frequency(max_steps, 5) == frequency


def test_the_last_step_is_scored_or_nearly_so() -> None:
    for max_steps in range(1, 3000):
        frequency = eval_frequency(max_steps, 5)
        unscored = max_steps % frequency
        assert unscored <= 2
        if any(max_steps % n == 0 for n in (3, 4, 5, 6, 7, 8, 9, 10)):
            assert unscored == 0
        assert max_steps < 3 or 3 <= max_steps // frequency <= 10
    assert eval_frequency(2503, 5) == 417  # a prime: step 2502 is the last but one
    with pytest.raises(ValueError, match="evaluations"):
        eval_frequency(100, 0)


@pytest.mark.parametrize(
    "schedule",
    [
        {"@schedules": "spacy_nested_ner.warmup_linear.v1", "initial_rate": 0.1},
        {"@schedules": "spacy_nested_ner.warmup_cosine.v1", "initial_rate": 0.1},
        {
            "@schedules": "spacy_nested_ner.two_stage_linear.v1",
            "first_rate": 0.0,
            "second_rate": 0.1,
            "split_step": 0.2,
        },
    ],
    ids=lambda schedule: schedule["@schedules"],
)
def test_a_loop_of_unknown_length_learns_at_the_peak(schedule: dict) -> None:
    """As in `nlp.create_optimizer()`, which resolves [training.optimizer] alone."""
    if "initial_rate" in schedule:
        schedule = {**schedule, "warmup_steps": 0.1}
    resolve = spacy.registry.resolve
    rates = resolve({"rate": {**schedule, "total_steps": "${training.max_steps}"}})["rate"]
    assert first(rates, 50) == [0.1] * 50
    with pytest.raises(ValueError, match="total_steps must be a number of steps, not 'many'"):
        resolve({"rate": {**schedule, "total_steps": "many"}})


def test_resolve_from_a_config() -> None:
    config = {
        "@optimizers": "spacy_nested_ner.AdamW.v1",
        "learn_rate": {
            "@schedules": "spacy_nested_ner.two_stage_linear.v1",
            "first_rate": 0.0,
            "second_rate": 0.1,
            "split_step": 2,
            "total_steps": 5,
            "warmup": 0.34,
        },
        "head_learn_rate": {
            "@schedules": "spacy_nested_ner.two_stage_linear.v1",
            "first_rate": 0.3,
            "second_rate": 0.2,
            "split_step": 2,
            "total_steps": 6,
            "warmup": 0.0,
        },
    }
    optimizer = spacy.registry.resolve({"optimizer": config})["optimizer"]
    assert isinstance(optimizer, AdamW)
    rates = []
    for _ in range(6):
        rates.append((optimizer.learn_rate, optimizer.head_learn_rate))
        optimizer.step_schedules()
    expected_encoder, expected_head = [0, 0, 0, 0.1, 0.05, 0], [0.3, 0.15, 0.2, 0.15, 0.1, 0.05]
    assert [encoder for encoder, _ in rates] == pytest.approx(expected_encoder)
    assert [head for _, head in rates] == pytest.approx(expected_head)


@pytest.mark.parametrize("rate", [-0.1, float("nan"), float("inf"), "abc", None])
def test_a_rate_that_cannot_be_is_named(rate) -> None:
    problem = f"rate must be a number of at least 0, not {rate!r}"
    for schedule in (warmup_linear, warmup_cosine):
        with pytest.raises(ValueError, match=f"initial_{problem}"):
            schedule(rate, 1, 10)
    with pytest.raises(ValueError, match=f"first_{problem}"):
        two_stage_linear(rate, 0.1, 5, 10)
    with pytest.raises(ValueError, match=f"second_{problem}"):
        two_stage_linear(0.0, rate, 5, 10)


@pytest.mark.parametrize("total", [2500.5, None])
def test_a_number_of_steps_that_is_none(total) -> None:
    for schedule in (warmup_linear, warmup_cosine):
        with pytest.raises(ValueError, match="total_steps must be a number of steps"):
            schedule(0.1, 0.1, total)


def test_a_number_of_steps_of_numpy() -> None:
    assert first(warmup_linear(0.4, 2, np.int64(6)), 3) == pytest.approx([0, 0.2, 0.4])
