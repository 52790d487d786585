from __future__ import annotations

import numpy as np
import pytest
import spacy
from spacy.tokens import Doc, DocBin

from spacy_nested_ner.cli.analyze import _chosen, draw
from tests.cli.commands import run
from tests.conftest import make_example, make_examples, make_pipeline

pytest.importorskip("matplotlib")


VARIED = ("--vary", "steps=1,2", "--vary", "n_spans=4")
PICTURES = {
    "piqn_ner": ["query_locations", "query_types"],
    "locate_and_label_ner": ["offsets"],
    "proposer_regressor_ner": ["refinement"],
    "diffusion_ner": ["trade_off", "trajectory"],
    "mrc_ner": ["answers"],
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "gold.spacy"
    nlp = spacy.blank("en")
    DocBin(docs=[eg.reference for eg in make_examples(nlp)]).to_disk(path)
    return path


@pytest.mark.parametrize("factory", PICTURES)
def test_each_system_has_the_pictures_of_its_paper(factory, data, tmp_path):
    make_pipeline(factory, threshold=0.0).to_disk(tmp_path / factory)
    out = tmp_path / "pictures"
    printed = run("analyze", tmp_path / factory, data, out, *VARIED, "--doc", 3)
    assert ("--vary steps: no component" in printed) == (factory != "diffusion_ner")
    names = sorted(path.name for path in out.iterdir())
    own = [f"{factory}-ner-{picture}.svg" for picture in PICTURES[factory]]
    assert names == sorted(["f1_by_length.svg", *own])
    assert all((out / name).read_text("utf8").startswith("<?xml") for name in names)


def test_several_pipelines_as_png(data, tmp_path):
    for name in ("one", "two"):
        make_pipeline("locate_and_label_ner").to_disk(tmp_path / name)
    out = tmp_path / "pictures"
    run("analyze", tmp_path / "one", tmp_path / "two", data, out, "--format", "png")
    names = sorted(path.name for path in out.iterdir())
    assert names == ["f1_by_length.png", "one-ner-offsets.png", "two-ner-offsets.png"]
    assert (out / names[0]).read_bytes().startswith(b"\x89PNG")


def test_f1_by_length_is_from_raw_text(tmp_path):
    """The tokens of the data are others."""
    nlp = spacy.blank("en")
    nlp.add_pipe("span_ruler", config={"spans_key": "sc"}).add_patterns(
        [{"label": "GPE", "pattern": "Oslo"}]
    )
    nlp.to_disk(tmp_path / "model")
    doc = Doc(nlp.vocab, words=["in", "Os", "lo"], spaces=[True, False, False])
    doc.spans["sc"] = [doc.char_span(3, 7, label="GPE")]
    DocBin(docs=[doc]).to_disk(tmp_path / "gold.spacy")
    figure = draw([str(tmp_path / "model")], tmp_path / "gold.spacy")["f1_by_length"]
    (line,) = figure.axes[0].lines
    assert np.nan_to_num(line.get_ydata(), nan=-1).tolist() == [-1, 1.0]


@pytest.mark.parametrize(
    "options, problem",
    [
        (("--vary", "steps=1,x"), "--vary is 'steps=1,x'"),
        (("--vary", "n_spans=4,null"), "--vary is 'n_spans=4,null'"),
        (("--vary", "steps"), "--vary is 'steps'"),
        (("--vary", "steps=1,0"), "--vary steps: steps must be a whole number from 1 to 1000"),
        (("--vary", "step=1"), "--vary step: figures can vary only n_spans, steps"),
        (("--doc", "99"), "--doc is 99, but the data has only 10 docs"),
        (("--spans-key", "nest"), "have: 'sc'"),
    ],
)
def test_what_cannot_be_drawn(options, problem, data, tmp_path):
    make_pipeline("locate_and_label_ner").to_disk(tmp_path / "model")
    printed = run("analyze", tmp_path / "model", data, tmp_path / "out", *options, code=1)
    assert problem in printed and not (tmp_path / "out").exists()


def test_what_is_missing_is_told_before_a_pipeline_is_loaded(data, tmp_path):
    out = tmp_path / "out"
    printed = run("analyze", "nowhere", out, code=1)
    assert "MODEL... DATA OUTPUT" in printed and "Got only: nowhere" in printed
    printed = run("analyze", "nowhere", tmp_path / "nothing.spacy", out, code=1)
    assert "nothing.spacy: no such file" in printed and "nowhere" not in printed


def test_docs_without_words_cannot_be_drawn(tmp_path):
    nlp = make_pipeline("locate_and_label_ner")
    nlp.to_disk(tmp_path / "model")
    doc = nlp.make_doc("")
    doc.spans["sc"] = []
    DocBin(docs=[doc]).to_disk(tmp_path / "empty.spacy")
    printed = run("analyze", tmp_path / "model", tmp_path / "empty.spacy", tmp_path / "x", code=1)
    assert "empty.spacy: no doc has a word" in printed


def test_remarks_on_what_there_is_no_picture_of(data, tmp_path):
    nlp = spacy.blank("en")
    ruler = nlp.add_pipe("span_ruler", config={"spans_key": "sc"})
    ruler.add_patterns([{"label": "DNA", "pattern": "nowhere"}])
    nlp.to_disk(tmp_path / "rules")
    printed = run("analyze", tmp_path / "rules", data, tmp_path / "out")
    assert "rules: no component has figures of its own" in printed
    assert "rules: The pipeline predicts no entity at all" in printed
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["f1_by_length.svg"]


def test_docs_count_from_1_and_the_fullest_short_one_is_shown():
    nlp = spacy.blank("en")
    examples = make_examples(nlp)
    assert [_chosen(examples, "sc", number) for number in (1, 10)] == [0, 9]
    long = make_example(nlp, " ".join("x" * 31), [(i, i + 1, "A") for i in range(9)])
    assert _chosen([long, *examples], "sc", None) == 2 and _chosen([long], "sc", None) == 0
