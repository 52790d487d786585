"""Entities of docs as plain values and as a table.

A row for each span. Outer spans come first: by start, the longer one first, then by label. Where
two labels have the same span, neither lies in the other: depth and parent are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Optional, Tuple, Union

from spacy_nested_ner.warn import warn

if TYPE_CHECKING:
    import pandas as pd
    from spacy.tokens import Doc, Span

Scored = Tuple["Span", Optional[float]]
"""A span and its score, None if it has none."""

COLUMNS = {
    "doc": "int64",
    "start": "int64",
    "end": "int64",
    "start_token": "int64",
    "end_token": "int64",
    "text": "str",
    "label": "str",
    "score": "float64",
    "depth": "int64",
    "parent": "Int64",  # the type of pandas for whole numbers some of which are missing
}
"""Of the table, with their types in pandas."""

RETOKENIZED = (
    "Tokens were merged or split after the spans were set: place a component that does so before "
    "those that set spans."
)


def to_dicts(docs: Union[Doc, Iterable[Doc]], spans_key: str = "sc") -> List[Dict[str, Any]]:
    """The texts of docs with their spans and scores, ready for JSON; `doc.to_json` leaves the
    scores out.

    docs: one doc or several, such as `nlp.pipe(texts)`.
    spans_key: key of the entities in doc.spans.

    Returns of each doc "text" and "spans". A span has

    - "start", "end": characters (code points) of the text; ends are exclusive
    - "start_token", "end_token": tokens of the doc
    - "text", "label"
    - "kb_id": only where it has one, as from what links entities to a knowledge base; "taught" in
        what `nested-ner teach` wrote
    - "score": None where there is none
    - "depth": how many spans lie around it in the longest chain, itself included; 1 is outermost
    - "parent": index, in "spans", of the smallest span that contains it, None where none does. Of
        several labels on that span it is the first. Where spans cross, the longest chain may lead
        around the parent, and depth is more than that of the parent and 1.

    Raises ValueError if a doc has no spans of that key, and names those that it has; TypeError for
    what is no doc.
    """
    return list(dicts(docs, spans_key))


def to_frame(docs: Union[Doc, Iterable[Doc]], spans_key: str = "sc") -> pd.DataFrame:
    """The spans of docs as a table of pandas with a row for each; see `to_dicts`.

    Its columns are doc (number of the doc, from 0), start, end, start_token, end_token, text,
    label, score (NaN where there is none), depth, parent (row of the table, NA where there is
    none), and kb_id if any span has one (NA for the others). A doc without spans has no row; a
    table without rows has its columns and their types.

    Raises ImportError if pandas is missing, else as `to_dicts`.
    """
    try:
        import pandas as pd
    except ImportError as err:
        raise ImportError(
            f"to_frame needs pandas: python -m pip install 'spacy_nested_ner[pandas]'. ({err})"
        ) from err
    rows = list(rows_of(dicts(docs, spans_key)))
    linked = {"kb_id": "object"} if any("kb_id" in row for row in rows) else {}
    frame = pd.DataFrame.from_records(rows, columns=[*COLUMNS, *linked])
    return frame.astype({**COLUMNS, **linked})


def rows_of(found: Iterable[Dict[str, Any]]) -> Iterator[Dict[str, Any]]:
    """The rows of `to_frame`, from what `dicts` gives; with the "id" of a text, where it has
    one."""
    first = 0
    for number, doc in enumerate(found):
        name = {"id": doc["id"]} if "id" in doc else {}
        for span in doc["spans"]:
            parent = None if span["parent"] is None else first + span["parent"]
            yield {"doc": number, **span, "parent": parent, **name}
        first += len(doc["spans"])


def dicts(docs: Union[Doc, Iterable[Doc]], spans_key: str = "sc") -> Iterator[Dict[str, Any]]:
    """What `to_dicts` gives, doc by doc."""
    for doc, spans in docs_with_spans(docs, spans_key):
        yield as_dict(doc, spans)


def as_dict(doc: Doc, spans: List[Scored]) -> Dict[str, Any]:
    """What `to_dicts` gives of one doc. spans: its `scored_spans`."""
    return {"text": doc.text, "spans": _placed(spans)}


def docs_with_spans(
    docs: Union[Doc, Iterable[Doc]], spans_key: str
) -> Iterator[Tuple[Doc, List[Scored]]]:
    """Each doc with its `scored_spans`.

    Raises ValueError, with the number of the doc, if it has none of that key; TypeError for what is
    no doc.
    """
    from spacy.tokens import Doc

    for number, doc in enumerate([docs] if isinstance(docs, Doc) else docs):
        if not isinstance(doc, Doc):
            kind = type(doc).__name__
            raise TypeError(f"Expected docs, not {kind}. Give nlp(text), or nlp.pipe(texts).")
        try:
            spans = scored_spans(doc, spans_key)
        except ValueError as err:
            raise ValueError(f"Doc {number}: {err}") from err
        yield doc, spans


def scored_spans(doc: Doc, spans_key: str) -> List[Scored]:
    """The spans of a doc and their scores, None where there is none. Outer spans come first.

    Raises ValueError if the doc has no spans of that key, and names those that it has; if a
    retokenizer has left spans without tokens.
    """
    from spacy_nested_ner.corpora.spans import span_order

    if spans_key not in doc.spans:
        keys = ", ".join(map(repr, doc.spans)) or "none"
        raise ValueError(f"the doc has no spans under {spans_key!r}. Its spans keys: {keys}.")
    try:
        spans = list(doc.spans[spans_key])
    except IndexError as err:
        raise ValueError(f"the doc has spans behind its last token. {RETOKENIZED}") from err
    if any(_is_displaced(doc, span) for span in spans):
        warn(f"Spans have characters and tokens of different places. {RETOKENIZED}")
    scored = zip(spans, _scores(doc.spans[spans_key].attrs.get("scores"), len(spans)))
    return sorted(scored, key=lambda each: span_order(_char_span(each[0])))


def _is_displaced(doc: Doc, span: Span) -> bool:
    """Whether a retokenizer, which does not know of span groups, has moved other words there."""
    return len(span) > 0 and (
        doc[span.start].idx != span.start_char
        or doc[span.end - 1].idx + len(doc[span.end - 1]) != span.end_char
    )


def _char_span(span: Span) -> Tuple[int, int, str]:
    return span.start_char, span.end_char, span.label_


def _scores(scores: Any, length: int) -> List[Optional[float]]:
    """As the shortest decimal numbers that are the same: 0.97, where `tolist` of float32 would give
    0.9700000286102295."""
    import numpy as np

    if scores is None:
        return [None] * length
    values = np.asarray(scores).reshape(-1)
    if len(values) != length:
        warn(
            "The scores of a span group are left out: it has more or fewer spans than scores. What "
            "adds spans to a group or removes them, such as a span_ruler, must do the same with "
            "its scores: see 'Filter, add, link' in docs/guide/component.md."
        )
        return [None] * length
    if values.dtype.kind != "f":
        values = values.astype(np.float64)
    return [None if np.isnan(value) else float(str(value)) for value in values]


def _placed(spans: List[Scored]) -> List[Dict[str, Any]]:
    from spacy_nested_ner.corpora.statistics import nesting, parents

    places = [(span.start_char, span.end_char) for span, _ in spans]
    depth, parent = nesting(places).depth, parents(places)
    index = {place: len(places) - 1 - i for i, place in enumerate(reversed(places))}
    return [
        {
            **plain(span, score),
            "depth": depth[place],
            "parent": index[parent[place]] if place in parent else None,
        }
        for place, (span, score) in zip(places, spans)
    ]


def plain(span: Span, score: Optional[float]) -> Dict[str, Any]:
    """What `to_dicts` tells of a span by itself."""
    return {
        "start": span.start_char,
        "end": span.end_char,
        "start_token": span.start,
        "end_token": span.end,
        "text": span.text,
        "label": span.label_,
        **({"kb_id": _kb_id(span)} if span.kb_id else {}),
        "score": score,
    }


def _kb_id(span: Span) -> Union[int, str]:
    """The string, or a number that was given as such; small ones are those of spaCy's symbols."""
    from spacy.symbols import NAMES

    if span.kb_id < len(NAMES):
        return span.kb_id
    try:
        return span.kb_id_
    except KeyError:
        return span.kb_id
