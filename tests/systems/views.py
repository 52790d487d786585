"""Untrained components and what their figures are drawn from: with a threshold of 0 every query,
seed and proposal predicts something."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Set, Tuple

from spacy_nested_ner.evaluation.figures.view import ComponentView
from tests.conftest import make_examples, make_pipeline, spans_of


def view_of(factory: str, model: Optional[Dict[str, Any]] = None, **settings: Any) -> ComponentView:
    """Of the ten nested sentences."""
    nlp = make_pipeline(factory, model, **{"threshold": 0.0, **settings})
    return ComponentView(nlp, nlp.get_pipe("ner"), make_examples(nlp))


def views_of_docs(view: ComponentView) -> List[ComponentView]:
    """One of each doc."""
    return [ComponentView(view.nlp, view.pipe, [example]) for example in view.examples]


def predicted(view: ComponentView) -> Set[Tuple[int, int, str]]:
    """Start, end and label of what is predicted in the one doc of a view."""
    (doc,) = view.docs
    return set(spans_of(doc))
