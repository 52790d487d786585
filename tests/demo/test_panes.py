"""What the page shows is what the pipeline gives with the same settings."""

import numpy as np
import pytest
import spacy
from hypothesis import given, settings
from hypothesis import strategies as st
from spacy.language import Language

from spacy_nested_ner.demo.panes import LONGEST_BLOCK, OVERLAP, Unreadable, example_text, panes_of
from spacy_nested_ner.evaluation.scores.own_thresholds import changed
from tests.conftest import SENTENCES, make_examples, make_pipeline, train
from tests.demo.conftest import TEXT, entities_of

THRESHOLDS = [0.05, 0.1, 0.3, 0.5, 0.62, 0.9, 1.0]


@Language.component("looks_on")
def looks_on(doc):
    """Nobody knows that it changes no spans."""
    return doc


@pytest.fixture(scope="module")
def spancat() -> Language:
    nlp = spacy.blank("en")
    suggester = {"@misc": "spacy.ngram_suggester.v1", "sizes": [1, 2, 3]}
    nlp.add_pipe("spancat", config={"suggester": suggester, "spans_key": "grams"})
    nlp.initialize(lambda: with_grams(nlp))
    return train(nlp, 10, with_grams)


def with_grams(nlp):
    return make_examples(nlp, "grams")


def shown(found, threshold, overlap):
    """What the page shows of what a live pane gives."""
    least = np.float32(threshold)
    return [
        {name: value for name, value in span.items() if name != "overlap"}
        for span in found["spans"]
        if span["score"] >= least and overlap in span.get("overlap", [overlap])
    ]


def test_a_live_pane_holds_what_the_pipeline_finds_at_any_setting(unsure):
    (pane,) = panes_of("unsure", unsure)
    assert pane.facts()["live"]
    found, seen = pane.find(TEXT), {}
    for overlap in OVERLAP:
        for threshold in THRESHOLDS:
            with changed(pane.component.pipe, threshold=threshold, overlap=overlap):
                expected = entities_of(unsure(TEXT))
            assert shown(found, threshold, overlap) == expected
            seen[overlap, threshold] = len(expected)
    # The settings make a difference.
    assert seen["any", 0.05] > seen["no_crossing", 0.05] > seen["flat", 0.05] > 10
    assert seen["any", 0.05] > seen["any", 0.3] > seen["any", 0.9]


def test_labels_per_span_is_kept(unsure):
    (pane,) = panes_of("unsure", unsure)
    with changed(pane.component.pipe, labels_per_span=1):
        found = pane.find(TEXT)
        with changed(pane.component.pipe, threshold=0.2, overlap="flat"):
            expected = entities_of(unsure(TEXT))
    assert shown(found, 0.2, "flat") == expected
    assert len(found["spans"]) < len(pane.find(TEXT)["spans"])


def test_a_span_categorizer_has_a_threshold_but_no_overlap_policy(spancat):
    (pane,) = panes_of("spancat", spancat)
    facts = pane.facts()
    assert facts["live"] and facts["overlap"] is None and facts["overlap_choices"] == []
    found, sizes = pane.find(TEXT), set()
    for threshold in (0.05, 0.1, 0.3):
        with changed(pane.component.pipe, threshold=threshold):
            expected = entities_of(spancat(TEXT), "grams")
        assert shown(found, threshold, None) == expected
        sizes.add(len(expected))
    assert len(sizes) == 3


def test_a_pane_that_is_not_live_is_asked_again(tmp_path, unsure):
    unsure.to_disk(tmp_path)
    nlp = spacy.load(tmp_path)
    nlp.add_pipe("looks_on")
    (pane,) = panes_of("watched", nlp)
    before = dict(pane.component.pipe.cfg)
    assert not pane.facts()["live"]
    assert shown(pane.find(TEXT), 0, None) == entities_of(unsure(TEXT))
    with changed(unsure.get_pipe("ner"), threshold=0.2, overlap="flat"):
        expected = entities_of(unsure(TEXT))
    assert pane.find(TEXT, 0.2, "flat")["spans"] == expected
    assert len(expected) != len(entities_of(unsure(TEXT)))
    with pytest.raises(ValueError, match="Component 'ner': threshold must be"):
        pane.find(TEXT, threshold=2.0)
    assert pane.component.pipe.cfg == before


def test_two_components_of_one_pipeline(tmp_path, unsure, spancat):
    unsure.to_disk(tmp_path)
    nlp = spacy.load(tmp_path)
    nlp.add_pipe("spancat", source=spancat)
    first, second = panes_of("both", nlp)
    assert [pane.facts()["spans_key"] for pane in (first, second)] == ["sc", "grams"]
    assert shown(first.find(TEXT), 0.2, "flat") == shown(
        panes_of("", unsure)[0].find(TEXT), 0.2, "flat"
    )
    assert shown(second.find(TEXT), 0.1, None) == shown(
        panes_of("", spancat)[0].find(TEXT), 0.1, None
    )


def test_facts(unsure):
    (pane,) = panes_of("a/b", unsure)
    facts = pane.facts()
    assert facts["pipeline"] == "a/b" and facts["component"] == "ner"
    assert facts["factory"] == "locate_and_label_ner" and facts["spans_key"] == "sc"
    assert set(facts["labels"]) == {label for _, spans in SENTENCES for *_, label in spans}
    assert (facts["threshold"], facts["lowest"], facts["overlap"]) == (0.5, 0.05, "any")


def test_offsets_are_code_points(unsure):
    (pane,) = panes_of("unsure", unsure)
    text = "\N{GRINNING FACE} " * 3 + TEXT
    spans = pane.find(text)["spans"]
    assert spans and all(text[span["start"] : span["end"]] == span["text"] for span in spans)


@pytest.mark.parametrize(
    "text, problem",
    [
        ("x" * 1_000_001, "1,000,001 characters, and the pipeline takes 1,000,000 at most"),
        ("IL-2 \ud83d gene", "Character 6 of the text is half of a surrogate pair"),
    ],
)
def test_texts_that_no_pipeline_takes(unsure, text, problem):
    (pane,) = panes_of("unsure", unsure)
    with pytest.raises(Unreadable, match=problem):
        pane.find(text)


PARTS = ["Paris", ".", "\n", "\n\n", "  ", "IL-2", "\u2028"]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(PARTS), max_size=60))
def test_blocks_hold_all_tokens_in_their_order(unsure, evil, parts):
    """With sentence boundaries and without."""
    text = " ".join(parts)
    for nlp in (unsure, evil):
        (pane,) = panes_of("x", nlp)
        found = pane.find(text)
        assert "".join(found["words"]) == text
        ends = [0, *(end for _, end in found["blocks"])]
        assert [start for start, _ in found["blocks"]] == ends[:-1]
        assert ends[-1] == len(found["words"])
        assert all(start < end for start, end in found["blocks"])


def test_blocks_are_sentences_and_paragraphs(unsure):
    (pane,) = panes_of("unsure", unsure)
    found = pane.find("He joined. Paris is\n\nhere . " + "cells " * 300)
    blocks = ["".join(found["words"][start:end]) for start, end in found["blocks"]]
    assert blocks[:3] == ["He joined. ", "Paris is\n\n", "here . "]
    assert [len(block.split()) for block in blocks[3:]] == [LONGEST_BLOCK, LONGEST_BLOCK, 60]


def test_pipelines_that_have_nothing_to_show():
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    with pytest.raises(ValueError, match=r"plain: no component .* Its components: sentencizer"):
        panes_of("plain", nlp)
    with pytest.raises(ValueError, match="new: component 'ner' is not trained"):
        panes_of("new", make_pipeline(examples=None))


@pytest.mark.parametrize("lang, part", [("en", "IL-2"), ("de", "Die ganze Stadt"), ("xx", "")])
def test_example_texts(lang, part):
    assert part in example_text(lang)


def test_the_direction_of_the_language_is_told(unsure, monkeypatch):
    monkeypatch.setattr("spacy_nested_ner.demo.panes.direction_of", lambda vocab: "rtl")
    (pane,) = panes_of("unsure", unsure)
    assert pane.facts()["direction"] == "rtl"
