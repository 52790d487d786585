"""Means of seeds, and which system is best."""

from __future__ import annotations

import pytest
import srsly

from benchmarks.tables import best_systems, results_in
from spacy_nested_ner.comparison import tables
from spacy_nested_ner.comparison.timing import in_turn, median_ratio


def result(system: str, f1: float, seed: int = 0, **settings) -> dict:
    shared = {"corpus": "corpus/litbank", "minutes": 5.0, "cpu_clock": True, "train_limit": 0}
    training = {"steps": 2, "minutes": 1, "cpu_minutes": 1, "curve": [[0, 0.0]]}
    return {
        "settings": {**shared, "system": system, "seed": seed, **settings},
        "training": training,
        "f1": f1 - 0.01,
        "f1_tuned": f1,
        "threshold_tuned": 0.5,
        "words_per_second": 9.0,
    }


THREE = [result("piqn_ner", f1, seed) for seed, f1 in enumerate((0.70, 0.71, 0.75))]


def test_interval_of_a_mean() -> None:
    # t of two degrees of freedom is 4.303, the standard deviation 2.646.
    mean = tables.mean_of([0.70, 0.71, 0.75])
    assert mean == pytest.approx((72.0, 4.303 * 2.646 / 3**0.5, 3), abs=0.01)
    assert str(mean) == "72.0 ± 6.6"
    assert str(tables.mean_of([0.7])) == "70.0"


def test_means_of_seeds_best_first() -> None:
    two = [result("spancat", f1, seed) for seed, f1 in enumerate((0.80, 0.81))]
    rows = tables.over_seeds([*THREE, *two, result("mrc_ner", 0.9)]).splitlines()[2:]
    assert rows == [
        "| `spancat` | 2 | 79.5 ± 6.4 | 80.5 ± 6.4 |",
        "| `piqn_ner` | 3 | 71.0 ± 6.6 | 72.0 ± 6.6 |",
    ]
    assert tables.over_seeds([result("mrc_ner", 0.9)]) == ""


def test_best_system_of_each_budget() -> None:
    results = [
        *THREE,
        result("spancat", 0.8),
        result("spancat", 0.6, minutes=20.0, transformer="models/MiniLM", train_limit=4000),
        result("piqn_ner", 0.5, minutes=20.0, transformer="models/MiniLM", train_limit=4000),
        result("piqn_ner", 0.9, minutes=0.0, steps=2000),
    ]
    assert best_systems(results).splitlines() == [
        "| corpus | encoder | training docs | time | `piqn_ner` | `spancat` |",
        "| --- | --- | --- | --- | --- | --- |",
        "| litbank | CNN | all | 5 CPU minutes | 72.0 ± 6.6 | **80.0** |",
        "| litbank | MiniLM | 4,000 | 20 CPU minutes | 50.0 | **60.0** |",
    ]


def test_what_is_as_good_is_named() -> None:
    two = [result("spancat", f1, seed) for seed, f1 in enumerate((0.76, 0.77))]
    far = [result("mrc_ner", f1, seed) for seed, f1 in enumerate((0.30, 0.301))]
    text = tables.verdict([*far, *THREE, *two])
    assert text.startswith("Best: spancat, F1 76.5 ±") and text.endswith("seeds: piqn_ner.")
    assert "repeat --seed" in tables.verdict([*THREE, result("spancat", 0.8)])
    clear = [result("spancat", f1, seed) for seed, f1 in enumerate((0.90, 0.902))]
    assert tables.verdict([*clear, *far]) == "Best: spancat, F1 90.1 ± 1.3."


def test_what_was_not_measured_has_no_column(tmp_path) -> None:
    for each in (result("piqn_ner", 0.5), {**result("spancat", 0.6), "ratio": {"8": 2.0}}):
        name = f"{each['settings']['system']}_seed0.json"
        srsly.write_json(tmp_path / name, each)
    header, _, *rows = tables.each_training(results_in(tmp_path)).splitlines()
    assert "peak MiB" not in header and header.endswith("| words/s | ratio, batch 8 |")
    assert [row.split("|")[1].strip() for row in rows] == ["`spancat`", "`piqn_ner`"]
    assert rows[0].endswith("| 2.00 |") and rows[1].endswith("| - |")


def test_a_row_of_a_training():
    one = result("piqn_ner", 0.5, seed=3)
    one["training"] = {"steps": 2, "minutes": 1, "cpu_minutes": 4}
    row = tables.each_training([one]).splitlines()[-1]
    assert row == "| `piqn_ner` | 3 | 49.0 | 50.0 (0.50) | 2 | 1.0 | 4.0 | 9 |"


def test_runs_take_turns():
    order = []
    runs = {name: lambda name=name: order.append(name) or 1.0 for name in "ab"}
    assert in_turn(runs, 2) == {"a": [1.0, 1.0], "b": [1.0, 1.0]} and order == list("abab")
    assert median_ratio([2, 12, 9], [1, 2, 9]) == 2
