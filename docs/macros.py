"""What the pages ask for in `{{ ... }}`: tables of settings from the dataclasses, tables of figures
from the JSON files in `benchmarks/results`. A number in a sentence is one of a table."""

import base64
import html
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any, Dict, List, Sequence, Type

from typer import Context
from typer.cli import get_docs_for_click
from typer.main import get_command

from benchmarks import tables
from spacy_nested_ner.cli import nested_ner_cli
from spacy_nested_ner.comparison import tables as trainings
from spacy_nested_ner.encoders.hybrid_encoder import HybridEncoderSettings
from spacy_nested_ner.encoders.pair_encoder import PairEncoderSettings
from spacy_nested_ner.encoders.query_encoder import QueryEncoderSettings
from spacy_nested_ner.encoders.sorted_transformer import SortedTransformerSettings
from spacy_nested_ner.pipeline.settings import PipeSettings
from spacy_nested_ner.settings import Settings, defaults_of, describe, type_hints
from spacy_nested_ner.systems import all_systems, get_system

ROOT = Path(__file__).parents[1]
RESULTS = "benchmarks/results"
ABOUT_A_TEST = ("test", "python")  # of a stress test: not figures
ENCODERS: Dict[str, Type[Settings]] = {
    "HybridEncoder": HybridEncoderSettings,
    "PairEncoder": PairEncoderSettings,
    "QueryEncoder": QueryEncoderSettings,
    "SortedTransformer": SortedTransformerSettings,
}


def settings_table(name: str) -> str:
    """Settings of the model of a system."""
    return described(get_system(name).settings)


def options_table(name: str) -> str:
    """Run-time options of a system."""
    return described(get_system(name).options)


def component_table() -> str:
    """Settings that all components share."""
    return described(PipeSettings)


def encoder_table(name: str) -> str:
    """Settings of an encoder, by the name of its architecture without prefix and version."""
    return described(ENCODERS[name])


def systems_table() -> str:
    """Factory, architecture and paper of each system."""
    rows = [
        [f"[`{each.factory}`]({each.factory}.md)", f"`{each.registered}`", each.title]
        for each in all_systems()
    ]
    return tables.markdown(["factory", "architecture", "paper"], rows)


def described(settings: Type[Settings]) -> str:
    """A row for each setting of a class."""
    hints, known = type_hints(settings), describe(settings)
    rows = []
    for name, default in defaults_of(settings).items():
        rows.append(
            [
                f"`{name}`",
                f"`{json.dumps(default)}`",
                known[name].expected(hints[name]),
                known[name].meaning,
                known[name].source,
            ]
        )
    with_source = any(row[-1] for row in rows)
    header = ["setting", "default", "values", "meaning", "source"]
    if not with_source:
        header, rows = header[:-1], [row[:-1] for row in rows]
    return tables.markdown(header, [[escaped(cell) for cell in row] for row in rows])


def escaped(text: str) -> str:
    """For a cell of a table."""
    return text.replace("|", "\\|").replace("*", "\\*")


def comparison(folder: str) -> str:
    """The trainings in a folder of results, and the commands that made them."""
    results = tables.results_in(ROOT / RESULTS / folder)
    parts = [trainings.each_training(results), trainings.over_seeds(results)]
    if found := tables.differences(results):
        each = ", ".join(f"`{name}` {difference}" for name, difference in found.items())
        parts.append(f"Minus `spancat` of the same seed, F1 at the threshold of dev: {each}.")
    commands = list(dict.fromkeys(result["command"] for result in results))
    commands.append(f"-m benchmarks.compare report {RESULTS}/{folder}")
    parts += [machine(results), shell(commands)]
    return "\n\n".join(part for part in parts if part)


def best_systems(*folders: str) -> str:
    """Which system is best in which time, over several folders of results."""
    paths = [ROOT / RESULTS / folder for folder in folders]
    table = tables.best_systems(each for path in paths for each in tables.results_in(path))
    command = f"-m benchmarks.compare report {' '.join(f'{RESULTS}/{each}' for each in folders)}"
    return f"{table}\n\n{shell([command])}"


def init_trials(*folders: str) -> str:
    """What the config of `init` reaches beside that of spaCy for `spancat`, and the commands."""
    found = {Path(each).name: tables.results_in(ROOT / RESULTS / each) for each in folders}
    return with_commands(tables.init_trials(found), flat(found))


def training_length(folder: str) -> str:
    """F1 by the number of sentences and of passes over them, and the commands."""
    found = trials(folder)
    return with_commands(tables.training_length(found), flat(found))


def trials(folder: str) -> Dict[str, List[Dict[str, Any]]]:
    """The results in each folder of a folder of results."""
    return tables.results_of_trials(ROOT / RESULTS / folder)


def flat(found: Dict[str, List[Dict[str, Any]]]) -> List[Dict[str, Any]]:
    """The results of all folders."""
    return [result for each in found.values() for result in each]


def picking(folder: str) -> str:
    """Picked sentences beside random ones, and the commands that trained on them."""
    result = read(folder, "picking.json")
    return with_commands(tables.picking(result["cells"]), result["runs"])


def teaching(folder: str) -> str:
    """What plain text is worth beside gold, and the commands that trained on it."""
    results = tables.results_in(ROOT / RESULTS / folder)
    return with_commands(tables.teaching(results), results)


def long_entities(folder: str) -> str:
    """Which entities are found, by length and depth, and the commands that measured it."""
    results = tables.results_in(ROOT / RESULTS / folder)
    return with_commands(tables.long_entities(results), results)


def small_data(folder: str, tuned: bool = True) -> str:
    """F1 by the number of sentences, and the commands that measured it: these only below the table
    at tuned thresholds, as both tables come from the same trainings."""
    found = trials(folder)
    shown = tables.small_data(found, tuned)
    if differences := tables.few_differences(found, tuned):
        shown = f"{shown}\n\nMinus `spancat` on the same draws:\n\n{differences}"
    if not tuned:
        return shown
    results = flat(found)
    commands = tables.joined([result["command"] for result in results], f"results/{folder}")
    return with_commands(shown, results, commands)


def frozen_layers(folder: str) -> str:
    """F1 by the number of layers that do not learn, and the commands that measured it."""
    paths = sorted((ROOT / RESULTS / folder).iterdir())
    found = [result for path in paths for result in flat(trials(f"{folder}/{path.name}"))]
    return with_commands(tables.frozen_layers(found), found)


def growth(folder: str, axis: str) -> str:
    """How time and memory grow along an axis."""
    return tables.growth(read(folder, "growth.json")["cells"], axis)


def growth_commands(folder: str) -> str:
    """What made the tables of growth."""
    runs = read(folder, "growth.json")["runs"]
    commands = dict.fromkeys(run["command"] for run in runs)
    return "\n\n".join(
        [machine(runs), shell([*commands, f"-m benchmarks.growth report {RESULTS}/{folder}"])]
    )


def shares(folder: str, what: str) -> str:
    """Where the time goes, in "prediction" or "training"."""
    return tables.shares(read(folder, "shares.json")["systems"], what)


def shares_command(folder: str) -> str:
    """What made the tables of shares."""
    result = read(folder, "shares.json")
    return f"{machine([result])}\n\n{shell([result['command']])}"


def cells(folder: str, file: str) -> str:
    """The measurements of a file one below the other, and the command that made them."""
    result = read(folder, file)
    return with_commands(tables.measurements(result), [result])


def by_batch(folder: str, file: str, *figures: str) -> str:
    """Measurements at several batch sizes side by side, and the command that made them."""
    result = read(folder, file)
    cells = list(result["cells"].values())
    return with_commands(tables.by_batch(cells, *figures), result["runs"])


def tests_of(folder: str, *files: str) -> str:
    """How many tests pass, room by room, and the commands that ran them."""
    results = [read(folder, file) for file in files]
    rooms = {name: room for result in results for name, room in result["rooms"].items()}
    return with_commands(tables.rooms(rooms), [run for each in results for run in each["runs"]])


def compressed(folder: str, file: str) -> str:
    """F1 and size of a pipeline with int8 weights beside those it had before."""
    result = read(folder, file)
    rows = [
        [kind, f"{result['f1'][kind]:.2f}", f"{result['megabytes'][kind]:.1f}"]
        for kind in ("float32", "int8")
    ]
    return tables.markdown(["weights", "F1", "MB on disk"], rows)


def ablation(folder: str, file: str) -> str:
    """The variants of a system, and the command that measured them."""
    result = read(folder, file)
    return with_commands(tables.ablation(result["variants"]), result["runs"])


def ablation_of_seeds(folder: str) -> str:
    """Means of the variants in the files of a folder, a file a seed, and the commands."""
    results = [read(folder, path.name) for path in sorted((ROOT / RESULTS / folder).glob("*.json"))]
    table = tables.ablation_of_seeds([result["variants"] for result in results])
    return with_commands(table, [run for result in results for run in result["runs"]])


def without_training(folder: str, file: str) -> str:
    """Labels that were not trained, and the command that measured them."""
    result = read(folder, file)
    return with_commands(tables.without_training(result["labels"]), [result])


def stress(*tests: str) -> str:
    """The figures of stress tests, named by their result files without ".json", and the command
    that wrote them. A name that ends in "*" stands for all files that begin so."""
    folder = ROOT / RESULTS / "stress"
    files = [path for test in tests for path in sorted(folder.glob(f"{test}.json"))]
    if not files:
        raise ValueError(f"no result of a stress test in {folder} is called {' or '.join(tests)}.")
    results = [json.loads(path.read_text("utf8")) for path in files]
    common = tests[0].rstrip("*") if len(tests) == 1 else ""
    shown = {
        path.stem.removeprefix(common) or path.stem: {
            name: value for name, value in result.items() if name not in ABOUT_A_TEST
        }
        for path, result in zip(files, results)
    }
    minutes = math.ceil(sum(result["seconds"] for result in results) / 60)
    names = " ".join(dict.fromkeys(result["test"].partition("[")[0] for result in results))
    command = f"-m pytest {names} --budget {minutes} --results {RESULTS}/stress"
    return f"{tables.stress(shown)}\n\n{shell([command])}"


def stress_by_format(test: str) -> str:
    """The figures of a stress test for each corpus format."""
    return tables.by_format(read("stress", f"{test}.json")["formats"])


def annotation(file: str) -> str:
    """The ways to annotate many documents, and the commands that measured them."""
    result = read("annotate", file)
    return with_commands(tables.annotation(result["cells"]), result["runs"])


def plan(sentences: float, words: int) -> str:
    """What a corpus of so many sentences of so many words costs, by the measured rates."""
    return tables.plan(sentences, words, read("annotate", "sizing.json")["cells"])


def output_plan(sentences: float) -> str:
    """Size of the output of so many sentences, from that of those that were measured."""
    cell = read("annotate", "speed.json")["cells"]["one, 1"]
    each = cell["output_mib"] * 2**20 / cell["sentences"]
    return (
        f"The output of {cell['sentences']:,} sentences had {cell['output_mib']:.1f} MiB, "
        f"{each:.0f} bytes each: {each * sentences / 2**30:.0f} GiB in all, without `details`."
    )


def image(path: str, text: str) -> str:
    """A picture of the repository, as part of the page."""
    data = base64.b64encode((ROOT / path).read_bytes()).decode("ascii")
    return f'<img alt="{html.escape(text)}" src="data:image/svg+xml;base64,{data}">'


def drawn(notebook: str) -> str:
    """The first drawing of entities in the output of a notebook."""
    cells = json.loads((ROOT / "docs" / "notebooks" / notebook).read_text("utf8"))["cells"]
    shown = (each.get("data", {}) for cell in cells for each in cell.get("outputs", []))
    pages = ("".join(data.get("text/html", [])) for data in shown)
    return next(page for page in pages if 'class="spans"' in page)


def command_line() -> str:
    """All commands with their arguments and options, as typer describes them."""
    command = get_command(nested_ner_cli)
    name = "python -m spacy nested-ner"
    text = get_docs_for_click(obj=command, ctx=Context(command), name=name)
    lines = [line for line in text.splitlines() if "-completion`" not in line]
    return "\n".join(lines)


def read(folder: str, file: str) -> Dict[str, Any]:
    """A file of results."""
    return json.loads((ROOT / RESULTS / folder / file).read_text("utf8"))


def with_commands(
    shown: str, results: Sequence[Dict[str, Any]], commands: Sequence[str] = ()
) -> str:
    """A table, where its figures come from, and the commands that measured them: those of the
    results, unless others are given."""
    commands = commands or [*dict.fromkeys(result["command"] for result in results)]
    return "\n\n".join([shown, machine(results), shell(commands)])


def machine(results: Sequence[Dict[str, Any]]) -> str:
    """Where the figures come from; of several places, how many from each."""
    places = Counter(map(_place, results))
    if len(places) == 1:
        return next(iter(places))
    return "\n".join(f"- {count} of {len(results)}: {place}" for place, count in places.items())


def _place(result: Dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    code = f"; {result['date']}, commit {result['commit']}" if "commit" in result else ""
    return f"{result['machine']}; {versions}{code}."


def shell(commands: Sequence[str]) -> str:
    """A block of commands, as they are typed today."""
    typed = [f"python {tables.runnable(command)}" for command in commands]
    return "\n".join(["```bash", *typed, "```"])


def define_env(env: Any) -> None:
    """Called by mkdocs-macros."""
    for macro in (
        settings_table,
        options_table,
        component_table,
        encoder_table,
        systems_table,
        comparison,
        best_systems,
        init_trials,
        training_length,
        picking,
        teaching,
        long_entities,
        frozen_layers,
        small_data,
        growth,
        growth_commands,
        shares,
        shares_command,
        cells,
        by_batch,
        tests_of,
        ablation,
        ablation_of_seeds,
        compressed,
        without_training,
        stress,
        stress_by_format,
        annotation,
        plan,
        output_plan,
        image,
        command_line,
        drawn,
    ):
        env.macro(macro)
