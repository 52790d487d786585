"""What the figures of several systems share. matplotlib is imported when something is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Sequence

import numpy as np


def new_figure(width: float, height: float, **settings: Any) -> Any:
    """A figure of so many inches, outside of any window or notebook, and its axes.

    RAISES (ImportError): Without matplotlib, with the remedy.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as err:
        raise ImportError(
            "Pictures are drawn by matplotlib, which is not installed or fails. Install it with: "
            f'python -m pip install "spacy_nested_ner[plots]". ({err})'
        ) from err
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(**settings)


def whole_numbers(axis: Any, most: int = 10) -> None:
    """No ticks between whole numbers, and no more than about so many."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(most, integer=True))


def plain(text: str) -> str:
    """Text for a picture: a dollar sign would begin a formula, and a legend leaves out a label
    that begins with "_"."""
    text = text.replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def label_words(axes: Any, words: Sequence[str]) -> None:
    """The words of a sentence along the horizontal axis."""
    axes.set(xticks=range(len(words)))
    axes.set_xticklabels(list(map(plain, words)), rotation=60, ha="right", fontsize="small")


@dataclass(frozen=True)
class SpanPath:
    """How one span became an entity.

    stages: `(stages, 2)` float, first and last word at each stage, counted from the segment's first
    word. label, score: of the entity.
    """

    stages: np.ndarray
    label: str
    score: float


def plot_paths(
    paths: Sequence[SpanPath], words: Sequence[str], stages: Sequence[str], title: str
) -> Any:
    """Spans on the words of a sentence, one row for each stage, from top to bottom."""
    figure, axes = new_figure(max(6, 0.45 * len(words)), 1.2 + 0.55 * len(stages))
    colors: Dict[str, Any] = {}
    for place, path in enumerate(paths):
        color = colors.setdefault(path.label, f"C{len(colors) % 10}")
        shift = (place + 1) / (len(paths) + 1) - 0.5
        for stage, (first, last) in enumerate(path.stages):
            y = stage + 0.8 * shift
            axes.plot([first - 0.4, last + 0.4], [y, y], color=color, lw=2, solid_capstyle="butt")
        centres = path.stages.mean(axis=1)
        rows = np.arange(len(path.stages)) + 0.8 * shift
        axes.plot(centres, rows, color=color, lw=0.7, alpha=0.5)
    for label, color in colors.items():
        axes.plot([], [], color=color, lw=2, label=plain(label))
    axes.set(yticks=range(len(stages)), yticklabels=stages)
    label_words(axes, words)
    axes.set(title=title, xlim=(-1, len(words)), ylim=(len(stages) - 0.5, -0.5))
    if colors:
        axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    return figure
