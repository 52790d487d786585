from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

import pytest
import spacy
from evaluated import NLP, make_doc, spans
from hypothesis import given, settings
from hypothesis import strategies as st
from spacy.tokens import Doc, Span
from spacy.training import Example

from spacy_nested_ner.evaluation.page.page import (
    KINDS,
    Mark,
    choose_examples,
    compare,
    direction_of,
    page_data,
    page_remark,
    render_page,
)

WORDS = ["human", "IL-2", "gene", "in", "T", "cells"]
GOLD = [(0, 3, "DNA"), (1, 2, "protein"), (4, 6, "cell_type")]
FOUND = [(0, 3, "DNA"), (1, 2, "RNA")]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")


class Reading(HTMLParser):
    """What a browser would make of the page before its script runs."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.data = ""
        self._id = None
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.loads += [value for key, value in attrs if key in ("src", "href")]
        self._id = dict(attrs).get("id")

    def handle_endtag(self, tag):
        self._id = None

    def handle_data(self, data):
        if self._id == "data":
            self.data += data


def compare_one(gold: Doc, found: Doc):
    (comparison,) = compare(gold, found)
    return comparison


@pytest.fixture
def comparison():
    return compare_one(make_doc(WORDS, GOLD), make_doc(WORDS, FOUND, [0.9375, 0.625]))


def test_marks_end_with_their_sentence():
    """A sentence may begin with the line break that a span ends with."""
    gold, found = (NLP.make_doc("He met Acme Inc.\n\nShe left.") for _ in range(2))
    end = next(token.i for token in gold if token.is_space) + 1
    for token in gold:
        token.is_sent_start = token.i in (0, end - 1)
    gold.spans["sc"] = [Span(gold, 2, end, "ORG")]
    found.spans["sc"] = []
    first, second = compare(gold, found)
    (mark,) = first.gold
    assert (mark.start, mark.end) == (2, len(first.words)) and not second.gold


def test_compare(comparison):
    assert comparison.gold == [
        Mark(0, 3, "DNA", "right", 1),
        Mark(1, 2, "protein", "wrong label", 2),
        Mark(4, 6, "cell_type", "missed", 1),
    ]
    assert comparison.predicted == [
        Mark(0, 3, "DNA", "right", 1, 0.9375),
        Mark(1, 2, "RNA", "wrong label", 2, 0.625),
    ]


@pytest.mark.parametrize(
    "gold, found, kinds",
    [
        ([(0, 2, "A")], [(0, 3, "A")], ("wrong boundary", "wrong boundary")),
        ([(0, 2, "A")], [(1, 3, "B")], ("wrong label and boundary", "wrong label and boundary")),
        ([(0, 2, "A")], [(2, 4, "A")], ("missed", "spurious")),
        ([(0, 2, "A"), (0, 4, "B")], [(0, 2, "B")], ("wrong label", "wrong label")),
    ],
)
def test_kinds_of_errors(gold, found, kinds):
    compared = compare_one(make_doc(WORDS, gold), make_doc(WORDS, found))
    assert (compared.gold[0].kind, compared.predicted[0].kind) == kinds


def test_what_is_scored_is_shown():
    """As scores have it: whitespace is no entity, of equal spans the higher score counts."""
    words = ["Bank", "of", " ", "China"]
    gold = make_doc(words, [(0, 4, "ORG"), (2, 3, "GPE")])
    compared = compare_one(gold, make_doc(words, [(0, 4, "ORG"), (0, 4, "ORG")], [0.75, 0.25]))
    assert compared.gold == [Mark(0, 4, "ORG", "right", 1)]
    assert compared.predicted == [Mark(0, 4, "ORG", "right", 1, 0.75)]


@pytest.mark.parametrize(
    "lang, direction", [("en", "ltr"), ("xx", "auto"), ("mul", "auto"), ("ar", "rtl")]
)
def test_the_direction_of_words(lang, direction):
    assert direction_of(spacy.blank(lang).vocab) == direction


def test_errors_are_compared_with_errors_only():
    """The outer entity was found: what overlaps it alone is spurious."""
    compared = compare_one(
        make_doc(WORDS, [(0, 4, "A")]), make_doc(WORDS, [(0, 4, "A"), (1, 2, "A")])
    )
    kinds = {(m.start, m.end): m.kind for m in compared.predicted}
    assert kinds == {(0, 4): "right", (1, 2): "spurious"}


def test_other_tokens_of_the_same_text():
    gold = Doc(NLP.vocab, words=["IL-2", "gene"], spaces=[True, False])
    gold.spans["sc"] = [Span(gold, 0, 2, "DNA"), Span(gold, 0, 1, "protein")]
    found = Doc(NLP.vocab, words=["IL", "-", "2", "gene"], spaces=[False, False, True, False])
    found.spans["sc"] = [Span(found, 0, 4, "DNA"), Span(found, 2, 3, "protein")]
    compared = compare_one(gold, found)
    assert [m.kind for m in compared.predicted] == ["right", "wrong boundary"]
    (doc,) = page_data([compared], {})["docs"]
    assert doc["words"] == ["IL-2 ", "gene"] and doc["found_words"] == ["IL", "-", "2 ", "gene"]


def test_a_doc_is_cut_into_sentences_where_nothing_is_cut_through():
    words = ["a", "b", "c", "d", "e", "f"]
    starts = [True, False, True, True, True, False]
    found = Doc(NLP.vocab, words=["a", "b", "c", "de", "f"], spaces=[True, True, True, True, False])
    gold = Doc(NLP.vocab, words=words, spaces=[True, True, True, False, True, False])
    for token, start in zip(gold, starts):
        token.is_sent_start = start
    gold.spans["sc"] = [Span(gold, 0, 1, "A"), Span(gold, 4, 6, "A")]
    gold.user_data["doc_id"] = "doc"
    found.spans["sc"] = [Span(found, 0, 1, "A"), Span(found, 4, 5, "A")]
    first, second, third = compare(gold, found)  # the token "de" holds the last two together
    assert [c.name for c in (first, second, third)] == ["doc 1", "doc 2", "doc 3"]
    assert [c.words for c in (first, second, third)] == [["a ", "b "], ["c "], ["d", "e ", "f"]]
    assert third.predicted_words == ["de ", "f"]
    assert first.gold == [Mark(0, 1, "A", "right", 1)] and not second.gold
    assert third.gold == [Mark(1, 3, "A", "wrong boundary", 1)]
    assert third.predicted == [Mark(1, 2, "A", "wrong boundary", 2)]
    found.spans["sc"] = [Span(found, 1, 3, "A")]  # spans the first two sentences
    assert [len(c.words) for c in compare(gold, found)] == [3, 3]
    found = Doc(NLP.vocab, words=["a", "b", "cdef"])  # nothing begins behind the last token
    assert [len(c.words) for c in compare(gold, found)] == [2, 4]


@settings(max_examples=40, deadline=None)
@given(spans(), spans(), st.lists(st.booleans(), min_size=8, max_size=8))
def test_sentences_hold_what_the_doc_holds(gold, found, starts):
    words = [f"w{i}" for i in range(8)]
    whole = compare_one(make_doc(words, gold), make_doc(words, found))
    cut = make_doc(words, gold)
    for token, start in zip(cut, [True, *starts[1:]]):
        token.is_sent_start = start
    parts = compare(cut, make_doc(words, found))
    assert [word for part in parts for word in part.words] == whole.words
    for side in ("gold", "predicted"):
        marks, first = [], 0
        for part in parts:
            moved = [
                replace(m, start=m.start + first, end=m.end + first) for m in getattr(part, side)
            ]
            assert all(m.start >= 0 and m.end <= len(part.words) for m in getattr(part, side))
            marks += moved
            first += len(part.words)
        assert marks == getattr(whole, side)


def test_data_of_the_page(comparison):
    perfect = compare_one(make_doc(WORDS, GOLD), make_doc(WORDS, GOLD))
    data = page_data([comparison, perfect], {"data": "dev"}, {"p": 0.5, "r": 0.75, "f": None})
    assert data["labels"] == ["DNA", "RNA", "cell_type", "protein"]
    first = data["docs"][0]
    assert first["found_words"] is None
    assert first["found"] == [
        [0, 3, 0, 0, 1, 0.9375],
        [1, 2, 1, KINDS.index("wrong label"), 2, 0.625],
    ]
    assert (first["p"], first["r"], first["f"]) == ("50.0", "33.3", "40.0")
    scores = [(row["p"], row["r"], row["f"], row["n_gold"]) for row in data["scores"]]
    assert scores[0] == ("80.0", "66.7", "72.7", 6)
    assert scores[1] == ("100.0", "100.0", "100.0", 2)
    assert scores[2] == ("0.0", "\N{EN DASH}", "0.0", 0)
    assert data["corpus"] == {"p": "50.0", "r": "75.0", "f": "\N{EN DASH}"}


@pytest.mark.parametrize(
    "gold, found, says",
    [
        (GOLD, GOLD, None),
        (GOLD, FOUND, None),
        (GOLD, [], "predicts no entity at all, although there are 3.*Train it longer"),
        (
            GOLD,
            [(0, 2, "PER"), (4, 6, "LOC")],
            r"None of the predicted labels \(LOC, PER\) occurs in the gold",
        ),
        (GOLD, [(0, 2, "DNA")], "0 of 1 predictions, with 3 gold entities.*Train it longer"),
    ],
)
def test_a_page_says_that_a_pipeline_has_not_learned(gold, found, says):
    compared = compare(make_doc(WORDS, gold), make_doc(WORDS, found))
    remark = page_data(compared, {})["remark"]
    assert remark == page_remark(compared)
    assert remark is None if says is None else re.search(says, remark)


def test_a_page_says_that_next_to_nothing_is_right():
    """One of 30 entities found is little, one of 3 is not."""
    one = compare(make_doc(WORDS, GOLD), make_doc(WORDS, GOLD[:1]))
    none = compare(make_doc(WORDS, GOLD), make_doc(WORDS, [(2, 3, "DNA")]))
    assert page_remark(one) is None
    assert "1 of 15 predictions, with 45 gold entities" in page_remark(one + none * 14)


def test_a_page_says_that_the_gold_data_lack_a_label():
    found = [*GOLD, (2, 3, "cell")]
    compared = compare(make_doc(WORDS, GOLD), make_doc(WORDS, found)) * 10
    assert "10 of 40 predictions have labels that the gold data lack (cell)" in page_remark(
        compared
    )
    assert page_remark(compared[:3]) is None  # too few to tell


def test_page_is_one_file_that_what_it_shows_cannot_change():
    """Text, labels, ids and facts come from outside and must stay text."""
    evil = "</script><script>alert('&\"')</script><!--"
    doc = make_doc([evil, "x"], [(0, 1, "A"), (0, 2, evil)])
    doc.user_data["doc_id"] = evil
    html = render_page(compare(doc, doc), evil, {evil: evil})
    page = Reading(html)
    assert page.tags.count("script") == 2 and not page.loads
    assert not re.search(r"https?://|@import|url\(", html)
    assert "default-src 'none'" in html
    data = json.loads(page.data)
    assert data["labels"] == [evil, "A"] and data["docs"][0]["id"] == evil
    assert "@@" not in html


def examples_of(spans_of_docs):
    return [Example(Doc(NLP.vocab, words=WORDS), make_doc(WORDS, spans)) for spans in spans_of_docs]


FLAT, NESTED, EMPTY = [(0, 1, "A"), (2, 3, "A")], [(0, 3, "A"), (1, 2, "B")], []


def test_choice_prefers_nested_then_others():
    examples = examples_of([FLAT, NESTED, EMPTY, FLAT, NESTED, FLAT])
    assert choose_examples(examples, 2) == [examples[1], examples[4]]
    assert choose_examples(examples, 5) == [e for i, e in enumerate(examples) if i != 2]
    assert choose_examples(examples, 20) == examples


def test_choice_depends_on_the_seed_alone():
    examples = examples_of([NESTED] * 30)
    assert choose_examples(examples, 5, seed=1) == choose_examples(examples, 5, seed=1)
    assert choose_examples(examples, 5, seed=1) != choose_examples(examples, 5, seed=2)


def test_choice_names_the_keys_there_are():
    with pytest.raises(ValueError, match=r"key 'nest'\. The docs have: 'sc'"):
        choose_examples(examples_of([FLAT]), 5, "nest")
    plain = Example(Doc(NLP.vocab, words=WORDS), Doc(NLP.vocab, words=WORDS))
    with pytest.raises(ValueError, match="The docs have no span groups"):
        choose_examples([plain], 5)


# In a browser


def in_browser(path, fragment="", width=1280) -> str:
    """The page after its script has run. The limit is there for a browser that hangs, not for a
    slow machine."""
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    command.append(f"--window-size={width},900")
    url = path.as_uri() + fragment
    done = subprocess.run([*command, url], capture_output=True, text=True, timeout=300)
    return done.stdout


def ready(dom: str) -> int:
    """Milliseconds from the opening of the page until it could be read."""
    return int(re.search(r'data-ready="(\d+)"', dom)[1])


def cards(dom: str) -> list[str]:
    return re.findall(r"<article.*?</article>", dom, re.DOTALL)


def tags(card: str) -> list[str]:
    return re.findall(r'<span class="tag[^>]*><bdi>([^<]*)</bdi></span>', card)


PRESS = """<script>for (const key of %s)
document.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));</script></body>"""


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_page_in_chromium(comparison, tmp_path):
    perfect = compare_one(make_doc(WORDS, GOLD), make_doc(WORDS, GOLD))
    html = render_page([perfect, comparison], "pipe", {"data": "dev.spacy"})
    path = tmp_path / "page.html"
    path.write_text(
        html.replace("</body>", PRESS % '["j", "ArrowRight", "ArrowRight", "ArrowRight"]'),
        encoding="utf8",
    )
    dom = in_browser(path)
    first, second = cards(dom)
    assert "1 of 3 found, 1 wrong" in first and "3 of 3 found" in second  # errors first
    assert tags(first) == ["DNA", "○ protein", "○ cell_type", "✓ DNA", "✗ RNA"]
    assert 'class="tag bad here"' in first  # the third span of the first doc
    tip = re.search(r'<div id="tip"[^>]*>([^<]*)', dom)[1]
    assert tip == "Gold: cell_type · “T cells” · missed · 2 words, depth 1"
    assert "Predicted: RNA · “IL-2” · wrong label · score 0.625 · 1 word, depth 2" in first
    assert "2 of 2 sentences" in dom and "dev.spacy" in dom

    dom = in_browser(path, "#label=RNA&kind=error")
    (card,) = cards(dom)
    assert (
        "1 of 2 sentences" in dom and card.count("tag dim") == 2 and card.count("tag bad dim") == 2
    )
    assert len(cards(in_browser(path, "#min-depth=3"))) == 0


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_paper_gets_all_sentences_and_one_entity_is_marked(comparison, tmp_path):
    path = tmp_path / "page.html"
    html = render_page([comparison] * 65, "pipe", {})
    prints = '<script>dispatchEvent(new Event("beforeprint"));</script></body>'
    path.write_text(html.replace("</body>", prints), encoding="utf8")
    assert len(cards(in_browser(path))) == 65
    keys = '["j", "ArrowRight", "j", "ArrowRight", "ArrowRight"]'
    path.write_text(html.replace("</body>", PRESS % keys), encoding="utf8")
    dom = in_browser(path)
    assert len(cards(dom)) < 65 and dom.count(" here") == 1
    (marked,) = (card for card in cards(dom) if " here" in card)
    assert re.search(r'<span class="tag[^"]* here"[^>]*tabindex="-1"[^>]*role="img"', marked)


# Places on the screen, and what the menus do. "meets" is a bar across the text of its word, "out" a
# label beyond its sentence, "over" a label on another one, "gap" the widest between two words.
PROBE = """<script>{
  const rect = (element) => element.getBoundingClientRect();
  const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1
    && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
  const id = (name) => document.getElementById(name);
  const found = { meets: 0, out: 0, over: 0, gap: 0, lines: 0 };
  for (const line of all(".words")) {
    let before = null;
    for (const word of all(".word", line)) {
      const range = document.createRange();
      range.selectNodeContents(word.firstChild);
      const texts = [...range.getClientRects()];
      found.lines = Math.max(found.lines, texts.length);
      found.meets += all(".bar", word).filter((bar) => texts.some((text) =>
        meet(rect(bar), text))).length;
      if (before && texts[0].top === before.top) {
        found.gap = Math.max(found.gap, texts[0].left - before.right);
      }
      before = texts.at(-1);
    }
    const tags = all(".tag", line).map(rect);
    found.out += tags.filter((tag) => tag.right > rect(line).right + 1).length;
    found.over += tags.filter((tag, i) => tags.slice(i + 1).some((other) =>
      meet(tag, other))).length;
  }
  const share = () => rect(id("filters")).height / innerHeight;
  found.filters = [id("filter-box").open, share() < 0.1, getComputedStyle(
    document.querySelector(".keys")).display];
  found.nothing = [id("nothing").hidden, id("count").textContent];
  const menu = id("label-box");
  const after = (action) => { menu.open = true; action(); return menu.open; };
  found.menu = [
    after(() => id("label-search").dispatchEvent(new Event("pointerdown", { bubbles: true }))),
    after(() => id("docs").dispatchEvent(new Event("pointerdown", { bubbles: true }))),
    after(() => document.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }))),
  ];
  id("label-none").click();
  found.none = [location.hash, id("nothing").hidden];
  const seen = document.createElement("pre");
  seen.id = "seen";
  seen.textContent = JSON.stringify(found);
  document.body.append(seen);
}</script></body>"""


def probe(page, path, width, fragment="") -> dict:
    """What `PROBE` finds where the page is so wide. A window is at least 500 pixels wide."""
    style = f"body {{ width: {width}px }}</style>"
    html = page.replace("</style>", style).replace("</body>", PROBE)
    path.write_text(html, encoding="utf8")
    dom = in_browser(path, fragment, width)
    return json.loads(unescape(re.search(r'<pre id="seen">(.*?)</pre>', dom, re.DOTALL)[1]))


@pytest.fixture(scope="module")
def crowded() -> str:
    """A page with long words, labels longer than their spans, and many of them."""
    long = "Donaudampfschifffahrtsgesellschaftskapitaensmuetzenfabrikation" * 3
    label = "gesetzlicher_Paragraph"
    law = make_doc(
        ["§", "17", "Abs.", "2", "StGB"], [(0, 2, label), (1, 2, "Zahl"), (0, 5, "Norm")]
    )
    words = make_doc(["der", long, "und", "B"], [(1, 2, label), (0, 3, "Norm"), (3, 4, label)])
    many = make_doc(list("abcdefghij") * 4, [(i, i + 1 + i % 3, label) for i in range(37)])
    return render_page([c for doc in (law, words, many) for c in compare(doc, doc)], "pipe", {})


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize("width", [390, 1280])
def test_bars_and_labels_leave_the_text_alone(crowded, width, tmp_path):
    seen = probe(crowded, tmp_path / "page.html", width)
    assert seen["lines"] > 1  # a word is broken, and no bar strikes through it
    assert (seen["meets"], seen["out"], seen["over"]) == (0, 0, 0)
    assert 0 < seen["gap"] < 8  # one space


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_filters_and_menu(crowded, tmp_path):
    wide = probe(crowded, tmp_path / "page.html", 1280)
    phone = probe(crowded, tmp_path / "page.html", 390, "#labels=none")
    assert wide["filters"][0]
    assert phone["filters"] == [False, True, "none"]  # folded, a line high, no keys
    assert wide["menu"] == [True, False, False]  # open as long as the reader is in it
    assert wide["nothing"] == [True, "3 of 3 sentences"]
    assert phone["nothing"] == [False, "0 of 3 sentences"]  # "none" is kept in the address
    assert wide["none"] == phone["none"] == ["#labels=none", False]


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_two_thousand_sentences_open_as_fast_as_sixty(tmp_path):
    """2,000 sentences open in under 3 s. What a test
    can hold on to, whatever else the machine does: no more is drawn for them than for sixty, and
    opening does not take many times as long. Load can slow one of two openings, so that a slow
    pair is measured again."""
    words = [f"word{i}" for i in range(25)]
    labels = [f"LABEL_{i}" for i in range(100)]
    deep = [(i, 25 - i, labels[i]) for i in range(10)]  # 10 levels
    wide = [(i, i + 2, labels[i + 20]) for i in range(0, 24, 3)]
    many = [(i % 20, i % 20 + 1 + i % 5, label) for i, label in enumerate(labels)]
    made = [compare_one(make_doc(words, s), make_doc(words, s[1:])) for s in (wide, deep, many)]
    few, many = tmp_path / "few.html", tmp_path / "many.html"
    few.write_text(render_page(made[:2] * 30 + made[2:], "", {}), encoding="utf8")
    many.write_text(render_page(made[:2] * 1000 + made[2:], "", {}), encoding="utf8")
    assert many.stat().st_size < 2_000_000
    ratios = []
    while not ratios or (ratios[-1] > 8 and len(ratios) < 5):
        short, long = in_browser(few), in_browser(many)
        ratios.append(ready(long) / ready(short))
    assert "61 of 61 sentences" in short and "2001 of 2001 sentences" in long
    assert 30 <= len(cards(long)) <= 61
    assert min(ratios) <= 8, ratios


@pytest.mark.parametrize("name", [None, "", float("nan")])
def test_a_doc_without_an_id_has_no_name(name):
    doc = make_doc(WORDS, GOLD)
    doc.user_data["doc_id"] = name
    assert compare_one(doc, doc).name == ""


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_label_that_ends_as_no_score_does(tmp_path):
    made = compare_one(make_doc(WORDS, [(0, 1, "Apgar_score")]), make_doc(WORDS, []))
    (tmp_path / "page.html").write_text(render_page([made], "pipe", {}), encoding="utf8")
    dom = in_browser(tmp_path / "page.html")
    assert "Gold: Apgar_score · “human” · missed · 1 word, depth 1" in dom


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize(
    "view, shown",
    [
        ("order=doc", ["1", "2", "3"]),
        ("order=doubt", ["3", "2", "1"]),
        ("order=errors", ["2", "1", "3"]),
        ("text=PARIS", ["3"]),
        ("min-length=2&order=doc", ["1"]),
        ("max-length=1&order=doc", ["2", "3"]),
        ("kind=5", ["2"]),  # missed, see KINDS
        ("max-depth=0", []),
    ],
)
def test_views_of_a_page(tmp_path, view, shown):
    def one(words, gold, found, score):
        return compare_one(make_doc(words, gold), make_doc(words, found, [score] * len(found)))

    made = [
        one(["a", "b"], [(0, 2, "A")], [(0, 2, "A")], 0.9),
        one(["c", "d"], [(0, 1, "A"), (1, 2, "A")], [(0, 1, "A")], 0.5),
        one(["Paris"], [(0, 1, "A")], [(0, 1, "A")], 0.1),
    ]
    (tmp_path / "page.html").write_text(render_page(made, "pipe", {}), encoding="utf8")
    dom = in_browser(tmp_path / "page.html", f"#{view}")
    assert re.findall(r"<h2[^>]*>(\d)</h2>", dom) == shown
