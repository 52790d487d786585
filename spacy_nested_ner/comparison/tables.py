"""Markdown tables of a comparison: of each training, and of the means of seeds. Made from the JSON
files, without torch."""

from __future__ import annotations

import statistics
from typing import Any, Dict, Iterable, List, NamedTuple, Sequence

BATCH_SIZES = (1, 8, 64)
CONFIDENCE = 0.95

Result = Dict[str, Any]


class Mean(NamedTuple):
    """Mean of several trainings, and half of its 95 % interval by Student's t; NaN for one alone.
    In percent."""

    value: float
    half: float
    n: int

    def __str__(self) -> str:
        return f"{self.value:.1f}" + (f" ± {self.half:.1f}" if self.n > 1 else "")

    def may_reach(self, other: Mean) -> bool:
        """Whether the intervals touch."""
        return self.value + self.half >= other.value - other.half


def mean_of(scores: Sequence[float]) -> Mean:
    """scores: shares of 1."""
    from scipy import stats

    n, percent = len(scores), [100 * score for score in scores]
    half = float("nan")
    if n > 1:
        half = stats.t.ppf((1 + CONFIDENCE) / 2, n - 1) * statistics.stdev(percent) / n**0.5
    return Mean(statistics.mean(percent), half, n)


def markdown(header: Sequence[Any], rows: Sequence[Sequence[Any]]) -> str:
    """A table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


def each_training(results: Sequence[Result]) -> str:
    """One row for each training. What none of them measured has no column."""
    rows = []
    for result in results:
        training, settings = result["training"], result["settings"]
        tuned = f"{100 * result['f1_tuned']:.1f} ({result['threshold_tuned']:.2f})"
        row = {
            "system": f"`{settings['system']}`",
            "seed": settings["seed"],
            "test F1": f"{100 * result['f1']:.1f}",
            "threshold tuned on dev": tuned,
            "steps": training["steps"],
            "minutes": f"{training['minutes']:.1f}",
            "CPU minutes": f"{training['cpu_minutes']:.1f}",
            "peak MiB": _digits(training.get("peak_mib"), 0),
            "words/s": f"{result['words_per_second']:.0f}",
        }
        for size in BATCH_SIZES:
            row[f"ratio, batch {size}"] = _digits(result.get("ratio", {}).get(str(size)), 2)
        rows.append(row)
    header = [name for name in rows[0] if any(row[name] != "-" for row in rows)]
    return markdown(header, [[row[name] for name in header] for row in rows])


def _digits(value: Any, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def by_system(results: Iterable[Result]) -> Dict[str, List[Result]]:
    """The results of each system."""
    found: Dict[str, List[Result]] = {}
    for result in results:
        found.setdefault(result["settings"]["system"], []).append(result)
    return found


def tuned_means(results: Iterable[Result]) -> Dict[str, Mean]:
    """Mean F1 on test of each system at the threshold that is best on dev, best first."""
    means = {
        name: mean_of([result["f1_tuned"] for result in each])
        for name, each in by_system(results).items()
    }
    return dict(sorted(means.items(), key=lambda each: -each[1].value))


def over_seeds(results: Sequence[Result]) -> str:
    """Means of the systems with more than one seed and their 95 % intervals, best first; "" if
    there is none."""
    systems = by_system(results)
    rows = [
        [f"`{name}`", tuned.n, mean_of([result["f1"] for result in systems[name]]), tuned]
        for name, tuned in tuned_means(results).items()
        if tuned.n > 1
    ]
    header = ["system", "seeds", "mean test F1", "threshold tuned on dev"]
    return markdown(header, rows) if rows else ""


def verdict(results: Sequence[Result]) -> str:
    """Which system is best, and which ones may be as good, in words."""
    means = tuned_means(results)
    (best, ahead), *others = means.items()
    text = f"Best: {best}, F1 {ahead}."
    if any(mean.n < 2 for mean in means.values()):
        return f"{text} One seed says little: repeat --seed for means with intervals."
    close = [name for name, mean in others if mean.may_reach(ahead)]
    return f"{text} Perhaps as good, judging by these seeds: {', '.join(close)}." if close else text
