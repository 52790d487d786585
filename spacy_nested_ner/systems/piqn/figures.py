"""Which query finds what (Shen et al. 2022, section 5.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Sequence, Tuple

import numpy as np
import torch
from scipy.stats import gaussian_kde
from torch import Tensor

from spacy_nested_ner.systems.base import FigureInput
from spacy_nested_ner.systems.drawing import new_figure, plain, whole_numbers

PLACES = ("before", "first word", "inside", "last word", "only word", "after")
"""Where the word of a query lies, seen from the entity that the query finds."""
FEWEST = 5
"""Predictions that a query needs for a density of its own."""
MOST_DENSITIES = 8


@dataclass(frozen=True)
class QueryUse:
    """Which query predicted what; all arrays have one entry per prediction.

    query: number of the query; where queries are made from words, where its word lies, an index
    into `PLACES`. location: centre of the predicted entity, from 0 (start of the sentence) to 1;
    where queries are made from words, in words from the query's own word. label: index. from_words:
    which of the two it is.
    """

    query: np.ndarray
    location: np.ndarray
    label: np.ndarray
    from_words: bool

    def type_matrix(self, n_labels: int) -> Tuple[np.ndarray, np.ndarray]:
        """The queries that predict anything (all `PLACES` where they are made from words), and
        `(queries, labels)` float: the share of a label's predictions that each of them makes
        (figure 4: normalised on the axis of types)."""
        queries = np.arange(len(PLACES)) if self.from_words else np.unique(self.query)
        row = np.searchsorted(queries, self.query)
        counts = np.zeros((len(queries), n_labels))
        np.add.at(counts, (row, self.label), 1)
        return queries, counts / np.maximum(counts.sum(axis=0), 1)


def draw(view: FigureInput) -> Dict[str, Any]:
    """The figures "query_locations" and "query_types"."""
    use = query_use(view)
    return {
        "query_locations": plot_query_locations(use, view.labels),
        "query_types": plot_query_types(use, view.labels),
    }


@torch.no_grad()
def query_use(view: FigureInput) -> QueryUse:
    """What each instance query predicts."""
    head, options = view.head, view.options
    parts: List[Tuple[np.ndarray, ...]] = []
    from_words = False
    for batch, _ in view.batches():
        spans, query, queries = head.found(batch, options)
        centre = (spans.start + spans.end) / 2
        from_words = queries.anchors is not None
        if queries.anchors is not None:
            own = queries.anchors[spans.segment, query]
            location = centre - own
            number = _place(own, spans.start, spans.end)
        else:
            location = (centre + 0.5) / batch.mask.sum(dim=1)[spans.segment]
            number = query
        parts.append(tuple(t.cpu().numpy() for t in (number, location, spans.label)))
    none = np.zeros(0, dtype=np.int64)
    numbers, locations, labels = map(np.concatenate, zip(*parts or [(none, none, none)]))
    return QueryUse(numbers, locations, labels, from_words)


def _place(word: Tensor, start: Tensor, end: Tensor) -> Tensor:
    """Index into `PLACES`. All `(n,)` long: words, first and last words of spans."""
    place = torch.full_like(word, PLACES.index("inside"))
    place[word == start] = PLACES.index("first word")
    place[word == end] = PLACES.index("last word")
    place[(word == start) & (word == end)] = PLACES.index("only word")
    place[word < start] = PLACES.index("before")
    place[word > end] = PLACES.index("after")
    return place


def plot_query_locations(use: QueryUse, labels: Sequence[str]) -> Any:
    """Kernel density of where the busiest queries find entities (figure 3). Queries made from
    words are everywhere: of these, where entities lie from the query's word, by label."""
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
        name = plain(labels[group]) if use.from_words else f"#{group}"
        if len(where) >= FEWEST and np.ptp(where) > 0:
            axes.plot(grid, gaussian_kde(where)(grid), label=f"{name} ({len(where)})")
    unit = "words from the query's own word" if use.from_words else "place in the sentence"
    axes.set(title="Where queries find entities")
    axes.set(xlabel=f"centre of the entity, {unit}", ylabel="density", xlim=(low, high))
    if use.from_words:
        whole_numbers(axes.xaxis)
    if axes.lines:
        title = "label (predictions)" if use.from_words else "query (predictions)"
        axes.legend(title=title, fontsize="small")
    return figure


def plot_query_types(use: QueryUse, labels: Sequence[str]) -> Any:
    """Share of each label's predictions by query (figure 4); where queries are made from words,
    by where the query's word lies in or beside the entity."""
    queries, shares = use.type_matrix(len(labels))
    figure, axes = new_figure(max(4, 0.28 * len(queries) + 2), max(2.5, 0.35 * len(labels) + 1.2))
    if len(queries):
        most = 1 if use.from_words else None
        image = axes.imshow(shares.T, aspect="auto", cmap="Blues", vmin=0, vmax=most)
        figure.colorbar(image, ax=axes, label="share of the label's predictions")
    axes.set(xticks=range(len(queries)), yticks=range(len(labels)))
    axes.set_yticklabels(list(map(plain, labels)))
    names = [PLACES[query] if use.from_words else str(query) for query in queries.tolist()]
    axes.set_xticklabels(names, rotation=90, fontsize="x-small")
    axes.set(title="Which queries find which labels")
    axes.set_xlabel("the query's own word in the entity" if use.from_words else "instance query")
    return figure
