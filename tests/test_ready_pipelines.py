"""The pipelines in `assets/pipelines` are what their README says."""

import json
from pathlib import Path

import pytest
import spacy

FOLDER = Path(__file__).parents[1] / "assets" / "pipelines"
WHEELS = sorted(FOLDER.glob("*.whl"))
TEXTS = {
    "en_nested_genia_sm": (
        "We cloned the human IL-2 gene. Its promoter binds NF-kappa B in activated T cells.",
        "DNA",
    ),
    "en_nested_litbank_sm": ("The captain's daughter came home. Her mother was in London.", "PER"),
}


def test_both_are_there_and_small() -> None:
    assert [path.name.split("-")[0] for path in WHEELS] == sorted(TEXTS)
    assert all(path.stat().st_size <= 12 * 2**20 for path in WHEELS)


@pytest.mark.parametrize("name", TEXTS)
def test_raw_text_has_sentences_and_nested_entities(name, ready_pipelines) -> None:
    (folder,) = ready_pipelines.glob(f"{name}/{name}-*")
    nlp = spacy.load(folder)
    text, label = TEXTS[name]
    doc = nlp(text)
    spans = list(doc.spans["sc"])
    assert len(list(doc.sents)) == 2 and label in {span.label_ for span in spans}
    inside = [a for a in spans for b in spans if b.start <= a.start and a.end <= b.end and a != b]
    assert inside


@pytest.mark.parametrize("name", TEXTS)
def test_the_model_card_tells_data_scores_and_limits(name, ready_pipelines) -> None:
    card = (FOLDER / f"{name}.md").read_text("utf8")
    (readme,) = ready_pipelines.glob(f"{name}/{name}-*/README.md")
    assert readme.read_text("utf8") == card
    (path,) = ready_pipelines.glob(f"{name}/{name}-*/meta.json")
    meta = json.loads(path.read_text("utf8"))
    assert meta["license"].startswith("CC BY") and meta["sources"][0]["url"]
    assert any(each.startswith("spacy_nested_ner") for each in meta["requirements"])
    for part in ("By label", "By depth", "By length", "Calibration", "Speed", "What it cannot do"):
        assert part in meta["notes"] and part in card
    for label in meta["labels"]["ner"]:
        assert label in meta["performance"]["spans_sc_per_type"]
    assert "raw text" in meta["notes"] or "gold tokens" in meta["notes"]
