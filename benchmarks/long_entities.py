"""Which entities are found, by their length and by their depth: recall on whole documents of
locate_and_label_ner and of spancat, whose n-grams end somewhere.

python -m benchmarks.long_entities run corpus/litbank corpus/litbank_articles/test.spacy results/long --minutes 5 --seed 0 --seed 1
python -m benchmarks.long_entities report results/long

Every training gets the same CPU time on one thread. Thresholds are chosen on dev; documents are
predicted from raw text, without sentence boundaries. What the output has already is not trained
again.
"""  # noqa: E501

import itertools
from pathlib import Path
from typing import Annotated, Any, Dict, List, Tuple

import typer
from thinc.api import Config

from benchmarks import compare, tables
from benchmarks.harness import Data, results_of, train_tasks
from benchmarks.systems import known, shipped_cnn
from spacy_nested_ner.comparison.trainings import Task, better, examples_of, train
from spacy_nested_ner.evaluation.scores.entities import EntityTable
from spacy_nested_ner.evaluation.scores.fit_thresholds import scored_table
from spacy_nested_ner.evaluation.scores.metrics import grouped, strict
from spacy_nested_ner.training.budget import limit_time

app = typer.Typer(add_completion=False, help=__doc__)

SYSTEM = ["locate_and_label_ner"]
# First words of the groups, and depths.
LENGTHS, DEPTHS = (1, 3, 6, 10, 20), (1, 2, 3, 4)


@app.command()
def run(
    corpus: compare.Corpus,
    documents: Data,
    output: compare.Output,
    minutes: Annotated[float, typer.Option(help="CPU time of each training")] = 5.0,
    system: Annotated[List[str], typer.Option(help="Nested ones", callback=known)] = SYSTEM,
    ngrams: Annotated[List[int], typer.Option(help="Longest of each spancat")] = [8, 20],  # noqa: B006
    seed: compare.Seeds = [0],  # noqa: B006
) -> None:
    """Train what has no result in the output folder yet, and print the table."""
    settings: Dict[str, Any] = {"corpus": str(corpus), "documents": str(documents)}
    settings.update(minutes=minutes, cpu_clock=True)
    configs = {name: shipped_cnn(name) for name in system}
    for longest in ngrams:
        config = shipped_cnn("spancat")
        config["components"]["ner"]["suggester"]["max_size"] = longest
        configs[f"spancat, 1- to {longest}-grams"] = config
    tasks = []
    for number, (name, config) in itertools.product(seed, configs.items()):
        config["paths"].update({part: str(corpus / f"{part}.spacy") for part in ("train", "dev")})
        config["system"]["seed"] = number
        limit_time(config["training"], minutes, cpu_clock=True)
        file = f"{name.replace(', ', '_').replace(' ', '_')}_seed{number}.json"
        own = {**settings, "system": name, "seed": number}
        tasks.append(Task(own, output / file, config.to_str()))
    train_tasks(tasks, one)
    report(output)


def one(task: Task) -> Dict[str, Any]:
    """One training, and what it finds in the documents at the threshold that is best on dev."""
    training = train(Config().from_str(task.config, interpolate=False), task.folder)
    dev = Path(task.settings["corpus"]) / "dev.spacy"
    nlp, model, component, fit = better(task.folder, dev)
    gold = examples_of(nlp, Path(task.settings["documents"]))
    table = scored_table(nlp, nlp.get_pipe(component), gold, fit.threshold)
    found = {"model": model, "threshold_tuned": fit.threshold, **recall(table)}
    return {"training": training, "f1": strict(table).f or 0.0, **found}


def recall(table: EntityTable) -> Dict[str, Dict[str, Any]]:
    """Entities that are there and those that are found, by length and by depth."""
    groups = {
        "length": grouped(table, table.length, lambda words: group_of(words, LENGTHS)),
        "depth": grouped(table, table.depth, lambda depth: group_of(depth, DEPTHS)),
    }
    return {
        f"by_{what}": {name: {"gold": prf.gold, "right": prf.right} for name, prf in each.items()}
        for what, each in groups.items()
    }


def group_of(value: int, firsts: Tuple[int, ...]) -> str:
    """The group of a number, by the first numbers of all: "1-2", "3-5" and so on."""
    place = sum(first <= value for first in firsts) - 1
    low = firsts[place]
    if place == len(firsts) - 1:
        return f"{low} and more"
    high = firsts[place + 1] - 1
    return str(low) if low == high else f"{low}-{high}"


@app.command()
def report(output: Annotated[Path, typer.Argument(help="Folder of a run")]) -> None:
    """Print the results as a Markdown table."""
    typer.echo(tables.long_entities(results_of(output)))


if __name__ == "__main__":
    app()
