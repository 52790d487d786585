"""Nested entities drawn in a notebook, by displaCy's style "span".

displaCy alone leaves scores out, does not escape labels, writes labels over one another where words
are short, and reckons the height of a word from the number of its spans, which is too low where
spans cross.
"""

from __future__ import annotations

from itertools import accumulate
from typing import (
    TYPE_CHECKING,
    Any,
    Dict,
    Iterable,
    Iterator,
    List,
    Literal,
    Mapping,
    Optional,
    Tuple,
    Union,
    overload,
)
from zlib import crc32

from spacy_nested_ner.tables import Scored, docs_with_spans

if TYPE_CHECKING:
    from spacy.tokens import Doc, Span

LONGEST_LINE = 80
"""Tokens, unless a span is longer: displaCy looks at all spans of a line for each of its tokens."""

# Bars and labels are placed over one another and take no room by themselves. A hidden copy of the
# label makes its word as wide, and beside each bar stands something that reaches down to it.
TEMPLATES = {
    "span": (
        '<span style="display: inline-block; position: relative; line-height: 2; '
        'font-weight: bold">{span_starts}{text}{span_slices}</span>'
    ),
    "slice": (
        '<span style="position: absolute; top: {top_offset}px; left: -1px; height: 4px; '
        'width: calc(100% + 2px); background: {bg}"></span>'
        '<span style="display: inline-block; vertical-align: top; width: 0; '
        'height: calc({top_offset}px + 14px)"></span>'
    ),
    "start": (
        '<span style="display: block; height: 0; visibility: hidden; white-space: nowrap; '
        'padding: 0 5px 0 3px; font-size: 10px">{label}</span>'
        '<span style="position: absolute; top: calc({top_offset}px - 5px); '
        "inset-inline-start: -1px; z-index: 10; white-space: nowrap; padding: 2px 3px; "
        'border-radius: 3px; font-size: 10px; line-height: 1; color: #000; background: {bg}">'
        "{label}{kb_link}</span>"
    ),
}
NO_SPACE = "\ufdd0"
"""At the end of a piece that no space follows; a character that no text has."""

OPTIONS = {"top_offset": 31, "top_offset_step": 17, "template": TEMPLATES}


@overload
def render(
    docs: Union[Doc, Iterable[Doc]],
    spans_key: str = "sc",
    *,
    colors: Optional[Mapping[str, str]] = None,
    jupyter: Literal[False],
) -> str: ...


@overload
def render(
    docs: Union[Doc, Iterable[Doc]],
    spans_key: str = "sc",
    *,
    colors: Optional[Mapping[str, str]] = None,
    jupyter: Optional[bool] = None,
) -> Optional[str]: ...


def render(
    docs: Union[Doc, Iterable[Doc]],
    spans_key: str = "sc",
    *,
    colors: Optional[Mapping[str, str]] = None,
    jupyter: Optional[bool] = None,
) -> Optional[str]:
    """Draw the nested spans of docs under their text, with their scores.

    Each sentence and each line of a text begins a new line, and so does what follows 80 tokens
    without one, unless a span lies across. A label has the same colour wherever it occurs.

    docs: one doc or several, such as `nlp.pipe(texts)`.
    spans_key: key of the entities in doc.spans.
    colors: CSS colours of labels; others have that of displaCy, or one made from their name.
    jupyter: draw in the notebook; None does so in one and nowhere else.

    Returns the HTML, None in a notebook.

    Raises ValueError if a doc has no spans of that key; TypeError for what is no doc.
    """
    from spacy import displacy
    from spacy.util import is_in_jupyter

    known = displacy.SpanRenderer({"colors": dict(colors or {})}).colors
    found = []
    for doc, spans in docs_with_spans(docs, spans_key):
        lines = list(_lines(doc, [each for each in spans if len(each[0])]))
        shown = {_label(*each): _color(each[0].label_, known) for each in spans}
        options = {**OPTIONS, "colors": shown}
        html = displacy.render(lines, "span", jupyter=False, options=options, manual=True)
        found.append(html.replace(f"{NO_SPACE} ", ""))
    if not (is_in_jupyter() if jupyter is None else jupyter):
        return "\n".join(found)
    from IPython.display import HTML, display

    for html in found:  # displaCy keeps MathJax off in this way
        display(HTML(f'<span class="tex2jax_ignore">{html}</span>'))
    return None


def _lines(doc: Doc, spans: List[Scored]) -> Iterator[Dict[str, Any]]:
    """What displaCy draws, line by line."""
    from spacy.displacy import get_doc_settings

    changes = [0] * (len(doc) + 2)
    for span, _ in spans:
        changes[span.start + 1] += 1
        changes[span.end] -= 1
    across = list(accumulate(changes))  # spans that begin before a token and end behind its start
    first = done = 0
    for end in range(1, len(doc) + 1):
        is_end = end == len(doc) or doc[end].is_sent_start or "\n" in doc[end - 1].text
        if across[end] or not (is_end or end - first >= LONGEST_LINE):
            continue
        begun = done
        while done < len(spans) and spans[done][0].start < end:
            done += 1
        tokens, places = _pieces(doc, first, end, spans[begun:done])
        marks = [
            {
                "start_token": places[span.start],
                "end_token": places[span.end - 1] + 1,
                "label": _label(span, score),
            }
            for span, score in spans[begun:done]
        ]
        yield {"tokens": tokens, "spans": marks, "settings": get_doc_settings(doc)}
        first = end


def _pieces(
    doc: Doc, first: int, end: int, spans: List[Scored]
) -> Tuple[List[str], Dict[int, int]]:
    """The tokens of a line, but text between spans as a whole, and the spaces after tokens in spans
    as tokens: displaCy writes a space after what is in no span, and nowhere else.

    Returns also where the tokens in spans are.
    """
    inside = {i for span, _ in spans for i in range(span.start, span.end)}
    pieces: List[str] = []
    places: Dict[int, int] = {}
    gap = first
    for i in range(first, end + 1):
        if i < end and i not in inside:
            continue
        if doc[gap:i].text.strip():
            has_space = i == end or doc[i - 1].whitespace_
            pieces.append(doc[gap:i].text + ("" if has_space else NO_SPACE))
        if i < end:
            places[i] = len(pieces)
            pieces += [doc[i].text, " "] if doc[i].whitespace_ else [doc[i].text]
        gap = i + 1
    return pieces, places


def _label(span: Span, score: Optional[float]) -> str:
    from spacy.util import escape_html

    label = escape_html(span.label_)
    return label if score is None else f"{label} {score:.2f}"


def _color(label: str, known: Mapping[str, str]) -> str:
    hue = crc32(label.encode("utf8")) % 360
    return known.get(label.upper(), f"hsl({hue}, 70%, 80%)")
