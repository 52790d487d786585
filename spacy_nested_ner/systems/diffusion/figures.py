"""How noise becomes entities, and what steps and noisy spans are worth (Shen et al. 2023)."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence

import torch

from spacy_nested_ner.systems.base import FigureInput
from spacy_nested_ner.systems.drawing import SpanPath, new_figure, plot_paths


def draw(view: FigureInput) -> Dict[str, Any]:
    """The figures "trajectory" and "trade_off"."""
    stages = ["noise", *(f"step {i}" for i in range(1, view.options.steps + 1))]
    title = "From noise to entities"
    return {
        "trajectory": plot_paths(denoising_paths(view), view.followed_words, stages, title),
        "trade_off": plot_trade_off(step_trade_off(view)),
    }


def denoising_paths(view: FigureInput) -> List[SpanPath]:
    """The noisy spans of the followed segment that become entities, from noise to the last step
    (figure 1 and algorithm 2). Of those that meet and have the label, the one whose score is
    nearest to the entity's, which with `score = "sum"` is the one that it is taken from; its path
    stays where it was in the step of that score.
    """
    head, options = view.head, view.options
    ((batch, _),) = view.followed()
    steps = head.trajectory(batch.words, batch.mask, options)
    stages = torch.stack([steps[0].noisy[0], *(step.spans[0] for step in steps)]).float()
    first = len(steps) - 1 if options.found_in == "last_step" else 0
    counted = steps[first:]
    spans = torch.stack([step.spans[0] for step in counted])
    legal = torch.stack([(step.legal & step.real)[0] for step in counted])
    labels = torch.stack([step.label[0] for step in counted])
    scores = torch.stack([step.score[0] for step in counted])
    paths = []
    for _, start, end, label, score in zip(*head.entities(counted, options)):
        meets = (spans == torch.stack([start, end])).all(-1) & legal
        # The winner of a mean may be nobody's own: then any span there will do.
        own = meets & (labels == label)
        apart = (scores - score).abs() + (~own).float() + 2.0 * (~meets).float()
        number, span = divmod(int(apart.argmin()), spans.shape[1])
        until = first + number + 1
        path = stages[:, span].clone()
        path[until:] = path[until]
        paths.append(SpanPath(path.cpu().numpy(), view.labels[int(label)], float(score)))
    return sorted(paths, key=lambda path: (*path.stages[-1], path.label))


def step_trade_off(view: FigureInput) -> List[Dict[str, float]]:
    """F1 and speed for each number of steps and of noisy spans (figures 3 and 4).

    RETURNS: rows of "steps", "n_spans", "f" and "words_per_second".
    """
    rows = []
    for n_spans in view.varied["n_spans"]:
        for steps in view.varied["steps"]:
            f, speed = view.score(steps=steps, n_spans=n_spans)
            rows.append({"steps": steps, "n_spans": n_spans, "f": f, "words_per_second": speed})
    return rows


def plot_trade_off(rows: Sequence[Mapping[str, float]]) -> Any:
    """F1 and speed against steps, one line for each number of noisy spans (figure 3), and F1
    against noisy spans (figure 4)."""
    figure, (quality, speed, spans) = new_figure(12, 3.6, ncols=3)
    tried = {name: sorted({row[name] for row in rows}) for name in ("steps", "n_spans")}
    for n_spans in tried["n_spans"]:
        line = [row for row in rows if row["n_spans"] == n_spans]
        steps = [row["steps"] for row in line]
        quality.plot(steps, [row["f"] for row in line], marker="o", label=f"{n_spans} spans")
        speed.plot(steps, [row["words_per_second"] for row in line], marker="o")
    for n_steps in tried["steps"]:
        line = [row for row in rows if row["steps"] == n_steps]
        values = [row["f"] for row in line]
        spans.plot([row["n_spans"] for row in line], values, marker="s", label=f"{n_steps} steps")
    quality.set(title="F1 by steps", xlabel="denoising steps", ylabel="F1", xticks=tried["steps"])
    speed.set(title="Speed by steps", xlabel="denoising steps", ylabel="words per second")
    speed.set(xticks=tried["steps"])
    spans.set(title="F1 by noisy spans", xlabel="noisy spans", ylabel="F1", xticks=tried["n_spans"])
    quality.legend(fontsize="small")
    spans.legend(fontsize="small")
    return figure
