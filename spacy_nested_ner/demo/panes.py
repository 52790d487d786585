"""What the page shows of a pipeline: each component that scores spans, and what it finds in a
text."""

from __future__ import annotations

import time
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from typing import Any, Dict, List, Optional, Tuple

import numpy as np
from spacy.language import Language
from spacy.tokens import Doc

from spacy_nested_ner.evaluation.page.page import direction_of
from spacy_nested_ner.evaluation.scores.own_thresholds import (
    ScoredComponent,
    changed,
    scored_components,
    untrained,
)
from spacy_nested_ner.model.types import ScoredSpans
from spacy_nested_ner.pipeline.component import NestedNER
from spacy_nested_ner.pipeline.decode import select_spans
from spacy_nested_ner.pipeline.sentences import has_sentences, rule_sentences, set_sentences
from spacy_nested_ner.pipeline.settings import PipeSettings
from spacy_nested_ner.pipeline.tokens import make_doc
from spacy_nested_ner.settings import describe
from spacy_nested_ner.tables import plain, scored_spans

OVERLAP = list(describe(PipeSettings)["overlap"].choices)
EVERYTHING = OVERLAP[0]
LONGEST_BLOCK = 120
"""Tokens that are drawn together at most: where no sentence ends, the page breaks the line."""

ENGLISH = (
    "The IL-2 gene promoter binds NF-kappa B in activated human T cells.\n\n"
    "The president of the University of California, Berkeley, met the mayor of New York City at "
    "the Bank of China in Hong Kong."
)


class Unreadable(ValueError):
    """A text that no pipeline can take."""


@dataclass(frozen=True)
class Pane:
    """One component of a pipeline, as the page shows it.

    title: of the pipeline.
    """

    title: str
    nlp: Language
    component: ScoredComponent

    @property
    def _has_overlap(self) -> bool:
        return isinstance(self.component.pipe, NestedNER)

    def facts(self) -> Dict[str, Any]:
        """What the page has to know beforehand, ready for JSON.

        live: whether `find` gives all spans at once, so that the page can choose among them;
        otherwise it has to ask again at another threshold or overlap policy. threshold, overlap:
        the component's own, None where it has none.
        """
        component = self.component
        return {
            "pipeline": self.title,
            "component": component.name,
            "factory": self.nlp.get_pipe_meta(component.name).factory,
            "spans_key": component.spans_key,
            "labels": list(component.pipe.labels),
            "live": component.searchable,
            "threshold": component.threshold,
            "lowest": component.lowest,
            "overlap": component.pipe.cfg["overlap"] if self._has_overlap else None,
            "overlap_choices": OVERLAP if self._has_overlap else [],
            "direction": direction_of(self.nlp.vocab),
        }

    def find(
        self, text: str, threshold: Optional[float] = None, overlap: Optional[str] = None
    ) -> Dict[str, Any]:
        """Run the pipeline on a text. Not for several threads at once.

        threshold, overlap: to use instead of the component's own; ignored where the pane is live.
        RETURNS: "words" with the space after them, "blocks" as `_blocks` gives them, "spans" as
            `to_dicts` gives them, without what depends on which others there are (depth and
            parent), and "seconds". Of a live pane there are all spans from the lowest
            threshold on, and "overlap" says under which policies each of them is found: those whose
            float32 score reaches a higher threshold are what the component finds at that one.
        RAISES (Unreadable): For a text that is too long, or no text.
        RAISES (ValueError): For a setting that is out of its range.
        """
        _check(text, self.nlp)
        began = time.perf_counter()
        with changed(self.component.pipe, **self._settings(threshold, overlap)):
            doc = self.nlp(make_doc(self.nlp, text))
        spans = [plain(*each) for each in scored_spans(doc, self.component.spans_key)]
        if self.component.searchable and self._has_overlap:
            for span, policies in zip(spans, _policies(spans, list(self.component.pipe.labels))):
                span["overlap"] = policies
        return {
            "words": [token.text_with_ws for token in doc],
            "blocks": _blocks(doc),
            "spans": spans,
            "seconds": time.perf_counter() - began,
        }

    def _settings(self, threshold: Optional[float], overlap: Optional[str]) -> Dict[str, Any]:
        if self.component.searchable:
            threshold, overlap = self.component.lowest, EVERYTHING
        settings = {
            "threshold": None if self.component.threshold is None else threshold,
            "overlap": overlap if self._has_overlap else None,
        }
        return {name: value for name, value in settings.items() if value is not None}


def panes_of(title: str, nlp: Language) -> List[Pane]:
    """A pane for each component that scores spans.

    Raises ValueError, with the remedy, if there is none, or one that is not trained.
    """
    components = scored_components(nlp)
    if not components:
        names = ", ".join(nlp.pipe_names) or "none"
        raise ValueError(
            f"{title}: no component that finds nested entities. Its components: {names}. "
            "Train a pipeline with one, or give another pipeline."
        )
    name = untrained(components)
    if name is not None:
        raise ValueError(f"{title}: component '{name}' is not trained. Train the pipeline first.")
    return [Pane(title, nlp, each) for each in components.values()]


def example_text(lang: str) -> str:
    """What stands in the text box at first: text of the language, from spaCy's own examples."""
    if lang == "en":
        return ENGLISH
    try:
        return "\n".join(import_module(f"spacy.lang.{lang}.examples").sentences[:3])
    except ImportError:
        return ""


def _check(text: str, nlp: Language) -> None:
    if len(text) > nlp.max_length:
        raise Unreadable(
            f"The text has {len(text):,} characters, and the pipeline takes {nlp.max_length:,} at "
            "most (nlp.max_length). Shorten it, or give it in parts."
        )
    try:
        text.encode("utf8")
    except UnicodeEncodeError as err:
        raise Unreadable(
            f"Character {err.start + 1:,} of the text is half of a surrogate pair, not a "
            "character. Delete it."
        ) from err


def _policies(spans: List[Dict[str, Any]], labels: List[str]) -> List[List[str]]:
    """Under which overlap policies each span is found, if these are all spans that are found where
    any may overlap."""
    index = {label: i for i, label in enumerate(labels)}
    zeros = np.zeros(len(spans), dtype=np.int64)
    columns = [(each["start_token"], each["end_token"], index[each["label"]]) for each in spans]
    start, end, label = np.array(columns, dtype=np.int64).reshape(-1, 3).T
    score = np.array([each["score"] for each in spans], dtype=np.float32)
    found = ScoredSpans(zeros, zeros, start, end, label, score)
    policies: List[List[str]] = [[] for _ in spans]
    place = {column: i for i, column in enumerate(columns)}
    for overlap in OVERLAP:
        kept = select_spans(found, overlap=overlap)
        for column in zip(kept.start.tolist(), kept.end.tolist(), kept.label.tolist()):
            policies[place[column]].append(overlap)
    return policies


def _blocks(doc: Doc) -> List[Tuple[int, int]]:
    """First and end token of what stands on lines of its own: sentences, cut at line breaks and
    where they are very long. Space belongs to what stands before it."""
    sentences = set_sentences(doc) if has_sentences(doc) else rule_sentences(doc)
    begins = {start for start, _ in sentences}
    starts = [0]
    ends_here = False
    for token in doc:
        i = token.i
        ends_here = ends_here or i in begins or i - starts[-1] >= LONGEST_BLOCK
        if ends_here and not token.is_space and i:
            starts.append(i)
        ends_here = "\n" in token.text or (ends_here and token.is_space)
    return list(pairwise([*starts, len(doc)])) if len(doc) else []
