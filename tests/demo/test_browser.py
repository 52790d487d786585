"""The page in a real browser."""

import json
import os
import re
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest
import spacy
from spacy.language import Language

from spacy_nested_ner.demo.panes import panes_of
from spacy_nested_ner.evaluation.page.page import Comparison, Mark, render_page
from spacy_nested_ner.evaluation.scores.own_thresholds import changed
from tests.demo.conftest import EVIL, EVIL_LABEL, TEXT, entities_of, served

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
LONG = 20_000  # words
FAINT = (Path(__file__).parent / "faint.js").read_text(encoding="utf8")
BOUND = 1000  # milliseconds from a move of the slider to the next picture, for slow machines

try:
    from playwright.sync_api import Error, expect, sync_playwright
except ImportError:
    CHROMIUM = None
if CHROMIUM is None:
    assert not os.environ.get("CI"), "install chromium (Debian) and playwright (PyPI)"
    pytest.skip("needs Chromium and playwright", allow_module_level=True)


@Language.component("fails")
def fails(doc):
    raise RuntimeError("<b>no</b>")


@Language.component("sees")
def sees(doc):
    return doc


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def opened(browser, url, **context):
    """The page, which has read its example. Nothing may go wrong in it or leave the machine."""
    wrong, asked = [], []
    context = browser.new_context(viewport={"width": 1280, "height": 800}, **context)
    page = context.new_page()
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: asked.append(request.url))
    page.asked, page.wrong = asked, wrong
    page.goto(url)
    done(page)
    yield page
    context.close()
    assert not wrong
    assert all(each.startswith((url, "data:")) for each in asked) and len(asked) > 5


@pytest.fixture
def page(browser, url):
    with opened(browser, url) as page:
        yield page


def done(page):
    expect(page.locator("#status")).to_contain_text(re.compile("entit|cannot"), timeout=60_000)
    expect(page.locator("[aria-busy=true]")).to_have_count(0)


def annotate(page, text, by="button"):
    page.get_by_label("Text", exact=True).fill(text)
    expect(page.locator("#status")).to_have_text("The text has changed. Annotate it again.")
    if by == "button":
        page.get_by_role("button", name="Annotate").click()
    else:
        page.keyboard.press("Control+Enter")
    done(page)


def pane_of(page, name):
    return page.get_by_role("region", name=name)


def slide(pane, threshold):
    """As a hand does, without the sounds of the keys."""
    pane.get_by_role("slider").fill(str(threshold))


def tags_of(pane):
    return pane.locator(".tag").all_text_contents()


def found_by(nlp, text, **settings):
    with changed(nlp.get_pipe("ner"), **settings):
        return entities_of(nlp(text))


def labels_of(spans):
    return [span["label"] for span in spans]


def test_threshold_and_overlap_show_what_the_pipeline_finds(page, unsure):
    page.set_viewport_size({"width": 1280, "height": 3000})  # all of it is drawn
    annotate(page, TEXT)
    pane = pane_of(page, "unsure")
    before = len(page.asked)
    expect(pane).to_contain_text("default: 0.5")
    seen = set()
    for threshold in (0.5, 0.05, 0.2, 0.9):
        for overlap in ("any", "no_crossing", "flat"):
            slide(pane, threshold)
            pane.get_by_label("overlap").select_option(overlap)
            spans = found_by(unsure, TEXT, threshold=threshold, overlap=overlap)
            word = "entity" if len(spans) == 1 else "entities"
            expect(pane.locator(".count")).to_have_text(re.compile(rf"^{len(spans)} {word} in"))
            assert sorted(tags_of(pane)) == sorted(labels_of(spans))
            seen.add(len(spans))
    assert len(seen) > 6
    pane.get_by_role("button", name="Reset").click()
    expect(pane.get_by_role("slider")).to_have_attribute("aria-valuetext", re.compile("^0.50, "))
    spans = entities_of(unsure(TEXT))
    expect(pane.locator(".tag")).to_have_count(len(spans))  # drawn with the next frame
    assert sorted(tags_of(pane)) == sorted(labels_of(spans))
    assert len(page.asked) == before  # the page chooses by itself


# Of bars of which one lies in the other: whether the inner one lies below.
NESTED = """(pane) => {
  const rows = [...pane.querySelectorAll(".words")].flatMap((line) => [...line.children].map(
    (word) => [...word.querySelectorAll(".bar")].map((bar) => bar.getBoundingClientRect().top)));
  return rows.filter((tops) => tops.length > 1 && new Set(tops).size === tops.length).length;
}"""


def test_nested_spans_lie_below_each_other(page):
    annotate(page, "He joined Bank of China in New York City")
    pane = pane_of(page, "evil")
    assert tags_of(pane) == ["ORG", "GPE", "GPE", "GPE"]
    assert pane.evaluate(NESTED) == 3  # China, New, York
    expect(pane.locator(".bar")).to_have_count(3 + 1 + 3 + 2)


def test_labels(page, unsure, evil):
    page.set_viewport_size({"width": 1280, "height": 3000})
    annotate(page, TEXT)
    pane = pane_of(page, "unsure")
    spans = entities_of(unsure(TEXT))
    of_label = [span for span in spans if span["label"] == "GPE"]
    assert 0 < len(of_label) < len(spans)
    names = page.locator("#label-list .key").all_text_contents()
    assert names == sorted({*unsure.get_pipe("ner").labels, EVIL_LABEL})
    box = page.get_by_role("checkbox", name=re.compile("^GPE"))
    of_both = len(of_label) + labels_of(entities_of(evil(TEXT))).count("GPE")
    expect(page.locator("label", has=box)).to_have_text(f"GPE{of_both}")
    box.uncheck()
    expect(pane.locator(".count")).to_contain_text(f"({len(of_label)} more hidden by label)")
    assert "GPE" not in tags_of(pane) and len(tags_of(pane)) == len(spans) - len(of_label)
    page.get_by_role("button", name="none").click()
    expect(page.locator(".tag")).to_have_count(0)
    page.get_by_role("button", name="all").click()
    expect(pane.locator(".tag")).to_have_count(len(spans))
    slide(pane, 1)
    expect(pane.locator(".tag")).to_have_count(0)


def test_scores_on_hover_and_focus(page, evil):
    annotate(page, "human T cells")
    (first, second) = entities_of(evil("human T cells"))
    pane, tip = pane_of(page, "evil"), page.get_by_role("tooltip")
    expect(tip).to_be_hidden()
    pane.locator(".tag").nth(1).hover()
    expect(tip).to_have_text(f"CELL · “T cells” · score {second['score']:.3f} · 2 tokens")
    page.mouse.move(0, 0)
    expect(tip).to_be_hidden()
    pane.get_by_role("group", name="Entities of evil").focus()
    page.keyboard.press("ArrowRight")
    expect(tip).to_have_text(f"CELL · “human T cells” · score {first['score']:.3f} · 3 tokens")
    expect(pane.locator(".tag").first).to_be_focused()
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()


def test_markup_is_shown_as_text(page, evil):
    spans = entities_of(evil(EVIL))
    assert labels_of(spans) == [EVIL_LABEL, "GPE"]  # as it has learned
    annotate(page, EVIL)
    pane = pane_of(page, "evil")
    assert tags_of(pane) == [EVIL_LABEL, "GPE"]
    words = pane.locator(".word").evaluate_all("(all) => all.map((w) => w.firstChild?.data ?? '')")
    assert "".join(words).replace(" ", "") == re.sub(r"\s", "", EVIL)
    pane.locator(".tag").first.hover()
    expect(page.get_by_role("tooltip")).to_contain_text(f"{EVIL_LABEL} · “{EVIL}”")
    assert page.locator("#panes script, #panes b, #panes img, #labels img").count() == 0


def test_copy_as_json(browser, url, unsure):
    """Offsets are those of Python, in which an emoji is one character."""
    text = f"\N{GRINNING FACE}\N{FAMILY} {TEXT}"
    permissions = ["clipboard-read", "clipboard-write"]
    with opened(browser, url, permissions=permissions) as page:
        annotate(page, text)
        pane = pane_of(page, "unsure")
        slide(pane, 0.2)
        pane.get_by_label("overlap").select_option("flat")
        pane.get_by_role("button", name="Copy as JSON").click()
        spans = found_by(unsure, text, threshold=0.2, overlap="flat")
        expect(page.locator("#status")).to_have_text(f"Copied {len(spans)} entities.")
        copied = json.loads(page.evaluate("navigator.clipboard.readText()"))
    assert copied.pop("entities") == spans and spans
    assert all(text[span["start"] : span["end"]] == span["text"] for span in spans)
    assert copied == {
        "pipeline": "unsure",
        "component": "ner",
        "spans_key": "sc",
        "threshold": 0.2,
        "overlap": "flat",
        "text": text,
    }


def test_copy_by_hand_where_the_browser_refuses(page):
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject('no'); }")
    pane_of(page, "evil").get_by_role("button", name="Copy as JSON").click()
    box = page.get_by_role("dialog", name="Copy by hand")
    assert json.loads(box.get_by_label("JSON").input_value())["pipeline"] == "evil"
    box.get_by_role("button", name="Close").click()
    expect(box).to_be_hidden()


def test_the_keyboard_is_enough(page, unsure, evil):
    """From the text to the last control of the first pane, and from entity to entity."""
    page.get_by_label("Text", exact=True).focus()
    page.keyboard.press("Control+a")
    page.keyboard.type("human T cells")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#status")).to_contain_text("evil: 2 entities")
    passed = []
    for _ in range(40):
        page.keyboard.press("Tab")
        passed.append(
            page.evaluate(
                "(document.activeElement.closest('section')?.querySelector('h2').textContent ?? '')"
                " + ' ' + (document.activeElement.type || document.activeElement.className)"
            )
        )
        if passed[-1] == "evil blocks":
            break
    kinds = ["range", "select-one", "button", "button", "blocks"]
    for name in ("unsure", "evil"):
        assert [each.split()[1] for each in passed if each.startswith(name)] == kinds
    tags = pane_of(page, "evil").locator(".tag")
    for key, place in (("ArrowRight", 0), ("ArrowRight", 1), ("ArrowRight", 1), ("Home", 0)):
        page.keyboard.press(key)
        expect(tags.nth(place)).to_be_focused()
    pane = pane_of(page, "unsure")
    pane.get_by_role("slider").focus()
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    expect(pane.locator(".value")).to_have_text("0.47")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_narrow_and_dark(browser, url, width, scheme):
    with opened(browser, url, color_scheme=scheme) as page:
        page.set_viewport_size({"width": width, "height": 844})
        annotate(page, f"{TEXT} {'Donaudampfschifffahrt' * 9} {EVIL}")
        slide(pane_of(page, "unsure"), 0.05)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        boxes = [pane_of(page, name).bounding_box() for name in ("unsure", "evil")]
        side_by_side = boxes[0]["y"] == boxes[1]["y"]
        assert side_by_side == (width > 390)
        assert page.evaluate(FAINT) == []


# Milliseconds from a move of the slider until the picture is there.
MOVE = """(pane, threshold) => new Promise((resolve) => {
  const slider = pane.querySelector("input[type=range]");
  const began = performance.now();
  slider.value = threshold;
  slider.dispatchEvent(new Event("input", { bubbles: true }));
  requestAnimationFrame(() => requestAnimationFrame(() => resolve(performance.now() - began)));
})"""


def test_twenty_thousand_words(browser, unsure):
    with served(panes_of("unsure", unsure)) as url, opened(browser, url) as page:
        annotate(page, f"{TEXT} " * (LONG // len(TEXT.split())))
        pane = pane_of(page, "unsure")
        expect(pane.locator(".count")).to_contain_text(re.compile(r" in 2\d,\d{3} tokens"))
        counts, times = [], []
        for step in range(10):
            times.append(pane.evaluate(MOVE, 0.05 + step * 0.05))
            counts.append(pane.locator(".count").text_content())
            assert pane.locator(".tag").count() < 1000  # what is far away is not drawn
        assert len(set(counts)) > len(counts) // 2  # the slider moves what is shown
        assert sorted(times)[len(times) // 2] < BOUND, times
        print(f"slider to picture, ms: {[round(each) for each in times]}, {counts[0]}")
        # What comes into sight is drawn, whether by scrolling or by going there.
        last = pane.locator(".block").last
        expect(last.locator(".tag")).to_have_count(0)
        last.scroll_into_view_if_needed()
        expect(last.locator(".tag")).not_to_have_count(0)
        group = pane.get_by_role("group")
        group.focus()
        page.keyboard.press("Home")
        expect(pane.locator(".tag").first).to_be_focused()
        page.keyboard.press("End")
        expect(last.locator(".tag").last).to_be_focused()


def test_a_text_that_is_too_long(page):
    page.get_by_label("Text", exact=True).evaluate("(box) => { box.value = 'x'.repeat(1000001); }")
    page.get_by_role("button", name="Annotate").click()
    done(page)
    for name in ("unsure", "evil"):
        problem = pane_of(page, name).locator(".problem")
        expect(problem).to_contain_text("1,000,001 characters, and the pipeline takes 1,000,000")
        expect(pane_of(page, name).locator(".tag")).to_have_count(0)
    assert len(page.wrong) == 2 and all(": 422" in each or " 422 " in each for each in page.wrong)
    page.wrong.clear()


def test_the_server_is_gone(browser, evil):
    """The page says so, and shows no entities of another text."""
    with served(panes_of("evil", evil)) as url:
        context = browser.new_context()
        page = context.new_page()
        page.goto(url)
        done(page)
    page.get_by_role("button", name="Annotate").click()
    problem = pane_of(page, "evil").locator(".problem")
    expect(problem).to_contain_text("The server does not answer. Is the command still running?")
    expect(page.locator("#status")).to_have_text("cannot read the text")
    expect(page.locator(".tag")).to_have_count(0)
    with pytest.raises(Error):
        page.goto(url)
    context.close()


def test_a_pipeline_that_fails_on_a_text(browser, tmp_path, evil):
    evil.to_disk(tmp_path)
    nlp = spacy.load(tmp_path)
    nlp.add_pipe("fails", first=True)
    with served([*panes_of("evil", evil), *panes_of("broken", nlp)]) as url:
        context = browser.new_context()
        page = context.new_page()
        page.goto(url)
        done(page)
        expect(page.locator("#status")).to_contain_text("broken: cannot read the text")
        problem = pane_of(page, "broken").locator(".problem")
        expect(problem).to_have_text("RuntimeError: <b>no</b>")
        assert pane_of(page, "evil").locator(".tag").count() > 0
        context.close()


def test_a_component_that_is_asked_again(browser, tmp_path, unsure):
    """Where a later component might change spans, the page cannot know what is found."""
    unsure.to_disk(tmp_path)
    nlp = spacy.load(tmp_path)
    nlp.add_pipe("sees")
    with served(panes_of("watched", nlp)) as url, opened(browser, url) as page:
        annotate(page, TEXT)
        pane = pane_of(page, "watched")
        expect(pane).to_contain_text("so it reads the text again")
        for threshold, overlap in ((0.2, "any"), (0.2, "flat"), (0.9, "flat")):
            with page.expect_response("**/annotate"):
                if overlap == pane.get_by_label("overlap").input_value():
                    slide(pane, threshold)
                else:
                    pane.get_by_label("overlap").select_option(overlap)
            spans = found_by(unsure, TEXT, threshold=threshold, overlap=overlap)
            expect(pane.locator(".tag")).to_have_count(len(spans))
            assert sorted(tags_of(pane)) == sorted(labels_of(spans))


@pytest.mark.parametrize("direction", ["auto", "rtl", "ltr"])
def test_words_follow_each_other_as_they_are_read(browser, tmp_path, direction):
    """Also those of a pipeline of many languages, whose labels are Latin ones."""
    arabic, english = ["( ", "جامعة ", "القاهرة ", "IBM "], ["the ", "University ", "القاهرة "]
    marks = [Mark(0, 3, "ORG", "right", 1)]
    sentences = [Comparison("", each, each, marks, marks, direction) for each in (arabic, english)]
    path = tmp_path / "page.html"
    path.write_text(render_page(sentences, "Title", {}), encoding="utf8")
    page = browser.new_page()
    page.goto(path.as_uri())
    lines = page.locator(".words")
    expect(lines).to_have_count(4)
    read = []
    for i in range(4):
        boxes = [word.bounding_box() for word in lines.nth(i).locator(".word").all()]
        places = [box["x"] for box in boxes]
        assert places in (sorted(places), sorted(places, reverse=True))
        read.append(places[0] < places[-1])
        tag = lines.nth(i).locator(".tag").bounding_box()
        first = boxes[0]
        near = (first["x"] - tag["x"], first["x"] + first["width"] - tag["x"] - tag["width"])
        assert abs(near[0] if read[-1] else near[1]) < 3
    rightwards = {"auto": [False, True], "rtl": [False, False], "ltr": [True, True]}[direction]
    assert read == [each for each in rightwards for _ in ("gold", "predicted")]
    page.close()
