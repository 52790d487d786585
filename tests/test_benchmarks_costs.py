"""The benchmarks that measure time and memory, on tiny sizes."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import srsly
import torch

from benchmarks import (
    compare,
    growth,
    inference,
    int8,
    mrc_cost,
    pipe,
    products,
    shares,
    speed,
    systems,
    tables,
    where_time_goes,
)
from spacy_nested_ner.encoders import by_torch
from spacy_nested_ner.encoders.by_torch import TorchProducts
from spacy_nested_ner.layers import quick_products
from tests.conftest import make_pipeline, train
from tests.test_benchmarks import app_of, invoke, write_docs

ROOT = Path(__file__).parents[1]


def test_growth_goes_on_where_it_stopped(tmp_path) -> None:
    pytest.importorskip("matplotlib")
    options = ("--axis", "span", "--shrink", "20", "--repeats", "1")
    arguments = ["-m", "benchmarks.growth", "run", str(tmp_path), "--system", "piqn_ner", *options]
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, cwd=ROOT)
    path = tmp_path / "growth.json"
    result = srsly.read_json(path)
    cells = result["cells"]
    assert [run["command"] for run in result["runs"]] == [" ".join(arguments)]
    assert [cells[f"piqn_ner span {longest}"]["repeats"] for longest in (32, 0)] == [1, 1]
    assert all(cell["seconds"] > 0 and cell["encoder_seconds"] > 0 for cell in cells.values())

    before = path.read_bytes()
    invoke(growth.app, "run", tmp_path, "--system", "piqn_ner", *options)
    assert path.read_bytes() == before
    table = invoke(growth.app, "report", tmp_path)
    assert "| system | 32 | unlimited |" in table and "| `piqn_ner` |" in table
    assert "spancat" not in table
    assert (tmp_path / "growth.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("cell", "words", "entities"),
    [
        (growth.Cell("piqn_ner", "step", 400), 400, 40),
        (growth.Cell("piqn_ner", "words", 400, 4), 100, 10),
        (growth.Cell("piqn_ner", "entities", 60), 80, 60),
        (growth.Cell("piqn_ner", "span", 0), 1500, 150),
    ],
)
def test_docs_of_growth(cell, words, entities) -> None:
    assert (cell.n_words, cell.n_entities) == (words, entities)
    (doc,) = growth.synthetic_docs(1, cell.n_words, ["A", "B"], cell.n_entities)
    assert (len(doc), len(doc.spans["sc"])) == (words, entities)


def test_growth_shows_limits_and_flat_figures() -> None:
    found = {"seconds": 1.234, "ratio": 12.3, "mib": 5.4, "run": 0}
    cells = {
        "piqn_ner span 32": found,
        "spancat span 8": found,
        "spancat span 0": {"limit": "memory", "run": 0},
        "spancat labels 5": found,
    }
    assert tables.growth(cells, "span").splitlines() == [
        "| system | 8 | 32 | unlimited |",
        "| --- | --- | --- | --- |",
        "| `piqn_ner` | as 32 | 1.2 s (12), 5 |  |",
        "| `spancat` | 1.2 s (12), 5 |  | over the memory limit |",
    ]


def test_inner_categories_do_not_count_for_outer_ones(monkeypatch) -> None:
    now = iter(range(100))
    monkeypatch.setattr(shares.time, "process_time", lambda: next(now))
    clock = shares.Shares()
    # The outer one from 0 to 1, the inner one from 1 to 2, then "backward", then the outer one.
    with clock.on("outer"), clock.on("inner"):
        clock.switch("backward")
    assert dict(clock.seconds) == {"outer": 2, "inner": 1, "backward": 1}


def test_shares_add_up(tiny_bert, tmp_path) -> None:
    write_docs(tmp_path / "dev.spacy")
    systems = ("--system", "mrc_ner", "--system", "diffusion_ner", "--system", "spancat")
    table = invoke(
        where_time_goes.app, "run", tiny_bert, tmp_path / "dev.spacy", tmp_path, *systems
    )
    result = srsly.read_json(tmp_path / "shares.json")["systems"]
    for found in result.values():
        assert set(found["prediction"]) <= set(tables.PREDICTION)
        assert set(found["training"]) <= set(tables.TRAINING)
        assert found["prediction"]["encoder"] > 0 and found["prediction"]["decoding"] > 0
        assert found["training"]["encoder, backward"] > 0 and found["training"]["optimizer"] > 0
        assert found["spans"] > 0
    assert "assignment" in result["diffusion_ner"]["training"]
    rows = [line.split("|")[3:-1] for line in table.splitlines() if line.startswith("| `")]
    assert len(rows) == 6
    for row in rows:
        assert sum(map(float, row)) == pytest.approx(100, abs=0.5)


def test_a_single_sentence_with_questions_kept(tiny_bert, tmp_path) -> None:
    write_docs(tmp_path / "dev.spacy")
    options = ("--labels", "3", "--limit", "3", "--repeats", "1", "--output", tmp_path / "x.json")
    invoke(mrc_cost.app, "single", tiny_bert, tmp_path / "dev.spacy", *options)
    cells = srsly.read_json(tmp_path / "x.json")["cells"]
    assert [cell["form"] for cell in cells] == ["cnn", "once"]
    assert all(cell["kept_ms"] > 0 and cell["read_ms"] > 0 for cell in cells)


def test_what_labels_cost_by_how_question_and_sentence_meet(tiny_bert, tmp_path) -> None:
    write_docs(tmp_path / "dev.spacy")
    options = ("--labels", "3", "--limit", "3", "--repeats", "5", "--output", tmp_path / "x.json")
    table = invoke(mrc_cost.app, "prediction", tiny_bert, tmp_path / "dev.spacy", *options)
    cells = srsly.read_json(tmp_path / "x.json")["cells"]
    assert [cell["form"] for cell in cells] == list(mrc_cost.JOINT_LAYERS)
    assert all(cell["ratio"] > 1 and cell["encoder_seconds"] > 0 for cell in cells)
    assert "| labels | form |" in table or "| form | labels |" in table


def outer(function: Any) -> Any:
    return [inner(function) for _ in range(2)]


def inner(function: Any) -> Any:
    return function()


def test_functions_belong_to_their_part_or_to_that_of_their_caller(monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr(shares.time, "process_time", lambda: now[0])

    def tick() -> None:
        now[0] += 1

    def fail() -> None:
        tick()
        raise ValueError

    clock = shares.Shares({outer: "outer", "tests/test_benchmarks_costs.py": None})
    with clock.on("rest"):
        tick()
        outer(tick)
        with pytest.raises(ValueError):
            inner(fail)
    assert dict(clock.seconds) == {"rest": 2, "outer": 2}
    clock = shares.Shares({outer: "outer", inner: "inner"}, passes=["inner"])
    with clock.on("rest"):
        clock.switch("outer, backward")
        outer(tick)
    assert clock.seconds["inner, backward"] == 2 and not clock.seconds["outer"]
    clock = shares.Shares({outer: "outer", inner: "inner"}, whole=["outer"])
    with clock.on("rest"):
        outer(tick)
    assert dict(clock.seconds) == {"rest": 0, "outer": 2}
    outer(tick)
    assert sum(clock.seconds.values()) == 2


def test_what_follows_the_last_layer_is_no_part_of_the_head(monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr(shares.time, "process_time", lambda: now[0])

    class Head(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 2)

        def forward(self, words: torch.Tensor) -> torch.Tensor:
            for _ in range(2):
                now[0] += 1
                words = self.layer(words)
            now[0] += 5
            return words

    head, clock = Head(), shares.Shares()
    clock.watch_head(head, "head", rest="decoding")
    with clock.on("rest"):
        head(torch.zeros(1, 2))
        head(torch.zeros(1, 2))
    assert dict(clock.seconds) == {"rest": 0, "head": 4, "decoding": 10}
    clock.leave()
    with clock.on("rest"):
        head(torch.zeros(1, 2))
    assert clock.seconds["rest"] == 7


def test_costs_of_a_long_doc_and_of_one_sentence(tmp_path) -> None:
    output = tmp_path / "out.json"
    options = ("--repeats", 1, "--output", output)
    systems = ("--system", "piqn_ner", "--system", "tok2vec")
    table = invoke(inference.app, "long-doc", "--words", 60, *options, *systems)
    cells = srsly.read_json(output)["cells"]
    assert [cell["system"] for cell in cells] == ["spancat", "piqn_ner", "tok2vec"]
    quotient = cells[1]["seconds"] / cells[0]["seconds"]
    assert cells[1]["ratio"] == pytest.approx(quotient)
    assert "| `piqn_ner` |" in table
    invoke(inference.app, "memory", "piqn_ner", "--words", 200, "--output", output)
    (cell,) = srsly.read_json(output)["cells"]
    assert cell["words"] == 200 and cell["training_mib"] > 0


def test_a_system_over_its_limit_is_slow(tmp_path, monkeypatch) -> None:
    args = ("--system", "piqn_ner", "--docs", 4, "--output", tmp_path / "out.json")
    monkeypatch.setattr(speed, "LIMITS", {"piqn_ner": (1e9, 1e9)})
    assert "| `piqn_ner` |" in invoke(app_of(speed.main), *args)
    cell = srsly.read_json(tmp_path / "out.json")["cells"][0]
    assert cell["predicting"] > 0 and cell["learning"] > 0 and not speed.is_slow(cell)
    monkeypatch.setattr(speed, "LIMITS", {"piqn_ner": (1e9, cell["learning"])})
    assert speed.is_slow(cell) and not speed.is_slow({**cell, "system": "mrc_ner"})


def test_products(tmp_path) -> None:
    write_docs(tmp_path / "docs.spacy")
    options = ("--system", "piqn_ner", "--repeats", "1", "--output", tmp_path / "out.json")
    table = invoke(app_of(products.main), tmp_path / "docs.spacy", *options)
    assert "| encoder alone, by Thinc | encoder alone, by MKL | prediction, by Thinc |" in table
    (cell,) = srsly.read_json(tmp_path / "out.json")["cells"]
    assert (cell.pop("system"), cell.pop("batch_size")) == ("piqn_ner", 24)
    assert len(cell) == 6 and all(0 < value < 5 for value in cell.values())


def test_products_of_a_pretrained_encoder(tmp_path, tiny_bert) -> None:
    write_docs(tmp_path / "docs.spacy")
    options = ("--system", "piqn_ner", "--batch-size", "1", "--batch-size", "2", "--repeats", "1")
    table = invoke(
        app_of(products.main), tmp_path / "docs.spacy", *options, "--transformer", tiny_bert
    )
    assert "| system | batch | encoder alone, by MKL | prediction, by MKL |" in table
    assert table.count("`piqn_ner`") == 2


def test_what_a_pipe_costs_beside_its_model(tmp_path) -> None:
    write_docs(tmp_path / "docs.spacy")
    train(make_pipeline("piqn_ner"), 3).to_disk(tmp_path / "model")
    options = ("--model", tmp_path / "model", "--sentences", "30", "--output", tmp_path / "o.json")
    table = invoke(app_of(pipe.main), tmp_path / "docs.spacy", *options)
    assert "| system | sentences/s | rate, by that of the bare loop |" in table
    (cell,) = srsly.read_json(tmp_path / "o.json")["cells"]
    assert 0 < cell["pipe_rate"] < 5 and cell["sentences_per_second"] > 0


def test_time_of_a_system_by_that_of_spancat(tmp_path) -> None:
    write_docs(tmp_path / "dev.spacy")
    options = ("--system", "piqn_ner", "--batch-size", 8, "--limit", 4, "--repeats", 1)
    output = ("--output", tmp_path / "cnn.json")
    invoke(inference.app, "untrained", "cnn", tmp_path / "dev.spacy", *options, *output)
    spancat, piqn = srsly.read_json(tmp_path / "cnn.json")["cells"]
    assert [cell["system"] for cell in (spancat, piqn)] == ["spancat", "piqn_ner"]
    assert spancat["batch_8_by_spancat"] == spancat["training_by_spancat"] == 1
    assert piqn["batch_8_by_spancat"] == pytest.approx(piqn["batch_8"] / spancat["batch_8"])
    assert piqn["ratio_8"] > 1
    assert spancat["batch_8_by_encoder"] == pytest.approx(spancat["ratio_8"])
    by_spancat = piqn["batch_8_by_encoder"] / piqn["batch_8_by_spancat"]
    assert by_spancat == pytest.approx(spancat["ratio_8"])


def test_trained_pipelines_beside_their_encoders(tmp_path, monkeypatch) -> None:
    write_docs(tmp_path / "dev.spacy")
    train(make_pipeline("piqn_ner"), 3).to_disk(tmp_path / "piqn")
    train(make_pipeline("locate_and_label_ner"), 3).to_disk(tmp_path / "locate")
    options = ("--batch-size", 2, "--repeats", 1, "--output", tmp_path / "out.json")
    models = (tmp_path / "dev.spacy", tmp_path / "piqn", tmp_path / "locate")
    table = invoke(inference.app, "trained", *models, *options, "--join", 20)
    assert table.splitlines()[0] == "| system | ratio, batch 2 |"
    cells = srsly.read_json(tmp_path / "out.json")["cells"]
    assert [cell["system"] for cell in cells] == ["piqn_ner", "locate_and_label_ner"]
    assert all(cell["ratio_2"] > 1 and cell["batch_2"] > 0 for cell in cells)
    sizes = []
    monkeypatch.setattr(
        inference, "prediction_costs", lambda _, docs, *__: sizes.extend(docs) or {}
    )
    inference.trained_costs(str(models[1]), models[0], [1], 10, 20, 1)
    assert {len(doc) for doc in sizes[:-1]} == {20} and 0 < len(sizes[-1]) <= 20


def test_a_cell_of_growth_has_medians_and_what_is_added_to_the_peak(monkeypatch) -> None:
    alone, whole = iter([2.0, 4.0, 4.0]), iter([6.0, 4.0, 16.0])
    peaks, docs = iter([100.0, 130.0, 180.0]), []
    monkeypatch.setattr(growth, "synthetic_docs", lambda *sizes: sizes)
    monkeypatch.setattr(growth, "peak", lambda: next(peaks))
    monkeypatch.setattr(growth, "untrained_system", lambda *_, **__: None)
    monkeypatch.setattr(growth, "encoder_alone", lambda *_: None)

    def prediction(nlp: Any, encoder: Any, given: Any) -> Any:
        docs.append(given)
        return [lambda: next(alone), lambda: next(whole)]

    monkeypatch.setattr(growth, "prediction", prediction)
    cell = growth.Cell("piqn_ner", "words", 25)
    assert growth.measure(cell, None, 3, 100.0) == {
        "seconds": 6.0,
        "ratio": 3.0,  # of 3, 1 and 4
        "mib": 80.0,
        "encoder_seconds": 4.0,
        "encoder_mib": 30.0,
        "repeats": 3,
    }
    # First what is not measured: docs that name all labels.
    assert docs == [(1, 10, growth.GENIA, 5), (1, 25, growth.GENIA, 2)]
    alone, whole, peaks = iter([2.0]), iter([6.0]), iter([0.0, 0.0, 0.0])
    assert growth.measure(cell, None, 3, 6.0)["repeats"] == 1  # that was enough


def test_spans_and_labels_of_growth() -> None:
    def changes(system: str, axis: str, value: int) -> Any:
        return growth.settings_of(growth.Cell(system, axis, value), growth.GENIA)

    for axis, value, longest in (("span", 32, 32), ("span", 0, 1500), ("words", 25, 8)):
        suggester = changes("spancat", axis, value)["suggester"]
        assert (suggester["min_size"], suggester["max_size"]) == (1, longest)
    assert changes("piqn_ner", "span", 32) == changes("piqn_ner", "words", 25) == {"model": {}}
    assert changes("piqn_ner", "span", 0) == {"model": {}, "window": 1500, "stride": 1500}
    located = changes("locate_and_label_ner", "span", 16)
    assert located["filter_threshold"] == 0 and max(located["model"]["lengths"]) == 16
    assert "lengths" not in changes("locate_and_label_ner", "labels", 20)["model"]
    assert set(changes("mrc_ner", "words", 25)["model"]["questions"]) == set(growth.GENIA)


def test_ratio_to_other_products_and_what_they_are(monkeypatch) -> None:
    ours, theirs = iter([0.5, 2, 3, 4]), iter([1.0, 4, 4, 4])
    assert products.ratio(lambda: next(ours), lambda: next(theirs), 3) == 0.75
    row = np.ones((1, 2), dtype="float32")
    assert products.by_thinc(lambda: float(by_torch.is_shared(row))) == 0
    assert by_torch.is_shared(row)
    monkeypatch.setattr(quick_products, "is_quick", lambda: True)
    assert products.without_one_dnn(lambda: float(quick_products.is_quick())) == 0
    assert quick_products.is_quick()


def test_rate_of_a_pipe_by_that_of_the_bare_loop(tmp_path, monkeypatch) -> None:
    whole, bare = iter([99.0, 4.0, 8.0, 4.0]), iter([3.0, 4.0, 4.0])
    monkeypatch.setattr(pipe.spacy, "blank", lambda lang: None)
    monkeypatch.setattr(pipe, "read", lambda *_: ["a", "b", "c"])
    monkeypatch.setattr(pipe, "untrained_system", lambda *_: None)
    monkeypatch.setattr(pipe, "only_pipe", lambda *_: None)
    monkeypatch.setattr(pipe, "seconds", lambda nlp, docs, size: next(whole))
    monkeypatch.setattr(pipe, "bare_seconds", lambda nlp, pipe, docs, size: next(bare))
    what = {"sentences": 20, "batch_size": 2, "repeats": 3}
    assert pipe.share("piqn_ner", tmp_path, what) == {
        "pipe_rate": 0.75,
        "sentences_per_second": 5.0,
    }


def test_questions_are_kept_or_read_anew(tmp_path, monkeypatch) -> None:
    calls: list = []

    def seconds(nlp: Any, docs: list, size: int) -> float:
        """Slow after the questions were forgotten."""
        calls.append("predicts")
        return 0.5 if calls[-2:-1] == ["forgets"] else 0.25

    cache = SimpleNamespace(forget=lambda: calls.append("forgets"))
    cross = SimpleNamespace(shims=[SimpleNamespace(question_cache=cache)])
    nlp = SimpleNamespace(get_pipe=lambda name: SimpleNamespace(model=None))
    model = SimpleNamespace(get_ref=lambda name: cross)
    monkeypatch.setattr(mrc_cost, "encoder_of", lambda _: model)
    monkeypatch.setattr(mrc_cost, "pipeline", lambda *_, **__: nlp)
    monkeypatch.setattr(mrc_cost, "sentences", lambda *_: ["a", "b"])
    monkeypatch.setattr(mrc_cost, "seconds", seconds)
    found = mrc_cost.single_costs("name", tmp_path, 5, 2, 3, "once")
    assert found == {"read_ms": 500, "kept_ms": 250} and calls.count("forgets") == 6


def test_costs_of_questions_beside_the_encoder(tmp_path, monkeypatch) -> None:
    peaks = iter([100.0, 140.0])
    passes = {"encoder": lambda: 2.0, "whole": lambda: 6.0}
    monkeypatch.setattr(mrc_cost, "pipeline", lambda *_, **__: None)
    monkeypatch.setattr(mrc_cost, "sentences", lambda *_: ["a", "b"])
    monkeypatch.setattr(mrc_cost, "seconds", lambda *_: 3.0)
    monkeypatch.setattr(mrc_cost, "step_seconds", lambda *_: 7.0)
    monkeypatch.setattr(mrc_cost, "peak", lambda: next(peaks))
    monkeypatch.setattr(mrc_cost, "passes_of", lambda *_: passes)
    assert mrc_cost.prediction_costs("name", tmp_path, 5, 2, 3, "late") == {
        "seconds": 6.0,
        "encoder_seconds": 2.0,
        "ratio": 3.0,
        "mib": 40.0,
    }
    found = mrc_cost.form_costs("name", tmp_path, 5, 2, "late")
    assert found == {"prediction": 3.0, "training": 7.0}


def test_how_many_times_as_fast_int8_is(monkeypatch) -> None:
    monkeypatch.setattr(int8, "seconds", lambda nlp, docs, size: nlp)
    monkeypatch.setattr(int8, "without_one_dnn", lambda run: 2 * run())
    pipelines: Any = {"float32": 3.0, "int8": 2.0}
    assert int8.ratio(pipelines, ["a", "b"], 8, 3) == {
        "float32_ms": 1500,
        "int8_ms": 1000,
        "float32_by_mkl_ms": 3000,
        "speedup": 1.5,
        "speedup_by_mkl": 3,
    }
    ones, twos = [torch.ones(2, 3), torch.ones(1, 3)], [torch.full((3, 3), 2.0)]
    assert int8.distance(ones, twos) == 0.5 and int8.distance(twos, ones) == 1
    # Whatever is read together, vectors are those of their own input, without the padding.
    inputs = [torch.arange(n) for n in (3, 1, 2)]
    found = int8.vectors_of(lambda ids, mask: (ids * mask)[..., None], inputs, 2)
    assert [vectors[:, 0].tolist() for vectors in found] == [[0, 1, 2], [0], [0, 1]]


def test_our_encoder_beside_that_of_spacy(tmp_path, monkeypatch) -> None:
    def resolved(config: Any) -> Any:
        ours = config["model"]["@architectures"].startswith("spacy_nested_ner")
        vectors = [torch.zeros(2, 2), torch.full((1, 2), 0.5 if ours else 0.25)]
        how = {"seconds": 2.0 if ours else 3.0, "attrs": {}, "initialize": lambda X: None}
        return {"model": SimpleNamespace(**how, predict=lambda docs: vectors)}

    def pass_seconds(model: Any, docs: Any, batch_size: int, is_train: bool) -> float:
        return model.seconds * (2 if is_train else 1) - model.attrs.get("mixed_precision", False)

    monkeypatch.setattr(inference.spacy, "blank", lambda lang: None)
    monkeypatch.setattr(inference.registry, "resolve", resolved)
    monkeypatch.setattr(inference, "pass_seconds", pass_seconds)
    monkeypatch.setattr(inference, "read", lambda *_: [])
    found = inference.encoder_costs("name", tmp_path, 4, 3)
    assert found["difference"] == 0.25
    names = ("what", "batch_size", "spacy_transformers", "sorted_transformer", "ratio")
    assert [tuple(cell[name] for name in names) for cell in found["cells"]] == [
        *(("inference", size, 3, 2, 1.5) for size in (1, 8, 64)),
        ("training", 16, 6, 4, 1.5),
        ("training, mixed precision", 16, 6, 3, 2),
    ]


def test_a_cnn_with_english_words_beside_that_of_spacy(tmp_path, monkeypatch) -> None:
    """Both resolved and run; the seconds are made up."""
    kinds = []

    def pass_seconds(model: Any, docs: Any, batch_size: int, is_train: bool) -> float:
        english = any(node.name == "english_words" for node in model.walk())
        kinds.append((english, is_train))
        assert [len(doc) for doc in docs] == [a.shape[0] for a in model.predict(docs)]
        assert all(isinstance(node.ops, TorchProducts) for node in model.walk())
        return 2.0 if english else 3.0

    monkeypatch.setattr(inference, "pass_seconds", pass_seconds)
    write_docs(tmp_path / "data.spacy")
    found = inference.cnn_costs(tmp_path / "data.spacy", 4, 1)["cells"]
    assert kinds == [(english, train) for train in (0, 0, 0, 1) for english in (False, True)]
    assert [(cell["what"], cell["batch_size"]) for cell in found] == inference.PASSES
    assert all((c["hash_embed_cnn"], c["english_cnn"], c["ratio"]) == (3, 2, 1.5) for c in found)


def test_ratio_of_a_comparison(monkeypatch) -> None:
    passes = {"encoder": lambda: 2.0, "whole": lambda: 3.0}
    monkeypatch.setattr(compare, "passes_of", lambda *_: passes)
    assert compare.ratio_at(None, [], 8) == 1.5


def test_an_untrained_system_finds_nothing_and_learns_in_one_pass(monkeypatch) -> None:
    added: list = []
    nlp = SimpleNamespace(
        add_pipe=lambda factory, name, config: added.append((factory, config)),
        initialize=lambda examples: None,
    )
    monkeypatch.setattr(systems.spacy, "blank", lambda lang: nlp)
    name = "locate_and_label_ner"
    assert systems.shipped_config(name, "x")["components"]["ner"]["adversarial"] == 1
    systems.untrained_system(name, [], "x")
    systems.untrained_system(name, [], "x", adversarial=0.5, model={"dropout": 0.0})
    (factory, plain), (_, changed) = added
    assert factory == name and plain["threshold"] == 1 and "adversarial" not in plain
    assert plain["model"]["tok2vec"]["name"] == "x"
    assert changed == {**plain, "adversarial": 0.5, "model": {**plain["model"], "dropout": 0.0}}
    assert changed != {**plain, "adversarial": 0.5}
