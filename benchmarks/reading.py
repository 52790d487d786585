"""What a pass over a corpus costs: reading it with spaCy's reader, with that of the shipped configs
when it is new and when it is kept, and learning from it once.

python -m benchmarks.reading corpus/genia/train.spacy --output results/reading.json
"""

from pathlib import Path
from typing import Any, Callable, Dict, List

import spacy
import typer
from spacy.language import Language
from spacy.training import Corpus, Example

from benchmarks import tables
from benchmarks.harness import Data, Output, Stopwatch, in_process, write_output
from benchmarks.passes import training_seconds
from benchmarks.systems import untrained_system
from spacy_nested_ner.training.corpus import KeptCorpus


def main(
    data: Data,
    system: str = "locate_and_label_ner",
    limit: int = 0,
    batch_size: int = 24,
    threads: int = 1,
    output: Output = None,
) -> None:
    """Print CPU seconds; those of learning are of the shipped CNN config."""
    cells = in_process(passes, data, system, limit, batch_size, threads=threads)
    typer.echo(tables.measurements({"cells": cells}))
    write_output(output, {"system": system, "threads": threads, "cells": cells})


def passes(data: Path, system: str, limit: int, batch_size: int) -> List[Dict[str, Any]]:
    """CPU seconds of each kind of pass."""
    nlp = spacy.blank("en")
    theirs, kept = Corpus(data, limit=limit), KeptCorpus(data, limit=limit)
    examples: List[Example] = []

    def learn() -> float:
        docs = [example.reference for example in examples]
        return training_seconds(untrained_system(system, docs[:64]), docs, batch_size=batch_size)

    runs: Dict[str, Callable[[], float]] = {
        "`spacy.Corpus.v1`, every pass": lambda: seconds_of(theirs, nlp, examples),
        "`spacy_nested_ner.Corpus.v1`, first pass": lambda: seconds_of(kept, nlp, examples),
        "`spacy_nested_ner.Corpus.v1`, further passes": lambda: seconds_of(kept, nlp, examples),
        f"learning from them once, `{system}`": learn,
    }
    return [{"what": what, "seconds": run(), "docs": len(examples)} for what, run in runs.items()]


def seconds_of(corpus: Corpus, nlp: Language, examples: List[Example]) -> float:
    """Of a pass, which leaves its examples."""
    with Stopwatch() as watch:
        examples[:] = corpus(nlp)
    return watch.cpu


if __name__ == "__main__":
    typer.run(main)
