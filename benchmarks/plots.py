"""Plots of results. Need matplotlib."""

from pathlib import Path
from typing import Any, Dict

import typer


def pyplot() -> Any:
    """Matplotlib's, without a window."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def draw_lines(curves: Dict[str, Any], target: Path, x: str, y: str) -> None:
    """A line of `(xs, ys)` for each name."""
    figure, axes = pyplot().subplots(figsize=(7, 4))
    for name, line in curves.items():
        axes.plot(*line, marker="o", label=name)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.legend()
    figure.savefig(target, bbox_inches="tight")
    typer.echo(f"Drawn in {target}")
