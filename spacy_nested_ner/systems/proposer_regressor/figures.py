"""How proposals become entities (Wen et al. 2023, table 8)."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import torch

from spacy_nested_ner.systems.base import FigureInput
from spacy_nested_ner.systems.drawing import SpanPath, plot_paths


def draw(view: FigureInput) -> Dict[str, Any]:
    """The figure "refinement"."""
    paths = refinement_paths(view)
    count = len(paths[0].stages) if paths else 2
    stages = ["proposer", *(f"layer {i}" for i in range(1, count - 1)), "entity"]
    title = "From proposals to entities"
    return {"refinement": plot_paths(paths, view.followed_words, stages, title)}


def refinement_paths(view: FigureInput) -> List[SpanPath]:
    """The proposals of the followed segment that become entities, after the proposer and after
    each layer of the regressor, and what was decoded."""
    ((batch, _),) = view.followed()
    trace = view.head.trace(batch.words, batch.mask)
    final = trace.final
    # One without a span has the score 0.
    keep = (final.score >= view.options.threshold) & (final.score > 0) & trace.mask
    decoded = torch.stack([final.start, final.end], dim=-1)[0].to(trace.location.dtype)
    stages = torch.cat([trace.location[:, 0], decoded.unsqueeze(0)])
    best: Dict[Tuple[float, float, int], SpanPath] = {}
    for i in torch.nonzero(keep[0]).flatten().tolist():
        path, label, score = stages[:, i].cpu().numpy(), int(final.label[0, i]), final.score[0, i]
        key = (float(path[-1, 0]), float(path[-1, 1]), label)
        if key not in best or float(score) > best[key].score:
            best[key] = SpanPath(path, view.labels[label], float(score))
    return [best[key] for key in sorted(best)]
