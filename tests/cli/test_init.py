"""`nested-ner init`: a config that `spacy train` takes as it is."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import spacy
from spacy.cli.train import train
from spacy.tokens import Doc, DocBin
from spacy.util import load_config
from typer.testing import CliRunner

from spacy_nested_ner.cli import _recipe, nested_ner_cli
from spacy_nested_ner.pipeline.component import NestedNER
from tests.conftest import make_examples


def run(*args, code=0) -> str:
    result = CliRunner().invoke(nested_ner_cli, ["init", *(str(arg) for arg in args)])
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    docs = [eg.reference for eg in make_examples(spacy.blank("en"))]
    DocBin(docs=docs).to_disk(folder / "train.spacy")
    DocBin(docs=docs[:4]).to_disk(folder / "dev.spacy")
    return folder


def init(corpus: Path, config: Path, *options, code=0) -> str:
    return run(corpus / "train.spacy", corpus / "dev.spacy", config, *options, code=code)


def test_a_config_with_its_reasons_that_can_be_trained(corpus, tmp_path) -> None:
    path = tmp_path / "mine.cfg"
    printed = init(corpus, path)
    for reason in (
        "System locate_and_label_ner",
        "Encoder a small CNN",
        "Language en",
        "Data 10 sentences",
        "Vectors those of English words that come with the package",
        "Training 300 steps",
        f"python -m spacy train {path} --output training",
        "4 sentences of dev (100.0 %) are also in train, word for word",
    ):
        assert reason in printed
    config = load_config(path)
    # All settings stand there, those at their defaults too.
    assert config["components"]["ner"]["overlap"] == "any"
    assert config["components"]["ner"]["model"]["seed_iou"] == 0.7
    assert config["paths"]["train"] == str(corpus / "train.spacy")
    assert config["training"]["optimizer"]["learn_rate"]["total_steps"] == "${training.max_steps}"
    train(path, tmp_path / "out", overrides={"training.max_steps": 2})
    assert spacy.load(tmp_path / "out" / "model-last").pipe_names == ["ner"]


def test_the_data_are_not_overwritten(corpus) -> None:
    before = (corpus / "dev.spacy").read_bytes()
    for train_path in (corpus / "train.spacy", corpus):
        args = (train_path, corpus / "dev.spacy", corpus / "dev.spacy", "--force")
        assert "is to be read and to be written" in run(*args, code=1)
    assert (corpus / "dev.spacy").read_bytes() == before


def test_a_name_that_a_config_cannot_hold(corpus, tmp_path) -> None:
    folder = tmp_path / "C$"
    shutil.copytree(corpus, folder)
    assert "a config cannot hold a '$'" in init(folder, tmp_path / "mine.cfg", code=1)
    assert not (tmp_path / "mine.cfg").exists()


def test_texts_of_another_language(tmp_path) -> None:
    """Of Chinese the tokenizer of English makes one token of a sentence."""
    doc = spacy.blank("zh")("北京大学在北京。")
    doc.spans["sc"] = [doc.char_span(0, 4, "ORG"), doc.char_span(0, 2, "LOC")]
    path = tmp_path / "zh.spacy"
    DocBin(docs=[doc]).to_disk(path)
    printed = run(path, path, tmp_path / "mine.cfg", code=1)
    assert "none of its 2 entities can be used for training (misaligned)" in printed
    assert "--lang" in printed and not (tmp_path / "mine.cfg").exists()
    run(path, path, tmp_path / "mine.cfg", "--lang", "zh")


def test_a_file_that_is_there_stays(corpus, tmp_path) -> None:
    path = tmp_path / "mine.cfg"
    path.write_text("[mine]\n", encoding="utf8")
    assert "already exists" in init(corpus, path, code=1)
    assert path.read_text("utf8") == "[mine]\n"
    init(corpus, path, "--force")
    assert load_config(path)["nlp"]["pipeline"] == ["ner"]


@pytest.mark.parametrize(
    ("lang", "vectors", "architecture", "how", "rate"),
    [
        (
            "de",
            "none; from few sentences a CNN learns more with `nested-ner vectors`",
            "spacy.HashEmbedCNN.v2",
            "trained from scratch",
            0.002,
        ),
        (
            "en",
            "those of English words",
            "spacy_nested_ner.EnglishCNN.v1",
            "that knows English",
            0.001,
        ),
    ],
)
def test_behind_a_shared_encoder(corpus, tmp_path, lang, vectors, architecture, how, rate) -> None:
    path = tmp_path / "mine.cfg"
    printed = init(corpus, path, "--encoder", "listener", "--lang", lang)
    assert f"a small CNN {how}, as component 'tok2vec'" in printed
    assert f"Vectors {vectors}" in printed
    optimizer = load_config(path).interpolate()["training"]["optimizer"]
    assert optimizer["learn_rate"]["initial_rate"] == rate
    assert optimizer["head_learn_rate"]["initial_rate"] == 0.002
    train(path, tmp_path / "out", overrides={"training.max_steps": 2})
    nlp = spacy.load(tmp_path / "out" / "model-last")
    assert nlp.pipe_names == ["tok2vec", "ner"] and nlp.lang == lang
    assert nlp.config["components"]["tok2vec"]["model"]["@architectures"] == architecture
    (listener,) = nlp.get_pipe("tok2vec").listeners
    assert "listener" in listener.name


def test_on_a_pretrained_transformer(corpus, tmp_path, tiny_bert) -> None:
    path = tmp_path / "mine.cfg"
    assert f"transformer {tiny_bert}" in init(corpus, path, "--encoder", tiny_bert)
    config = load_config(path).interpolate()
    assert config["components"]["ner"]["model"]["tok2vec"]["name"] == str(tiny_bert)
    rates = config["training"]["optimizer"]
    assert rates["learn_rate"]["initial_rate"] <= 1e-4 < rates["head_learn_rate"]["initial_rate"]


def test_for_speed_or_accuracy(corpus, tmp_path, tiny_bert) -> None:
    path = tmp_path / "mine.cfg"
    for goal, adversarial in (("speed", 0), ("accuracy", 1)):
        options = ("--force", "--optimize", goal)
        printed = init(corpus, path, *options, "--encoder", tiny_bert)
        assert f"{'with' if adversarial else 'without'} adversarial training" in printed
        assert load_config(path)["components"]["ner"]["adversarial"] == adversarial
        assert "For a CNN, leave it out" in init(corpus, path, *options, code=1)


@pytest.mark.parametrize("mark", [None, False])
def test_sentences_of_docs_without_boundaries_are_counted_by_rule(corpus, tmp_path, mark) -> None:
    doc = spacy.blank("en")("IL-2 rose. It fell. " * 300)
    doc[1].is_sent_start = mark  # forbidden boundaries set none
    doc.spans["sc"] = [doc[:1]]
    doc.spans["sc"][0].label_ = "protein"
    DocBin(docs=[doc]).to_disk(tmp_path / "long.spacy")
    printed = run(tmp_path / "long.spacy", corpus / "dev.spacy", tmp_path / "mine.cfg")
    assert "Data 600 sentences, 1 entities" in printed


def test_long_docs_of_a_transformer_are_counted_by_words(corpus, tmp_path, tiny_bert) -> None:
    """Sixteen of them would be too much for a step."""
    doc = spacy.blank("en")("IL-2 rose. " * 600)
    doc.spans["sc"] = [doc[:1]]
    doc.spans["sc"][0].label_ = "protein"
    DocBin(docs=[doc, doc]).to_disk(tmp_path / "long.spacy")
    data, path = (tmp_path / "long.spacy", corpus / "dev.spacy"), tmp_path / "mine.cfg"
    printed = run(*data, path, "--encoder", tiny_bert)
    assert f"1,000 words or one longer doc, because 16 docs have {16 * len(doc):,} " in printed
    assert "300 steps, 150.0 passes" in printed
    assert "convert --sentences rules" not in printed
    batcher = load_config(path)["training"]["batcher"]
    assert batcher["@batchers"] == "spacy.batch_by_words.v1" and batcher["size"] == 1000
    DocBin(docs=[Doc.from_docs([doc, doc])]).to_disk(data[0])
    printed = run(*data, path, "--encoder", tiny_bert, "--force")
    assert f"The longest doc of the training data has {2 * len(doc):,} words." in printed
    assert "longest doc" not in run(*data, path, "--force")  # a CNN has room for it
    assert "longest doc" not in init(corpus, path, "--encoder", tiny_bert, "--force")
    assert load_config(path)["training"]["batcher"]["size"] == 16


def test_steps_over_long_docs_are_said_to_be_long(corpus, tmp_path, monkeypatch) -> None:
    doc = spacy.blank("en")("IL-2 rose. " * 1000)
    doc.spans["sc"] = [doc[:1]]
    doc.spans["sc"][0].label_ = "protein"
    DocBin(docs=[doc]).to_disk(tmp_path / "long.spacy")
    monkeypatch.setattr(_recipe, "measure", lambda *_: (9.0, 0.3, 4))
    data, path = (tmp_path / "long.spacy", corpus / "dev.spacy"), tmp_path / "mine.cfg"
    printed = run(*data, path, "--minutes", 9, code=1)
    assert f"enough for 300 steps. A step reads {len(doc):,} words: shorter docs" in printed
    assert "A step reads" not in init(corpus, path, "--minutes", 9, code=1)


@pytest.mark.parametrize(
    ("few", "minutes", "goal", "adversarial", "steps"),
    [
        (0, 20, (), 1, 1199),
        (0, 10, (), 0, 1199),
        (0, 10, ("--optimize", "accuracy"), 1, 599),
        (500, 10, (), 1, 599),
        (500, 10, ("--optimize", "speed"), 0, 1199),
        (500, 4, (), 0, 479),
    ],
)
def test_minutes_that_are_few_are_for_speed(
    corpus, tmp_path, tiny_bert, monkeypatch, few, minutes, goal, adversarial, steps
) -> None:
    """A step takes 0.5 s, with adversarial training 1 s; the shipped config has 1,000 steps. Of few
    sentences 300 steps of adversarial training are enough."""
    monkeypatch.setattr(_recipe, "FEW_SENTENCES", few)
    # So few sentences would be read more than 60 times.
    monkeypatch.setattr(_recipe, "MOST_PASSES", 1000)

    def measured(config, gpu_id, most):
        assert most == 6 * minutes  # seconds: a tenth of the training
        return 0.5 + 0.5 * config["components"]["ner"]["adversarial"], 0.0001, 4

    monkeypatch.setattr(_recipe, "measure", measured)
    path = tmp_path / "mine.cfg"
    printed = init(corpus, path, "--encoder", tiny_bert, "--minutes", minutes, *goal)
    assert f"{'with' if adversarial else 'without'} adversarial training" in printed
    config = load_config(path)
    assert config["components"]["ner"]["adversarial"] == adversarial
    assert config["training"]["max_steps"] == steps


def test_no_such_transformer(corpus, tmp_path) -> None:
    path = tmp_path / "mine.cfg"
    printed = init(corpus, path, "--encoder", tmp_path / "none", code=1)
    assert "Cannot make a config" in printed and "there is no directory" in printed
    spacy.blank("en").to_disk(tmp_path / "pipeline")
    printed = init(corpus, path, "--encoder", tmp_path / "pipeline", code=1)
    assert printed.endswith("The error was: the directory has no config.json")
    assert not path.exists()


def test_a_training_of_so_many_minutes(corpus, tmp_path, monkeypatch) -> None:
    """A step takes 0.1 s, a doc of dev 0.3 s, predicted twice for each of five scores."""
    for docs, minutes, steps, limit in ((4, 2, 1080, 0), (100, 5, 2400, 20)):
        monkeypatch.setattr(_recipe, "measure", lambda *_, docs=docs: (0.1, 0.3, docs))
        path = tmp_path / f"{minutes}.cfg"
        assert f"{minutes} minutes at 0.1 s per step" in init(corpus, path, "--minutes", minutes)
        config = load_config(path)
        assert config["training"]["max_steps"] == steps
        assert config["corpora"]["dev"]["limit"] == limit
    printed = init(corpus, tmp_path / "short.cfg", "--minutes", 0.1, code=1)
    assert "Give at least 0.7 minutes, enough for 300 steps" in printed
    assert not (tmp_path / "short.cfg").exists()


def test_the_time_of_steps_and_docs_is_measured(corpus) -> None:
    recipe = _recipe.recipe_for(corpus / "train.spacy", corpus / "dev.spacy", "cnn", "sc", "en")
    step, doc, docs = _recipe.measure(recipe.config)
    assert 0.001 < step < 60 and 0 < doc < step and docs == 4


@pytest.mark.parametrize(("most", "steps"), [(0.0, 4), (1000.0, 16)])
def test_steps_that_take_long_are_few(corpus, monkeypatch, most, steps) -> None:
    recipe = _recipe.recipe_for(corpus / "train.spacy", corpus / "dev.spacy", "cnn", "sc", "en")
    update, batches = NestedNER.update, []

    def counted(self, examples, **settings):
        batches.append(len(examples))
        return update(self, examples, **settings)

    monkeypatch.setattr(NestedNER, "update", counted)
    _recipe.measure(recipe.config, -1, most)
    assert len(batches) == steps


@pytest.mark.parametrize(
    ("over", "chosen", "lost"),
    [
        ({}, "locate_and_label", 0),
        ({"locate_and_label": 3}, "proposer_regressor", 0),
        ({"locate_and_label": 3, "proposer_regressor": 3, "piqn": 2, "diffusion": 4, "mrc": 9},
         "piqn", 2),
    ],
)  # fmt: skip
def test_the_best_system_that_finds_most(over, chosen, lost) -> None:
    rows = [{"factory": f"{name}_ner", "entities_over": count} for name, count in over.items()]
    system, warnings = _recipe.choose_system(rows)
    assert system.name == chosen
    assert bool(lost) == bool(warnings) and all(f"cannot find {lost} " in w for w in warnings)


@pytest.mark.parametrize("text", ["", "[nothing]"])
def test_what_is_no_data_is_named(corpus, tmp_path, text) -> None:
    odd = tmp_path / "odd.spacy"
    odd.write_text(text, encoding="utf8")
    printed = run(odd, corpus / "dev.spacy", tmp_path / "mine.cfg", code=1)
    assert "odd.spacy" in printed and not (tmp_path / "mine.cfg").exists()


def test_dev_without_entities(corpus, tmp_path) -> None:
    DocBin().to_disk(tmp_path / "dev.spacy")
    paths = (corpus / "train.spacy", tmp_path / "dev.spacy", tmp_path / "mine.cfg")
    args = ["init", *map(str, paths), "--minutes", "1"]
    result = CliRunner().invoke(nested_ner_cli, args)
    assert result.exit_code == 1
    assert "dev.spacy has no entities" in " ".join(result.output.split())
    assert not (tmp_path / "mine.cfg").exists()


def test_the_gpu_is_measured_and_trained_on(corpus, tmp_path, monkeypatch) -> None:
    given = []
    monkeypatch.setattr(_recipe, "measure", lambda _, gpu, *__: given.append(gpu) or (0.1, 0.3, 4))
    printed = init(corpus, tmp_path / "a.cfg", "--gpu-id", 1, "--minutes", 2)
    assert given == [1] and printed.endswith("--output training --gpu-id 1")
    assert "--gpu-id" not in init(corpus, tmp_path / "b.cfg")


def test_dev_of_another_language(corpus, tmp_path) -> None:
    doc = spacy.blank("zh")("北京大学在北京。")
    doc.spans["sc"] = [doc.char_span(0, 4, "ORG"), doc.char_span(0, 2, "LOC")]
    zh, train_path = tmp_path / "zh.spacy", corpus / "train.spacy"
    DocBin(docs=[doc]).to_disk(zh)
    problem = "zh.spacy: none of its 2 entities"
    assert problem in run(train_path, zh, tmp_path / "mine.cfg", code=1)
    args = ["compare", train_path, zh, train_path, tmp_path / "out"]
    result = CliRunner().invoke(nested_ner_cli, [*map(str, args)])
    assert result.exit_code == 1 and problem in " ".join(result.output.split())


def test_what_is_long_and_what_is_few() -> None:
    for encoder, most in (("cnn", 20_000), ("listener", 20_000), ("bert", 2_000)):
        assert not _recipe.too_long(most, encoder) and _recipe.too_long(most + 1, encoder)
    assert _recipe.goal_for("mrc_ner", "bert", 500) == "accuracy"
    assert _recipe.goal_for("mrc_ner", "bert", 501) is None
