"""How long is long enough? F1 by the number of training sentences and of passes over them, which is
what the rule of `nested-ner init` rests on.

python -m benchmarks.training_length run corpus/genia results/length --sentences 60 --sentences 250 --passes 30 --passes 60 --passes 120
python -m benchmarks.training_length report results/length

What the output has already is not trained again.
"""  # noqa: E501

import itertools
from pathlib import Path
from typing import Annotated, Any, Dict, List

import spacy
import typer
from spacy import util

from benchmarks import compare, tables
from benchmarks.systems import System, check_number, read, shipped_cnn

app = typer.Typer(add_completion=False, help=__doc__)


@app.command()
def run(
    corpus: compare.Corpus,
    output: compare.Output,
    sentences: Annotated[
        List[int], typer.Option(min=1, help="First training docs; repeat for several")
    ],
    passes: Annotated[List[int], typer.Option(min=1, help="Over them; repeat for several")],
    system: System = "locate_and_label_ner",
    dev_limit: compare.DevLimit = 200,
    test_limit: compare.TestLimit = 0,
    seed: compare.Seeds = [0],  # noqa: B006
) -> None:
    """Train what has no result in the output folder yet, and print the table."""
    settings: Dict[str, Any] = {**compare.BY_STEPS, "corpus": corpus, "system": [system]}
    settings.update(seed=seed, dev_limit=dev_limit, test_limit=test_limit)
    config = shipped_cnn(system)
    batcher = util.registry.resolve({"batcher": config["training"]["batcher"]})["batcher"]
    docs = read(spacy.blank("en"), corpus / "train.spacy", 0)
    check_number(max(sentences), docs, corpus)
    for n, number in itertools.product(sentences, passes):
        steps = number * sum(1 for _ in batcher(docs[:n]))
        settings.update(output=output / f"{n}_sentences_{number}_passes", train_limit=n)
        compare.train_all({**settings, "steps": steps, "eval_frequency": max(1, steps // 4)})
    report(output)


@app.command()
def report(output: Annotated[Path, typer.Argument(help="Folder of a run")]) -> None:
    """Print the results as a Markdown table."""
    typer.echo(tables.training_length(compare.results_of_trials(output, "*_passes")))


if __name__ == "__main__":
    app()
