"""The papers' figures, drawn by matplotlib. Each function takes numbers and returns a figure."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Sequence

import numpy as np
from scipy.stats import gaussian_kde

from spacy_nested_ner.evaluation.figures.probes import PLACES, AnswerScores, QueryUse, SpanPath
from spacy_nested_ner.evaluation.scores.entities import LONGEST
from spacy_nested_ner.evaluation.scores.metrics import PRF

FEWEST = 5
"""Predictions that a query needs for a density of its own."""
MOST_DENSITIES = 8


def new_figure(width: float, height: float, **settings: Any) -> Any:
    """A figure of so many inches, outside of any window or notebook, and its axes.

    RAISES (ImportError): Without matplotlib, with the remedy.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as err:
        raise ImportError(
            "Pictures are drawn by matplotlib, which is not installed. Install it with: "
            'python -m pip install "spacy_nested_ner[plots]"'
        ) from err
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(**settings)


def plot_lengths(systems: Mapping[str, Mapping[str, PRF]]) -> Any:
    """F1 by number of words of each system (Locate and Label, table 2), with the gold entities."""
    figure, (axes, counts) = new_figure(
        8, 5, nrows=2, sharex=True, gridspec_kw={"height_ratios": [3, 1]}
    )
    names = [*map(str, range(1, LONGEST)), f"{LONGEST}+"]
    used = [name for name in names if any(name in groups for groups in systems.values())]
    used = names[: names.index(used[-1]) + 1] if used else []
    for (system, groups), marker in zip(systems.items(), "osD^vPX*<>" * len(systems)):
        scores = [groups[n].f if n in groups and groups[n].gold else np.nan for n in used]
        axes.plot(range(len(used)), scores, marker=marker, label=system)  # NaN breaks the line
    gold = [max((g[n].gold for g in systems.values() if n in g), default=0) for n in used]
    counts.bar(range(len(used)), gold, color="0.6")
    axes.set(title="F1 by length of the entity", ylabel="F1", ylim=(-0.02, 1.02))
    _whole_numbers(counts.yaxis)
    counts.set(xlabel="words", ylabel="gold entities", xticks=range(len(used)), xticklabels=used)
    axes.legend(fontsize="small")
    axes.grid(alpha=0.3)
    return figure


def plot_query_locations(use: QueryUse, labels: Sequence[str]) -> Any:
    """Kernel density of where the busiest queries find entities (PIQN, figure 3). Queries made
    from words are everywhere: of these, where entities lie from the query's word, by label."""
    figure, axes = new_figure(7, 4)
    groups = use.label if use.from_words else use.query
    found, sizes = np.unique(groups, return_counts=True)
    busiest = found[np.argsort(-sizes, kind="stable")][:MOST_DENSITIES]
    low, high = 0.0, 1.0
    if use.from_words and len(use.location):
        low, high = np.percentile(use.location, 1) - 1, np.percentile(use.location, 99) + 1
    grid = np.linspace(low, high, 200)
    for group in np.sort(busiest).tolist():
        where = use.location[groups == group]
        name = labels[group] if use.from_words else f"#{group}"
        if len(where) >= FEWEST and np.ptp(where) > 0:
            axes.plot(grid, gaussian_kde(where)(grid), label=f"{name} ({len(where)})")
    unit = "words from the query's own word" if use.from_words else "place in the sentence"
    axes.set(title="Where queries find entities")
    axes.set(xlabel=f"centre of the entity, {unit}", ylabel="density", xlim=(low, high))
    if use.from_words:
        _whole_numbers(axes.xaxis)
    if axes.lines:
        title = "label (predictions)" if use.from_words else "query (predictions)"
        axes.legend(title=title, fontsize="small")
    return figure


def plot_query_types(use: QueryUse, labels: Sequence[str]) -> Any:
    """Share of each label's predictions by query (PIQN, figure 4); where queries are made from
    words, by where the query's word lies in or beside the entity."""
    queries, shares = use.type_matrix(len(labels))
    figure, axes = new_figure(max(4, 0.28 * len(queries) + 2), max(2.5, 0.35 * len(labels) + 1.2))
    if len(queries):
        most = 1 if use.from_words else None
        image = axes.imshow(shares.T, aspect="auto", cmap="Blues", vmin=0, vmax=most)
        figure.colorbar(image, ax=axes, label="share of the label's predictions")
    axes.set(xticks=range(len(queries)), yticks=range(len(labels)), yticklabels=labels)
    names = [PLACES[query] if use.from_words else str(query) for query in queries.tolist()]
    axes.set_xticklabels(names, rotation=90, fontsize="x-small")
    axes.set(title="Which queries find which labels")
    axes.set_xlabel("the query's own word in the entity" if use.from_words else "instance query")
    return figure


def plot_offsets(counts: Mapping[str, int]) -> Any:
    """Boundary offsets of seed spans (Locate and Label, figure 3)."""
    figure, axes = new_figure(5, 3.5)
    bars = axes.bar(list(counts), list(counts.values()))
    axes.bar_label(bars)
    axes.margins(y=0.1)
    axes.set(title="How far the boundaries of seed spans are moved")
    axes.set(xlabel="words", ylabel="boundaries")
    _whole_numbers(axes.yaxis)
    return figure


def plot_trade_off(rows: Sequence[Mapping[str, float]]) -> Any:
    """F1 and speed against steps, one line for each number of noisy spans (DiffusionNER, figure
    3), and F1 against noisy spans (figure 4)."""
    figure, (quality, speed, spans) = new_figure(12, 3.6, ncols=3)
    for n_spans in sorted({row["spans"] for row in rows}):
        line = [row for row in rows if row["spans"] == n_spans]
        steps = [row["steps"] for row in line]
        quality.plot(steps, [row["f"] for row in line], marker="o", label=f"{n_spans} spans")
        speed.plot(steps, [row["words_per_second"] for row in line], marker="o")
    for n_steps in sorted({row["steps"] for row in rows}):
        line = [row for row in rows if row["steps"] == n_steps]
        values = [row["f"] for row in line]
        spans.plot([row["spans"] for row in line], values, marker="s", label=f"{n_steps} steps")
    tried = {name: sorted({row[name] for row in rows}) for name in ("steps", "spans")}
    quality.set(title="F1 by steps", xlabel="denoising steps", ylabel="F1", xticks=tried["steps"])
    speed.set(title="Speed by steps", xlabel="denoising steps", ylabel="words per second")
    speed.set(xticks=tried["steps"])
    spans.set(title="F1 by noisy spans", xlabel="noisy spans", ylabel="F1", xticks=tried["spans"])
    quality.legend(fontsize="small")
    spans.legend(fontsize="small")
    return figure


def plot_paths(
    paths: Sequence[SpanPath], words: Sequence[str], stages: Sequence[str], title: str
) -> Any:
    """Spans on the words of a sentence, one row for each stage on the way from top to bottom
    (DiffusionNER, figure 1; Wen et al. 2023, table 8)."""
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
        axes.plot([], [], color=color, lw=2, label=label)
    axes.set(yticks=range(len(stages)), yticklabels=stages, xticks=range(len(words)))
    axes.set_xticklabels(words, rotation=60, ha="right", fontsize="small")
    axes.set(title=title, xlim=(-1, len(words)), ylim=(len(stages) - 0.5, -0.5))
    if colors:
        axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def plot_answers(scores: AnswerScores, words: Sequence[str], labels: Sequence[str]) -> Any:
    """Heat maps of starts, ends and answers, one row for the question of each label (BERT-MRC,
    section 3.3)."""
    parts = {"start": scores.start, "end": scores.end}
    if scores.answer is not None:
        parts["best answer\nover the word"] = scores.answer
    size = (max(6, 0.45 * len(words)), len(parts) * (0.3 * len(labels) + 0.4) + 1.2)
    figure, rows = new_figure(*size, nrows=len(parts), sharex=True)
    for axes, (name, values) in zip(rows, parts.items()):
        image = axes.imshow(values, aspect="auto", cmap="Blues", vmin=0, vmax=1)
        axes.set(ylabel=name, yticks=range(len(labels)), yticklabels=labels)
    figure.colorbar(image, ax=rows, label="probability")
    rows[0].set(title="Answers to the question of each label")
    rows[-1].set(xticks=range(len(words)))
    rows[-1].set_xticklabels(words, rotation=60, ha="right", fontsize="small")
    return figure


def _whole_numbers(axis: Any) -> None:
    """No ticks between whole numbers."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True))
