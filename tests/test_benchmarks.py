"""The benchmarks that measure growth and shares, on tiny sizes."""

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import spacy
import srsly
import typer
from spacy.tokens import DocBin
from typer.testing import CliRunner

from tests.conftest import make_examples

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"

LIMITED = """
import time
import numpy
from measuring import limited


def spin():
    while True:
        time.process_time()


def fill():
    return {"sum": float(numpy.ones(2**29).sum())}


def fail():
    raise ValueError("no")


print(limited(lambda a, b: {"sum": a + b}, 1, 2, cpu_seconds=60, gib=8))
print(limited(spin, cpu_seconds=0, gib=8))
print(limited(fill, cpu_seconds=60, gib=3))
try:
    limited(fail, cpu_seconds=60, gib=8)
except RuntimeError as error:
    print(error)
"""


@pytest.fixture
def benchmark(monkeypatch) -> Any:
    """Imports a benchmark as `python benchmarks/X.py` does."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


def invoke(app: Any, *args: Any) -> str:
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"
    return result.output


def test_a_process_that_runs_out_of_something_says_so() -> None:
    command = [sys.executable, "-c", LIMITED]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=BENCHMARKS)
    assert done.stdout.splitlines() == [
        "{'sum': 3}",
        "{'limit': 'time'}",
        "{'limit': 'memory'}",
        "fail() ended with code 1.",
    ]


def test_growth_goes_on_where_it_stopped(benchmark, tmp_path) -> None:
    pytest.importorskip("matplotlib")
    script = str(BENCHMARKS / "growth.py")
    options = ("--axis", "span", "--shrink", "20", "--repeats", "1")
    command = [sys.executable, script, "run", str(tmp_path), "--system", "piqn_ner", *options]
    subprocess.run(command, check=True, capture_output=True)
    path = tmp_path / "growth.json"
    cells = srsly.read_json(path)["cells"]
    assert [cells[f"piqn_ner span {longest}"]["repeats"] for longest in (32, 0)] == [1, 1]
    assert all(cell["seconds"] > 0 and cell["encoder_seconds"] > 0 for cell in cells.values())

    before = path.read_bytes()
    growth = benchmark("growth")
    invoke(growth.app, "run", tmp_path, "--system", "piqn_ner", *options)
    assert path.read_bytes() == before
    table = invoke(growth.app, "report", tmp_path)
    assert "| system | 32 | unlimited |" in table and "| `piqn_ner` |" in table
    assert "spancat" not in table
    assert (tmp_path / "growth.svg").read_text().startswith("<?xml")


def test_growth_shows_limits_and_flat_figures(benchmark) -> None:
    found = {"seconds": 1.234, "ratio": 12.3, "mib": 5.4, "run": 0}
    cells = {
        "piqn_ner span 32": found,
        "spancat span 8": found,
        "spancat span 0": {"limit": "memory", "run": 0},
        "spancat labels 5": found,
    }
    assert benchmark("tables").growth(cells, "span").splitlines() == [
        "| system | 8 | 32 | unlimited |",
        "| --- | --- | --- | --- |",
        "| `piqn_ner` | as 32 | 1.2 s (12), 5 |  |",
        "| `spancat` | 1.2 s (12), 5 |  | over the memory limit |",
    ]


def test_seeds_of_all_lengths_then_ever_longer_ones(benchmark) -> None:
    lengths = benchmark("growth").seed_lengths(32)
    assert lengths == [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 17, 20, 24, 29, 32]


def test_inner_categories_do_not_count_for_outer_ones(benchmark, monkeypatch) -> None:
    module = benchmark("where_time_goes")
    now = iter(range(100))
    monkeypatch.setattr(module.time, "process_time", lambda: next(now))
    clock = module.Stopwatch()
    # The outer one from 0 to 1, the inner one from 1 to 2, then "backward", then the outer one.
    with clock.on("outer"), clock.on("inner"):
        clock.switch("backward")
    assert dict(clock.seconds) == {"outer": 2, "inner": 1, "backward": 1}


def test_shares_add_up(benchmark, tiny_bert, tmp_path) -> None:
    module, tables = benchmark("where_time_goes"), benchmark("tables")
    docs = [eg.reference for eg in make_examples(spacy.blank("en"))]
    DocBin(docs=docs, store_user_data=True).to_disk(tmp_path / "dev.spacy")
    systems = ("--system", "mrc_ner", "--system", "diffusion_ner", "--system", "spancat")
    table = invoke(module.app, "run", tiny_bert, tmp_path / "dev.spacy", tmp_path, *systems)
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
    # The package is as it was.
    assert not hasattr(module.head_model.collect_spans, "__wrapped__")


def test_f1_under_run_time_settings(benchmark, tmp_path) -> None:
    nlp = spacy.blank("en")
    pipe = nlp.add_pipe("locate_and_label_ner", name="entities")
    examples = make_examples(nlp)
    optimizer = nlp.initialize(lambda: examples)
    for _ in range(30):
        nlp.update(examples, sgd=optimizer)
    pipe.cfg["threshold"] = 0.3
    nlp.to_disk(tmp_path / "model")
    docs = [eg.reference for eg in examples]
    DocBin(docs=docs, store_user_data=True).to_disk(tmp_path / "dev.spacy")
    app = typer.Typer()
    app.command()(benchmark("run_time").main)
    settings = ["{}", '{"threshold": 1.1}', '{"nms_iou": 0, "nms_decay": 0}']
    table = invoke(app, tmp_path / "model", tmp_path / "dev.spacy", *settings)
    own, none, one = (line.split("|")[2:4] for line in table.splitlines()[2:])
    assert float(own[0]) == pytest.approx(100 * nlp.evaluate(examples)["nested_f"], abs=0.05)
    # Each line begins with the pipeline's own settings.
    assert float(none[0]) == 0 and none[1] == own[1]
    assert 0 < float(one[1]) < float(own[1])
    unknown = CliRunner().invoke(
        app, [str(tmp_path / "model"), str(tmp_path / "dev.spacy"), '{"nms": 1}']
    )
    assert unknown.exit_code == 2 and "nms" in unknown.output


def test_steps_and_spans_of_a_diffusion_of_any_name(benchmark, tmp_path) -> None:
    nlp = spacy.blank("en")
    pipe = nlp.add_pipe("diffusion_ner", name="entities", config={"threshold": 0.0})
    examples = make_examples(nlp)
    nlp.initialize(lambda: examples)
    nlp.to_disk(tmp_path / "model")
    docs = [eg.reference for eg in examples]
    DocBin(docs=docs, store_user_data=True).to_disk(tmp_path / "dev.spacy")
    app = typer.Typer()
    app.command()(benchmark("diffusion_steps").main)
    files = (tmp_path / "model", tmp_path / "dev.spacy")
    options = ("--steps", 2, "--spans", 5, "--repeats", 1, "--output", tmp_path / "out.json")
    table = invoke(app, *files, *options)
    assert [line.split("|")[1:3] for line in table.splitlines()[2:]] == [
        [" 5 ", " 2 "],
        [" 2.0 per word ", " 3 "],
    ]
    rows = srsly.read_json(tmp_path / "out.json")["rows"]
    assert rows[1]["f"] == pytest.approx(nlp.evaluate(examples)["nested_f"])
    pipe.cfg.update(steps=2, n_spans=5)
    assert rows[0]["f"] == pytest.approx(nlp.evaluate(examples)["nested_f"])
    assert all(row["words_per_cpu_second"] > 0 for row in rows)
    spacy.blank("en").to_disk(tmp_path / "model")
    failed = CliRunner().invoke(app, list(map(str, files)))
    assert failed.exit_code == 2 and "0 components are a diffusion_ner" in failed.output


def test_an_ablation_says_where_its_figures_come_from(tmp_path) -> None:
    docs = [eg.reference for eg in make_examples(spacy.blank("en"))]
    DocBin(docs=docs, store_user_data=True).to_disk(tmp_path / "docs.spacy")
    files = [str(tmp_path / "docs.spacy")] * 2
    options = ["--steps", "1", "--only", "the paper's form", "--output", str(tmp_path / "out.json")]
    script = str(BENCHMARKS / "diffusion_ablation.py")
    subprocess.run([sys.executable, script, *files, *options], check=True, capture_output=True)
    result = srsly.read_json(tmp_path / "out.json")
    assert list(result["variants"]) == ["the paper's form"]
    assert result["versions"] and "--steps 1" in result["command"]


def test_what_a_chosen_threshold_is_worth(benchmark, tmp_path) -> None:
    docs = [eg.reference for eg in make_examples(spacy.blank("en"))]
    for part in ("train", "dev", "test"):
        DocBin(docs=docs).to_disk(tmp_path / f"{part}.spacy")
    app = typer.Typer()
    app.command()(benchmark("thresholds").main)
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
def test_adversarial_training(benchmark, tmp_path, wanted, frozen, found) -> None:
    settings = {"corpus": "corpus", "transformer": "name", "mixed_precision": False, "seed": 0}
    settings.update(train_limit=0, steps=0, dev_limit=0, eval_frequency=100, minutes=0)
    settings.update(adversarial=wanted, frozen=frozen)
    for system in ("locate_and_label_ner", "spancat"):
        log = tmp_path / "log.jsonl"
        config = benchmark("compare").training_config({**settings, "system": system}, log)
        assert config["components"]["ner"].get("adversarial") == (
            None if system == "spancat" else found
        )


def test_frozen_encoder_and_adversarial_training(benchmark, tmp_path) -> None:
    args = ["run", str(tmp_path), str(tmp_path / "out"), "--frozen", "--adversarial", "1"]
    found = CliRunner().invoke(benchmark("compare").app, args)
    assert found.exit_code == 2 and "A frozen encoder has nothing to move" in found.output
    assert not (tmp_path / "out").exists()


def test_mean_over_seeds(benchmark, tmp_path) -> None:
    rest = {"f1_tuned": 0.7, "threshold_tuned": 0.5, "words_per_second": 9.0, "ratio": {}}
    training = {"steps": 2, "minutes": 1, "cpu_minutes": 1, "peak_mib": 1, "curve": [[0, 0.0]]}
    for system, scores in (("piqn_ner", [0.70, 0.71, 0.75]), ("spancat", [0.9])):
        for seed, f1 in enumerate(scores):
            settings = {"system": system, "seed": seed}
            result = {"settings": settings, "f1": f1, "training": training, **rest}
            srsly.write_json(tmp_path / f"{system}_seed{seed}.json", result)
    table = invoke(benchmark("compare").app, "report", tmp_path)
    assert "| `piqn_ner` | 3 | 72.0 | 2.6 |" in table
    assert table.count("spancat") == 1


def test_answers_to_one_question_taken_for_another(benchmark) -> None:
    cell = benchmark("mrc_zero_shot").cell
    found = [[((0, 1, "A"), 0.9), ((2, 3, "B"), 0.6), ((4, 5, "B"), 0.7)]]
    scores = found, [{(0, 1, "B"), (2, 3, "B"), (4, 5, "A")}]
    assert cell(scores, "B", "B") == pytest.approx((0.5, 0.5, 0.5, 0.5, 0.6))
    assert cell(scores, "A", "B") == pytest.approx((1.0, 0.5, 2 / 3, 2 / 3, 0.9))


def test_zero_shot(benchmark, tiny_bert, tmp_path) -> None:
    path = tmp_path / "data.spacy"
    docs = [eg.reference for eg in make_examples(spacy.blank("en"))]
    DocBin(docs=docs, store_user_data=True).to_disk(path)
    module, output = benchmark("mrc_zero_shot"), tmp_path / "found.json"
    app = typer.Typer()
    app.command()(module.main)
    options = ("--config", "mrc_once_transformer", "--steps", "1", "--output", output)
    args = (path, path, "--transformer", tiny_bert, "--without", "DNA", *options)
    assert "| not trained, template |" in invoke(app, *args)
    result = srsly.read_json(output)
    names = ["not trained, question", "not trained, template", "trained"]
    others = [f"answers for {label}" for label in ("CELL", "GPE", "ORG", "PER", "PROT")]
    assert sorted(result["labels"]["DNA"]) == sorted([*names, *others])
    unknown = CliRunner().invoke(app, [str(a) for a in args] + ["--without", "GPE"])
    assert unknown.exit_code == 2 and "no question for GPE" in unknown.output


def test_a_single_sentence_with_questions_kept(benchmark, tiny_bert, tmp_path) -> None:
    docs = [eg.reference for eg in make_examples(spacy.blank("en"))]
    DocBin(docs=docs).to_disk(tmp_path / "dev.spacy")
    options = ("--labels", "3", "--limit", "3", "--repeats", "1", "--output", tmp_path / "x.json")
    module = benchmark("mrc_cost")
    invoke(module.app, "single", tiny_bert, tmp_path / "dev.spacy", *options)
    cells = srsly.read_json(tmp_path / "x.json")["cells"]
    assert [cell["form"] for cell in cells] == ["cnn", "once"]
    assert all(cell["kept_ms"] > 0 and cell["read_ms"] > 0 for cell in cells)
