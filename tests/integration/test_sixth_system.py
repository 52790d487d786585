"""A system that lives outside of the package is all that the five are."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import spacy
import srsly
from spacy.tokens import DocBin
from spacy.training import Example
from typer.testing import CliRunner

from spacy_nested_ner.cli import nested_ner_cli
from spacy_nested_ner.evaluation.data.limits import default_components, limits
from spacy_nested_ner.pipeline.factories import register_system
from spacy_nested_ner.systems import TABLE
from tests.toy import SYSTEM

TEXTS = {
    "IL-2 binds p53": [(0, 4, "PROT"), (11, 14, "PROT")],
    "p53 binds in blood": [(0, 3, "PROT"), (13, 18, "CELL")],
}


@pytest.fixture(scope="module")
def nlp():
    register_system(SYSTEM)
    nlp = spacy.blank("en")
    nlp.add_pipe("toy_ner", config={"threshold": 0.4})
    examples = [
        Example.from_dict(nlp.make_doc(text), {"spans": {"sc": spans}})
        for text, spans in TEXTS.items()
    ]
    optimizer = nlp.initialize(lambda: examples)
    losses = [nlp.update(examples, sgd=optimizer)["toy_ner"] for _ in range(60)]
    assert losses[-1] < 0.2 * losses[0]
    yield nlp
    del TABLE["toy"]


def test_a_name_stands_for_one_system(nlp):
    register_system(SYSTEM)  # once more is no harm
    with pytest.raises(ValueError, match="There is already a system 'piqn'"):
        register_system(replace(SYSTEM, name="piqn"))
    assert TABLE["piqn"] == "spacy_nested_ner.systems.piqn:SYSTEM"


def test_systems_of_installed_packages_are_known(tmp_path):
    """Their factories are loaded by spaCy, which nothing else has been asked for here."""
    installed = tmp_path / "toy_package-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Name: toy_package\nVersion: 1.0\n", encoding="utf8")
    entry = "[spacy_factories]\ntoy_ner = toy_package:make_toy_ner\n"
    (installed / "entry_points.txt").write_text(entry, encoding="utf8")
    module = (
        "from spacy_nested_ner.pipeline.factories import register_system\n"
        "from tests.toy import SYSTEM\nregister_system(SYSTEM)\ndef make_toy_ner(): pass\n"
    )
    (tmp_path / "toy_package.py").write_text(module, encoding="utf8")
    code = (
        "from spacy_nested_ner.evaluation.data.limits import config_components\n"
        "print([each.name for each in config_components({'components': {'mine': "
        "{'factory': 'toy_ner', 'model': {'@architectures': 'spacy_nested_ner.Toy.v1'}}}})])"
    )
    paths = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    settings = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(
        [sys.executable, "-c", code], env=settings, capture_output=True, text=True
    )
    assert done.stdout.strip() == "['mine']", done.stderr


def found(nlp, text):
    doc = nlp(text)
    group = doc.spans["sc"]
    return [(s.start_char, s.end_char, s.label_) for s in group], group.attrs["scores"].tolist()


def test_it_trains_and_predicts(nlp) -> None:
    for text, spans in TEXTS.items():
        assert found(nlp, text)[0] == spans


def test_it_is_saved_and_loaded(nlp, tmp_path) -> None:
    nlp.to_disk(tmp_path)
    loaded = spacy.load(tmp_path)
    for text in TEXTS:
        assert found(loaded, text) == found(nlp, text)
    assert loaded.config["components"]["toy_ner"]["model"]["hidden_width"] == 16


def test_its_settings_are_checked_by_name(nlp) -> None:
    with pytest.raises(
        ValueError, match=r"'toy_ner': threshold must be a number from 0 to 1, got 2"
    ):
        nlp("p53", component_cfg={"toy_ner": {"threshold": 2}})
    with pytest.raises(ValueError, match=r"Toy.v1: hidden_width must be .* at least 1, got 0"):
        nlp.add_pipe("toy_ner", "other", config={"model": {"hidden_width": 0}})


def test_its_limits_are_known(nlp) -> None:
    (toy,) = (each for each in default_components() if each.factory == "toy_ner")
    (limit,) = limits(toy)
    assert limit.what == "words of an entity" and limit.lengths is not None
    assert limit.lengths(1) and not limit.lengths(2)


def test_it_is_inspected_and_analysed(nlp, tmp_path) -> None:
    nlp.to_disk(tmp_path / "model")
    docs = []
    for text, spans in TEXTS.items():
        doc = nlp.make_doc(text)
        doc.spans["sc"] = [doc.char_span(*span) for span in spans]
        docs.append(doc)
    DocBin(docs=docs).to_disk(tmp_path / "data.spacy")
    data, model, out = (str(tmp_path / name) for name in ("data.spacy", "model", "figures"))
    shown = CliRunner().invoke(nested_ner_cli, ["inspect", data, "--json"])
    assert shown.exit_code == 0, shown.output
    rows = srsly.json_loads(shown.output)["limits"]
    (limit,) = (each for each in rows if each["component"] == "toy_ner")
    assert (limit["limit"], limit["entities_of_other_length"]) == ("words of an entity", 0)
    drawn = CliRunner().invoke(nested_ner_cli, ["analyze", model, data, out])
    assert drawn.exit_code == 0, drawn.output
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert names == {"f1_by_length.svg", "model-toy_ner-scores.svg"}
