"""Damaged and foreign files of a saved component."""

import pickle
import re
from pathlib import Path
from typing import Any, Callable, Dict, List

import numpy as np
import pytest
import spacy
import srsly
from spacy.language import Language

from tests.conftest import (
    SENTENCES,
    SMALL_MODELS,
    assert_same_found,
    found_in,
    make_examples,
    make_pipeline,
)


@pytest.fixture(scope="module")
def nlp() -> Language:
    return make_pipeline("piqn_ner")


@pytest.fixture
def saved(nlp, tmp_path) -> Path:
    nlp.to_disk(tmp_path / "pipeline")
    return tmp_path / "pipeline"


def error_of(path: Path) -> str:
    with pytest.raises(ValueError) as caught:
        spacy.load(path)
    return str(caught.value)


def flip(data: bytes, share: float = 0.5) -> bytes:
    place = int(share * len(data))
    return data[:place] + bytes([data[place] ^ 64]) + data[place + 1 :]


DAMAGES = {
    "one bit at the begin": lambda data: flip(data, 0.001),
    "one bit in the midst": lambda data: flip(data),
    "one bit at the end": lambda data: flip(data, 0.999),
    "cut": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "zeros": lambda data: bytes(len(data)),
    "longer": lambda data: data + b"more",
}


def test_words_can_be_taken_out_as_the_guide_says(tmp_path: Path, monkeypatch) -> None:
    text = (Path(__file__).parents[2] / "docs" / "guide" / "component.md").read_text("utf8")
    (code,) = (
        part for part in re.findall(r"```python\n(.*?)```", text, re.S) if "StringStore" in part
    )
    monkeypatch.chdir(tmp_path)
    nlp = make_pipeline("locate_and_label_ner", threshold=0.0, filter_threshold=0.0)
    nlp.to_disk("model-best")
    strings = [Path(f"model-{name}", "vocab", "strings.json") for name in ("best", "shared")]
    texts = [text for text, _ in SENTENCES]
    before = found_in(spacy.load("model-best"), texts)
    exec(code, {})
    assert ["Berkeley" in path.read_text("utf8") for path in strings] == [True, False]
    assert_same_found(found_in(spacy.load("model-shared"), texts), before, more_than=20)


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_damaged_weights_are_named(saved, damage: Callable[[bytes], bytes]) -> None:
    file = saved / "ner" / "model"
    file.write_bytes(damage(file.read_bytes()))
    assert f"Component 'ner': {file} is damaged" in error_of(saved)


@pytest.mark.parametrize("damage", ["{", "", "[]", "null", '"text"', "{}", '{"labels": ["A"]}'])
def test_a_damaged_cfg_is_named(saved, damage: str) -> None:
    file = saved / "ner" / "cfg"
    file.write_text(damage, encoding="utf8")
    assert f"Component 'ner': {file} is damaged" in error_of(saved)


WRONG_VALUES = [
    {"labels": None},
    {"labels": [1, 2]},
    {"labels": ["GPE", "GPE"]},
    {"learned_from": []},
    {"learned_from": {"texts": -1, "single": 0, "words": 0, "squared_words": 0}},
    {"threshold": 7},
    {"no_such_setting": 1},
]
# Fine by themselves, but not what the weights were trained with.
OTHER_VALUES = [
    {"labels": ["CELL"]},
    {"learned_from": {"texts": 600, "single": 0, "words": 3360, "squared_words": 21480}},
]


def change_cfg(saved: Path, change: Dict[str, Any]) -> Path:
    file = saved / "ner" / "cfg"
    srsly.write_json(file, {**srsly.read_json(file), **change})
    return file


@pytest.mark.parametrize("change", [*WRONG_VALUES, *OTHER_VALUES])
def test_a_changed_cfg_is_named(saved, change: Dict[str, Any]) -> None:
    assert str(change_cfg(saved, change)) in error_of(saved)


@pytest.mark.parametrize("change", WRONG_VALUES)
def test_wrong_values_are_named_without_checksums(saved, change: Dict[str, Any]) -> None:
    (saved / "ner" / "checksums.json").unlink()
    assert str(change_cfg(saved, change)) in error_of(saved)


def test_settings_may_be_edited_in_the_file(saved) -> None:
    change_cfg(saved, {"threshold": 0.75, "window": 150})
    cfg = spacy.load(saved).get_pipe("ner").cfg
    assert (cfg["threshold"], cfg["window"]) == (0.75, 150)


def test_weights_of_another_training_are_named(saved, tmp_path) -> None:
    other = spacy.load(saved)
    other.update(make_examples(other), sgd=other.create_optimizer())
    other.to_disk(tmp_path / "other")
    (saved / "ner" / "model").write_bytes((tmp_path / "other" / "ner" / "model").read_bytes())
    assert str(saved / "ner" / "model") in error_of(saved)


@pytest.mark.parametrize("name", ["cfg", "model", "checksums.json"])
def test_what_is_missing_or_no_file_is_named(saved, name: str) -> None:
    file = saved / "ner" / name
    file.rename(saved / "kept")
    if name != "checksums.json":
        assert f"{file} is missing" in error_of(saved)
    file.mkdir()
    assert f"{file} is not a file" in error_of(saved)


class Planted:
    """Leaves a trace when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return Path.touch, (self.trace,)


@pytest.mark.parametrize("name", ["cfg", "model", "checksums.json"])
@pytest.mark.parametrize("checked", [True, False])
def test_a_planted_pickle_is_not_run(saved, tmp_path, name: str, checked: bool) -> None:
    file, trace = saved / "ner" / name, tmp_path / "trace"
    if not checked and name != "checksums.json":
        (saved / "ner" / "checksums.json").unlink()
    file.write_bytes(pickle.dumps(Planted(trace)))
    assert str(file) in error_of(saved)
    assert not trace.exists()


def test_a_pipeline_without_checksums_loads(saved) -> None:
    """As those that were saved before there were any."""
    (saved / "ner" / "checksums.json").unlink()
    assert spacy.load(saved).get_pipe("ner").labels


def test_checksums_stay_true_when_a_part_is_saved_again(saved) -> None:
    loaded = spacy.load(saved)
    loaded.update(make_examples(loaded), sgd=loaded.create_optimizer())
    loaded.get_pipe("ner").to_disk(saved / "ner", exclude=["vocab", "model"])
    spacy.load(saved)


def loaded_from(data: bytes, like: Language) -> Language:
    return spacy.blank("en", config=like.config).from_bytes(data)


@pytest.mark.parametrize("part", ["cfg", "model", "checksums.json"])
def test_damaged_bytes_are_named(nlp, part: str) -> None:
    message = srsly.msgpack_loads(nlp.to_bytes())
    pipe = srsly.msgpack_loads(message["ner"])
    pipe[part] = {"cfg": "{", "model": flip(pipe["model"]), "checksums.json": {}}[part]
    data = srsly.msgpack_dumps({**message, "ner": srsly.msgpack_dumps(pipe)})
    with pytest.raises(ValueError, match=f"Component 'ner': '{part}' in the bytes is damaged"):
        loaded_from(data, nlp)
    data = srsly.msgpack_dumps({**message, "ner": message["ner"][:-5]})
    with pytest.raises(ValueError, match="Component 'ner': the content of the bytes is damaged"):
        loaded_from(data, nlp)


def test_weights_for_another_config_are_named(saved) -> None:
    file = saved / "config.cfg"
    config = file.read_text(encoding="utf8")
    file.write_text(config.replace("depth = 2\nembed", "depth = 3\nembed"), encoding="utf8")
    message = error_of(saved)
    assert (
        str(saved / "ner" / "model") in message and "was saved with another config.cfg" in message
    )


def test_numbers_of_numpy_are_saved_as_numbers(tmp_path: Path) -> None:
    nlp = make_pipeline("piqn_ner")
    nlp.get_pipe("ner").cfg.update(threshold=np.float32(0.25), window=np.int64(200))
    nlp.to_disk(tmp_path / "saved")
    again = spacy.blank("en", config=nlp.config).from_bytes(nlp.to_bytes())
    for loaded in (spacy.load(tmp_path / "saved"), again):
        cfg = loaded.get_pipe("ner").cfg
        assert (cfg["threshold"], cfg["window"]) == (0.25, 200)


def test_what_could_not_be_loaded_is_not_saved(tmp_path: Path) -> None:
    nlp = make_pipeline("piqn_ner")
    nlp.get_pipe("ner").cfg["window"] = 100
    with pytest.raises(ValueError, match=r"'ner'.*stride \(128\) must not be larger"):
        nlp.to_bytes()
    with pytest.raises(ValueError, match=r"'ner'.*stride \(128\) must not be larger"):
        nlp.to_disk(tmp_path / "saved")


def test_a_renamed_label_is_not_saved(nlp: Language, tmp_path: Path) -> None:
    renamed = loaded_from(nlp.to_bytes(), nlp)
    renamed.get_pipe("ner").cfg["labels"][0] = "NEW"
    for save in (renamed.to_bytes, lambda: renamed.to_disk(tmp_path)):
        with pytest.raises(ValueError, match=r"'ner': the weights were trained for the labels"):
            save()


@pytest.mark.parametrize("exclude", [["cfg"], ["cfg", "model"]])
def test_the_vocabulary_comes_without_the_settings(exclude: List[str], tmp_path: Path) -> None:
    pipe = make_pipeline("piqn_ner").get_pipe("ner")
    pipe.vocab.strings.add("a word of its own")
    pipe.to_disk(tmp_path, exclude=exclude)
    loads: List[Callable[[Any], Any]] = [
        lambda other: other.from_bytes(pipe.to_bytes(), exclude=exclude),
        lambda other: other.from_bytes(pipe.to_bytes(exclude=exclude)),
        lambda other: other.from_disk(tmp_path, exclude=exclude),
    ]
    for load in loads:
        other = make_pipeline("piqn_ner").get_pipe("ner")
        load(other)
        assert "a word of its own" in other.vocab.strings
    other = make_pipeline("piqn_ner").get_pipe("ner")
    other.from_disk(tmp_path, exclude=["cfg", "model", "vocab"])
    assert "a word of its own" not in other.vocab.strings


@pytest.mark.parametrize("system", SMALL_MODELS)
def test_a_label_can_be_undone(system: str, tmp_path: Path) -> None:
    nlp = make_pipeline(system)
    pipe: Any = nlp.get_pipe("ner")
    nlp.to_disk(tmp_path)
    saved, labels = nlp.to_bytes(), pipe.labels
    for load in (lambda: nlp.from_bytes(saved), lambda: nlp.from_disk(tmp_path)):
        before = pipe.predict([nlp.make_doc("IL-2 gene expression")])
        pipe.add_label("NEW")
        load()
        assert pipe.labels == labels and pipe.model.get_dim("nO") == len(labels)
        after = pipe.predict([nlp.make_doc("IL-2 gene expression")])
        assert all(np.array_equal(*each) for each in zip(before, after))
        nlp.update(make_examples(nlp))


def test_a_pipe_that_cannot_load_is_as_it_was(saved: Path) -> None:
    nlp = spacy.load(saved)
    pipe: Any = nlp.get_pipe("ner")
    before = pipe.to_bytes()
    parts = srsly.msgpack_loads(before)
    cfg = srsly.json_loads(parts["cfg"])
    cfg.update(labels=[*reversed(cfg["labels"])], threshold=0.1)
    parts["cfg"] = srsly.json_dumps(cfg)
    del parts["checksums.json"]
    for exclude in ([], ["model"]):
        with pytest.raises(ValueError, match=r"'ner'.* were trained for the labels"):
            pipe.from_bytes(srsly.msgpack_dumps(parts), exclude=exclude)
        assert pipe.to_bytes() == before


def test_a_part_that_is_excluded_may_be_damaged() -> None:
    pipe: Any = make_pipeline("piqn_ner").get_pipe("ner")
    saved = {**srsly.msgpack_loads(pipe.to_bytes()), "model": b"damaged"}
    pipe.cfg["threshold"] = 0.25
    pipe.from_bytes(srsly.msgpack_dumps(saved), exclude=["model"])
    assert pipe.cfg["threshold"] == 0.5 and pipe.model.get_dim("nO") == len(pipe.labels)


def test_a_loading_that_is_interrupted_leaves_the_pipe_as_it_was(monkeypatch) -> None:
    pipe: Any = make_pipeline("piqn_ner").get_pipe("ner")
    other = make_pipeline("piqn_ner", threshold=0.25)
    other.update(make_examples(other), sgd=other.create_optimizer())
    before, saved = pipe.to_bytes(), other.get_pipe("ner").to_bytes()

    def interrupt(source: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pipe, "_after_loading", interrupt)
    with pytest.raises(KeyboardInterrupt):
        pipe.from_bytes(saved)
    assert pipe.to_bytes() == before
