"""One HTML page with the gold and the predicted nested spans of some docs, one above the other.

The spans are drawn by displaCy (style "span"); what goes into them is escaped here where displaCy
does not (labels). The page needs no network and no script.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from html import escape
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from spacy import displacy
from spacy.scorer import PRFScore
from spacy.tokens import Doc
from spacy.training import Example

from spacy_nested_ner.corpora.statistics import nesting

_NONE = "&ndash;"

Entity = Tuple[int, int, str]
"""First character, character after the last, label."""

PALETTE = (
    "#8ecdf5",
    "#ffc46b",
    "#d3b3f7",
    "#9fdc8c",
    "#ff9f9f",
    "#f2e05e",
    "#7fe0d0",
    "#f7a8dc",
    "#c9b79c",
    "#a9b8ff",
)


@dataclass
class Comparison:
    """Gold and predicted entities of one doc, with what the page says about them.

    scores: confidence of each predicted entity, empty if the pipeline gives none.
    """

    gold_doc: Doc
    predicted_doc: Doc
    gold: Set[Entity]
    predicted: Set[Entity]
    scores: Dict[Entity, float] = field(default_factory=dict)

    @property
    def right(self) -> Set[Entity]:
        """Predicted entities with the span and label of a gold entity."""
        return self.gold & self.predicted

    @property
    def wrong(self) -> Set[Entity]:
        """Predicted entities that are not gold."""
        return self.predicted - self.gold

    @property
    def missed(self) -> Set[Entity]:
        """Gold entities that were not predicted."""
        return self.gold - self.predicted


def choose_examples(
    examples: Iterable[Example], limit: int, spans_key: str = "sc", seed: int = 0
) -> List[Example]:
    """At most `limit` examples with gold entities, in their order: drawn at random (`seed`) from
    those with nested entities, then, if these are too few, from the others.

    Raises ValueError if there are no gold entities under `spans_key`, and says under which keys
    there are some.
    """
    nested: List[Tuple[int, Example]] = []
    flat: List[Tuple[int, Example]] = []
    keys: Counter = Counter()
    for i, example in enumerate(examples):
        keys.update({key: len(group) for key, group in example.reference.spans.items()})
        spans = [(s.start, s.end) for s in example.reference.spans.get(spans_key, [])]
        if spans:
            (nested if nesting(spans).nested else flat).append((i, example))
    if not nested and not flat:
        raise ValueError(f"No gold entities under spans key {spans_key!r}. {_known_keys(keys)}")
    rng = random.Random(seed)
    chosen = rng.sample(nested, min(limit, len(nested)))
    chosen += rng.sample(flat, min(limit - len(chosen), len(flat)))
    return [example for _, example in sorted(chosen, key=lambda pair: pair[0])]


def compare(gold_doc: Doc, predicted_doc: Doc, spans_key: str = "sc") -> Comparison:
    """Compare by characters and labels; both docs have the same text."""
    group = predicted_doc.spans.get(spans_key, [])
    values = getattr(group, "attrs", {}).get("scores", [])
    entities = [_entity(span) for span in group]
    scores = dict(zip(entities, map(float, values))) if len(values) == len(entities) else {}
    gold = {_entity(span) for span in gold_doc.spans.get(spans_key, [])}
    return Comparison(gold_doc, predicted_doc, gold, set(entities), scores)


def render_page(
    comparisons: Sequence[Comparison],
    title: str,
    facts: Mapping[str, str],
    corpus_scores: Optional[Mapping[str, Optional[float]]] = None,
) -> str:
    """The page as HTML.

    comparisons: one per doc shown. title: heading, such as the name of the pipeline.
    facts: name and value of what stands below the heading.
    corpus_scores: "p", "r" and "f" (0 to 1, or None) of a whole evaluation set, if known.
    """
    labels = sorted({label for c in comparisons for _, _, label in c.gold | c.predicted})
    colors = {label: _color(i) for i, label in enumerate(labels)}
    cards = "\n".join(_card(i, c, colors) for i, c in enumerate(comparisons, start=1))
    return _PAGE.format(
        title=escape(title),
        facts="".join(_fact(name, value) for name, value in facts.items()),
        scores=_score_table(comparisons, labels, colors, corpus_scores or {}),
        cards=cards,
        style=_STYLE,
    )


def _known_keys(keys: Counter) -> str:
    if not keys:
        return "The docs have no span groups at all: gold data is needed."
    known = ", ".join(f"{key!r} ({count} spans)" for key, count in keys.most_common())
    return f"The docs have: {known}. Choose one of these as spans key."


def _entity(span: Any) -> Entity:
    return span.start_char, span.end_char, span.label_


def _color(index: int) -> str:
    """Light colours, black text is readable on all of them; past the palette by golden angle."""
    if index < len(PALETTE):
        return PALETTE[index]
    return f"hsl({round(index * 137.508) % 360} 75% 75%)"


def _fact(name: str, value: str) -> str:
    return f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"


# Scores


def _score_table(
    comparisons: Sequence[Comparison],
    labels: Sequence[str],
    colors: Mapping[str, str],
    corpus_scores: Mapping[str, Optional[float]],
) -> str:
    rows = []
    if corpus_scores:
        cells = "".join(f"<td>{_percent(corpus_scores.get(key))}</td>" for key in "prf")
        rows.append(f"<tr><th scope=row>whole evaluation set</th>{cells}<td></td></tr>")
    rows.append(_score_row("this page, all labels", comparisons, labels))
    for label in labels:
        rows.append(_score_row(_key(label, colors), comparisons, [label]))
    return "\n".join(rows)


def _score_row(name: str, comparisons: Sequence[Comparison], labels: Sequence[str]) -> str:
    score, n_gold = PRFScore(), 0
    for comparison in comparisons:
        gold = {entity for entity in comparison.gold if entity[2] in labels}
        predicted = {entity for entity in comparison.predicted if entity[2] in labels}
        score.score_set(predicted, gold)
        n_gold += len(gold)
    cells = "".join(f"<td>{value}</td>" for value in _prf(score))
    return f"<tr><th scope=row>{name}</th>{cells}<td>{n_gold}</td></tr>"


def _prf(score: PRFScore) -> Tuple[str, str, str]:
    """Precision, recall, F in percent; a dash where nothing was predicted or nothing is gold."""
    precision = score.precision if score.tp + score.fp else None
    recall = score.recall if score.tp + score.fn else None
    return _percent(precision), _percent(recall), _percent(score.fscore)


def _percent(value: Optional[float]) -> str:
    return _NONE if value is None else f"{100 * value:.1f}"


# One doc


def _card(number: int, comparison: Comparison, colors: Mapping[str, str]) -> str:
    score = PRFScore()
    score.score_set(comparison.predicted, comparison.gold)
    precision, recall, fscore = _prf(score)
    doc_id = comparison.gold_doc.user_data.get("doc_id", "")
    return _CARD.format(
        number=number,
        doc_id=escape(str(doc_id)),
        verdict=_verdict(comparison),
        scores=f"P {precision} · R {recall} · F {fscore}",
        gold=_draw(comparison.gold_doc, comparison.gold, colors, _mark_gold(comparison)),
        predicted=_draw(
            comparison.predicted_doc, comparison.predicted, colors, _mark_predicted(comparison)
        ),
        missed=_missed(comparison, colors),
        details=_details(comparison, colors),
    )


def _verdict(comparison: Comparison) -> str:
    parts = [f"{len(comparison.right)} of {len(comparison.gold)} found"]
    if comparison.wrong:
        parts.append(f"{len(comparison.wrong)} wrong")
    return ", ".join(parts)


def _mark_gold(comparison: Comparison) -> Dict[Entity, str]:
    return dict.fromkeys(comparison.gold, "")


def _mark_predicted(comparison: Comparison) -> Dict[Entity, str]:
    return {entity: "✓" if entity in comparison.right else "✗" for entity in comparison.predicted}


def _missed(comparison: Comparison, colors: Mapping[str, str]) -> str:
    if not comparison.missed:
        return ""
    items = "".join(
        f"<li>{_key(label, colors)} {escape(comparison.gold_doc.text[start:end])}</li>"
        for start, end, label in sorted(comparison.missed)
    )
    return f'<div class="missed"><h3>Missed</h3><ul>{items}</ul></div>'


def _details(comparison: Comparison, colors: Mapping[str, str]) -> str:
    """Every predicted entity with its score, folded away."""
    if not comparison.predicted:
        return ""
    marks = _mark_predicted(comparison)
    rows = []
    for entity in sorted(comparison.predicted, key=lambda e: (e[0], -e[1], e[2])):
        start, end, label = entity
        text = escape(comparison.predicted_doc.text[start:end])
        score = f"{comparison.scores[entity]:.3f}" if entity in comparison.scores else _NONE
        verdict = "right" if marks[entity] == "✓" else "wrong"
        rows.append(
            f'<tr><td class="{verdict}">{marks[entity]} {verdict}</td>'
            f"<td>{_key(label, colors)}</td><td>{text}</td><td>{score}</td></tr>"
        )
    return _DETAILS.format(count=len(rows), rows="".join(rows))


def _key(label: str, colors: Mapping[str, str]) -> str:
    return f'<span class="key" style="background:{colors[label]}">{escape(label)}</span>'


def _draw(
    doc: Doc, entities: Set[Entity], colors: Mapping[str, str], marks: Mapping[Entity, str]
) -> str:
    """displaCy's markup of the entities; a mark stands before the label."""
    spans, shades = [], {}
    for entity in entities:
        start, end, label = entity
        span = doc.char_span(start, end)
        if span is None:  # cannot be: entities come from spans of this doc
            continue
        name = escape(f"{marks[entity]} {label}".strip())
        # displaCy looks colours up by label and puts them into the style attribute as they are
        shades[name] = colors[label] + ("; --mark: var(--wrong)" if marks[entity] == "✗" else "")
        spans.append({"start_token": span.start, "end_token": span.end, "label": name})
    settings = {"lang": doc.lang_, "direction": doc.vocab.writing_system.get("direction", "ltr")}
    drawing = {"tokens": [t.text for t in doc], "spans": spans, "settings": settings}
    options = {"colors": shades, "template": _templates(spans), **_GEOMETRY}
    return displacy.render(
        drawing, style="span", manual=True, page=False, jupyter=False, options=options
    )


_GEOMETRY = {"top_offset": 30, "span_label_offset": 16, "top_offset_step": 19}


def _templates(spans: Sequence[Dict[str, Any]]) -> Dict[str, str]:
    """displaCy's templates with three repairs: a token is as wide as the labels that begin at it,
    so that these never cover each other; colours of words are the page's; and lines are high
    enough where spans cross (displaCy then counts too few rows)."""
    template = _SPAN
    places = [(span["start_token"], span["end_token"]) for span in spans]
    if nesting(places).crossing:
        rows = _rows(spans)
        height = sum(_GEOMETRY.values()) + _GEOMETRY["top_offset_step"] * (rows - 2)
        template = template.replace("{total_height}", str(height))
    return {"span": template, "slice": _SLICE, "start": _START}


def _rows(spans: Sequence[Dict[str, Any]]) -> int:
    """How many rows displaCy stacks: each span goes one row below the last one still open."""
    ordered = sorted((s["start_token"], -s["end_token"], s["label"]) for s in spans)
    placed: List[Tuple[int, int]] = []
    for start, end, _ in ordered:
        still_open = [row for stop, row in placed if stop > start]
        placed.append((-end, (still_open[-1] if still_open else 0) + 1))
    return max((row for _, row in placed), default=0)


_SPAN = """
<span class="token" style="height:{total_height}px">{text}{span_slices}{span_starts}</span>
"""

_SLICE = '<span class="bar" style="top:{top_offset}px; background:{bg}"></span>'

_START = (
    '<span class="room" aria-hidden="true">{label}</span>'
    '<span class="bar first" style="top:{top_offset}px; background:{bg}">'
    '<span class="tag" style="background:{bg}">{label}{kb_link}</span></span>'
)

_CARD = """<article>
<header><h2>{number}</h2><span class="id">{doc_id}</span><span class="verdict">{verdict}</span>
<span class="prf">{scores}</span></header>
<h3>Gold</h3>
{gold}
<h3>Predicted</h3>
{predicted}
{missed}
{details}
</article>"""

_DETAILS = """<details><summary>{count} predicted, with scores</summary><div class="scroll"><table>
<thead><tr><th></th><th>label</th><th>text</th><th>score</th></tr></thead>
<tbody>{rows}</tbody></table></div></details>"""

_STYLE = """
:root { color-scheme: light dark; --page: #f5f6f8; --card: #fff; --ink: #1c2026; --soft: #5b6470;
  --line: #dfe3e8; --wrong: #d3232f; --right: #18794e; }
@media (prefers-color-scheme: dark) { :root { --page: #14171b; --card: #1e2227; --ink: #e6e9ed;
  --soft: #9aa4b0; --line: #343a42; --wrong: #ff6b6b; --right: #4ccb8f; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 72rem; background: var(--page);
  color: var(--ink); font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { margin: 0 0 .5rem; font-size: 1.5rem; overflow-wrap: anywhere; }
h3 { margin: .9rem 0 0; font-size: .75rem; letter-spacing: .06em; text-transform: uppercase;
  color: var(--soft); }
dl { display: flex; flex-wrap: wrap; gap: .25rem 1.5rem; margin: 0 0 1rem; font-size: .9rem; }
dl div { display: flex; gap: .4rem; }
dt, .soft { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { padding: .2rem .7rem; border-bottom: 1px solid var(--line); text-align: right;
  font-variant-numeric: tabular-nums; }
th:first-child, details td:nth-child(-n+3), details th { text-align: left; }
tbody th { font-weight: 500; }
.scroll { overflow-x: auto; }
article { margin: 1rem 0; padding: .9rem 1.1rem; background: var(--card);
  border: 1px solid var(--line); border-radius: .6rem; }
article header { display: flex; flex-wrap: wrap; align-items: baseline; gap: .2rem .9rem;
  font-size: .9rem; }
article h2 { margin: 0; font-size: 1.1rem; }
.id { color: var(--soft); overflow-wrap: anywhere; }
.verdict { font-weight: 600; }
.prf { margin-left: auto; color: var(--soft); font-variant-numeric: tabular-nums; }
.spans { line-height: 1.9 !important; overflow-wrap: anywhere; }
.token { display: inline-block; position: relative; vertical-align: top; font-weight: 600;
  line-height: 1.9; max-width: 100%; }
.bar { position: absolute; left: -2px; width: calc(100% + 6px); height: 4px;
  box-shadow: 0 2px 0 var(--mark, transparent); }
.bar.first { border-radius: 3px 0 0 3px; left: 0; width: calc(100% + 4px); }
.room, .tag { padding: 2px 4px; font-size: 10.5px; font-weight: 700; line-height: 1;
  white-space: nowrap; }
.room { display: block; height: 0; padding-block: 0; margin-right: 3px; overflow: hidden;
  visibility: hidden; }
.tag { position: absolute; top: -5px; left: 0; z-index: 1; color: #14171b; border-radius: 3px;
  box-shadow: 0 2px 0 var(--mark, transparent); }
.key { display: inline-block; padding: 0 .4em; border-radius: 3px; color: #14171b;
  font-size: .8rem; font-weight: 600; line-height: 1.5; }
.missed ul { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; margin: .2rem 0 0; padding: 0;
  list-style: none; }
details { margin-top: .8rem; font-size: .9rem; }
summary { cursor: pointer; color: var(--soft); }
.right { color: var(--right); } .wrong { color: var(--wrong); }
"""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}: gold and predicted nested entities</title>
<style>{style}</style>
</head>
<body>
<h1>{title}</h1>
<dl>{facts}</dl>
<div class="scroll"><table>
<thead><tr><th>scores in %</th><th>precision</th><th>recall</th><th>F</th><th>gold</th></tr></thead>
<tbody>
{scores}
</tbody></table></div>
<p class="soft"><b class="right">✓</b> predicted as in the gold data, <b class="wrong">✗</b>
predicted but not gold (bar underlined in red). Right means the same span and the same label.</p>
<main>
{cards}
</main>
</body>
</html>
"""
