"""Scores of nested spans, by characters and under names that do not depend on `spans_key`."""

from typing import Any, Callable, Dict, Iterable, List, Optional, Set, Tuple

import numpy as np
from spacy.scorer import PRFScore, Scorer, get_ner_prf
from spacy.tokens import Doc, Span
from spacy.training import Example

from spacy_nested_ner.pipeline.tokens import is_blank

# First character, character after the last, label. Whitespace is not counted.
Entity = Tuple[int, int, str]
# In the `attrs` of the groups of spans that the components of this package set: the name of the
# component. It survives all that the spans themselves survive (copies, disk, other processes).
WRITTEN_BY = "nested_ner"


def make_nested_scorer() -> Callable:
    """`spacy_nested_ner.nested_scorer.v1`: see `score_nested`."""
    return score_nested


def score_nested(
    examples: Iterable[Example],
    *,
    spans_key: str = "sc",
    set_ents: Optional[str] = None,
    **cfg: Any,
) -> Dict[str, Any]:
    """Strict micro scores of nested entities, and per label.

    RETURNS: `nested_p`, `nested_r`, `nested_f`, `nested_per_type` of `doc.spans[spans_key]` and of
    all other spans that components of this package have predicted, counted together: a pipeline
    with two of them has one score. Beside them spaCy's own `spans_{spans_key}_p/r/f/per_type` of
    this key alone. The `nested_*` scores compare character offsets and labels: a predicted span
    that fits no token of the reference is a false positive, where spaCy's scorer leaves it out. A
    doc is not scored for a key that its reference lacks; if all lack all keys, the scores are None.
    With `set_ents` also `ents_p/r/f/per_type` of `doc.ents`, as spaCy's `ner` has them.
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
    pairs = [
        (span_set(eg.predicted, key), span_set(eg.reference, key))
        for eg in examples
        for key in _nested_keys(eg.predicted, spans_key)
        if key in eg.reference.spans
    ]
    ents = get_ner_prf(examples) if set_ents is not None else {}
    return {**scores, **_nested_scores(pairs), **ents}


def _nested_scores(pairs: List[Tuple[Set[Entity], Set[Entity]]]) -> Dict[str, Any]:
    """The `nested_*` scores of found and expected spans."""
    if not pairs:
        return dict.fromkeys(("nested_p", "nested_r", "nested_f", "nested_per_type"))
    total = PRFScore()
    per_type: Dict[str, PRFScore] = {}
    for found, gold in pairs:
        total.score_set(found, gold)
        for label in {label for _, _, label in found | gold}:
            per_type.setdefault(label, PRFScore()).score_set(
                {s for s in found if s[2] == label}, {s for s in gold if s[2] == label}
            )
    return {
        "nested_p": total.precision,
        "nested_r": total.recall,
        "nested_f": total.fscore,
        "nested_per_type": {label: per_type[label].to_dict() for label in sorted(per_type)},
    }


def _nested_keys(doc: Doc, spans_key: str) -> Set[str]:
    """`spans_key`, and the keys that components of this package have written."""
    return {spans_key, *(key for key, group in doc.spans.items() if WRITTEN_BY in group.attrs)}


def span_set(doc: Doc, spans_key: str) -> Set[Entity]:
    """Spans under a key as `places_of` gives them, without spans of whitespace alone."""
    return {each for each in places_of(doc, doc.spans.get(spans_key, [])) if each[0] < each[1]}


def places_of(doc: Doc, spans: Iterable[Span]) -> List[Entity]:
    """Spans by characters, so that texts which differ in whitespace alone can be compared. Where
    start equals end, a span is whitespace alone."""
    solid = solid_offsets(doc.text)
    return [(int(solid[s.start_char]), int(solid[s.end_char]), s.label_) for s in spans]


def solid_offsets(text: str) -> np.ndarray:
    """`(characters + 1,)` int: how many characters that are no whitespace stand before each.

    Texts that differ in whitespace alone, as after tokenisation by others, are compared in these.
    Whitespace is what `is_space` takes for it.
    """
    blank = str.isspace if text.isprintable() else is_blank  # the same there, and faster
    solid = np.fromiter((not blank(character) for character in text), bool, len(text))
    return np.concatenate([[0], np.cumsum(solid)])
