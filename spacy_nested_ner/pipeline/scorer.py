"""Scores of nested spans, by characters and under names that do not depend on `spans_key`."""

from typing import Any, Callable, Dict, Iterable, Set, Tuple

import numpy as np
from spacy.scorer import PRFScore, Scorer
from spacy.tokens import Doc
from spacy.training import Example

Entity = Tuple[int, int, str]


def make_nested_scorer() -> Callable:
    """`spacy_nested_ner.nested_scorer.v1`: see `score_nested`."""
    return score_nested


def score_nested(
    examples: Iterable[Example], *, spans_key: str = "sc", **cfg: Any
) -> Dict[str, Any]:
    """Strict micro scores of `doc.spans[spans_key]`, and per label.

    RETURNS: `nested_p`, `nested_r`, `nested_f`, `nested_per_type`, and spaCy's own
    `spans_{spans_key}_p/r/f/per_type`. The `nested_*` scores compare character offsets and labels:
    a predicted span that fits no token of the reference is a false positive, where spaCy's scorer
    leaves it out. Docs without `spans_key` in the reference are not scored; if no doc has it, the
    scores are None.
    """
    examples = list(examples)
    scores = Scorer.score_spans(
        examples,
        attr=f"spans_{spans_key}",
        getter=lambda doc, attr: doc.spans.get(attr[len("spans_") :], []),
        has_annotation=lambda doc: spans_key in doc.spans,
        allow_overlap=True,
        labeled=True,
    )
    scored = [eg for eg in examples if spans_key in eg.reference.spans]
    if not scored:
        return {
            **scores,
            "nested_p": None,
            "nested_r": None,
            "nested_f": None,
            "nested_per_type": None,
        }
    total = PRFScore()
    per_type: Dict[str, PRFScore] = {}
    for eg in scored:
        found = span_set(eg.predicted, spans_key)
        gold = span_set(eg.reference, spans_key)
        total.score_set(found, gold)
        for label in {label for _, _, label in found | gold}:
            per_type.setdefault(label, PRFScore()).score_set(
                {s for s in found if s[2] == label}, {s for s in gold if s[2] == label}
            )
    return {
        **scores,
        "nested_p": total.precision,
        "nested_r": total.recall,
        "nested_f": total.fscore,
        "nested_per_type": {label: per_type[label].to_dict() for label in sorted(per_type)},
    }


def span_set(doc: Doc, spans_key: str) -> Set[Entity]:
    """Spans as a set of (first character, end character, label), whitespace not counted, so that
    texts which differ in whitespace alone can be compared."""
    spans = doc.spans.get(spans_key, [])
    solid = np.concatenate([[0], np.cumsum([not char.isspace() for char in doc.text])])
    return {(int(solid[s.start_char]), int(solid[s.end_char]), s.label_) for s in spans}
