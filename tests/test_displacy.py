from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from types import ModuleType
from typing import Dict, List, Tuple

import numpy as np
import pytest
import spacy
from spacy.tokens import Doc, Span

from spacy_nested_ner import render


def doc_of(words, spans, scores=None, lang="en") -> Doc:
    doc = Doc(spacy.blank(lang).vocab, words=words)
    doc.spans["sc"] = [Span(doc, start, end, label) for start, end, label in spans]
    if scores is not None:
        doc.spans["sc"].attrs["scores"] = np.array(scores, dtype="float32")
    return doc


class Page(HTMLParser):
    """What a browser makes of markup: lines with their text, labels with colour and place."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.open: List[Tuple[str, str]] = []
        self.tags: List[str] = []
        self.lines: List[str] = []
        self.labels: List[Tuple[int, str]] = []  # pixels from the top
        self.colors: Dict[str, str] = {}
        self.feed(markup)

    def handle_starttag(self, tag, attributes):
        style = dict(attributes).get("style") or ""
        self.tags.append(tag)
        self.open.append((tag, style))
        if tag == "div":
            self.lines.append("")

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, text):
        styles = [style for _, style in self.open]
        if any("hidden" in style for style in styles):
            return
        style = styles[-1] if styles else ""
        if "z-index" in style:
            top = re.search(r"top: calc\((\d+)px", style)
            assert top
            self.labels.append((int(top[1]), text))
            self.colors[text] = style.split("background: ")[1]
        elif self.lines:
            self.lines[-1] += text


def page(doc, **settings) -> Page:
    markup = render(doc, **settings)
    assert isinstance(markup, str)
    return Page(markup)


def texts(doc) -> List[str]:
    return [" ".join(line.split()) for line in page(doc).lines]


def test_labels_with_scores_at_their_depth():
    doc = doc_of(
        ["the", "US", "Supreme", "Court", "left"],
        [(0, 4, "ORG"), (1, 2, "GPE"), (1, 2, "PLACE")],
        [0.971, 0.5, 1.0],
    )
    found = page(doc)
    tops, labels = zip(*found.labels)
    assert labels == ("ORG 0.97", "GPE 0.50", "PLACE 1.00")
    assert [top - tops[0] for top in tops] == [0, 17, 34]  # one below the other
    assert texts(doc) == ["the US Supreme Court left"]


def test_without_scores():
    assert page(doc_of(["a"], [(0, 1, "GPE")])).labels[0][1] == "GPE"


def test_words_are_as_high_as_the_lowest_line_under_them():
    """d has one span, which is drawn on the second line; displaCy would make room for one line."""
    doc = doc_of(list("abcd"), [(0, 2, "A"), (1, 4, "B")])
    (first, _), (second, _) = page(doc).labels
    assert second == first + 17
    heights = re.findall(r"height: calc\((\d+)px \+ 14px\)", str(render(doc)))
    assert [int(height) for height in heights] == [first, first, second, second, second]


def test_a_label_has_its_colour_everywhere():
    one = page(doc_of(["a", "b"], [(0, 1, "DNA"), (1, 2, "CELL")], [0.1, 0.2]))
    two = page([doc_of(["c"], [(0, 1, "DNA")], [0.9]), doc_of(["c"], [(0, 1, "GPE")])])
    assert one.colors["DNA 0.10"] == two.colors["DNA 0.90"] != one.colors["CELL 0.20"]
    assert two.colors["GPE"] == "#feca74"  # as displaCy has it
    mine = page(doc_of(["a"], [(0, 1, "dna")], [0.3]), colors={"DNA": "gold"})
    assert mine.colors["dna 0.30"] == "gold"


def test_hostile_text_and_labels_are_text():
    attack = "<script>alert('x')</script>"
    doc = doc_of(
        [attack, "&amp;", '"q"', "{bg}"],
        [(0, 2, attack), (1, 2, "&lt;"), (3, 4, "{label}")],
        [1] * 3,
    )
    doc.user_data["title"] = attack
    found = page(doc)
    assert set(found.tags) == {"div", "span"}
    assert texts(doc) == [f'{attack} &amp; "q" {{bg}}']
    assert [label for _, label in found.labels] == [f"{attack} 1.00", "&lt; 1.00", "{label} 1.00"]


def test_a_line_for_each_sentence_and_each_line_of_the_text():
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    doc = nlp("One is here. Two is\nhere. Three spans. Both of them.")
    doc.spans["sc"] = []
    assert texts(doc) == ["One is here.", "Two is", "here.", "Three spans.", "Both of them."]
    places = [i for i, token in enumerate(doc) if token.text in ("Three", "Both")]
    doc.spans["sc"] = [Span(doc, places[0], places[1] + 1, "A")]
    assert texts(doc)[-1] == "Three spans. Both of them."


def test_spaces_are_those_of_the_text():
    doc = spacy.blank("en")("He doesn't (really) know New York's mayor.")
    start = [token.text for token in doc].index("New")
    doc.spans["sc"] = [Span(doc, start, start + 4, "PER"), Span(doc, start, start + 2, "GPE")]
    assert texts(doc) == ["He doesn't (really) know New York's mayor."]


def test_long_texts_without_sentences():
    words = [f"w{i}" for i in range(1000)]
    doc = doc_of(words, [(78, 85, "A"), (300, 600, "B")])
    found = page(doc)
    lengths = [len(line.split()) for line in found.lines]
    assert lengths == [85, 80, 80, 355, *[80] * 5]  # a span is never cut
    assert [label for _, label in found.labels] == ["A", "B"]


def test_right_to_left():
    doc = doc_of(["في", "باريس", "الكبيرة"], [(1, 3, "GPE")], [0.5], lang="ar")
    markup = render(doc)
    assert isinstance(markup, str) and "direction: rtl" in markup
    assert "direction: rtl" not in str(render(doc_of(["a"], [])))


@pytest.mark.parametrize("words, text", [([], []), (["nothing", "here"], ["nothing here"])])
def test_docs_without_spans(words, text, recwarn):
    assert texts(doc_of(words, [])) == text and not recwarn.list


def test_empty_spans_are_not_drawn():
    doc = doc_of(["a", "b"], [(1, 1, "A"), (0, 1, "B")])
    assert [label for _, label in page(doc).labels] == ["B"]


def test_unknown_key():
    with pytest.raises(ValueError, match=r"Doc 1: .*under 'nest'\. Its spans keys: 'sc'"):
        docs = [doc_of(["a"], []), doc_of(["a"], [])]
        docs[0].spans["nest"] = []
        render(docs, "nest")


def test_in_a_notebook_it_draws_and_returns_nothing(monkeypatch):
    drawn: List[str] = []
    display = ModuleType("IPython.display")
    display.HTML = str  # type: ignore[attr-defined]
    display.display = drawn.append  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    docs = [doc_of(["a"], [(0, 1, "A")]), doc_of(["b"], [])]
    assert render(docs, jupyter=True) is None
    assert len(drawn) == 2 and "tex2jax_ignore" in drawn[0]


def test_no_space_before_a_span_where_the_text_has_none():
    doc = spacy.blank("en")('The "US" (NASA) rose.')
    at = {token.text: token.i for token in doc}
    doc.spans["sc"] = [Span(doc, at[word], at[word] + 1, "ORG") for word in ("US", "NASA")]
    assert texts(doc) == ['The "US" (NASA) rose.']
