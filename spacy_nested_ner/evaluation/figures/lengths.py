"""The figure that all pipelines have: F1 by length."""

from __future__ import annotations

from typing import Any, Mapping

import numpy as np

from spacy_nested_ner.evaluation.scores.entities import LENGTHS, length_group
from spacy_nested_ner.evaluation.scores.metrics import PRF
from spacy_nested_ner.systems.drawing import new_figure, plain, whole_numbers


def plot_lengths(systems: Mapping[str, Mapping[str, PRF]]) -> Any:
    """F1 by number of words of each system (Locate and Label, table 2), with the gold entities."""
    figure, (axes, counts) = new_figure(
        8, 5, nrows=2, sharex=True, gridspec_kw={"height_ratios": [3, 1]}
    )
    names = [*map(length_group, LENGTHS)]
    used = [name for name in names if any(name in groups for groups in systems.values())]
    used = names[: names.index(used[-1]) + 1] if used else []
    for (system, groups), marker in zip(systems.items(), "osD^vPX*<>" * len(systems)):
        scores = [groups[n].f if n in groups and groups[n].gold else np.nan for n in used]
        # NaN breaks the line.
        axes.plot(range(len(used)), scores, marker=marker, label=plain(system))
    gold = [max((g[n].gold for g in systems.values() if n in g), default=0) for n in used]
    counts.bar(range(len(used)), gold, color="0.6")
    axes.set(title="F1 by length of the entity", ylabel="F1", ylim=(-0.02, 1.02))
    whole_numbers(counts.yaxis, 4)  # it is low
    counts.set(xlabel="words", ylabel="gold entities", xticks=range(len(used)), xticklabels=used)
    axes.legend(fontsize="small")
    axes.grid(alpha=0.3)
    return figure
