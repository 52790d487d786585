"""Components that score spans, and their thresholds beside the best ones on a data set."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Dict, Iterator, Optional

import numpy as np
from spacy.language import Language
from spacy.pipeline import SpanCategorizer, SpanFinder, SpanRuler

from spacy_nested_ner.encoders.protocol import KNOWN
from spacy_nested_ner.evaluation.scores.entities import Entity, EntityTable
from spacy_nested_ner.evaluation.scores.metrics import strict
from spacy_nested_ner.evaluation.scores.thresholds import best_threshold, tolerance
from spacy_nested_ner.model.head_model import head_shim
from spacy_nested_ner.model.types import system_of
from spacy_nested_ner.pipeline.component import NestedNER

LOWEST = 0.05
"""Lower thresholds are not looked at: they cost time and are never the best in practice."""


@dataclass
class ScoredComponent:
    """A component that scores spans.

    threshold: None where it has none. searchable: whether lower scored spans leave higher scored
    ones alone, here and in later components, so that one prediction at a low threshold holds those
    at all higher ones. lowest: the lowest threshold above which all spans are known.
    """

    name: str
    pipe: Any
    spans_key: str
    threshold: Optional[float]
    searchable: bool
    lowest: float

    @property
    def middle(self) -> float:
        """The score from which on the component takes a span."""
        return 0.5 if self.threshold is None else self.threshold

    def kept(self, found: Dict[Entity, float]) -> Dict[Entity, float]:
        """The spans that the component predicts at its own threshold."""
        if self.threshold is None or not self.searchable:
            return found
        # Scores are float32, and are compared as such by the components.
        least = np.float32(self.threshold)
        return {entity: score for entity, score in found.items() if np.float32(score) >= least}

    def bounded(self, found: Dict[Entity, float], most: int) -> Dict[Entity, float]:
        """Those spans and, of the lower scored ones, the `most` best; `lowest` rises to where some
        are left out."""
        kept = self.kept(found)
        below = sorted((e for e in found if e not in kept), key=lambda e: -found[e])
        if len(below) > most:
            self.lowest = max(self.lowest, float(np.nextafter(found[below[most]], 1)))
            below = [entity for entity in below[:most] if found[entity] >= self.lowest]
        return {**kept, **{entity: found[entity] for entity in below}}


def scored_components(nlp: Language) -> Dict[str, ScoredComponent]:
    """Each component that scores spans, by spans key. Where two write to one key, only what the
    last one writes is seen."""
    found = {}
    for name, pipe in nlp.pipeline:
        if isinstance(pipe, (NestedNER, SpanCategorizer)):
            threshold = pipe.cfg.get("threshold")
            lowest = LOWEST if threshold is None else min(LOWEST, threshold)
            found[pipe.key] = ScoredComponent(
                name, pipe, pipe.key, threshold, is_searchable(nlp, name), lowest
            )
    return found


def is_searchable(nlp: Language, name: str) -> bool:
    """Whether one prediction of a component at a low threshold holds those at all higher ones, also
    after what later components do."""
    pipe: Any = nlp.get_pipe(name)
    after = nlp.pipeline[nlp.pipe_names.index(name) + 1 :]
    return keeps_spans(pipe) and not any(_may_change(later, pipe.key) for _, later in after)


def _may_change(pipe: Any, key: str) -> bool:
    """Whether a component may change spans that are there: it would see more of them at a lower
    threshold. Nobody knows what components from elsewhere do."""
    if isinstance(pipe, SpanRuler):
        return pipe.key == key
    if isinstance(pipe, SpanFinder):  # it replaces them
        return pipe.cfg["spans_key"] == key
    return not type(pipe).__module__.startswith(KNOWN)


def keeps_spans(pipe: Any) -> bool:
    """Whether a component gives at a lower threshold the same spans and more."""
    if not isinstance(pipe, NestedNER):
        return True
    settings = head_shim(pipe.model).settings
    return system_of(pipe.model).keeps_spans(settings, pipe.options())


def untrained(components: Dict[str, ScoredComponent]) -> Optional[str]:
    """The first component that has weights yet to be made, if there is one."""
    for each in components.values():
        model = each.pipe.model
        if isinstance(each.pipe, NestedNER) and not head_shim(model).is_built:
            return each.name
        if any(node.has_param(name) is None for node in model.walk() for name in node.param_names):
            return each.name
    return None


@contextmanager
def lowered(components: Dict[str, ScoredComponent]) -> Iterator[None]:
    """The components predict down to the lowest threshold in here."""
    with ExitStack() as stack:
        for each in components.values():
            if each.searchable and each.threshold is not None:
                stack.enter_context(changed(each.pipe, threshold=each.lowest))
        yield


@contextmanager
def changed(pipe: Any, **settings: Any) -> Iterator[None]:
    """A component has other settings in its `cfg` in here."""
    before = {name: pipe.cfg[name] for name in settings}
    pipe.cfg.update(settings)
    try:
        yield
    finally:
        pipe.cfg.update(before)


def threshold_facts(
    component: ScoredComponent, table: EntityTable, low: EntityTable
) -> Dict[str, Any]:
    """F at the component's threshold and at the best one for this data, ready for JSON.

    table: predictions at the component's threshold. low: all that are known.
    """
    f = strict(table).f
    best = best_threshold(low, component.lowest) if component.searchable else None
    choice = None
    if best is not None:
        choice = {"threshold": best.threshold, "f": best.f}
        if component.threshold is not None and f is not None and best.f < f + tolerance(low):
            choice = {"threshold": component.threshold, "f": f}
    scores = low.score[low.predicted & ~np.isnan(low.score)]  # rules give none
    return {
        "component": component.name,
        "spans_key": component.spans_key,
        "threshold": component.threshold,
        "f": f,
        "best": choice,
        "lowest": component.lowest if component.searchable else None,
        "highest_score": float(scores.max()) if len(scores) else None,
    }
