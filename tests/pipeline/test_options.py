"""Settings of the components: refused by name wherever they come from."""

from dataclasses import dataclass
from typing import Any, Dict

import numpy as np
import pytest
import spacy
import srsly
from spacy.language import Language

from spacy_nested_ner.pipeline import configured
from spacy_nested_ner.pipeline.settings import PipeSettings
from spacy_nested_ner.settings import Settings, defaults_of, describe, setting
from spacy_nested_ner.systems import all_systems
from tests.conftest import SENTENCES, make_examples, make_pipeline

OPTIONS = {system.factory: system.options for system in all_systems()}
# Factory, setting, what is wrong, what the error says of the range.
WRONG = [
    ("piqn_ner", "threshold", 1.5, "a number from 0 to 1"),
    ("mrc_ner", "threshold", "0.5", "a number from 0 to 1"),
    ("proposer_regressor_ner", "threshold", None, "a number from 0 to 1"),
    ("locate_and_label_ner", "nms_decay", -0.1, "a number from 0 to 1"),
    ("locate_and_label_ner", "nms_iou", True, "a number from 0 to 1"),
    ("mrc_ner", "decoding", "some", 'one of "nested", "flat"'),
    ("diffusion_ner", "steps", 2.7, "a whole number from 1 to 1000"),
    ("diffusion_ner", "steps", 0, "a whole number from 1 to 1000"),
    ("diffusion_ner", "n_spans", "10", "null or a whole number of at least 1"),
    ("diffusion_ner", "spans_per_word", -1, "a number of at least 0"),
    ("diffusion_ner", "seed", 10**18, "a whole number from 0 to 4294967295"),
    ("diffusion_ner", "score", "total", 'one of "sum", "label"'),
]
NOT_FINITE = [
    ("diffusion_ner", "spans_per_word", float("inf"), "a number of at least 0"),
    ("piqn_ner", "threshold", float("nan"), "a number from 0 to 1"),
]
WRONG_SHARED = [
    ("overlap", "falt", 'one of "any", "no_crossing", "flat"'),
    ("set_ents", "outer", 'null or one of "outermost", "innermost", "highest"'),
    ("labels_per_span", 0, "null or a whole number of at least 1"),
    ("spans_key", "", "a non-empty text"),
    ("split_sentences", 1, "true or false"),
    ("window", "5", "a whole number of at least 1"),
    ("adversarial", -1.0, "a number of at least 0"),
]


def refusal(name: str, value: Any, within: str) -> str:
    return f"Component 'ner': {name} must be {within}, got {value!r}."


@pytest.fixture(scope="module")
def pipelines() -> Dict[str, Language]:
    """Untrained ones."""
    return {factory: make_pipeline(factory) for factory in OPTIONS}


@pytest.mark.parametrize("factory", OPTIONS)
def test_defaults_of_the_factory_are_those_of_the_settings(factory) -> None:
    meta = spacy.blank("en").get_factory_meta(factory)
    expected = {**defaults_of(PipeSettings), **defaults_of(OPTIONS[factory])}
    settings = {k: v for k, v in meta.default_config.items() if k not in ("model", "scorer")}
    assert settings == expected and {"threshold", "window"} < set(settings)
    pipe = make_pipeline(factory, examples=None).get_pipe("ner")
    assert {name: pipe.cfg[name] for name in expected} == expected


@pytest.mark.parametrize(("factory", "name", "value", "within"), WRONG)
def test_wrong_arguments_of_a_factory(factory, name, value, within) -> None:
    with pytest.raises(ValueError) as caught:
        make_pipeline(factory, examples=None, **{name: value})
    assert str(caught.value) == refusal(name, value, within)


@pytest.mark.parametrize(("factory", "name", "value", "within"), [*WRONG, *NOT_FINITE])
def test_wrong_options_in_the_cfg_and_for_one_call(
    factory, name, value, within, pipelines, monkeypatch
) -> None:
    nlp, text = pipelines[factory], SENTENCES[0][0]
    component: Any = {"ner": {name: value}}
    for call in (
        lambda: nlp(text, component_cfg=component),
        lambda: list(nlp.pipe([text], component_cfg=component)),
    ):
        with pytest.raises(ValueError) as caught:
            call()
        assert str(caught.value) == refusal(name, value, within)
    monkeypatch.setitem(nlp.get_pipe("ner").cfg, name, value)
    with pytest.raises(ValueError) as caught:
        nlp(text)
    assert str(caught.value) == refusal(name, value, within)


@pytest.mark.parametrize(("name", "value", "within"), WRONG_SHARED)
def test_wrong_shared_settings(name, value, within, pipelines, monkeypatch) -> None:
    with pytest.raises(ValueError) as caught:
        make_pipeline(examples=None, **{name: value})
    assert str(caught.value) == refusal(name, value, within)
    nlp = pipelines["piqn_ner"]
    nlp("p53 binds")  # right settings are remembered, and 1 is equal to True
    monkeypatch.setitem(nlp.get_pipe("ner").cfg, name, value)
    for use in (
        lambda: nlp("p53 binds"),
        lambda: list(nlp.pipe(["p53 binds"])),
        lambda: nlp.update(make_examples(nlp)),
    ):
        with pytest.raises(ValueError) as caught:
            use()
        assert str(caught.value) == refusal(name, value, within)


def test_a_stride_that_leaves_tokens_unread(pipelines, monkeypatch) -> None:
    nlp = pipelines["piqn_ner"]
    monkeypatch.setitem(nlp.get_pipe("ner").cfg, "stride", 400)
    with pytest.raises(ValueError, match=r"'ner': stride \(400\).*window \(192\).*never be read"):
        nlp("p53 binds")


def test_unknown_names_in_the_cfg(pipelines, monkeypatch) -> None:
    nlp = pipelines["piqn_ner"]
    monkeypatch.setitem(nlp.get_pipe("ner").cfg, "treshold", 0.3)
    with pytest.raises(ValueError, match=r"'ner': there is no setting 'treshold' \(did you mean t"):
        nlp("p53 binds")


@pytest.mark.parametrize(("name", "value"), [("threshold", 1.5), ("strid", 10)])
def test_wrong_saved_settings(name, value, pipelines, tmp_path) -> None:
    nlp = pipelines["piqn_ner"]
    nlp.to_disk(tmp_path)
    cfg = tmp_path / "ner" / "cfg"
    srsly.write_json(cfg, {**srsly.read_json(cfg), name: value})
    with pytest.raises(ValueError, match=f"'ner': .*{name}"):
        spacy.load(tmp_path)


def test_numbers_of_numpy_and_whole_thresholds_are_taken(pipelines, monkeypatch) -> None:
    """`spacy find-threshold` sets them."""
    nlp = pipelines["diffusion_ner"]
    cfg = nlp.get_pipe("ner").cfg
    monkeypatch.setitem(cfg, "threshold", np.float64(0.0))
    monkeypatch.setitem(cfg, "n_spans", np.int64(30))
    assert len(nlp(SENTENCES[0][0]).spans["sc"])
    monkeypatch.setitem(cfg, "threshold", 1)
    assert not len(nlp(SENTENCES[0][0]).spans["sc"])


def test_the_error_handler_is_not_asked_about_settings(pipelines) -> None:
    nlp = pipelines["piqn_ner"]
    pipe, asked = nlp.get_pipe("ner"), []
    pipe.set_error_handler(lambda name, proc, docs, error: asked.extend(docs))
    try:
        with pytest.raises(ValueError, match="threshold"):
            list(nlp.pipe(["a", "b"], component_cfg={"ner": {"threshold": 2}}))
    finally:
        pipe.set_error_handler(spacy.util.raise_error)
    assert not asked


@dataclass(frozen=True)
class Documented(Settings):
    """Of a component.

    size: how much: "few", or
        size: of all.
    """

    size: int = setting(1)


@dataclass(frozen=True)
class Silent(Documented):
    """Says nothing."""

    rate: int = setting(2)


@dataclass(frozen=True)
class Newer(Settings):
    """Settings with today's spelling of a type.

    size: may be null.
    """

    size: int | None = setting(None, least=1)


def test_a_type_may_be_spelled_with_a_bar():
    assert (Newer().size, Newer(size=3).size) == (None, 3)
    with pytest.raises(ValueError, match="size must be null or a whole number of at least 1"):
        Newer(size="3")


def test_the_docstring_says_what_a_setting_means():
    assert describe(Documented)["size"].meaning == 'how much: "few", or size: of all'
    with pytest.raises(ValueError, match="docstring of Silent must say what rate means"):
        describe(Silent)


@pytest.mark.parametrize("name", ["threshold", "spans_key"])
def test_a_setting_is_no_attribute(name) -> None:
    pipe = spacy.blank("en").add_pipe("piqn_ner")
    with pytest.raises(AttributeError, match=rf"'piqn_ner': set pipe.cfg\['{name}'\]"):
        setattr(pipe, name, 0.3)
    assert not hasattr(pipe, name)
    pipe.note = 0.3
    assert pipe.note == 0.3


def test_a_setting_that_changes_while_it_is_read_is_read_again(monkeypatch) -> None:
    """As by another thread: what is remembered belongs to the values that were read."""
    pipe = spacy.blank("en").add_pipe("piqn_ner")
    taken = configured.take

    def meanwhile(kind, values):
        pipe.cfg["threshold"] = 0.9
        return taken(kind, values)

    monkeypatch.setattr(configured, "take", meanwhile)
    pipe.cfg["threshold"] = 0.3
    pipe.options()
    monkeypatch.undo()
    found = []
    for threshold in (0.3, 0.9):
        pipe.cfg["threshold"] = threshold
        found.append(pipe.options().threshold)
    assert found == [0.3, 0.9]
