"""Predicted spans as plain Python values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List

if TYPE_CHECKING:
    from spacy.tokens import Doc


def to_dicts(doc: Doc, spans_key: str = "sc") -> List[Dict[str, Any]]:
    """The spans of `doc.spans[spans_key]` with their scores, ready for JSON; `doc.to_json` leaves
    the scores out.

    RETURNS: of each span "text" and "label"; "start" and "end", characters of `doc.text`;
        "token_start" and "token_end", tokens; ends are exclusive. "score" is None where there is
        none.
    RAISES (ValueError): If the doc has no spans of that key; names those that it has.
    """
    import numpy as np

    if spans_key not in doc.spans:
        keys = ", ".join(map(repr, doc.spans)) or "none"
        raise ValueError(f"The doc has no spans under {spans_key!r}. Its spans keys: {keys}.")
    spans = list(doc.spans[spans_key])
    scores = doc.spans[spans_key].attrs.get("scores")
    if scores is None or np.size(scores) != len(spans):
        values: List[Any] = [None] * len(spans)
    else:
        values = np.asarray(scores, dtype=np.float64).reshape(-1).tolist()
    return [
        {
            "text": span.text,
            "label": span.label_,
            "start": span.start_char,
            "end": span.end_char,
            "token_start": span.start,
            "token_end": span.end,
            "score": value,
        }
        for span, value in zip(spans, values)
    ]
