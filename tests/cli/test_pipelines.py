"""Pipelines that the commands cannot load."""

import os
from pathlib import Path

import pytest
import spacy
import torch

from spacy_nested_ner.cli.pipelines import load_pipeline, read_as_one, use_gpu


@pytest.fixture
def saved(tmp_path) -> Path:
    nlp = spacy.blank("en")
    nlp.add_pipe("entity_ruler").add_patterns([{"label": "A", "pattern": "b"}])
    nlp.to_disk(tmp_path / "model")
    return tmp_path / "model"


def error_of(path: Path) -> str:
    with pytest.raises(ValueError) as caught:
        load_pipeline(str(path))
    return str(caught.value)


@pytest.mark.parametrize("damage", [b"", b"\x00\x01", b"7", b"["])
@pytest.mark.parametrize(
    "name",
    [
        "meta.json",
        "config.cfg",
        "tokenizer",
        "vocab/strings.json",
        "vocab/lookups.bin",
        "vocab/vectors",
        "vocab/vectors.cfg",
        "vocab/key2row",
    ],
)
def test_a_damaged_file_is_named(saved, name: str, damage: bytes) -> None:
    (saved / name).write_bytes(damage)
    message = error_of(saved)
    assert str(saved / name) in message and "cannot be read" in message
    assert "Copy the pipeline again" in message


def test_a_wrong_value_is_named(saved) -> None:
    (saved / "vocab" / "vectors.cfg").write_text('{"mode": "efault"}', encoding="utf8")
    assert str(saved / "vocab" / "vectors.cfg") in error_of(saved)


def test_a_config_with_a_weight_that_is_no_number_is_named(saved) -> None:
    path = saved / "config.cfg"
    text = path.read_text("utf8")
    assert "ents_f = 1.0" in text
    path.write_text(text.replace("ents_f = 1.0", "ents_f = 1.x"), encoding="utf8")
    assert str(path) in error_of(saved)


def test_a_config_that_lacks_a_setting_is_named(saved) -> None:
    path = saved / "config.cfg"
    section = '[nlp.tokenizer]\n@tokenizers = "spacy.Tokenizer.v1"\n'
    text = path.read_text("utf8")
    assert section in text
    path.write_text(text.replace(section, ""), encoding="utf8")
    assert str(path) in error_of(saved)


def test_a_damaged_component_is_named(saved) -> None:
    (saved / "entity_ruler" / "cfg").write_text("{", encoding="utf8")
    assert str(saved / "entity_ruler") in error_of(saved)


@pytest.mark.parametrize("name", ["config.cfg", "tokenizer", "vocab/strings.json"])
def test_a_missing_file_is_named(saved, name: str) -> None:
    (saved / name).unlink()
    assert str(saved / name) in error_of(saved)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_named_pipe_is_not_waited_for(saved) -> None:
    (saved / "tokenizer").unlink()
    os.mkfifo(saved / "tokenizer")
    assert f"{saved / 'tokenizer'} is not a file" in error_of(saved)


def test_a_folder_without_a_pipeline(tmp_path) -> None:
    (tmp_path / "notes.txt").touch()
    assert f"{tmp_path}: no trained pipeline there" in error_of(tmp_path)
    assert "nowhere: no trained pipeline there" in error_of(tmp_path / "nowhere")


def test_a_pipeline_that_is_whole_loads(saved) -> None:
    assert load_pipeline(str(saved)).pipe_names == ["entity_ruler"]


def test_a_folder_with_several_splits_is_no_file(tmp_path) -> None:
    (tmp_path / "more").mkdir()
    for name in ("dev", "train", "more/other"):
        (tmp_path / f"{name}.spacy").touch()
    (warning,) = read_as_one(tmp_path)
    assert f"{tmp_path} contains train.spacy, dev.spacy" in warning and "give that file" in warning
    assert read_as_one(tmp_path / "dev.spacy") == read_as_one(tmp_path / "more") == []


def test_a_gpu_that_torch_does_not_see_is_named(monkeypatch) -> None:
    monkeypatch.setattr("spacy.cli._util.setup_gpu", lambda *_, **__: None)

    def without_cuda() -> None:
        raise AssertionError("Torch not compiled with CUDA enabled")

    monkeypatch.setattr("spacy_nested_ner.device.device_in_use", without_cuda)
    with pytest.raises(ValueError, match="--gpu-id 0: cupy sees a GPU, but torch does not: Torch"):
        use_gpu(0)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    with pytest.raises(ValueError, match="--gpu-id 2: there are 2 GPUs, counted from 0"):
        use_gpu(2)


def test_apples_gpu_is_refused(monkeypatch) -> None:
    monkeypatch.setattr("spacy.cli._util.setup_gpu", lambda *_, **__: None)
    use_gpu(0)
    monkeypatch.setattr(
        "spacy_nested_ner.device.get_torch_default_device", lambda: torch.device("mps")
    )
    with pytest.raises(ValueError, match=r"MPS.*leave out --gpu-id"):
        use_gpu(0)
    nlp = spacy.blank("en")
    nlp.add_pipe("locate_and_label_ner").add_label("A")
    with pytest.raises(ValueError, match=r"MPS.*require_cpu"):
        nlp.initialize()
