"""Assignment against brute force."""

from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_nested_ner.matching import (
    assign_cheapest,
    assign_dynamic,
    assign_one_to_one,
    assign_rows,
    assign_static,
    balanced_quantities,
)


def brute_force(cost: np.ndarray, quantities: np.ndarray) -> float:
    """Least total cost over all ways to give each gold entity its quantity of queries."""
    columns = np.repeat(np.arange(cost.shape[1]), quantities)
    return min(
        sum(cost[row, column] for row, column in zip(rows, columns))
        for rows in permutations(range(cost.shape[0]), len(columns))
    )


costs = st.integers(1, 6).flatmap(
    lambda m: st.integers(1, min(m, 3)).flatmap(
        lambda g: st.tuples(
            st.lists(
                st.lists(st.floats(-3, 0, width=16), min_size=g, max_size=g),
                min_size=m,
                max_size=m,
            ),
            st.integers(0, m),
        )
    )
)


@settings(max_examples=60, deadline=None)
@given(costs)
def test_dynamic_is_the_cheapest_and_balanced(case) -> None:
    rows, total = case
    cost = np.array(rows, dtype=np.float64)
    target = assign_dynamic(cost, total)
    counts = np.bincount(target[target >= 0], minlength=cost.shape[1])
    quantities = balanced_quantities(cost.shape[1], min(total, len(cost)))
    assert counts.tolist() == quantities.tolist()
    assert counts.min() >= 1 and counts.max() - counts.min() <= 1
    paid = sum(cost[i, k] for i, k in enumerate(target) if k >= 0)
    assert paid == pytest.approx(brute_force(cost, quantities))


def test_quantities_by_hand() -> None:
    assert balanced_quantities(3, 8).tolist() == [3, 3, 2]
    assert balanced_quantities(3, 1).tolist() == [1, 1, 1]


def test_more_gold_than_queries_keeps_the_cheapest() -> None:
    cost = np.array([[-0.1, -0.9, -0.2], [-0.1, -0.2, -0.8]])
    assert assign_dynamic(cost, 2).tolist() == [1, 2]


@pytest.mark.parametrize("assign", [assign_dynamic, assign_one_to_one, assign_static])
def test_no_gold_is_all_none(assign) -> None:
    assert assign(np.zeros((4, 0)), 3).tolist() == [-1] * 4
    assert assign(np.zeros((0, 0)), 3).tolist() == []


def test_one_to_one_ignores_the_total() -> None:
    cost = -np.eye(4)[:, :2]
    assert assign_one_to_one(cost, 4).tolist() == [0, 1, -1, -1]


def test_static_follows_the_order_of_the_entities() -> None:
    cost = -np.eye(5)[:, :2][::-1]
    assert assign_static(cost, 4).tolist() == [0, 0, 1, 1, -1]
    assert assign_static(np.zeros((1, 3)), 1).tolist() == [0]


@settings(max_examples=60, deadline=None)
@given(costs, st.floats(-3, 0, width=16))
def test_cheapest_is_one_to_one_and_then_greedy(case, none) -> None:
    cost = np.array(case[0], dtype=np.float64)
    none_cost = np.full(len(cost), none)
    target, matched = assign_cheapest(cost, none_cost), assign_one_to_one(cost, 0)
    assert (target[matched >= 0] == matched[matched >= 0]).all()
    paid = sum(cost[i, k] for i, k in enumerate(matched) if k >= 0)
    assert paid == pytest.approx(brute_force(cost, np.ones(cost.shape[1], dtype=int)))
    for i in np.flatnonzero(matched < 0):
        options = [*cost[i], none]
        assert options[target[i]] == min(options)  # -1, None, is the last option


def test_cheapest_with_more_gold_than_proposals_leaves_none_out() -> None:
    cost = np.array([[0.9, 0.1, 0.2], [0.1, 0.2, 0.8]])
    assert assign_cheapest(cost, np.full(2, -5.0)).tolist() == [1, 0]
    assert assign_cheapest(np.zeros((3, 0)), np.zeros(3)).tolist() == [-1, -1, -1]


def test_rows_of_a_batch_are_assigned_without_their_padding() -> None:
    cost = torch.full((4, 3, 2), -9.0)  # what stands at padding would win
    cost[0] = torch.tensor([[-1.0, -2.0], [-2.0, -1.0], [0.0, 0.0]])
    cost[1, :2, 0] = torch.tensor([0.0, -1.0])
    real = torch.tensor([[True] * 3, [True, True, False], [True] * 3, [True, False, False]])
    gold = torch.tensor([[True, True], [True, False], [False, False], [True, True]])
    none_cost = torch.tensor([[0.0, 0.0, 1.0], [-2.0] * 3, [-9.0] * 3, [0.0] * 3])
    one_each = assign_rows(lambda row: assign_one_to_one(row, 0), cost, real, gold)
    assert one_each.tolist() == [[1, 0, -1], [-1, 0, -1], [-1, -1, -1], [0, -1, -1]]
    cheapest = assign_rows(assign_cheapest, cost, real, gold, none_cost)
    assert cheapest.tolist() == [[1, 0, 0], [-1, 0, -1], [-1, -1, -1], [0, -1, -1]]


def test_a_diverged_model_is_assigned_nothing() -> None:
    cost, every = torch.zeros(2, 3, 1), torch.ones(2, 3, dtype=torch.bool)
    cost[1, 2] = torch.nan
    found = assign_rows(assign_cheapest, cost, every, every[:, :1], torch.zeros(2, 3))
    assert found.tolist() == [[-1] * 3] * 2
