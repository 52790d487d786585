"""Assignment of gold entities to queries or proposals by linear assignment.

An assignment speaks numpy: costs come in as arrays on the CPU, targets go out as index arrays. -1
means None. `assign_rows` makes one for each row of a padded batch of tensors.
"""

from __future__ import annotations

from typing import Callable, Dict, List

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from spacy_nested_ner.device import on_device

Assignment = Callable[[np.ndarray, int], np.ndarray]


def balanced_quantities(n_gold: int, total: int) -> np.ndarray:
    """How many queries each gold entity may have, `(n_gold,)` int, as even as `total` allows.

    Every entity gets at least one: where `total` is smaller than `n_gold`, the total grows to it
    (PIQN section 3.4: the quantities are balanced, no gold entity is left out).
    """
    total = max(total, n_gold)
    quantities = np.full(n_gold, total // n_gold, dtype=np.int64)
    quantities[: total % n_gold] += 1
    return quantities


def assign_dynamic(cost: np.ndarray, total: int) -> np.ndarray:
    """One-to-many linear assignment (PIQN eq. 9).

    cost: `(queries, gold)` float. total: assignable quantity Q over all gold entities.
    Returns `(queries,)` int: the gold entity of each query, -1 for None. With more gold entities
    than queries every query gets one entity and the dearest entities stay without.
    """
    n_queries, n_gold = cost.shape
    if not n_gold or not n_queries:
        return np.full(n_queries, -1, dtype=np.int64)
    quantities = balanced_quantities(n_gold, min(total, n_queries))
    columns = np.repeat(np.arange(n_gold), quantities)
    rows, chosen = linear_sum_assignment(cost[:, columns])
    targets = np.full(n_queries, -1, dtype=np.int64)
    targets[rows] = columns[chosen]
    return targets


def assign_one_to_one(cost: np.ndarray, total: int) -> np.ndarray:
    """Each gold entity goes to exactly one query (PIQN table 3, "w/o OvM LA"). As above."""
    return assign_dynamic(cost, cost.shape[1])


def assign_static(cost: np.ndarray, total: int) -> np.ndarray:
    """Gold entities in the given order to the first queries (PIQN table 3, "w/o Dynamic LA").

    The costs are not looked at; entity k owns a fixed block of the first `total` queries.
    """
    n_queries, n_gold = cost.shape
    targets = np.full(n_queries, -1, dtype=np.int64)
    if n_gold:
        quantities = balanced_quantities(n_gold, min(total, n_queries))
        order = np.repeat(np.arange(n_gold), quantities)[:n_queries]
        targets[: len(order)] = order
    return targets


def assign_cheapest(cost: np.ndarray, none_cost: np.ndarray) -> np.ndarray:
    """One-to-one linear assignment, then the cheapest target for every proposal that is left
    (Wen et al. 2023, algorithm 1).

    cost: `(proposals, gold)` float. none_cost: `(proposals,)` float, of having no entity.
    Returns `(proposals,)` int: the gold entity of each proposal, -1 for None. With at least as many
    entities as proposals each proposal gets one entity.
    """
    targets = assign_one_to_one(cost, 0)
    if cost.shape[1]:
        left = targets < 0
        cheapest = cost.argmin(axis=1)
        gains = cost.min(axis=1) < none_cost
        targets[left & gains] = cheapest[left & gains]
    return targets


def assign_rows(
    solve: Callable[..., np.ndarray], cost: Tensor, real: Tensor, gold: Tensor, *others: Tensor
) -> Tensor:
    """The gold entity of each query of a padded batch, row by row.

    solve: from the `(queries, gold)` costs of a row, and what `others` have of it, to `(queries,)`
    targets. cost: `(batch, queries, gold)`. real, gold: `(batch, queries)` and `(batch, gold)`
    bool, False for padding, which comes last. others: `(batch, queries)`.
    Returns `(batch, queries)` long, -1 for None and for padding, and everywhere if a cost is not
    finite: then the model has diverged, and the loss says so.
    """
    target = np.full(real.shape, -1, dtype=np.int64)
    if cost.numel():
        rows_cost, *rest, n_queries, n_gold = _on_host(cost, *others, real.sum(1), gold.sum(1))
        if np.isfinite(rows_cost).all():
            for row in np.flatnonzero(n_gold):
                here = slice(int(n_queries[row]))
                others_here = (array[row, here] for array in rest)
                row_cost = rows_cost[row, here, : int(n_gold[row])]
                target[row, here] = solve(row_cost, *others_here)
    return on_device(target, real.device)


def _on_host(*tensors: Tensor) -> List[np.ndarray]:
    """Tensors as float arrays, in one copy: a GPU is waited for once."""
    flat = torch.cat([tensor.flatten().float() for tensor in tensors]).cpu().numpy()
    ends = np.cumsum([tensor.numel() for tensor in tensors])[:-1]
    return [part.reshape(each.shape) for part, each in zip(np.split(flat, ends), tensors)]


ASSIGNMENTS: Dict[str, Assignment] = {
    "dynamic": assign_dynamic,
    "one_to_one": assign_one_to_one,
    "static": assign_static,
}
