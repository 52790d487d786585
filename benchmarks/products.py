"""What the ways to compute layers save: CPU time of the encoder alone, of predictions and of training
steps, by that with another library.

- thinc: Thinc's own products (BLIS) and LayerNorms, in the layers of a CNN; those of the head stay
  as they are.
- mkl: torch's own. On a CPU of AMD this package multiplies with oneDNN; elsewhere these ratios are 1.

python -m benchmarks.products corpus/genia/dev.spacy --output results/products.json
python -m benchmarks.products DATA --transformer DIRECTORY_OR_HUB_NAME --batch-size 1 --batch-size 64
"""  # noqa: E501

import itertools
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Callable, Dict, List, Optional
from unittest import mock

import spacy
import typer

from benchmarks import tables
from benchmarks.harness import Data, Output, in_process, write_output
from benchmarks.passes import encoder_seconds, seconds, training_seconds
from benchmarks.systems import NESTED, Systems, read, untrained_system
from spacy_nested_ner.comparison.timing import in_turn, median_ratio
from spacy_nested_ner.encoders import by_torch
from spacy_nested_ner.layers import quick_products

BatchSizes = Annotated[List[int], typer.Option(help="Docs of a batch, repeat for several")]


def main(
    data: Data,
    system: Systems = NESTED,
    transformer: Annotated[
        Optional[str], typer.Option(help="Directory or hub name; a CNN without it")
    ] = None,
    limit: Annotated[int, typer.Option(help="First docs")] = 128,
    batch_size: BatchSizes = [24],  # noqa: B006
    repeats: int = 5,
    threads: int = 1,
    output: Output = None,
) -> None:
    """Print the ratios of each system: medians of pairs of runs in turn."""
    cells = []
    for name, size in itertools.product(system, batch_size):
        arguments = (name, data, transformer, limit, size, repeats)
        found = in_process(ratios, *arguments, threads=threads)
        cells.append({"system": name, "batch_size": size, **found})
    typer.echo(tables.measurements({"cells": cells}))
    write_output(output, {"threads": threads, "cells": cells})


def ratios(
    name: str, data: Path, transformer: Optional[str], limit: int, batch_size: int, repeats: int
) -> Dict[str, Any]:
    """The figures of a system, with random weights of the head."""
    docs = read(spacy.blank("en"), data, limit)
    nlp = untrained_system(name, docs, transformer)
    parts: Dict[str, Callable[[], float]] = {
        "encoder": lambda: encoder_seconds(nlp, docs, batch_size),
        "prediction": lambda: seconds(nlp, docs, batch_size),
        "training": lambda: training_seconds(nlp, docs, batch_size=batch_size),
    }
    others = {"mkl": without_one_dnn}
    if not transformer:
        others = {"thinc": by_thinc, **others}
    return {
        f"{part}_by_{library}": ratio(run, partial(other, run), repeats)
        for part, run in parts.items()
        for library, other in others.items()
    }


def ratio(run: Callable[[], float], other: Callable[[], float], repeats: int) -> float:
    """Time of a run, by that of the other one."""
    runs = {"run": run, "other": other}
    in_turn(runs, 1)
    times = in_turn(runs, repeats)
    return median_ratio(times["run"], times["other"])


def by_thinc(run: Callable[[], float]) -> float:
    """Time with Thinc's own layers."""
    with mock.patch.object(by_torch, "is_shared", lambda array: False):
        return run()


def without_one_dnn(run: Callable[[], float]) -> float:
    """Time with products as torch makes them by itself."""
    with mock.patch.object(quick_products, "is_quick", lambda: False):
        return run()


if __name__ == "__main__":
    typer.run(main)
