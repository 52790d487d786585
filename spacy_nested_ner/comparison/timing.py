"""Runs that are compared take turns: what else the machine does then slows all of them."""

import statistics
from typing import Callable, Dict, List, Mapping, Sequence


def in_turn(runs: Mapping[str, Callable[[], float]], repeats: int) -> Dict[str, List[float]]:
    """What each run returns, by name, in as many rounds. The first round of all is slower, as it
    makes what is made once: let one go before."""
    found: Dict[str, List[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            found[name].append(run())
    return found


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Of the pairs of a round."""
    return statistics.median(a / b for a, b in zip(ours, theirs))
