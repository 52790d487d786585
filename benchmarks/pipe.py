"""What `nlp.pipe` costs beside encoder and head: its rate over many sentences, by that of a bare loop
that only calls the model of the component on the same batches.

python -m benchmarks.pipe training/genia_locate_and_label_cnn/model-best corpus/genia/train.spacy --sentences 20000 --output results/pipe.json
"""  # noqa: E501

import itertools
import statistics
from pathlib import Path
from typing import Annotated, Any, Dict, List

import numpy as np
import spacy
import typer
from spacy.language import Language
from spacy.tokens import Doc
from spacy.util import minibatch

from benchmarks import tables
from benchmarks.harness import Data, Output, Stopwatch, in_process, write_output
from benchmarks.passes import seconds
from benchmarks.systems import NESTED, SYSTEMS, known, only_pipe, read, untrained_system
from spacy_nested_ner.comparison.timing import in_turn, median_ratio
from spacy_nested_ner.comparison.trainings import bare
from spacy_nested_ner.model.types import HeadInput
from spacy_nested_ner.pipeline.component import NestedNER


def main(
    data: Data,
    model: Annotated[List[str], typer.Option(help="Trained pipelines; repeat for several")] = [],  # noqa: B006
    system: Annotated[
        List[str], typer.Option(help="Or systems with random weights", callback=known)
    ] = NESTED,
    sentences: Annotated[int, typer.Option(help="The docs again and again, up to so many")] = 20000,
    batch_size: int = 64,
    repeats: int = 1,
    threads: int = 1,
    output: Output = None,
) -> None:
    """Print the share of each pipeline: the median of runs in turn."""
    what: Dict[str, Any] = {"sentences": sentences, "batch_size": batch_size, "repeats": repeats}
    cells = [
        {"system": name, **in_process(share, name, data, what, threads=threads)}
        for name in model or system
    ]
    typer.echo(tables.measurements({"cells": cells}))
    write_output(output, {**what, "threads": threads, "cells": cells})


def share(name: str, data: Path, what: Dict[str, Any]) -> Dict[str, Any]:
    """The figures of a pipeline."""
    docs = read(spacy.blank("en"), data, what["sentences"])
    nlp = untrained_system(name, docs[:64]) if name in SYSTEMS else spacy.load(name)
    pipe = only_pipe(nlp, lambda _, found: isinstance(found, NestedNER), "of this package")
    many = list(itertools.islice(itertools.cycle(docs), what["sentences"]))
    seconds(nlp, docs[:256], what["batch_size"])  # makes what is made once
    size = what["batch_size"]
    runs = {
        "whole": lambda: seconds(nlp, many, size),
        "bare": lambda: bare_seconds(nlp, pipe, many, size),
    }
    times = in_turn(runs, what["repeats"])
    return {
        "pipe_rate": median_ratio(times["bare"], times["whole"]),
        "sentences_per_second": len(many) / statistics.median(times["whole"]),
    }


def bare_seconds(nlp: Language, pipe: NestedNER, docs: List[Doc], batch_size: int) -> float:
    """CPU time of the model of a component on fresh copies of the docs, each one segment."""
    fresh, options = [bare(nlp, doc) for doc in docs], pipe.options()
    with Stopwatch() as watch:
        for batch in minibatch(fresh, batch_size):
            rows = np.array([(i, 0, len(doc)) for i, doc in enumerate(batch)])
            pipe.model.predict(HeadInput(batch, rows, options=options))
    return watch.used


if __name__ == "__main__":
    typer.run(main)
