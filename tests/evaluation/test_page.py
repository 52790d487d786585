from __future__ import annotations

from html.parser import HTMLParser

import numpy as np
import pytest
import spacy
from spacy.tokens import Doc, Span
from spacy.training import Example

from spacy_nested_ner.evaluation.page import PALETTE, choose_examples, compare, render_page


class Reading(HTMLParser):
    """What a browser would make of the page: elements, text, and the drawn labels."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.labels: list[str] = []
        self.loads: list[str] = []
        self.words: list[str] = []
        self._in_tag = False
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append(tag)
        self.loads += [value for key, value in attrs if key in ("src", "href")]
        self._in_tag = attributes.get("class") == "tag"

    def handle_endtag(self, tag):
        self._in_tag = False

    def handle_data(self, data):
        (self.labels if self._in_tag else self.words).append(data.strip())


@pytest.fixture(scope="module")
def nlp():
    return spacy.blank("en")


def with_spans(nlp, words, spans, scores=None) -> Doc:
    doc = Doc(nlp.vocab, words=words)
    doc.spans["sc"] = [Span(doc, start, end, label=label) for start, end, label in spans]
    if scores is not None:
        doc.spans["sc"].attrs["scores"] = np.asarray(scores, dtype="float32")
    return doc


WORDS = ["human", "IL-2", "gene", "in", "T", "cells"]
GOLD = [(0, 3, "DNA"), (1, 2, "protein"), (4, 6, "cell_type")]
FOUND = [(0, 3, "DNA"), (1, 2, "RNA")]


@pytest.fixture
def comparison(nlp):
    return compare(with_spans(nlp, WORDS, GOLD), with_spans(nlp, WORDS, FOUND, [0.9, 0.625]))


def test_compare(comparison):
    assert comparison.right == {(0, 15, "DNA")}
    assert comparison.wrong == {(6, 10, "RNA")}
    assert comparison.missed == {(6, 10, "protein"), (19, 26, "cell_type")}
    assert comparison.scores[6, 10, "RNA"] == 0.625


def test_page_draws_gold_and_predicted_spans(comparison):
    html = render_page([comparison, comparison], "my pipeline", {"data": "dev.spacy"})
    page = Reading(html)
    assert page.tags.count("article") == 2
    assert page.labels == ["DNA", "protein", "cell_type", "✓ DNA", "✗ RNA"] * 2
    assert "my pipeline" in page.words and "dev.spacy" in page.words
    assert "1 of 3 found, 1 wrong" in page.words
    assert "P 50.0 · R 33.3 · F 40.0" in page.words
    assert "0.625" in page.words
    assert page.words.count("Missed") == 2


def test_scores_of_all_docs_together_and_by_label(nlp, comparison):
    perfect = compare(with_spans(nlp, WORDS, GOLD), with_spans(nlp, WORDS, GOLD))
    html = render_page([comparison, perfect], "", {}, {"p": 0.5, "r": 0.75, "f": None})
    assert "<td>80.0</td><td>66.7</td><td>72.7</td><td>6</td>" in html  # 4 of 5, 4 of 6
    assert "DNA</span></th><td>100.0</td><td>100.0</td><td>100.0</td><td>2</td>" in html
    assert "RNA</span></th><td>0.0</td><td>&ndash;</td><td>0.0</td><td>0</td>" in html
    assert "<td>50.0</td><td>75.0</td><td>&ndash;</td>" in html


def test_page_is_one_inert_file(nlp):
    """Text, labels, ids and facts come from outside and must stay text."""
    evil = "<script>alert('&\"')</script>"
    doc = with_spans(nlp, [evil, "x", "y"], [(0, 1, "A"), (0, 2, evil)])
    doc.user_data["doc_id"] = evil
    other = with_spans(nlp, [evil, "x", "y"], [(1, 3, evil), (0, 3, "B")])
    page = Reading(render_page([compare(doc, other)], evil, {evil: evil}))
    assert "script" not in page.tags
    assert not page.loads
    assert set(page.labels) == {"A", evil, f"✗ {evil}", "✗ B"}


def test_page_without_predictions(nlp):
    nothing = compare(with_spans(nlp, WORDS, GOLD), Doc(nlp.vocab, words=WORDS))
    html = render_page([nothing], "", {})
    assert "0 of 3 found" in html and "P &ndash; · R 0.0 · F 0.0" in html
    assert "details>" not in html


def test_predictions_without_scores(nlp):
    html = render_page(
        [compare(with_spans(nlp, WORDS, GOLD), with_spans(nlp, WORDS, FOUND))], "", {}
    )
    assert "<td>&ndash;</td></tr>" in html


def test_a_label_has_one_colour_and_each_its_own(nlp):
    labels = [f"L{i:02}" for i in range(3 * len(PALETTE))]
    gold = with_spans(nlp, labels, [(i, i + 1, label) for i, label in enumerate(labels)])
    html = render_page([compare(gold, gold)], "", {})
    colors = {html.split(f'">{label}</span></th>')[0].rsplit(":", 1)[1] for label in labels}
    assert len(colors) == len(labels)
    assert PALETTE[0] in colors


def test_lines_are_high_enough_where_spans_cross(nlp):
    """displaCy puts "c" into the third row but counts two spans on its tokens."""
    nested = with_spans(nlp, WORDS, [(0, 3, "a"), (1, 2, "b")])
    crossing = with_spans(nlp, WORDS, [(0, 3, "a"), (2, 5, "b"), (4, 6, "c")])

    def heights(doc):
        html = render_page([compare(doc, Doc(nlp.vocab, words=WORDS))], "", {})
        return {part.split("px")[0] for part in html.split('class="token" style="height:')[1:]}

    assert heights(nested) == {"46", "65"}
    assert heights(crossing) == {"84"}


def examples_of(nlp, spans_of_docs):
    gold = [with_spans(nlp, WORDS, spans) for spans in spans_of_docs]
    return [Example(Doc(nlp.vocab, words=WORDS), doc) for doc in gold]


FLAT, NESTED, EMPTY = [(0, 1, "A"), (2, 3, "A")], [(0, 3, "A"), (1, 2, "B")], []


def test_choice_prefers_nested_and_skips_docs_without_entities(nlp):
    examples = examples_of(nlp, [FLAT, NESTED, EMPTY, FLAT, NESTED, FLAT])
    assert choose_examples(examples, 2) == [examples[1], examples[4]]
    assert len(choose_examples(examples, 3)) == 3
    assert choose_examples(examples, 20) == [e for i, e in enumerate(examples) if i != 2]
    assert len(choose_examples(examples, 1)) == 1


def test_choice_depends_on_the_seed_alone(nlp):
    examples = examples_of(nlp, [NESTED] * 30)
    assert choose_examples(examples, 5, seed=1) == choose_examples(examples, 5, seed=1)
    assert choose_examples(examples, 5, seed=1) != choose_examples(examples, 5, seed=2)


def test_choice_names_the_keys_there_are(nlp):
    with pytest.raises(ValueError, match=r"'nest'.*'sc' \(2 spans\)"):
        choose_examples(examples_of(nlp, [FLAT]), 5, "nest")
    plain = Example(Doc(nlp.vocab, words=WORDS), Doc(nlp.vocab, words=WORDS))
    with pytest.raises(ValueError, match="no span groups at all"):
        choose_examples([plain], 5)
