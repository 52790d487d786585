"""Markdown tables from the JSON files of the benchmarks: their `report` commands print them, the
docs show them. Plain Python, so that both are made without torch."""

import json
import re
import shlex
import statistics
from itertools import product
from pathlib import Path
from typing import Any, Dict, FrozenSet, Iterable, Iterator, List, Mapping, Sequence, Set, Tuple

from spacy_nested_ner.comparison.tables import Result, by_system, markdown, mean_of, tuned_means

PREDICTION = ["encoder", "head", "batches", "decoding", "spans", "docs", "rest"]
TRAINING = ["encoder", "encoder, backward", "head", "head, backward", "assignment", "batches"]
TRAINING += ["gold alignment", "optimizer", "rest"]
SHARES = {"prediction": PREDICTION, "training": TRAINING}

REPEATED = ("--draw", "--docs", "--system")
Values = Tuple[FrozenSet[str], ...]  # of these options, of each

# Corpus, encoder, training docs and time of a training.
Budget = Tuple[str, str, str, str]


def results_in(folder: Path) -> List[Result]:
    """The results of trainings in a folder, best F1 first."""
    results = [json.loads(path.read_text("utf8")) for path in sorted(folder.glob("*_seed*.json"))]
    return sorted(results, key=lambda result: -result["f1"])


def results_of_trials(output: Path, pattern: str = "*") -> Dict[str, List[Result]]:
    """The results in each folder of a folder whose name fits, by the names of the folders that have
    some."""
    folders = {folder.name: results_in(folder) for folder in sorted(output.glob(pattern))}
    return {name: results for name, results in folders.items() if results}


def runnable(command: str) -> str:
    """What to type after `python` for a recorded command: older files name scripts that are
    modules of a package now."""
    command = re.sub(r"^benchmarks/(\w+)_ablation\.py", r"-m benchmarks.ablation \1", command)
    return re.sub(r"^benchmarks/(\w+)\.py", r"-m benchmarks.\1", command)


def joined(commands: Iterable[str], output: str) -> List[str]:
    """Commands that differ in what can be repeated, `--docs`, `--draw` and `--system`, and in their
    output, as few into this output. They train the same and nothing else."""
    given: Dict[str, Set[Values]] = {}
    for command in commands:
        words = shlex.split(command)
        if "run" in words:
            words[words.index("run") + 2] = output
        names = [i for i, word in enumerate(words) if word in REPEATED]
        rest = [w for i, w in enumerate(words) if i not in names and i - 1 not in names]
        values = [[words[i + 1] for i in names if words[i] == name] for name in REPEATED]
        # An option that is left out is one value of its own: its default.
        each = product(*([frozenset([one]) for one in some] or [frozenset()] for some in values))
        given.setdefault(shlex.join(rest), set()).update(each)
    return [
        " ".join([command, *(shlex.join(each) for each in _options(values))])
        for command, runs in given.items()
        for values in _merged(runs)
    ]


def _merged(runs: Set[Values]) -> List[Values]:
    """Runs that differ in the values of one option alone are one."""
    for i in range(len(REPEATED)):
        same: Dict[Tuple[Any, ...], FrozenSet[str]] = {}
        for run in runs:
            # The default is not known here, so it does not go with others.
            key = (*run[:i], bool(run[i]), *run[i + 1 :])
            same[key] = same.get(key, frozenset()) | run[i]
        runs = {(*key[:i], values, *key[i + 1 :]) for key, values in same.items()}
    return sorted(runs, key=_options)


def _options(values: Values) -> List[Tuple[str, str]]:
    pairs = [(name, value) for name, some in zip(REPEATED, values) for value in some]
    return sorted(pairs, key=_by_number)


def _by_number(option: Tuple[str, str]) -> Tuple[str, int, str]:
    name, value = option
    return name, int(value) if value.isdigit() else 0, value


def budget_of(result: Result) -> Budget:
    """Of a result; see `Budget`."""
    settings = result["settings"]
    vectors = settings.get("vectors")
    cnn = f"CNN, {Path(vectors).name}" if vectors else "CNN"
    if settings.get("english_words"):
        cnn = "CNN, English words"
    if settings.get("pretrained_cnn"):
        cnn = "CNN, pretrained"
    encoder = Path(settings["transformer"]).name if settings.get("transformer") else cnn
    limit, clock = settings.get("train_limit"), "CPU " if settings.get("cpu_clock") else ""
    corpus = Path(settings["corpus"]).name
    docs = f"{limit:,}" if limit else "all"
    return corpus, encoder, docs, f"{settings['minutes']:g} {clock}minutes"


def best_systems(results: Iterable[Result]) -> str:
    """One row for each budget, one column for each system: mean F1 on test at the threshold that is
    best on dev; the best is bold. Trainings of a number of steps have no place here."""
    budgets: Dict[Budget, List[Result]] = {}
    for result in results:
        if result["settings"].get("minutes"):
            budgets.setdefault(budget_of(result), []).append(result)
    means = {budget: tuned_means(each) for budget, each in budgets.items()}
    names = sorted({name for each in means.values() for name in each})
    rows = []
    for budget, each in means.items():
        cells = [str(each[name]) if name in each else "-" for name in names]
        first = names.index(next(iter(each)))
        cells[first] = f"**{cells[first]}**"
        rows.append([*budget, *cells])
    header = ["corpus", "encoder", "training docs", "time", *(f"`{name}`" for name in names)]
    return markdown(header, rows) if rows else ""


def growth(cells: Dict[str, Any], axis: str) -> str:
    """One row for each system: CPU seconds (times the encoder alone), MiB."""
    found: Dict[str, Dict[int, Any]] = {}
    for key, cell in cells.items():
        system, name, number = key.split()
        if name == axis:
            found.setdefault(system, {})[int(number)] = cell
    # 0 is the longest span of "unlimited", but a number of entities.
    unlimited = axis == "span"
    values = sorted({value for each in found.values() for value in each})
    if unlimited:
        values.sort(key=lambda value: value or float("inf"))
    header = ["unlimited" if unlimited and not value else str(value) for value in values]
    rows = []
    for system, each in found.items():
        least = min((value for value in each if value), default=0)
        cells_of_row = [f"`{system}`"]
        for value in values:
            # The window bounds the spans of most systems: shorter ones are the same measurement.
            stands = f"as {least}" if unlimited and 0 < value < least else ""
            cells_of_row.append(growth_cell(each[value]) if value in each else stands)
        rows.append(cells_of_row)
    return markdown(["system", *header], rows)


def growth_cell(cell: Dict[str, Any]) -> str:
    """Time, ratio and memory, or which limit was reached."""
    if "limit" in cell:
        return f"over the {cell['limit']} limit"
    return f"{two_digits(cell['seconds'])} s ({two_digits(cell['ratio'])}), {cell['mib']:.0f}"


def two_digits(number: float) -> str:
    """Two significant digits, and all digits before the point."""
    return f"{number:.0f}" if number >= 10 else f"{number:.2g}"


def shares(systems: Dict[str, Any], what: str) -> str:
    """% of the CPU time of each part. what: "prediction" or "training"."""
    rows = []
    for name, system in systems.items():
        seconds, total = system[what], sum(system[what].values())
        parts = [f"{100 * seconds.get(part, 0.0) / total:.1f}" for part in SHARES[what]]
        rows.append([f"`{name}`", f"{system['seconds'][what]:.2f}", *parts])
    return markdown(["system", "s", *SHARES[what]], rows)


# What measurements are called, and their digits; N is the number of docs in a batch.
MEASURED = {
    "system": ("system", "`{}`"),
    "what": ("", "{}"),
    "way": ("way", "{}"),
    "workers": ("workers", "{}"),
    "settings": ("settings", "`{}`"),
    "form": ("form", "{}"),
    "labels": ("labels", "{}"),
    "words": ("words", "{}"),
    "batch_size": ("batch", "{}"),
    "checkpointing": ("checkpointing", "{}"),
    "seconds": ("s", "{:.2f}"),
    "cpu_seconds": ("CPU s", "{:.1f}"),
    "encoder_seconds": ("encoder alone, s", "{:.2f}"),
    "spacy_transformers": ("spacy-transformers, s", "{:.2f}"),
    "sorted_transformer": ("SortedTransformer, s", "{:.2f}"),
    "hash_embed_cnn": ("HashEmbedCNN, s", "{:.2f}"),
    "english_cnn": ("EnglishCNN, s", "{:.2f}"),
    "ratio": ("ratio", "{:.2f}"),
    "ratio_N": ("ratio, batch N", "{:.2f}"),
    "batch_N_by_spancat": ("batch N / spancat's", "{:.2f}"),
    "batch_N_by_encoder": ("batch N / spancat's encoder", "{:.2f}"),
    "training_by_spancat": ("training / spancat's", "{:.2f}"),
    "predicting": ("prediction / spancat's", "{:.2f}"),
    "learning": ("training step / spancat's", "{:.2f}"),
    "before_mib": ("before, MiB", "{:.0f}"),
    "mib": ("MiB", "{:.0f}"),
    "cupy_mib": ("of cupy alone, MiB", "{:.0f}"),
    "training_mib": ("training step, MiB", "{:.0f}"),
    "prediction": ("prediction, s", "{:.2f}"),
    "training": ("training, s", "{:.2f}"),
    "read_ms": ("questions read, ms", "{:.0f}"),
    "kept_ms": ("questions kept, ms", "{:.0f}"),
    "n_spans": ("noisy spans", "{}"),
    "spans_per_word": ("per word", "{:g}"),
    "steps": ("steps", "{}"),
    "carried": ("go on", "{}"),
    "p": ("precision", "{:.1%}"),
    "r": ("recall", "{:.1%}"),
    "f": ("F1", "{:.1%}"),
    "best_f": ("best F1", "{:.1%}"),
    "best_threshold": ("at threshold", "{:.3f}"),
    "sentences_per_second": ("sentences/s", "{:.0f}"),
    "step_ms": ("step, ms", "{:.0f}"),
    "words_per_cpu_second": ("words per CPU second", "{:.0f}"),
    "float32_ms": ("float32, ms for each doc", "{:.1f}"),
    "float32_by_mkl_ms": ("float32 by MKL", "{:.1f}"),
    "int8_ms": ("int8, ms for each doc", "{:.1f}"),
    "speedup": ("times as fast", "{:.2f}"),
    "speedup_by_mkl": ("times as fast as by MKL", "{:.2f}"),
    "speedup_N": ("times as fast, batch N", "{:.2f}"),
    "error": ("away from float32", "{:.1%}"),
    "by_batch": ("away from itself alone", "{:.2g}"),
    "encoder_by_blis": ("encoder alone, by BLIS", "{:.2f}"),
    "encoder_by_thinc": ("encoder alone, by Thinc", "{:.2f}"),
    "encoder_by_mkl": ("encoder alone, by MKL", "{:.2f}"),
    "prediction_by_blis": ("prediction, by BLIS", "{:.2f}"),
    "prediction_by_thinc": ("prediction, by Thinc", "{:.2f}"),
    "prediction_by_mkl": ("prediction, by MKL", "{:.2f}"),
    "training_by_blis": ("training step, by BLIS", "{:.2f}"),
    "training_by_thinc": ("training step, by Thinc", "{:.2f}"),
    "training_by_mkl": ("training step, by MKL", "{:.2f}"),
    "pipe_rate": ("rate, by that of the bare loop", "{:.2f}"),
    "texts": ("texts", "{}"),
    "second_mib": ("second half, MiB", "{:.0f}"),
    "growth": ("growth", "{:.1%}"),
    "spans": ("spans", "{}"),
    "other_spans": ("rows with other spans", "{}"),
    "other_scores": ("rows with other scores", "{}"),
    "killed": ("killed", "{}"),
    "runs": ("runs", "{}"),
    "dead": ("processes killed", "{}"),
    "equal": ("output equal", "{}"),
}


def measurements(result: Dict[str, Any]) -> str:
    """One row for each measurement under "cells" or "rows"."""
    found = result.get("cells") or result["rows"]
    columns = list(_columns({name for each in found for name in each}))
    rows = [
        ["" if each.get(name) is None else shown.format(each[name]) for name, _, shown in columns]
        for each in found
    ]
    return markdown([title for _, title, _ in columns], rows)


def _columns(measured: Set[str]) -> Iterator[Tuple[str, str, str]]:
    """Names, titles and formats of what is measured, in the order of `MEASURED`."""
    for name, (title, shown) in MEASURED.items():
        sizes = [re.fullmatch(name.replace("_N", r"_(\d+)"), each) for each in measured]
        for size in sorted(int(size[1]) for size in sizes if size and size.groups()):
            yield name.replace("_N", f"_{size}"), title.replace(" N", f" {size}"), shown
        if name in measured:
            yield name, title, shown


def rooms(cells: Dict[str, Dict[str, Any]]) -> str:
    """How many tests of each room pass, fail and are skipped."""
    rows = [
        [name, cell["passed"], len(cell["failed"]), len(cell["skipped"])]
        for name, cell in cells.items()
    ]
    return markdown(["room", "passed", "failed", "skipped"], rows)


def by_batch(cells: Sequence[Dict[str, Any]], *figures: str) -> str:
    """One row for each system, and for what is measured of it, with a column for each of the
    figures at each batch size."""
    names = [name for name in ("system", "what") if name in cells[0]]
    sizes = sorted({cell["batch_size"] for cell in cells})
    columns = [(figure, size) for figure in figures for size in sizes]
    found: Dict[Tuple[str, ...], Dict[Any, str]] = {}
    for cell in cells:
        row = found.setdefault(tuple(MEASURED[name][1].format(cell[name]) for name in names), {})
        for figure in figures:
            row[figure, cell["batch_size"]] = MEASURED[figure][1].format(cell[figure])
    header = [MEASURED[name][0] for name in names]
    header += [f"{MEASURED[figure][0]}, batch {size}" for figure, size in columns]
    return markdown(
        header, [[*of, *(row.get(each, "") for each in columns)] for of, row in found.items()]
    )


def ablation(variants: Dict[str, Any]) -> str:
    """F1 of each variant, at the best threshold on the docs that it was scored on."""
    counted = all("steps" in found for found in variants.values())  # not in older files
    header, rows = ["variant", "F1", "best threshold", "CPU seconds"], []
    for name, found in variants.items():
        row = [name, f"{100 * found['f1']:.1f}", f"{found['threshold']:.2f}"]
        row.append(f"{found['seconds']:.0f}")
        rows.append([*row, found["steps"]] if counted else row)
    return markdown([*header, "steps"] if counted else header, rows)


OVER_SEEDS = ["seeds", "steps", "F1"]


def _over_seeds(steps: Sequence[int], f1: List[float]) -> List[Any]:
    """The cells of these columns: how many trainings, the means of their steps and of their F1."""
    return [len(f1), f"{statistics.mean(steps):.0f}", mean_of(f1)]


def ablation_of_seeds(results: Sequence[Dict[str, Any]]) -> str:
    """Mean F1 of each variant, one result a seed, at the best threshold of each training."""
    rows = []
    for name in dict.fromkeys(name for result in results for name in result):
        found = [result[name] for result in results if name in result]
        steps, f1 = ([each[key] for each in found] for key in ("steps", "f1"))
        rows.append([name, *_over_seeds(steps, f1)])
    return markdown(["variant", *OVER_SEEDS], rows)


def stress(results: Dict[str, Dict[str, Any]]) -> str:
    """One column for the figures of each stress test, one row for each figure. What is there for
    each of many formats has a table of its own, lists stay in the file."""
    columns = {
        name: flat({key: value for key, value in result.items() if key != "formats"})
        for name, result in results.items()
    }
    rows = dict.fromkeys(figure for column in columns.values() for figure in column)
    return markdown(
        ["", *(f"`{name}`" for name in columns)],
        [[row, *(column.get(row, "") for column in columns.values())] for row in rows],
    )


def flat(figures: Dict[str, Any], before: str = "") -> Dict[str, str]:
    """Figures by the words that lead to them; whole numbers with a comma at each thousand."""
    found: Dict[str, str] = {}
    for name, value in figures.items():
        words = f"{before}{name}".replace("_", " ")
        if isinstance(value, dict):
            found.update(flat(value, f"{words}, "))
        elif not isinstance(value, list):
            found[words] = f"{value:,}" if isinstance(value, int) else str(value)
    return found


def by_format(formats: Dict[str, Dict[str, Any]]) -> str:
    """One row for each corpus format, one column for each figure that is not 0 everywhere."""
    names = list(dict.fromkeys(name for figures in formats.values() for name in figures))
    shown = [name for name in names if any(figures.get(name) for figures in formats.values())]
    return markdown(
        ["", *(name.replace("_", " ") for name in shown)],
        [
            [f"`{each}`", *(f"{figures.get(name, 0):,}" for name in shown)]
            for each, figures in formats.items()
        ],
    )


def without_training(labels: Dict[str, Any]) -> str:
    """Scores of labels by how they are asked for, trained and not."""
    rows = [
        [
            label,
            how,
            *(f"{100 * found[name]:.1f}" for name in ("precision", "recall", "f1", "best_f1")),
        ]
        for label, table in labels.items()
        for how, found in table.items()
    ]
    return markdown(["label", "", "P", "R", "F1", "F1 at the best threshold"], rows)


# A way to annotate, what it is called, and the way that it is compared with.
ANNOTATION = {
    "bare": ("a loop over `nlp.pipe`", "bare"),
    "one": ("`nested-ner annotate`, one worker", "bare"),
    "two": ("`nested-ner annotate`, two workers", "one"),
    "spark": ("Spark, one worker", "bare"),
    "ray": ("Ray, one actor", "bare"),
    "spark two": ("Spark, two workers", "two"),
    "ray two": ("Ray, two actors", "two"),
}

ANNOTATION_FIGURES = ["sentences", "sentences_per_second", "words_per_second", "seconds"]
ANNOTATION_FIGURES += ["cpu_seconds", "load_before"]


def annotation(cells: Dict[str, Any]) -> str:
    """One row for each way to annotate: medians, and ratios to the way it is compared with."""
    found: Dict[str, List[Dict[str, Any]]] = {}
    for key, cell in cells.items():
        found.setdefault(key.split(", ")[0], []).append(cell)
    median = {
        name: {
            figure: statistics.median(cell[figure] for cell in each)
            for figure in ANNOTATION_FIGURES
        }
        for name, each in found.items()
    }
    rows = []
    for name, (title, other) in ANNOTATION.items():
        if name not in median:
            continue
        ours, row = median[name], [title, len(found[name])]
        row += [f"{ours['sentences']:,.0f}", f"{ours['sentences_per_second']:.0f}"]
        row += [f"{ours['words_per_second']:.0f}", f"{ours['seconds']:.0f}"]
        row += [f"{ours['cpu_seconds']:.0f}", f"{ours['load_before']:.1f}"]
        if other in median and other != name:
            theirs = median[other]
            row += [f"{theirs['seconds'] / ours['seconds']:.2f} of {ANNOTATION[other][0]}"]
            row += [f"{theirs['cpu_seconds'] / ours['cpu_seconds']:.2f}"]
        else:
            row += ["", ""]
        rows.append(row)
    header = ["way", "runs", "sentences", "sentences/s", "words/s", "s", "CPU s", "load before"]
    header += ["speed", "by CPU time"]
    return markdown(header, rows)


def plan(sentences: float, words: int, cells: Sequence[Dict[str, Any]]) -> str:
    """One row for each system: core hours of so many sentences, and what 100 cores need for it."""
    rows = []
    for cell in cells:
        hours = sentences * words / cell["words_per_cpu_second"] / 3600
        memory = 100 * cell["mib"] / 1024
        row = [f"`{cell['system']}`", f"{cell['words_per_cpu_second']:.0f}", f"{hours:,.0f}"]
        rows.append([*row, f"{hours / 100:.1f}", f"{memory:.0f}"])
    header = [
        "system",
        "words/s of a core",
        "core hours",
        "hours of 100 cores",
        "their memory, GiB",
    ]
    return markdown(header, rows)


def picking(cells: Dict[str, Any]) -> str:
    """One row for each round: means over the seeds, and F1 of picked sentences less that of random
    ones with its standard deviation."""
    found: Dict[int, Dict[str, Dict[int, Any]]] = {}
    for cell in cells.values():
        found.setdefault(cell["round"], {}).setdefault(cell["way"], {})[cell["seed"]] = cell
    rows = []
    for number, ways in sorted(found.items()):
        both = [ways.get(way, ways.get("start", {})) for way in ("picked", "random")]
        seeds = sorted(both[0].keys() & both[1].keys())
        if not seeds:
            continue
        row: List[Any] = [number, len(seeds)]
        for cells_of_way in both:
            for name, scale, form in PICKING_FIGURES:
                values = [scale * cells_of_way[seed][name] for seed in seeds]
                row.append(form.format(statistics.mean(values)))
        more = [100 * (both[0][seed]["f1_tuned"] - both[1][seed]["f1_tuned"]) for seed in seeds]
        spread = f" ({statistics.stdev(more):.1f})" if len(more) > 1 else ""
        rows.append([*row, f"{statistics.mean(more):+.1f}{spread}" if number else ""])
    parts = [f"{way}: {name}" for way in ("picked", "random") for name in PICKED]
    return markdown(["round", "seeds", *parts, "difference"], rows)


PICKED = ["sentences", "entities", "F1"]
PICKING_FIGURES = [
    ("sentences", 1, "{:.0f}"),
    ("entities", 1, "{:.0f}"),
    ("f1_tuned", 100, "{:.1f}"),
]


def init_trials(trials: Mapping[str, Sequence[Dict[str, Any]]]) -> str:
    """One row for each trial: mean F1 on test of the pipelines that two configs give, over the
    seeds with which both have been trained."""
    rows = []
    for name, results in trials.items():
        both = [
            {each["settings"]["seed"]: each for each in results if each["settings"]["system"] == of}
            for of in ("nested-ner init", "init config")
        ]
        seeds = sorted(set.intersection(*map(set, both)))
        if not seeds:
            rows.append([name, 0, "", "", ""])
            continue
        cpu = statistics.mean(both[0][seed]["training"]["cpu_minutes"] for seed in seeds)
        f1 = [mean_of([of[seed]["f1_tuned"] for seed in seeds]) for of in both]
        rows.append([name, len(seeds), f"{cpu:.1f}", *f1])
    header = ["data", "seeds", "CPU minutes", "`nested-ner init`", "`init config`, `spancat`"]
    return markdown(header, rows)


def training_length(trials: Mapping[str, Sequence[Dict[str, Any]]]) -> str:
    """One row for each number of sentences and of passes over them, the names of the trials: mean
    F1 on test."""
    rows = []
    for name, results in trials.items():
        sentences, _, passes, _ = name.split("_")
        first, *_ = results
        f1 = mean_of([each["f1_tuned"] for each in results])
        rows.append([int(sentences), int(passes), first["training"]["steps"], len(results), f1])
    return markdown(["sentences", "passes", "steps", "seeds", "F1"], sorted(rows))


def small_data(trials: Mapping[str, Sequence[Dict[str, Any]]], tuned: bool = True) -> str:
    """One row for each number of sentences, the names of the trials: mean F1 on test of each system
    over the draws of sentences that all systems of the row have learned from. At the threshold that
    is best on dev, or at that of the config."""
    score = "f1_tuned" if tuned else "f1"
    names = sorted({each["settings"]["system"] for of in trials.values() for each in of})
    rows: List[List[Any]] = []
    for name, results in trials.items():
        seeds = [{each["settings"]["seed"] for each in of} for of in by_system(results).values()]
        draws = set.intersection(*seeds)
        systems = by_system(each for each in results if each["settings"]["seed"] in draws)
        f1 = {of: mean_of([each[score] for each in found]) for of, found in systems.items()}
        rows.append([int(name.split("_")[0]), len(draws), *(f1.get(of, "-") for of in names)])
    rows.sort(key=lambda row: row[0])
    return markdown(["sentences", "draws", *(f"`{name}`" for name in names)], rows)


def differences(results: Sequence[Dict[str, Any]], score: str = "f1_tuned") -> Dict[str, str]:
    """F1 of each system minus that of `spancat`, the mean over the seeds that both have, with its
    95 % interval: what a seed has in common, such as its sentences, does not count. {} without
    `spancat`, or with one seed alone."""
    by_seed = {
        name: {each["settings"]["seed"]: each[score] for each in found}
        for name, found in by_system(results).items()
    }
    yardstick = by_seed.pop("spancat", {})
    found = {}
    for name, scores in sorted(by_seed.items()):
        pairs = [scores[seed] - yardstick[seed] for seed in scores if seed in yardstick]
        if len(pairs) > 1:
            mean = mean_of(pairs)
            found[name] = f"{mean.value:+.1f} ± {mean.half:.1f}"
    return found


def few_differences(trials: Mapping[str, Sequence[Dict[str, Any]]], tuned: bool = True) -> str:
    """One row for each number of sentences: `differences` of each system; "" if there are none."""
    score = "f1_tuned" if tuned else "f1"
    found = {int(name.split("_")[0]): differences(each, score) for name, each in trials.items()}
    names = sorted({name for each in found.values() for name in each})
    rows = [
        [n, *(each.get(name, "-") for name in names)] for n, each in sorted(found.items()) if each
    ]
    return markdown(["sentences", *(f"`{name}`" for name in names)], rows) if rows else ""


def frozen_layers(results: Sequence[Dict[str, Any]]) -> str:
    """One row for each number of layers that do not learn: mean F1 on test."""
    by_layers: Dict[int, List[Dict[str, Any]]] = {}
    for result in results:
        by_layers.setdefault(result["settings"]["frozen_layers"], []).append(result)
    rows = []
    for n_layers, found in sorted(by_layers.items()):
        steps = statistics.mean(each["training"]["steps"] for each in found)
        minutes = statistics.mean(each["training"]["cpu_minutes"] for each in found)
        f1 = mean_of([each["f1_tuned"] for each in found])
        rows.append([n_layers, len(found), f"{steps:.0f}", f"{minutes:.1f}", f1])
    return markdown(["frozen layers", "draws", "steps", "CPU minutes", "F1"], rows)


def teaching(results: Sequence[Dict[str, Any]]) -> str:
    """One row for each kind of training data: mean F1 on test."""
    rows = []
    for way, found in by_system(results).items():
        steps = [each["training"]["steps"] for each in found]
        rows.append([way, *_over_seeds(steps, [each["f1_tuned"] for each in found])])
    return markdown(["learned from", *OVER_SEEDS], rows)


def long_entities(results: Sequence[Dict[str, Any]]) -> str:
    """One row for each system: mean F1 on the documents, and the share of entities of each length
    and of each depth that it finds, of all seeds together."""
    systems = by_system(results)
    groups = [
        (kind, name)
        for kind in ("by_length", "by_depth")
        for name in results[0][kind]
        if results[0][kind][name]["gold"]
    ]
    rows = []
    for system, found in systems.items():
        cells = [
            sum(each[kind][name][what] for each in found)
            for kind, name in groups
            for what in ("right", "gold")
        ]
        shares = [f"{100 * right / gold:.1f}" for right, gold in zip(cells[::2], cells[1::2])]
        rows.append([system, len(found), mean_of([each["f1"] for each in found]), *shares])
    counts = [f"{name} ({results[0][kind][name]['gold']})" for kind, name in groups]
    units = [
        f"{'words' if kind == 'by_length' else 'depth'} {count}"
        for (kind, _), count in zip(groups, counts)
    ]
    return markdown(["system", "seeds", "F1", *units], rows)
