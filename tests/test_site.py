"""The docs show what the code and the result files say."""

import importlib
import json
import re
import statistics
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

from benchmarks import tables
from spacy_nested_ner.settings import defaults_of, describe
from spacy_nested_ner.systems import all_systems

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = sorted((ROOT / "docs").rglob("*.md"))
SYSTEMS = [system.name for system in all_systems()]


@pytest.fixture
def macros(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT))
    yield importlib.import_module("docs.macros")
    for name in [name for name in sys.modules if name.split(".")[0] == "docs"]:
        del sys.modules[name]


def rows(table: str) -> List[List[str]]:
    """The cells of a Markdown table without its header."""
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


def result(folder: str, system: str, seed: Any = 0) -> Dict[str, Any]:
    return json.loads((RESULTS / folder / f"{system}_seed{seed}.json").read_text("utf8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_asks_for_is_there(macros, page: Path) -> None:
    for asked in re.findall(r"{{ (.*?) }}", page.read_text("utf8")):
        assert eval(asked, dict(vars(macros))), asked


@pytest.mark.parametrize("name", SYSTEMS)
def test_each_setting_has_a_row(macros, name: str) -> None:
    system = next(each for each in all_systems() if each.name == name)
    for settings, table in (
        (system.settings, macros.settings_table(name)),
        (system.options, macros.options_table(name)),
    ):
        shown = {cells[0].strip("`"): cells for cells in rows(table)}
        assert set(shown) == set(defaults_of(settings))
        assert len({len(cells) for cells in shown.values()}) == 1
        for key, default in defaults_of(settings).items():
            assert shown[key][1] == f"`{json.dumps(default)}`"
            assert shown[key][3] == macros.escaped(describe(settings)[key].meaning)


def test_each_encoder_has_its_table(macros) -> None:
    text = "".join(page.read_text("utf8") for page in PAGES)
    for name, settings in macros.ENCODERS.items():
        shown = {cells[0].strip("`"): cells[1] for cells in rows(macros.encoder_table(name))}
        assert shown == {key: f"`{json.dumps(v)}`" for key, v in defaults_of(settings).items()}
        assert text.count(f'encoder_table("{name}")') == 1


@pytest.mark.parametrize("name", SYSTEMS)
def test_each_system_has_its_page(name: str) -> None:
    text = (ROOT / "docs" / "systems" / f"{name}_ner.md").read_text("utf8")
    assert f'settings_table("{name}")' in text and f'options_table("{name}")' in text
    assert f"systems/{name}_ner.md" in (ROOT / "mkdocs.yml").read_text("utf8")


def test_comparison_has_the_figures_and_commands_of_the_files(macros) -> None:
    text = macros.comparison("genia_spacy_cnn")
    each = text.split("\n\n")[0]
    shown = {(cells[0].strip("`"), cells[1]): cells for cells in rows(each)}
    assert len(shown) == 6 * 3
    for (system, seed), cells in shown.items():
        found = result("genia_spacy_cnn", system, seed)
        assert cells[2] == f"{100 * found['f1']:.1f}"
        assert cells[4] == str(found["training"]["steps"])
        assert f"python {macros.tables.runnable(found['command'])}\n" in text


def test_best_system_of_a_time_has_the_figures_of_the_files(macros) -> None:
    folders = ["genia_spacy_cnn", "genia_spacy_minilm", "litbank_cnn_seeds", "litbank_minilm"]
    text = macros.best_systems(*folders)
    names = re.findall(r"`(\w+)`", text.splitlines()[0])
    for folder, cells in zip(folders, rows(text)):
        seeds = [sorted((RESULTS / folder).glob(f"{name}_seed*.json")) for name in names]
        found = [
            statistics.mean(100 * json.loads(path.read_text("utf8"))["f1_tuned"] for path in paths)
            for paths in seeds
        ]
        for f1, paths, cell in zip(found, seeds, cells[4:]):
            assert cell.startswith("**") == (f1 == max(found))
            assert cell.strip("*").split(" ")[0] == f"{f1:.1f}"
            assert (" ± " in cell) == (len(paths) > 1)
        assert cells[3].endswith("CPU minutes")


def test_growth_and_shares_have_the_figures_of_the_files(macros) -> None:
    cells = json.loads((RESULTS / "growth_cnn" / "growth.json").read_text("utf8"))["cells"]
    shown = {row[0].strip("`"): row[1:] for row in rows(macros.growth("growth_cnn", "labels"))}
    for system, row in shown.items():
        for value, cell in zip((5, 20, 114), row):
            found = cells[f"{system} labels {value}"]
            assert cell.endswith(f", {found['mib']:.0f}")
    spans = {row[0].strip("`"): row[1:] for row in rows(macros.growth("growth_cnn", "span"))}
    assert spans["piqn_ner"][:2] == ["as 32", "as 32"]
    assert "limit" in spans["spancat"][3]
    parts = rows(macros.shares("shares_minilm", "prediction"))
    for row in parts:
        assert sum(float(cell) for cell in row[2:]) == pytest.approx(100, abs=0.5)


@pytest.mark.parametrize(
    ("folder", "file"),
    [
        ("mrc_minilm", "forms.json"),
        ("mrc_minilm", "single.json"),
        ("diffusion_cnn", "steps.json"),
        ("int8_minilm", "pipeline.json"),
        ("int8_minilm", "ways.json"),
    ],
)
def test_measurements_have_the_figures_of_the_files(macros, folder: str, file: str) -> None:
    result_file = json.loads((RESULTS / folder / file).read_text("utf8"))
    text = macros.cells(folder, file)
    found = result_file.get("cells") or result_file["rows"]
    assert len(rows(text)) == len(found)
    assert f"python {macros.tables.runnable(result_file['command'])}\n" in text
    shown = {"f": "{:.1%}", "prediction": "{:.2f}", "training": "{:.2f}", "kept_ms": "{:.0f}"}
    shown.update(speedup="{:.2f}", speedup_8="{:.2f}")
    for row, cell in zip(rows(text), found):
        wanted = [form.format(cell[name]) for name, form in shown.items() if name in cell]
        assert wanted and set(wanted) <= set(row)


def test_measurements_by_batch_have_the_figures_of_the_file(macros) -> None:
    cells = json.loads((RESULTS / "gpu" / "predict.json").read_text("utf8"))["cells"]
    shown = {
        row[0].strip("`"): row[1:] for row in rows(macros.by_batch("gpu", "predict.json", "ratio"))
    }
    for system, ratios in shown.items():
        found = [cells.get(f"{system}, {size}", {}).get("ratio") for size in (1, 8, 64, 256)]
        assert ratios == ["" if ratio is None else f"{ratio:.2f}" for ratio in found]
    assert set(shown) == {cell["system"] for cell in cells.values()}


def test_frozen_layers_have_the_figures_of_the_files(macros) -> None:
    shown = {row[0]: row[1:] for row in rows(macros.frozen_layers("frozen_layers"))}
    folders = {path.name: path for path in (RESULTS / "frozen_layers").iterdir()}
    assert set(shown) == set(folders) and len(shown) > 1
    for name, (draws, steps, _, f1) in shown.items():
        found = [json.loads(path.read_text("utf8")) for path in folders[name].glob("*/*.json")]
        assert draws == str(len(found))
        assert {str(each["settings"]["frozen_layers"]) for each in found} == {name}
        assert steps == f"{sum(each['training']['steps'] for each in found) / len(found):.0f}"
        assert (
            f1.split(" ")[0] == f"{sum(100 * each['f1_tuned'] for each in found) / len(found):.1f}"
        )


def test_pages_use_macros_that_exist(macros) -> None:
    used = {name for page in PAGES for name in re.findall(r"{{ (\w+)\(", page.read_text("utf8"))}
    known: List[str] = []

    class Environment:
        def macro(self, function: Any) -> None:
            known.append(function.__name__)

    macros.define_env(Environment())
    assert used == set(known)


def test_docstrings_become_lists() -> None:
    pytest.importorskip("griffe")
    sys.path.insert(0, str(ROOT))
    try:
        from docs.docstrings import as_markdown
    finally:
        sys.path.remove(str(ROOT))
    text = "What it does.\n\nwords: `(n, h)` float,\n    more. mask: too.\nstart, end: it.\n\nEnd."
    assert as_markdown(text).splitlines()[1:] == [
        "",
        "- `words`: `(n, h)` float,",
        "    more.",
        "- `mask`: too.",
        "- `start, end`: it.",
        "",
        "End.",
    ]


def test_table_of_the_readme_has_the_figures_of_the_files() -> None:
    text = (ROOT / "README.md").read_text("utf8")
    table = rows(text[text.index("| factory | paper |") :].split("\n\n")[0])
    names = [re.findall(r"`(\w+)`", cells[0])[0] for cells in table]
    assert set(names) == {f"{name}_ner" for name in SYSTEMS} | {"spancat"}
    costs = json.loads((RESULTS / "ratios" / "cnn_trained_intel.json").read_text("utf8"))["cells"]
    for system, (_, _, cnn, few, time, _) in zip(names, table):
        for shown, folder in (
            (cnn, "genia_spacy_cnn_pretrained_8"),
            (few, "small_minilm/200_docs"),
        ):
            mean = statistics.mean(result(folder, system, n)["f1_tuned"] for n in range(3))
            assert shown == f"{100 * mean:.1f}"
        (cost,) = (each for each in costs if each["system"] == system)
        assert time == f"{cost['batch_64_by_spancat']:.2f}"


def test_readme_is_short_and_its_links_lead_somewhere() -> None:
    text = (ROOT / "README.md").read_text("utf8")
    assert len(text.splitlines()) <= 120
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (ROOT / link).exists(), link


def test_figures_of_stress_tests_stand_side_by_side(macros, tmp_path, monkeypatch) -> None:
    folder = tmp_path / macros.RESULTS / "stress"
    folder.mkdir(parents=True)
    about = {"test": "tests/stress/test_x.py::test_docs[a]", "python": "3", "seed": 0}
    (folder / "docs_a.json").write_text(json.dumps({**about, "seconds": 61.0, "docs": 1200}))
    (folder / "docs_b.json").write_text(json.dumps({**about, "seconds": 2.0, "lost": {"spans": 3}}))
    monkeypatch.setattr(macros, "ROOT", tmp_path)
    shown = macros.stress("docs_*")
    assert shown.splitlines()[0] == "|  | `a` | `b` |"
    assert ["docs", "1,200", ""] in rows(shown)
    assert ["lost, spans", "", "3"] in rows(shown)
    assert (
        "tests/stress/test_x.py::test_docs --budget 2 --results benchmarks/results/stress" in shown
    )
    with pytest.raises(ValueError, match="kills"):
        macros.stress("kills")


def test_weights_in_int8_have_the_figures_of_the_file(macros) -> None:
    found = json.loads(
        (macros.ROOT / macros.RESULTS / "int8_minilm/pipeline.json").read_text("utf8")
    )
    kinds = ("float32", "int8")
    assert rows(macros.compressed("int8_minilm", "pipeline.json")) == [
        [kind, f"{found['f1'][kind]:.2f}", f"{found['megabytes'][kind]:.1f}"] for kind in kinds
    ]


def test_size_of_an_output_and_places_of_results(macros, monkeypatch) -> None:
    cell = {"output_mib": 2.0, "sentences": 1024}
    monkeypatch.setattr(macros, "read", lambda *_: {"cells": {"one, 1": cell}})
    shown = macros.output_plan(2**20 * 100)
    assert "The output of 1,024 sentences had 2.0 MiB, 2048 bytes each: 200 GiB" in shown
    here = {"machine": "here", "versions": {"spacy": "3"}}
    there = {**here, "machine": "there", "date": "2026-01-02", "commit": "abc"}
    assert macros.machine([here, here]) == "here; spacy 3."
    assert macros.machine([here, there, here]).splitlines() == [
        "- 2 of 3: here; spacy 3.",
        "- 1 of 3: there; spacy 3; 2026-01-02, commit abc.",
    ]


def test_tables_of_shares_rooms_and_formats() -> None:
    seconds = {"prediction": 9.0, "training": 4.25}
    training = {"encoder": 1.0, "assignment": 2.0, "rest": 1.0}
    system = {"seconds": seconds, "prediction": {"encoder": 1.0}, "training": training}
    (row,) = rows(tables.shares({"a": system}, "training"))
    shown = dict(zip(["system", "s", *tables.TRAINING], row))
    assert {name: cell for name, cell in shown.items() if cell != "0.0"} == {
        "system": "`a`",
        "s": "4.25",
        "encoder": "25.0",
        "assignment": "50.0",
        "rest": "25.0",
    }
    room = {"passed": 9, "failed": {"a": "x"}, "skipped": {"b": "y", "c": "z"}}
    assert rows(tables.rooms({"heads": room})) == [["heads", "9", "1", "2"]]
    formats = {"a": {"docs": 1200, "lost": 0, "read_errors": 1}, "b": {"docs": 3, "lost": 0}}
    assert tables.by_format(formats).splitlines()[0] == "|  | docs | read errors |"
    assert rows(tables.by_format(formats)) == [["`a`", "1,200", "1"], ["`b`", "3", "0"]]
