from __future__ import annotations

import json
from pathlib import Path

import pytest
import spacy
from spacy.tokens import Doc, DocBin, Span
from spacy.util import load_config
from typer.testing import CliRunner

from spacy_nested_ner.cli import nested_ner_cli
from tests.conftest import make_pipeline

CONFIG = Path(__file__).parents[2] / "configs" / "locate_and_label_cnn.cfg"


def run(*args, code=0) -> str:
    result = CliRunner().invoke(nested_ner_cli, [str(arg) for arg in args])
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("data") / "train.spacy"
    nlp = spacy.blank("en")
    doc_bin = DocBin()
    for text in ["The IL-2 gene is active.", "Nothing here.", "An IL-2 gene."]:
        doc = nlp.make_doc(text)
        doc.spans["sc"] = []
        if "IL-2" in text:
            doc.spans["sc"] = [Span(doc, 1, 3, "DNA"), Span(doc, 1, 2, "protein")]
        doc_bin.add(doc)
    doc_bin.to_disk(path)
    return path


def test_inspect(data, tmp_path):
    printed = " ".join(run("inspect", data, data, "-o", tmp_path / "report.json").split())
    assert "Label 'DNA' has 2 entities in train, fewer than 50." in printed
    assert "3 sentences (100.0 %) and 4 entities (100.0 %, by text and label)" in printed
    for name in ("piqn_ner queries", "mrc_ner none", "locate_and_label_ner none"):
        assert name in printed
    report = json.loads((tmp_path / "report.json").read_text("utf8"))
    assert report["train"]["nested_entities"] == 4 and report["dev"]["entities"] == 4


def test_inspect_against_a_config_as_json(data):
    report = json.loads(run("inspect", data, "--config", CONFIG, "--json"))
    assert report["dev"] is None and report["overlap"] is None
    assert [row["factory"] for row in report["limits"]] == ["locate_and_label_ner"]
    assert report["limits"][0]["component"] == "ner"


def published(path: Path) -> Path:
    """Two sentences; the first has tokens of its own."""
    nlp = spacy.blank("en")
    words = ["anti", "CD28", "growth", ".", "IL-2", "rose", "."]
    doc = Doc(nlp.vocab, words=words, sent_starts=[i in (0, 4) for i in range(7)])
    doc.spans["sc"] = [Span(doc, 1, 2, "protein")]
    doc.user_data["text"] = "antiCD28 growth. IL-2 rose."
    DocBin(docs=[doc], store_user_data=True).to_disk(path)
    return path


def test_inspect_compares_tokens_with_those_of_the_pipeline(data, tmp_path):
    output = tmp_path / "report.json"
    printed = run("inspect", published(tmp_path / "train.spacy"), "-o", output)
    assert "anti CD28 growth .\n  antiCD28 growth .\n" in printed
    report = json.loads(output.read_text("utf8"))
    assert report["train"]["other_tokens"]["differing_percent"] == 50.0
    (warning,) = [text for text in report["warnings"] if "tokens" in text]
    assert (
        warning.startswith("In 50.0 % of the sentences of train the")
        and "--tokens spacy" in warning
    )
    run("inspect", data, "-o", output)
    assert json.loads(output.read_text("utf8"))["train"]["other_tokens"]["differing"] == 0


def test_an_example_is_not_a_whole_doc(tmp_path):
    """A doc without sentence boundaries may be a page."""
    words = [*["alpha"] * 100, "anti", "CD28", *["omega"] * 100]
    doc = Doc(spacy.blank("en").vocab, words=words)
    doc.has_unknown_spaces = True
    doc.spans["sc"] = [Span(doc, 101, 102, "protein")]
    doc.user_data["text"] = " ".join(words).replace("anti CD28", "antiCD28")
    path, output = tmp_path / "train.spacy", tmp_path / "report.json"
    DocBin(docs=[doc], store_user_data=True).to_disk(path)
    run("inspect", path, path, "-o", output)
    report = json.loads(output.read_text("utf8"))
    (example,) = report["train"]["other_tokens"]["examples"]
    assert " anti CD28 " in example["data"] and " antiCD28 " in example["pipeline"]
    (common,) = report["overlap"]["examples"]
    for text in example.values():
        assert text.startswith("... alpha ") and text.endswith(" omega ...") and len(text) < 240
    assert common.endswith(" ...") and len(common) <= 200


def test_inspect_takes_the_tokenizer_of_the_config(tmp_path):
    @spacy.registry.tokenizers("test_characters.v1")
    def make():
        return lambda nlp: lambda text: Doc(nlp.vocab, words=list("".join(text.split())))

    config = CONFIG.read_text("utf8") + '\n[nlp.tokenizer]\n@tokenizers = "test_characters.v1"\n'
    (tmp_path / "characters.cfg").write_text(config, encoding="utf8")
    path = published(tmp_path / "train.spacy")
    report = json.loads(run("inspect", path, "--config", tmp_path / "characters.cfg", "--json"))
    assert report["train"]["other_tokens"]["differing"] == 2


@pytest.mark.parametrize(
    "options, problem",
    [
        (("--spans-key", "nest"), "The docs have: 'sc'. Choose with --spans-key."),
        (("--config", "nowhere.cfg"), "nowhere.cfg: no such file"),
    ],
)
def test_inspect_reports_what_it_cannot_use(data, options, problem):
    assert problem in " ".join(run("inspect", data, *options, code=1).split())
    run("inspect", data.with_name("other.spacy"), code=1)


def test_inspect_sees_doc_ents(tmp_path):
    doc = spacy.blank("en").make_doc("The IL-2 gene.")
    doc.ents = [Span(doc, 1, 3, "DNA")]
    path = tmp_path / "ents.spacy"
    DocBin(docs=[doc]).to_disk(path)
    for command in (("inspect", path), ("init", path, path, tmp_path / "mine.cfg")):
        printed = " ".join(run(*command, code=1).split())
        assert "The docs have no span groups. They have doc.ents: set doc.spans['sc']" in printed
        assert "Choose with --spans-key" not in printed


def test_data_without_entities(data, tmp_path):
    doc = spacy.blank("en")("Nothing here.")
    doc.spans["sc"] = []
    path = tmp_path / "none.spacy"
    DocBin(docs=[doc]).to_disk(path)
    assert "dev has no entities, but training is scored on it." in run("inspect", data, path)
    printed = " ".join(run("inspect", path, code=1).split())
    assert "That span group is empty in every doc" in printed and "Choose" not in printed
    DocBin().to_disk(path)
    assert "There are no docs." in " ".join(run("inspect", path, code=1).split())


@pytest.mark.parametrize("frozen", [False, True])
def test_components_that_the_data_are_not_for(data, tmp_path, frozen):
    """Frozen, or of another key."""
    nlp = make_pipeline("locate_and_label_ner")
    nlp.get_pipe("ner").cfg.update(window=2, stride=2)
    if not frozen:
        nlp.get_pipe("ner").cfg["spans_key"] = "other"
    nlp.to_disk(tmp_path / "old")
    source = (tmp_path / "old").as_posix()
    path = tmp_path / "mine.cfg"
    old = f'[components.old]\nsource = "{source}"\ncomponent = "ner"\n'
    new = '[components.new]\nfactory = "piqn_ner"\n'
    training = '[training]\nfrozen_components = ["old"]\n' if frozen else ""
    path.write_text(f"[components]\n\n{old}\n{new}\n{training}", encoding="utf8")
    report = json.loads(run("inspect", data, "--config", path, "--json"))
    assert {each["component"] for each in report["limits"]} == {"new"}
    assert "old" not in " ".join(report["warnings"])


def test_inspect_knows_a_component_from_another_pipeline(data, tmp_path):
    nlp = make_pipeline("locate_and_label_ner")
    nlp.rename_pipe("ner", "theirs")
    nlp.get_pipe("theirs").cfg.update(window=2, stride=2)
    nlp.to_disk(tmp_path / "known")
    path = tmp_path / "mine.cfg"
    tagger = '[components.tagger]\nsource = "not_installed"\n\n'
    block = f"[components]\n\n{tagger}[components.ner]\nsource = {{}}\ncomponent = {{}}\n".format

    def inspect(source: str, component: str, code: int = 0) -> str:
        paths = f'[paths]\nbase = "{source}"\n\n'
        path.write_text(paths + block("${paths.base}", f'"{component}"'), encoding="utf8")
        return " ".join(run("inspect", data, "--config", path, "--json", code=code).split())

    with pytest.warns(UserWarning, match=r"'tagger' has the source 'not_installed': no pipeline"):
        report = json.loads(inspect((tmp_path / "known").as_posix(), "theirs"))
    assert {each["component"] for each in report["limits"]} == {"ner"}
    assert report["train"]["lost"] == {"across segments": 2}
    warned = " ".join(report["warnings"])
    assert "ner: it has labels that the training data lack, and would unlearn them: CELL" in warned
    assert "ner: it lacks labels of the training data: protein. Add them with add_label" in warned
    assert "has the source" in inspect((tmp_path / "known").as_posix(), "other", code=1)
    assert "has the source 'nowhere'" in inspect("nowhere", "theirs", code=1)


@pytest.mark.parametrize(
    "setting, problem",
    [
        ("lengths = 3", "Component 'ner': lengths must be null or a list of whole numbers"),
        ('lengths = ["x"]', "Component 'ner': lengths must be null or a list of whole numbers"),
        ("seed_iou = null", "Component 'ner': seed_iou must be a number"),
    ],
)
def test_a_config_with_a_setting_of_the_wrong_type(data, tmp_path, setting, problem):
    section = "[components.ner.model]\n"
    lines = CONFIG.read_text("utf8").replace(section, f"{section}{setting}\n")
    path = tmp_path / "odd.cfg"
    path.write_text(lines, encoding="utf8")
    printed = " ".join(run("inspect", data, "--config", path, code=1).split())
    assert "odd.cfg: " in printed and problem in printed


SPANCAT = """[components.ner]
factory = "spancat"
[components.ner.suggester]
@misc = "spacy.ngram_suggester.v1"
"""


@pytest.mark.parametrize(
    "text, problem",
    [
        ("ner = 1", "has none of the components"),
        ('[components.ner]\nfactory = "piqn_ner"\nmodel = 3', "'ner': its model must be a block"),
        (SPANCAT + "sizes = 3", "Component 'ner': 'int' object is not iterable"),
        (SPANCAT, "Component 'ner': 'sizes' is missing"),
        ("[components.ner", "odd.cfg: "),
        ("ner = 1\nner = 2", "odd.cfg: "),
        ("ner = ${x.y}", "odd.cfg: "),
    ],
)
def test_a_config_with_a_component_of_another_form(data, tmp_path, text, problem):
    path = tmp_path / "odd.cfg"
    path.write_text(f"[components]\n{text}\n", encoding="utf8")
    assert problem in " ".join(run("inspect", data, "--config", path, code=1).split())


def test_many_labels_are_cut(tmp_path):
    nlp = spacy.blank("en")
    doc = nlp.make_doc("IL-2 gene")
    labels = ["often", *(f"L{i:02}" for i in range(99))]
    doc.spans["sc"] = [Span(doc, 0, 1, name) for name in labels] + [Span(doc, 0, 2, "often")]
    DocBin(docs=[doc]).to_disk(tmp_path / "train.spacy")
    printed = run("inspect", tmp_path / "train.spacy")
    lengths = printed.partition("words by label")[2].splitlines()
    assert lengths[2].startswith("often") and lengths[31].startswith("L28")
    assert lengths[32].strip() == "... 70 more"
    assert printed.count("fewer than 50") == 1


def test_labels_that_only_look_like_numbers(tmp_path):
    nlp = spacy.blank("en")
    doc = nlp.make_doc("IL-2 gene")
    doc.spans["sc"] = [Span(doc, 0, 1, "\u00b2"), Span(doc, 0, 2, "\u2460")]
    DocBin(docs=[doc]).to_disk(tmp_path / "train.spacy")
    assert "\u2460" in run("inspect", tmp_path / "train.spacy")


@pytest.mark.parametrize("annotating", [True, False])
def test_a_sentencizer_that_annotates_in_training_sets_boundaries(tmp_path, annotating):
    doc = spacy.blank("en")("He left. She stayed.")
    doc.spans["sc"] = [Span(doc, 0, 2, "A"), Span(doc, 0, 6, "B")]
    DocBin(docs=[doc]).to_disk(tmp_path / "train.spacy")
    config = load_config(CONFIG)
    config["nlp"]["pipeline"] = ["cutter", "ner"]
    config["components"]["cutter"] = {"factory": "sentencizer", "punct_chars": ["."]}
    config["training"]["annotating_components"] = ["cutter"] if annotating else []
    config.to_disk(tmp_path / "own.cfg")
    printed = run("inspect", tmp_path / "train.spacy", "--config", tmp_path / "own.cfg", "--json")
    lost = json.loads(printed)["train"]["lost"]
    assert lost == ({"across segments": 1} if annotating else {})


def test_variables_of_a_config_are_filled_in(tmp_path):
    text = CONFIG.read_text("utf8").replace('lang = "en"', "lang = ${variables.lang}")
    text = text.replace('spans_key = "sc"', 'spans_key = "sc"\nthreshold = ${variables.least}')
    path = tmp_path / "own.cfg"
    path.write_text(text + '\n[variables]\nlang = "de"\nleast = 0.4\n', encoding="utf8")
    doc = spacy.blank("de")("Er kam z.B. nach Oslo.")
    doc.spans["sc"] = [Span(doc, 0, 1, "PER")]
    DocBin(docs=[doc]).to_disk(tmp_path / "train.spacy")
    report = json.loads(run("inspect", tmp_path / "train.spacy", "--config", path, "--json"))
    assert report["train"]["other_tokens"]["differing"] == 0


def test_rare_is_what_is_asked_for(data):
    assert "fewer than" not in run("inspect", data, "--rare", 2)
    assert "fewer than 3" in run("inspect", data, "--rare", 3)
