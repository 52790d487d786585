"""What products by torch save where a CNN reads the words: CPU time with them, by that with Thinc's
own (BLIS), of the CNN alone, of predictions and of training steps.

python -m benchmarks.products corpus/genia/dev.spacy --output results/products.json
"""

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Callable, Dict, List

import spacy
import typer
from spacy.language import Language
from thinc.api import NumpyOps

from benchmarks import tables
from benchmarks.harness import Data, Output, in_process, write_output
from benchmarks.passes import encoder_seconds, seconds, training_seconds
from benchmarks.systems import NESTED, read, untrained_system
from spacy_nested_ner.comparison.timing import in_turn, median_ratio
from spacy_nested_ner.encoders.products import TorchProducts

OPERATIONS = {"blis": NumpyOps(), "torch": TorchProducts()}


def main(
    data: Data,
    system: Annotated[List[str], typer.Option(help="Repeat for several")] = NESTED,
    limit: Annotated[int, typer.Option(help="First docs")] = 128,
    batch_size: Annotated[int, typer.Option(help="Docs of a batch")] = 24,
    repeats: int = 5,
    threads: int = 1,
    output: Output = None,
) -> None:
    """Print the ratios of each system: medians of pairs of runs in turn."""
    arguments = (data, limit, batch_size, repeats)
    cells = [
        {"system": name, **in_process(ratios, name, *arguments, threads=threads)} for name in system
    ]
    typer.echo(tables.measurements({"cells": cells}))
    write_output(output, {"batch_size": batch_size, "threads": threads, "cells": cells})


def ratios(name: str, data: Path, limit: int, batch_size: int, repeats: int) -> Dict[str, Any]:
    """The figures of a system, with random weights."""
    docs = read(spacy.blank("en"), data, limit)
    nlp = untrained_system(name, docs)
    parts: Dict[str, Callable[[], float]] = {
        "encoder_by_blis": lambda: encoder_seconds(nlp, docs, batch_size),
        "prediction_by_blis": lambda: seconds(nlp, docs, batch_size),
        "training_by_blis": lambda: training_seconds(nlp, docs, batch_size=batch_size),
    }
    return {part: ratio(nlp, run, repeats) for part, run in parts.items()}


def ratio(nlp: Language, run: Callable[[], float], repeats: int) -> float:
    """Time with products by torch, by that with those of Thinc."""
    pipe: Any = nlp.get_pipe("ner")

    def run_with(operations: NumpyOps) -> float:
        for node in pipe.model.walk():
            node.ops = operations
        return run()

    runs = {name: partial(run_with, operations) for name, operations in OPERATIONS.items()}
    in_turn(runs, 1)
    times = in_turn(runs, repeats)
    return median_ratio(times["torch"], times["blis"])


if __name__ == "__main__":
    typer.run(main)
