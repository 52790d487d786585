"""The benchmarks that measure F1, on tiny trainings."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import spacy
import srsly
import typer
from safetensors.numpy import load_file
from spacy import util
from spacy.tokens import DocBin
from spacy.util import load_config
from typer.testing import CliRunner

from benchmarks import (
    ablation,
    compare,
    diffusion_steps,
    english_cnn,
    english_words,
    growth,
    init_trials,
    long_entities,
    mrc_zero_shot,
    ner_crf,
    picking,
    run_time,
    scores,
    small_data,
    tables,
    teaching,
    thresholds,
    training_length,
    where_time_goes,
)
from benchmarks.ablations import table_of
from benchmarks.systems import CONFIGS, SYSTEMS
from spacy_nested_ner.encoders import sorted_transformer
from spacy_nested_ner.encoders.english_cnn import PRETRAINED
from spacy_nested_ner.encoders.english_words import EnglishWords
from spacy_nested_ner.encoders.pair_encoder import PairEncoderSettings
from spacy_nested_ner.pipeline.settings import PipeSettings
from spacy_nested_ner.settings import names_of
from spacy_nested_ner.systems import all_systems
from tests.conftest import SENTENCES, make_examples, make_pipeline, save_bert, train


def app_of(main: Any) -> typer.Typer:
    """The command line of a benchmark with one command."""
    app = typer.Typer()
    app.command()(main)
    return app


def invoke(app: Any, *args: Any) -> str:
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"
    return result.output


def write_docs(*paths: Path) -> None:
    """The ten nested sentences in files."""
    docs = [eg.reference for eg in make_examples(spacy.blank("en"))]
    for path in paths:
        DocBin(docs=docs, store_user_data=True).to_disk(path)


def test_f1_under_run_time_settings(tmp_path) -> None:
    nlp = spacy.blank("en")
    pipe = nlp.add_pipe("locate_and_label_ner", name="entities")
    examples = make_examples(nlp)
    optimizer = nlp.initialize(lambda: examples)
    for _ in range(30):
        nlp.update(examples, sgd=optimizer)
    pipe.cfg["threshold"] = 0.3
    nlp.to_disk(tmp_path / "model")
    write_docs(tmp_path / "dev.spacy")
    app = app_of(run_time.main)
    settings = ["{}", '{"threshold": 1.1}', '{"nms_iou": 0, "nms_decay": 0}']
    table = invoke(app, tmp_path / "model", tmp_path / "dev.spacy", *settings)
    lines = table.replace("%", "").splitlines()
    cells = [[float(cell) for cell in line.split("|")[2:4]] for line in lines[2:]]
    own, none, one = (line.split("|")[4:6] for line in lines[2:])
    for (precision, recall), (f1, _) in zip(cells, (own, none, one)):
        both = precision + recall
        assert float(f1) == pytest.approx(2 * precision * recall / max(1, both), abs=0.1)
    assert float(own[0]) == pytest.approx(100 * nlp.evaluate(examples)["nested_f"], abs=0.05)
    # Each line begins with the pipeline's own settings.
    assert float(none[0]) == 0 and none[1] == own[1]
    assert 0 < float(one[1]) < float(own[1])
    unknown = CliRunner().invoke(
        app, [str(tmp_path / "model"), str(tmp_path / "dev.spacy"), '{"nms": 1}']
    )
    assert unknown.exit_code == 2 and "nms" in unknown.output


def test_steps_and_spans_of_a_diffusion_of_any_name(tmp_path) -> None:
    nlp = spacy.blank("en")
    pipe = nlp.add_pipe("diffusion_ner", name="entities", config={"threshold": 0.0})
    examples = make_examples(nlp)
    nlp.initialize(lambda: examples)
    nlp.to_disk(tmp_path / "model")
    write_docs(tmp_path / "dev.spacy")
    app = app_of(diffusion_steps.main)
    files = (tmp_path / "model", tmp_path / "dev.spacy")
    options = ("--steps", 2, "--spans", 5, "--repeats", 1, "--output", tmp_path / "out.json")
    table = invoke(app, *files, *options)
    assert [line.split("|")[1:3] for line in table.splitlines()[2:]] == [
        [" 5 ", " 2 "],
        [" 1.0 per word ", " 2 "],
    ]
    rows = srsly.read_json(tmp_path / "out.json")["rows"]

    def best_f() -> float:
        found = []
        for i in range(1, 20):
            pipe.cfg["threshold"] = i / 20
            found.append(nlp.evaluate(examples)["nested_f"])
        return max(found)

    assert rows[1]["f"] == pytest.approx(best_f())
    pipe.cfg.update(steps=2, n_spans=5)
    assert rows[0]["f"] == pytest.approx(best_f())
    assert all(row["words_per_cpu_second"] > 0 for row in rows)
    spacy.blank("en").to_disk(tmp_path / "model")
    failed = CliRunner().invoke(app, list(map(str, files)))
    assert failed.exit_code == 2 and "0 components are a diffusion_ner" in failed.output


def test_what_a_chosen_threshold_is_worth(tmp_path) -> None:
    write_docs(*(tmp_path / f"{part}.spacy" for part in ("train", "dev", "test")))
    app = app_of(thresholds.main)
    args = [tmp_path, tmp_path / "out.json", "--system", "locate_and_label", "--steps", 40]
    table = invoke(app, *args)
    found = srsly.read_json(tmp_path / "out.json")["systems"]["locate_and_label"]
    assert f"{100 * found['chosen']['f']:.1f} ({found['chosen']['threshold']:.2f})" in table
    # Here test is dev.
    assert found["chosen"] == pytest.approx({key: found["dev"][key] for key in ("threshold", "f")})
    assert found["best"]["f"] > 0 and found["default"]["threshold"] == 0.5


@pytest.mark.parametrize(
    ("wanted", "frozen", "found"), [(None, False, 1.0), (2.0, False, 2.0), (2.0, True, 0.0)]
)
def test_adversarial_training(wanted, frozen, found) -> None:
    settings = {**compare.BY_STEPS, "corpus": "corpus", "transformer": "name", "seed": 0}
    settings.update(steps=0, dev_limit=0, eval_frequency=100, adversarial=wanted, frozen=frozen)
    for system in ("locate_and_label_ner", "spancat"):
        config = compare.training_config({**settings, "system": system})
        assert config["components"]["ner"].get("adversarial") == (
            None if system == "spancat" else found
        )


def test_features_of_words_beside_a_transformer(tiny_bert, tmp_path) -> None:
    settings = {**compare.BY_STEPS, "corpus": "corpus", "transformer": str(tiny_bert), "seed": 0}
    settings.update(steps=2, dev_limit=0, eval_frequency=1, embed=True, mixed_precision=True)
    settings.update(batch_size=64)
    for system in SYSTEMS:
        config = compare.training_config({**settings, "system": system})
        assert config["training"]["batcher"]["size"] == 64
        model = config.interpolate()["components"]["ner"]["model"]
        joined = spacy.registry.resolve({"model": model["tok2vec"]})["model"]
        assert joined.name == ("pair_encoder" if system == "mrc_ner" else "hybrid_encoder")
        pretrained = model["tok2vec"] if system == "mrc_ner" else model["tok2vec"]["tok2vec"]
        assert pretrained["mixed_precision"] and pretrained["name"] == str(tiny_bert)
    found = CliRunner().invoke(compare.app, ["run", str(tmp_path), str(tmp_path), "--embed"])
    assert found.exit_code == 2 and "Leave out --embed" in found.output


@pytest.mark.parametrize(
    "benchmark", [compare, growth, init_trials, long_entities, picking, teaching, where_time_goes]
)
def test_a_report_of_nothing(benchmark, tmp_path) -> None:
    found = CliRunner().invoke(benchmark.app, ["report", str(tmp_path)])
    assert found.exit_code == 2 and "Use the command `run` first" in found.output


def test_static_vectors_of_a_cnn(tmp_path) -> None:
    settings = {**compare.BY_STEPS, "corpus": "corpus", "seed": 0, "vectors": "words"}
    settings.update(steps=2, dev_limit=0, eval_frequency=1)
    for system in SYSTEMS:
        config = compare.training_config({**settings, "system": system})
        assert config["paths"]["vectors"] == "words"
        assert config["components"]["ner"]["model"]["tok2vec"]["pretrained_vectors"] is True
    args = ["run", str(tmp_path), str(tmp_path), "--vectors", "words", "--transformer", "name"]
    found = CliRunner().invoke(compare.app, args)
    assert found.exit_code == 2 and "Leave out --vectors" in found.output
    assert tables.budget_of({"settings": {**settings, "minutes": 1}})[1] == "CNN, words"
    settings["vectors"] = None
    assert tables.budget_of({"settings": {**settings, "minutes": 1}})[1] == "CNN"


def test_english_words_of_a_cnn(tmp_path) -> None:
    settings = {**compare.BY_STEPS, "corpus": "corpus", "seed": 0}
    settings.update(steps=2, dev_limit=0, eval_frequency=1)
    for system in SYSTEMS:
        config = compare.training_config({**settings, "system": system})
        tok2vec = config["components"]["ner"]["model"]["tok2vec"]
        assert tok2vec["@architectures"] == "spacy.HashEmbedCNN.v2"
        spacy.util.load_model_from_config(config, auto_fill=True)
    settings["english_words"] = True
    for system in SYSTEMS:
        config = compare.training_config({**settings, "system": system})
        tok2vec = config["components"]["ner"]["model"]["tok2vec"]
        assert tok2vec["@architectures"] == "spacy_nested_ner.EnglishCNN.v1"
        spacy.util.load_model_from_config(config, auto_fill=True)
        assert not tok2vec["pretrained"]
    settings.update(english_words=False, pretrained_cnn=True, encoder_rate=0.001)
    for system in SYSTEMS:
        config = compare.training_config({**settings, "system": system})
        assert config["components"]["ner"]["model"]["tok2vec"]["pretrained"]
        rate = config["training"]["optimizer"]["learn_rate"]
        assert (rate if system == "spancat" else rate["initial_rate"]) == 0.001
        spacy.util.load_model_from_config(config, auto_fill=True)
    assert tables.budget_of({"settings": {**settings, "minutes": 1}})[1] == "CNN, pretrained"
    settings.update(english_words=True, pretrained_cnn=False)
    refused = ("--transformer", "A transformer reads no"), ("--vectors", "not both")
    for option, said in (*refused, ("--pretrained-cnn", "not both")):
        value = [] if option == "--pretrained-cnn" else ["name"]
        args = ["run", str(tmp_path), str(tmp_path), "--english-words", option, *value]
        found = CliRunner().invoke(compare.app, args)
        assert found.exit_code == 2 and said in found.output
    assert tables.budget_of({"settings": {**settings, "minutes": 1}})[1] == "CNN, English words"


def test_a_table_of_english_words(tiny_bert, tmp_path) -> None:
    docs = [eg.reference for eg in make_examples(spacy.blank("en"))]
    DocBin(docs=docs).to_disk(tmp_path / "data.spacy")
    args = [tiny_bert, tmp_path / "data.spacy", "--output", tmp_path]
    printed = invoke(app_of(english_words.main), *args)
    table = EnglishWords(tmp_path)
    assert f"{len(table.vectors):,} pieces" in printed
    found = table(docs)
    assert len(found) == sum(map(len, docs)) and found.any(axis=1).mean() > 0.9


SYNSETS = """  1 This line is of the licence.
00001740 03 n 01 entity 0 003 ~ 00001930 n 0000 | that which is perceived to have its own existence
00007846 03 n 02 some_body(p) 0 person 0 001 ~ 00001930 n 0000 | a human being; "there was too much for one person to do"; "odd"
"""  # noqa: E501


def test_what_the_cnn_reads(tmp_path) -> None:
    for part in ("noun", "verb", "adj", "adv"):
        (tmp_path / f"data.{part}").write_text(SYNSETS if part == "noun" else "", "utf8")
    (tmp_path / "1790.txt").write_text("I embrace  with\ngreat satisfaction. Yes.", "utf8")
    terms = {
        "T cell activation": "The change in morphology of a T cell.",
        "kinase activity": "Catalysis of the reaction: A = B.",
        "no definition": None,
    }
    with closing(sqlite3.connect(tmp_path / "GO.sqlite")) as database, database:
        database.execute("CREATE TABLE go_term (go_id, term, definition)")
        rows = [(str(number), *row) for number, row in enumerate(terms.items())]
        database.executemany("INSERT INTO go_term VALUES (?, ?, ?)", rows)
    output = tmp_path / "all" / "texts.txt"
    output.parent.mkdir()
    invoke(english_cnn.app, "texts", tmp_path, tmp_path, tmp_path / "GO.sqlite", output)
    lines = output.read_text("utf8").splitlines()
    definitions = ("that which is perceived to have its own existence", "a human being")
    known = [f"{lemma}: {text}" for lemma, text in zip(("entity", "some body"), definitions)]
    known += [*definitions, "there was too much for one person to do"]
    term = "The change in morphology of a T cell."
    of_ontology = {text for text in lines if text.endswith(term)}
    assert of_ontology and of_ontology <= {term, f"T cell activation: {term}"}
    others = set(lines) - of_ontology
    assert others <= {*known, "I embrace with great satisfaction."} and len(others) >= 2


def test_the_weights_of_the_cnn(tmp_path) -> None:
    save_bert(tmp_path / "bert", layers=6)
    words = [text for text, _ in SENTENCES] * 100
    (tmp_path / "texts.txt").write_text("\n".join(words), encoding="utf8")
    args = ("train", tmp_path / "bert", tmp_path / "texts.txt", "--output", tmp_path)
    printed = invoke(english_cnn.app, *args, "--passes", 20)
    shares = re.findall(r"([-\d.]+)% of layer", printed)
    assert len(shares) == 2 and all(float(share) > 30 for share in shares)
    found, shipped = (load_file(folder / PRETRAINED) for folder in (tmp_path, english_words.FOLDER))
    assert {name: array.shape for name, array in found.items()} == {
        name: array.shape for name, array in shipped.items()
    }


def test_frozen_encoder_and_adversarial_training(tmp_path) -> None:
    args = ["run", str(tmp_path), str(tmp_path / "out"), "--frozen", "--adversarial", "1"]
    found = CliRunner().invoke(compare.app, args)
    assert found.exit_code == 2 and "A frozen encoder has nothing to move" in found.output
    assert not (tmp_path / "out").exists()


def test_best_system_of_several_folders(tmp_path) -> None:
    pytest.importorskip("matplotlib")
    rest = {"threshold_tuned": 0.5, "words_per_second": 9.0, "ratio": {}}
    training = {"steps": 2, "minutes": 1, "cpu_minutes": 1, "peak_mib": 1, "curve": [[0, 0.0]]}
    for minutes, system, f1 in ((5, "piqn_ner", 0.7), (5, "spancat", 0.6), (20, "spancat", 0.8)):
        settings = {"system": system, "seed": 0, "minutes": minutes, "corpus": "corpus/genia"}
        result = {"settings": settings, "f1": f1, "f1_tuned": f1, "training": training, **rest}
        (tmp_path / str(minutes)).mkdir(exist_ok=True)
        srsly.write_json(tmp_path / str(minutes) / f"{system}_seed0.json", result)
    table = invoke(compare.app, "report", tmp_path / "5", tmp_path / "20")
    assert "| genia | CNN | all | 5 minutes | **70.0** | 60.0 |" in table
    assert "| genia | CNN | all | 20 minutes | - | **80.0** |" in table


def test_a_corpus_is_cut_to_nested_docs_and_frequent_labels(tmp_path) -> None:
    write_docs(*(tmp_path / f"{part}.spacy" for part in ("train", "dev", "test")))
    folder = tmp_path / "data"
    folder.mkdir()
    init_trials.cut(tmp_path, folder, sentences=2, labels=2)
    vocab = spacy.blank("en").vocab
    for part, number in (("train", 2), ("dev", 2), ("test", 10)):
        docs = list(DocBin().from_disk(folder / f"{part}.spacy").get_docs(vocab))
        assert len(docs) == number
        assert len({span.label_ for doc in docs for span in doc.spans["sc"]}) <= 2
        assert part == "test" or all(map(init_trials.is_nested, docs))


def test_table_of_init_trials() -> None:
    results = [
        {
            "settings": {"system": system, "seed": seed},
            "f1_tuned": f1,
            "training": {"cpu_minutes": 1.5 + seed},
        }
        for system, scores in (("nested-ner init", (0.4, 0.42)), ("init config", (0.3, 0.32)))
        for seed, f1 in enumerate(scores)
    ]
    table = tables.init_trials({"sixty": results})
    assert table.splitlines()[2] == "| sixty | 2 | 2.0 | 41.0 ± 12.7 | 31.0 ± 12.7 |"
    # What both were trained with.
    assert tables.init_trials({"a": results[:3]}).splitlines()[2] == "| a | 1 | 1.5 | 40.0 | 30.0 |"
    assert tables.init_trials({"a": results[:2]}).splitlines()[2] == "| a | 0 |  |  |  |"


def test_training_length_counts_passes(tmp_path) -> None:
    write_docs(*(tmp_path / f"{part}.spacy" for part in ("train", "dev", "test")))
    sizes = ("--sentences", 2, "--sentences", 4, "--passes", 3)
    table = invoke(training_length.app, "run", tmp_path, tmp_path / "out", *sizes)
    # All of so few sentences are in one batch.
    rows = [line.split(" | ")[:4] for line in table.splitlines()[-2:]]
    assert rows == [["| 2", "3", "3", "1"], ["| 4", "3", "3", "1"]]
    again = invoke(training_length.app, "report", tmp_path / "out")
    assert again.strip() == "\n".join(table.splitlines()[-4:])


def test_small_data_is_drawn(tmp_path) -> None:
    write_docs(*(tmp_path / f"{part}.spacy" for part in ("train", "dev", "test")))
    options = ("--docs", 4, "--draw", 0, "--draw", 1, "--minutes", 0.02, "--system", "piqn_ner")
    table = invoke(small_data.app, "run", tmp_path, tmp_path / "out", *options)
    header, _, row = (line.split(" | ") for line in table.splitlines()[-3:])
    assert header == ["| sentences", "draws", "`piqn_ner` |"] and row[:2] == ["| 4", "2"]
    assert invoke(small_data.app, "report", tmp_path / "out").strip() in table
    paths = [
        tmp_path / "out" / "data" / f"{tmp_path.name}_4_docs_{draw}" / "train.spacy"
        for draw in (0, 1)
    ]
    vocab = spacy.blank("en").vocab
    texts = [{doc.text for doc in DocBin().from_disk(path).get_docs(vocab)} for path in paths]
    assert [len(each) for each in texts] == [4, 4] and texts[0] != texts[1]
    result = CliRunner().invoke(
        small_data.app, ["run", str(tmp_path), str(tmp_path / "more"), "--docs", "1000"]
    )
    assert result.exit_code == 2 and "not 1000" in result.output


def test_a_comparison_knows_its_corpus(tmp_path) -> None:
    """By its contents, wherever it lies."""
    old, moved = tmp_path / "old", tmp_path / "moved"
    output = tmp_path / "out"
    for folder in (old, moved):
        folder.mkdir()
        write_docs(*(folder / f"{part}.spacy" for part in ("train", "dev", "test")))
    settings = {**compare.BY_STEPS, "steps": 1, "seed": [0], "system": ["piqn_ner"]}
    settings.update(output=output, dev_limit=0, test_limit=0, eval_frequency=1)
    (result,) = compare.train_all({**settings, "corpus": old})
    assert compare.train_all({**settings, "corpus": moved}) == [result]
    with (moved / "test.spacy").open("ab") as file:
        file.write(b"changed")
    with pytest.raises(typer.BadParameter, match=result["settings"]["data"]):
        compare.train_all({**settings, "corpus": moved})
    with pytest.raises(typer.BadParameter, match="is no corpus: "):
        compare.train_all({**settings, "corpus": tmp_path})
    # Seeds of one folder are averaged, so that they have the same settings.
    with pytest.raises(typer.BadParameter, match="was made with other settings: steps 1"):
        compare.train_all({**settings, "corpus": old, "seed": [1], "steps": 2})


def test_small_data_is_compared_on_the_same_draws() -> None:
    scores = {"piqn_ner": (0.5, 0.52), "spancat": (0.3, 0.32, 0.7)}
    results = [
        {"settings": {"system": system, "seed": seed}, "f1_tuned": f1, "f1": f1 - 0.1}
        for system, found in scores.items()
        for seed, f1 in enumerate(found)
    ]
    *_, row = tables.small_data({"50_docs": results}).splitlines()
    assert row == "| 50 | 2 | 51.0 ± 12.7 | 31.0 ± 12.7 |"
    *_, row = tables.small_data({"50_docs": results}, tuned=False).splitlines()
    assert row == "| 50 | 2 | 41.0 ± 12.7 | 21.0 ± 12.7 |"
    results[1].update(f1_tuned=0.54)  # 22 points ahead with one draw, 20 with the other
    assert tables.differences(results) == {"piqn_ner": "+21.0 ± 12.7"}
    assert tables.differences(results, "f1") == {"piqn_ner": "+20.0 ± 0.0"}
    *_, row = tables.few_differences({"200_docs": results, "50_docs": results[:1]}).splitlines()
    assert row == "| 200 | +21.0 ± 12.7 |"
    assert tables.differences(results[:2]) == tables.differences(results[::2][:2]) == {}
    assert tables.few_differences({"50_docs": results[:2]}) == ""


def test_commands_that_differ_in_what_can_be_repeated_are_one() -> None:
    run = "-m benchmarks.small_data run corpus"
    commands = [
        f"{run} out/a --minutes 4 --docs 100 --draw 0 --system spancat",
        f"{run} out/b --minutes 4 --docs 50 --draw 1 --system 'a b'",
        f"{run} out/b --minutes 1",
        f"{run} out/a --minutes 4 --docs 50 --draw 0 --draw 1 --system spancat",
        f"{run} out/a --minutes 4 --docs 100 --draw 1 --system spancat",
        f"{run} out/a --minutes 4 --docs 50 --draw 0 --system 'a b'",
        f"{run} out/b --minutes 1 --draw 1",
        "-m benchmarks.ner_crf corpus out --draw 0",
    ]
    four = f"{run} results/c --minutes 4"
    joined = [
        f"{four} --docs 50 --docs 100 --draw 0 --draw 1 --system spancat",
        # In one command with that, it would have read 100 docs, too.
        f"{four} --docs 50 --draw 0 --draw 1 --system 'a b'",
        f"{run} results/c --minutes 1",
        # Nor is a draw that is the default one with that which was asked for.
        f"{run} results/c --minutes 1 --draw 1",
        "-m benchmarks.ner_crf corpus out --draw 0",
    ]
    assert tables.joined(commands, "results/c") == joined
    assert tables.joined([*commands, *commands], "results/c") == joined


def test_ner_crf_of_edsnlp(tiny_bert, tmp_path) -> None:
    pytest.importorskip("edsnlp", reason="is measured, not used: no extra installs it")
    write_docs(*(tmp_path / f"{part}.spacy" for part in ("train", "dev", "test")))
    options = ("--transformer", tiny_bert, "--docs", 4, "--draw", 0, "--minutes", 0.02)
    app = app_of(ner_crf.main)
    table = invoke(app, tmp_path, tmp_path / "out", *options)
    header, _, row = (line.split(" | ") for line in table.splitlines()[-3:])
    assert header == ["| sentences", "draws", "`eds.ner_crf` |"] and row[:2] == ["| 4", "1"]
    (result,) = tables.results_in(tmp_path / "out" / "4_docs")
    assert result["training"]["steps"] > 0 and 0 <= result["f1"] <= 1 and result["edsnlp"]


def test_students_of_a_teacher(tmp_path) -> None:
    write_docs(*(tmp_path / f"{part}.spacy" for part in ("train", "dev", "test")))
    train(make_pipeline("piqn_ner", threshold=0.01), 5).to_disk(tmp_path / "teacher")
    options = ("--train-limit", 4, "--minutes", 0.02, "--epochs", 1)
    folders = (tmp_path / "teacher", tmp_path, tmp_path / "out")
    ways = ("--way", "gold and teacher", "--way", "gold, pretrained CNN")
    table = invoke(teaching.app, "run", *folders, *options, *ways)
    assert "| learned from | seeds | steps | F1 |" in table and "| gold and teacher | 1 |" in table
    assert "| gold, pretrained CNN | 1 |" in table
    vocab = spacy.blank("en").vocab
    data = tmp_path / "out" / "data"
    gold, taught, plain = (
        list(DocBin().from_disk(data / path).get_docs(vocab))
        for path in (
            "gold and teacher/gold.spacy",
            "gold and teacher/taught.spacy",
            "gold and teacher, no weights/taught.spacy",
        )
    )
    assert [len(gold), len(taught)] == [4, 6]
    for with_weights, without in zip(taught, plain):
        assert len(with_weights.spans["sc"].attrs["weights"]) == len(without.spans["sc"])
        assert "weights" not in without.spans["sc"].attrs
    unknown = CliRunner().invoke(teaching.app, ["run", *map(str, folders), "--way", "books"])
    assert unknown.exit_code == 2 and "No way is 'books'" in unknown.output


def test_recall_by_length_and_depth(tmp_path) -> None:
    write_docs(*(tmp_path / f"{part}.spacy" for part in ("train", "dev", "test")))
    folders = (tmp_path, tmp_path / "test.spacy", tmp_path / "out")
    table = invoke(long_entities.app, "run", *folders, "--minutes", 0.02, "--ngrams", 3)
    assert "| spancat, 1- to 3-grams | 1 |" in table
    docs = list(DocBin().from_disk(tmp_path / "test.spacy").get_docs(spacy.blank("en").vocab))
    n_gold = sum(len(doc.spans["sc"]) for doc in docs)
    for found in tables.results_in(tmp_path / "out"):
        for groups in (found["by_length"], found["by_depth"]):
            assert sum(group["gold"] for group in groups.values()) == n_gold
            assert all(0 <= group["right"] <= group["gold"] for group in groups.values())


def test_names_of_groups() -> None:
    names = [long_entities.group_of(n, (1, 3, 6, 7)) for n in (1, 2, 3, 5, 6, 7, 90)]
    assert names == ["1-2", "1-2", "3-5", "3-5", "6", "7 and more", "7 and more"]


def test_answers_to_one_question_taken_for_another() -> None:
    cell = mrc_zero_shot.cell
    found = [[((0, 1, "A"), 0.9), ((2, 3, "B"), 0.6), ((4, 5, "B"), 0.7)]]
    found_and_gold = scores.Scored(found, [{(0, 1, "B"), (2, 3, "B"), (4, 5, "A")}])
    assert cell(found_and_gold, "B", "B") == pytest.approx((0.5, 0.5, 0.5, 0.5, 0.6))
    assert cell(found_and_gold, "A", "B") == pytest.approx((1.0, 0.5, 2 / 3, 2 / 3, 0.9))


def test_zero_shot(tiny_bert, tmp_path) -> None:
    path = tmp_path / "data.spacy"
    write_docs(path)
    output = tmp_path / "found.json"
    app = app_of(mrc_zero_shot.main)
    options = ("--config", "mrc_once_transformer", "--steps", "1", "--output", output)
    args = (path, path, "--transformer", tiny_bert, "--without", "DNA", *options)
    assert "| not trained, template |" in invoke(app, *args)
    result = srsly.read_json(output)
    names = ["not trained, question", "not trained, template", "trained"]
    others = [f"answers for {label}" for label in ("CELL", "GPE", "ORG", "PER", "PROT")]
    assert sorted(result["labels"]["DNA"]) == sorted([*names, *others])
    unknown = CliRunner().invoke(app, [str(a) for a in args] + ["--without", "GPE"])
    assert unknown.exit_code == 2 and "no question for GPE" in unknown.output


@pytest.mark.parametrize("system", all_systems(), ids=lambda system: system.name)
def test_variants_are_of_settings_that_there_are(system) -> None:
    config, variants = table_of(system.name)
    assert (CONFIGS / f"{config}.cfg").exists()
    options = {*names_of(PipeSettings), *names_of(system.options)}
    for variant in variants.values():
        own = {name for name in variant if name not in ("component", "run_time", "tok2vec")}
        assert own <= set(names_of(system.settings))
        assert set(variant.get("tok2vec", {})) <= set(names_of(PairEncoderSettings))
        assert {*variant.get("component", {}), *variant.get("run_time", {})} <= options


def test_variants_of_a_pretrained_encoder() -> None:
    """Each sets what the shipped config of a system may have or not."""
    config, variants = table_of("transformer")
    encoder = load_config(CONFIGS / f"{config}.cfg")["components"]["ner"]["model"]["tok2vec"]
    assert encoder["@architectures"] == sorted_transformer.ARCHITECTURE
    for variant in variants.values():
        assert set(variant) == {"component"} and set(variant["component"]) == {"adversarial"}
    assert set(variants["adversarial training"]["component"]) <= set(names_of(PipeSettings))


def test_variants_of_one_training_are_scored_together() -> None:
    variants = {"a": {}, "b": {"run_time": {"steps": 1}}, "c": {"depth": 1}, "d": {}}
    assert ablation.trained_alike(variants, list("abcd")) == [["a", "b"], ["c"], ["d"]]


@pytest.mark.parametrize("name", ["piqn_cnn", "piqn_transformer"])
def test_an_ablation_has_batches_of_the_size_that_is_asked_for(name) -> None:
    settings = {"config": name, "train_limit": 0, "batch_size": 7, "transformer": None}
    batcher = ablation.source_config(settings)["training"]["batcher"]
    # No rule for small corpora, which would make smaller ones.
    assert batcher["size"] == 7 == batcher.get("smallest", 7)


def test_an_ablation_goes_on_where_it_stopped(tmp_path) -> None:
    data, output = tmp_path / "docs.spacy", tmp_path / "out.json"
    write_docs(data)
    app, options = app_of(ablation.main), ("--steps", 1, "--output", output)
    names = ("recommended", "soft-NMS as the authors ran it")
    args = ("locate_and_label", data, data, *options, "--only", names[0])
    first = invoke(app, *args)
    assert f"| {names[0]} |" in first and names[1] not in first
    found = srsly.read_json(output)["variants"][names[0]]
    second = invoke(app, *args, "--only", names[1])
    result = srsly.read_json(output)
    assert list(result["variants"]) == list(names) and f"| {names[1]} |" in second
    # Both are of one training, which was run again for the second.
    assert result["variants"][names[1]]["run"] == 1 and found["f1"] >= 0
    before = output.read_bytes()
    assert invoke(app, *args, "--only", names[1]) == second and output.read_bytes() == before
    other = CliRunner().invoke(app, [str(arg) for arg in (*args, "--steps", 2)])
    shown = " ".join(other.output.replace("│", " ").split())
    assert other.exit_code == 2 and "was made with other settings: steps 1" in shown
    unknown = CliRunner().invoke(app, ["piqn", str(data), str(data), "--only", "no such"])
    assert unknown.exit_code == 2 and "no variant 'no such'" in unknown.output


def test_an_ablation_in_equal_time_with_settings_of_the_encoder(tiny_bert, tmp_path) -> None:
    data, output = tmp_path / "docs.spacy", tmp_path / "out.json"
    write_docs(data)
    options = ("--transformer", tiny_bert, "--minutes", 0.02, "--output", output)
    names = ("top layer together", "late interaction")
    only = [arg for name in names for arg in ("--only", name)]
    table = invoke(app_of(ablation.main), "mrc", data, data, *options, *only)
    result = srsly.read_json(output)
    assert result["runs"][0]["minutes"] == 0.02 and all(name in table for name in names)
    for found in result["variants"].values():
        assert found["steps"] > 1 and found["seconds"] > 1.2
    assert "| variant | F1 | best threshold | CPU seconds | steps |" in tables.ablation(
        result["variants"]
    )


def test_compare_trains_and_reports(tmp_path) -> None:
    pytest.importorskip("matplotlib")
    write_docs(*(tmp_path / f"{part}.spacy" for part in ("train", "dev", "test")))
    args = ["run", tmp_path, tmp_path / "out", "--system", "locate_and_label_ner", "--steps", 2]
    args += ["--eval-frequency", 1, "--no-speed"]
    table = invoke(compare.app, *args)
    result = srsly.read_json(tmp_path / "out" / "locate_and_label_ner_seed0.json")
    assert result["training"]["steps"] == 2
    assert [step for step, _ in result["training"]["curve"]] == [0, 1, 2]
    assert result["training"]["cpu_minutes"] > 0 and result["words_per_second"] > 0
    row = next(line for line in table.splitlines() if line.startswith("| `"))
    assert f"| {100 * result['f1']:.1f} |" in row
    assert "done already" in invoke(compare.app, *args)


def test_picked_beside_random_sentences(tmp_path) -> None:
    write_docs(*(tmp_path / f"{part}.spacy" for part in ("train", "dev", "test")))
    output = tmp_path / "out"
    args = ["run", tmp_path, output, "--start", 3, "--n", 2, "--pool", 6, "--rounds", 1]
    table = invoke(picking.app, *args, "--steps", 1)
    path = output / "picking.json"
    cells = srsly.read_json(path)["cells"]
    assert list(cells) == [f"{each}, seed 0, round {i}" for each, i in WAYS]
    start, picked, random = cells.values()
    assert picked["sentences"] == 5 and len(start["next"]) == len(picked["next"]) == 2
    assert not {*start["next"]} & {*picked["next"]} and random["next"] == []
    # As many entities, or as many as the next random sentence brings.
    assert start["entities"] < picked["entities"] <= random["entities"] < picked["entities"] + 5
    before = path.read_bytes()
    again = invoke(picking.app, *args, "--steps", 1)
    assert path.read_bytes() == before and again == invoke(picking.app, "report", output)
    assert table.endswith(again) and again.count("| 1 | 1 | 5 |") == 1
    other = CliRunner().invoke(picking.app, [str(arg) for arg in (*args, "--steps", 2)])
    assert other.exit_code == 2 and "was made with other settings: steps 1" in all_of(other.output)


WAYS = [("start", 0), ("picked", 1), ("random", 1)]


def all_of(output: str) -> str:
    return " ".join(output.replace("│", " ").split())


def test_table_of_ablations_with_seeds() -> None:
    """Means of the seeds; a variant that was not trained with all of them has fewer."""
    cell = {"threshold": 0.5, "seconds": 1.0}
    first = {"a": {**cell, "f1": 0.7, "steps": 10}, "b": {**cell, "f1": 0.5, "steps": 5}}
    second = {"a": {**cell, "f1": 0.8, "steps": 20}}
    table = tables.ablation_of_seeds([first, second])
    assert "| a | 2 | 15 | 75.0 ± " in table and "| b | 1 | 5 | 50.0 |" in table


def test_table_of_picked_sentences() -> None:
    cells = {}
    for seed, more in ((0, 0.02), (1, 0.04), (2, 0.5)):
        for way, number, f1 in (("start", 0, 0.5), ("picked", 1, 0.6 + more), ("random", 1, 0.6)):
            if seed < 2 or way != "random":  # the third is not done yet
                what = {"way": way, "seed": seed, "round": number, "f1_tuned": f1}
                cells[f"{way} {seed} {number}"] = {**what, "sentences": 300, "entities": 900 + seed}
    rows = tables.picking(cells).splitlines()
    assert rows[2] == "| 0 | 3 | 300 | 901 | 50.0 | 300 | 901 | 50.0 |  |"
    assert rows[3] == "| 1 | 2 | 300 | 900 | 63.0 | 300 | 900 | 60.0 | +3.0 (1.4) |"


def test_table_of_an_ablation() -> None:
    cell = {"f1": 0.712, "threshold": 0.35, "seconds": 61.6}
    assert tables.ablation({"a": cell}).splitlines()[2] == "| a | 71.2 | 0.35 | 62 |"
    counted = {"a": {**cell, "steps": 7}, "b": {**cell, "f1": 0.5, "steps": 9}}
    assert tables.ablation(counted).splitlines()[2:] == [
        "| a | 71.2 | 0.35 | 62 | 7 |",
        "| b | 50.0 | 0.35 | 62 | 9 |",
    ]
    # Not all have been counted.
    assert tables.ablation({"a": cell, **counted, "c": cell}).count("|") == 5 * 5


def test_tables_of_trainings_show_f1_at_the_threshold_of_dev() -> None:
    def result(system: str, f1: float, seed: int, steps: int) -> dict:
        training = {"steps": steps, "minutes": 9.0, "cpu_minutes": 1.0 + seed}
        settings = {"system": system, "seed": seed, "frozen_layers": len(system)}
        return {"settings": settings, "f1": 0.1, "f1_tuned": f1, "training": training}

    two = [result("gold", 0.4, 0, 10), result("gold", 0.42, 1, 31)]
    one = [result("other", 0.5, 0, 7)]
    assert tables.training_length({"60_sentences_9_passes": two, "8_sentences_3_passes": one}) == (
        "| sentences | passes | steps | seeds | F1 |\n| --- | --- | --- | --- | --- |\n"
        "| 8 | 3 | 7 | 1 | 50.0 |\n| 60 | 9 | 10 | 2 | 41.0 ± 12.7 |"
    )
    assert tables.teaching([*two, *one]).splitlines()[2:] == [
        "| gold | 2 | 20 | 41.0 ± 12.7 |",
        "| other | 1 | 7 | 50.0 |",
    ]
    assert tables.frozen_layers([*one, *two]).splitlines()[2:] == [
        "| 4 | 2 | 20 | 1.5 | 41.0 ± 12.7 |",
        "| 5 | 1 | 7 | 1.0 | 50.0 |",
    ]


def test_table_of_entities_by_length_and_depth() -> None:
    def result(system: str, f1: float, short: int, deep: int) -> dict:
        length = {"1-2": {"gold": 8, "right": short}, "3 and more": {"gold": 0, "right": 0}}
        depth = {"1": {"gold": 4, "right": deep}, "2": {"gold": 4, "right": 4}}
        return {"settings": {"system": system}, "f1": f1, "by_length": length, "by_depth": depth}

    found = [result("a", 0.6, 8, 1), result("b", 0.5, 2, 0), result("a", 0.62, 4, 3)]
    assert tables.long_entities(found).splitlines() == [
        "| system | seeds | F1 | words 1-2 (8) | depth 1 (4) | depth 2 (4) |",
        "| --- | --- | --- | --- | --- | --- |",
        "| a | 2 | 61.0 ± 12.7 | 75.0 | 50.0 | 100.0 |",
        "| b | 1 | 50.0 | 25.0 | 0.0 | 100.0 |",
    ]


def test_recall_is_that_of_length_and_that_of_depth() -> None:
    rows = {
        "length": np.array([1, 2, 4, 25]),
        "depth": np.array([1, 1, 5, 2]),
        "gold": np.array([True, True, True, False]),
        "predicted": np.array([True, False, True, True]),
        "right": np.array([True, False, True, False]),
    }
    assert long_entities.recall(SimpleNamespace(**rows)) == {
        "by_length": {
            "1-2": {"gold": 2, "right": 1},
            "3-5": {"gold": 1, "right": 1},
            "20 and more": {"gold": 0, "right": 0},
        },
        "by_depth": {
            "1": {"gold": 2, "right": 1},
            "2": {"gold": 0, "right": 0},
            "4 and more": {"gold": 1, "right": 1},
        },
    }


def test_table_of_labels_without_training() -> None:
    cell = {"precision": 0.1, "recall": 0.2, "f1": 0.3, "best_f1": 0.4, "best_threshold": 0.5}
    row = tables.without_training({"DNA": {"trained": cell}}).splitlines()[2]
    assert row == "| DNA | trained | 10.0 | 20.0 | 30.0 | 40.0 |"


def test_f1_by_length_is_of_entities_of_that_length() -> None:
    gold = [{(0, 4, "A"), (0, 5, "A"), (0, 9, "A"), (0, 10, "A")}]
    found = [[((0, 4, "A"), 0.9), ((0, 9, "A"), 0.9), ((1, 6, "A"), 0.9), ((0, 10, "B"), 0.1)]]
    best = scores.at_best_threshold(scores.Scored(found, gold))
    assert best == pytest.approx(
        {"f1": 4 / 7, "threshold": 0.9, "1-4 words": 1, "5-9": 0.5, "10 and more": 0}
    )


def test_a_cut_corpus_is_spread_and_keeps_frequent_labels(tmp_path) -> None:
    assert init_trials.spread(list(range(10)), 3) == [0, 3, 6]
    assert init_trials.spread([0, 1], 3) == [0, 1]
    write_docs(*(tmp_path / f"{part}.spacy" for part in ("train", "dev", "test")))
    folder = tmp_path / "data"
    folder.mkdir()
    init_trials.cut(tmp_path, folder, sentences=0, labels=1)
    vocab = spacy.blank("en").vocab

    def labels(path) -> list:
        docs = DocBin().from_disk(path).get_docs(vocab)
        return [span.label_ for doc in docs for span in doc.spans["sc"]]

    before, after = labels(tmp_path / "train.spacy"), labels(folder / "train.spacy")
    assert len(set(after)) == 1 and len(after) == max(map(before.count, before))


def test_spancat_gets_the_cpu_time_that_the_other_config_took(tmp_path, monkeypatch) -> None:
    given = []

    def train_one(config, output, settings) -> list:
        given.append((settings["system"], settings["seed"], config["training"]["batcher"]))
        return [{"training": {"minutes": 9.0, "cpu_minutes": 2.0 + settings["seed"]}}]

    spancat = util.load_config(CONFIGS / "spancat_cnn.cfg")
    monkeypatch.setattr(init_trials, "init_spancat", lambda data: spancat)
    monkeypatch.setattr(init_trials, "train_one", train_one)
    monkeypatch.setattr(init_trials, "report", lambda output: None)
    write_docs(*(tmp_path / f"{part}.spacy" for part in ("train", "dev", "test")))

    def init_cli(train, dev, path, minutes) -> None:
        path.write_text((CONFIGS / "piqn_cnn.cfg").read_text())

    monkeypatch.setattr(init_trials, "init_cli", init_cli)
    init_trials.run(tmp_path, tmp_path, seed=[0, 1])
    assert [each[:2] for each in given[1::2]] == [("init config", 0), ("init config", 1)]
    limits = [(batcher.get("minutes"), batcher.get("cpu_clock")) for *_, batcher in given]
    assert limits == [(None, None), (2.0, True), (None, None), (3.0, True)]


def test_random_sentences_have_as_many_entities_as_the_picked_ones() -> None:
    docs = [SimpleNamespace(spans={"sc": [None] * n}) for n in (3, 0, 2, 1, 4, 2)]
    settings = {"seed": 1, "start": 2, "pool": 3}
    loop = picking.Loop(None, docs, settings)
    counts = [len(docs[i].spans["sc"]) for i in loop.order]
    assert loop.order != sorted(loop.order) and loop.first == loop.order[:2]
    for n_entities in range(13):
        chosen = loop.at_random(n_entities)
        assert chosen == loop.order[: len(chosen)] and len(chosen) >= 2
        assert sum(counts[: len(chosen)]) >= n_entities
        assert len(chosen) == 2 or sum(counts[: len(chosen) - 1]) < n_entities
    assert loop.at_random(99) == loop.order
    # The pool comes after the first sentences and ends.
    assert loop.left(loop.order[:3]) == loop.order[3:5]
    loop.settings["pool"] = 0
    assert loop.left(loop.order[:3]) == loop.order[3:]


def test_a_comparison_has_the_limits_that_are_asked_for() -> None:
    settings = {**compare.BY_STEPS, "corpus": "corpus", "transformer": "name", "seed": 3}
    settings.update(steps=7, train_limit=11, dev_limit=12, eval_frequency=13, system="piqn_ner")
    settings.update(frozen_layers=2, mixed_precision=True)
    config = compare.training_config(settings)
    training, corpora = config["training"], config["corpora"]
    assert (training["max_steps"], training["eval_frequency"]) == (7, 13)
    assert (corpora["train"]["limit"], corpora["dev"]["limit"]) == (11, 12)
    assert config["system"]["seed"] == 3 and training["before_to_disk"] is None
    assert {part: config["paths"][part] for part in ("train", "dev", "transformer")} == {
        "train": "corpus/train.spacy",
        "dev": "corpus/dev.spacy",
        "transformer": "name",
    }
    encoder = config["components"]["ner"]["model"]["tok2vec"]
    assert (encoder["frozen_layers"], encoder["mixed_precision"]) == (2, True)
    config = compare.training_config({**settings, "minutes": 5.0, "cpu_clock": True})
    assert config["training"]["max_steps"] == 0 and config["training"]["batcher"]["minutes"] == 5
    assert config["training"]["batcher"]["cpu_clock"] is True


def test_labels_that_were_not_trained_beside_the_answers_for_others(monkeypatch) -> None:
    asked: dict = {}
    pipe = SimpleNamespace(
        labels=("B",), add_label=lambda label, question: asked.update({label: question})
    )
    nlp = SimpleNamespace(get_pipe=lambda name: pipe)
    monkeypatch.setattr(mrc_zero_shot, "from_template", lambda label: f"template of {label}")

    def found_by(nlp, dev) -> scores.Scored:
        """The template finds nothing; what is asked for B has the words of A."""
        own = [((0, 1, "A"), 0.9)] if asked["A"] == "own" else []
        found = [[*own, ((2, 3, "B"), 0.9), ((7, 8, "B"), 0.9)]]
        return scores.Scored(found, [{(0, 1, "A"), (2, 3, "A")}])

    monkeypatch.setattr(mrc_zero_shot, "found_by", found_by)
    rows = mrc_zero_shot.not_trained(nlp, [], {"A": "own"})["A"]
    assert {name: tuple(row)[:2] for name, row in rows.items()} == {
        "not trained, question": (1.0, 0.5),
        "not trained, template": (0.0, 0.0),
        "answers for B": (0.5, 0.5),
    }


def test_held_out_labels_are_not_in_the_training_data(tmp_path) -> None:
    write_docs(tmp_path / "all.spacy")
    mrc_zero_shot.write_without(tmp_path / "all.spacy", tmp_path / "known.spacy", {"DNA"}, 0)
    vocab = spacy.blank("en").vocab
    before, after = (
        [
            sorted((span.start, span.end, span.label_) for span in doc.spans["sc"])
            for doc in DocBin().from_disk(tmp_path / f"{name}.spacy").get_docs(vocab)
        ]
        for name in ("all", "known")
    )
    assert after == [[span for span in doc if span[2] != "DNA"] for doc in before] != before


def test_score_of_another_pipeline() -> None:
    gold = [eg.reference for eg in make_examples(spacy.blank("en"))][:2]

    def pipe(docs: list) -> list:
        """All spans of the first doc, and the whole second doc."""
        assert not any("sc" in doc.spans for doc in docs)
        docs[0].spans["sc"] = [docs[0].char_span(s.start_char, s.end_char, s.label_) for s in first]
        docs[1].spans["sc"] = [docs[1][:]]
        return docs

    first = gold[0].spans["sc"]
    right, wanted = len(first), sum(len(doc.spans["sc"]) for doc in gold)
    found = ner_crf.score(SimpleNamespace(pipe=pipe, vocab=gold[0].vocab), gold)
    assert found == pytest.approx(2 * right / (right + 1 + wanted))


def test_speed_of_a_diffusion_is_that_of_the_fastest_pass(tmp_path, monkeypatch) -> None:
    own = {"n_spans": 0, "spans_per_word": 1.5, "steps": 3, "carried": "all", "threshold": 0.5}
    pipe, settings, times = SimpleNamespace(name="ner", cfg=own), [], iter([99.0, 4, 2, 8, 5])
    monkeypatch.setattr(diffusion_steps, "load_pipeline", lambda model: None)
    monkeypatch.setattr(diffusion_steps, "only_pipe", lambda *_: pipe)
    monkeypatch.setattr(diffusion_steps, "read", lambda *_: ["12 words as", "docs"])
    monkeypatch.setattr(diffusion_steps, "seconds", lambda *_: next(times))
    monkeypatch.setattr(diffusion_steps, "found_by", lambda *_: settings.append(dict(own)))
    monkeypatch.setattr(diffusion_steps, "best_threshold", lambda scores: (0.5, 0.35))
    options = ("--steps", 2, "--spans", 60, "--carried", "distinct", "--repeats", 2)
    table = invoke(app_of(diffusion_steps.main), "model", tmp_path, *options)
    assert table.splitlines()[2:] == [
        "| 60 | 2 | distinct | 50.0 | 8 |",
        "| 1.5 per word | 3 | all | 50.0 | 3 |",
    ]
    assert settings == [{**own, "n_spans": 60, "steps": 2, "carried": "distinct"}, own]


def test_a_pipeline_whose_spans_depend_on_the_threshold_is_asked_at_each() -> None:
    nlp = train(make_pipeline("mrc_ner", {"pairing": "nearest"}), 30)
    gold = [eg.reference for eg in make_examples(nlp)]
    found = scores.found_by(nlp, gold)
    for threshold in (0.3, 0.6):
        nlp.get_pipe("ner").cfg["threshold"] = threshold
        docs = nlp.pipe(eg.predicted for eg in make_examples(nlp))
        assert found.at(threshold) == [scores.entities_of(doc, "sc") for doc in docs]
    # What is filtered has fewer: a start went to a nearer end.
    assert any(found.at(t) != scores.Scored(found.found, gold).at(t) for t in (0.3, 0.6))
    assert scores.found_by(make_pipeline("mrc_ner"), gold).again is None


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("--frozen-layers", "2", "has to learn. Leave out --frozen-layers"),
        ("--mixed-precision", None, "learns in float32. Leave out --mixed-precision"),
        ("--batch-size", "8", "Leave out --batch-size"),
        ("--system", "locate_and_label", "No system is 'locate_and_label': piqn_ner, "),
        ("--steps", "3", "not both"),
    ],
)
def test_options_that_a_comparison_would_ignore(option, value, problem, tmp_path) -> None:
    args = ["run", str(tmp_path), str(tmp_path / "out"), "--minutes", "1", option]
    found = CliRunner().invoke(compare.app, args if value is None else [*args, value])
    assert found.exit_code == 2 and problem in printed(found.output)


def test_mistakes_are_named(tmp_path) -> None:
    write_docs(*(tmp_path / f"{part}.spacy" for part in ("train", "dev", "test")))
    make_pipeline().to_disk(tmp_path / "model")
    corpus, out = str(tmp_path), str(tmp_path / "out")
    length = ["run", corpus, out, "--passes", "1", "--sentences"]
    data = str(tmp_path / "dev.spacy")
    for app, args, problem in (
        (training_length.app, [*length, "11"], "has 10 docs, not 11"),
        (training_length.app, [*length, "0"], "Invalid value for '--sentences'"),
        (growth.app, ["run", out, "--axis", "word"], "No axis is 'word': words, "),
        (app_of(run_time.main), [str(tmp_path / "model"), data, "[1]"], "[1] is no JSON object"),
        (app_of(ablation.main), ["piqn", data, data, "--transformer", "x"], "piqn_transformer."),
        (app_of(ablation.main), ["piqn", data, data, "--mixed-precision"], "learns in float32"),
        (app_of(thresholds.main), [corpus, out, "--system", "x"], "no configs/x_cnn.cfg"),
    ):
        found = CliRunner().invoke(app, args)
        assert found.exit_code == 2 and problem in printed(found.output)


def printed(output: str) -> str:
    """Without the frame of an error."""
    return " ".join(output.replace("│", " ").split())


def test_a_cell_that_exceeded_a_lower_limit_is_measured_again() -> None:
    limits = {"cell_seconds": 120, "cell_gib": 8.0}
    exceeded = {"limit": "time", **limits}
    assert growth.is_left(None, limits) and not growth.is_left({"seconds": 1.0}, limits)
    assert not growth.is_left(exceeded, limits)
    assert not growth.is_left(exceeded, {"cell_seconds": 60, "cell_gib": 9.0})
    assert growth.is_left(exceeded, {**limits, "cell_seconds": 121})
    assert growth.is_left({**exceeded, "limit": "memory"}, {**limits, "cell_gib": 9.0})
