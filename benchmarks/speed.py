"""Has a system become slow? CPU time beside that of spancat with 1- to 8-grams in the same run,
both on a HashEmbedCNN from scratch; ends with code 1 where a system is over its limit.

python -m benchmarks.speed --output results/speed.json

The limits leave room for machines that differ. One is not raised without a reason in CHANGELOG.md.
"""

import random
from typing import Annotated, Any, Callable, Dict, List

import spacy
import typer
from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.training import Example
from spacy.util import fix_random_seed
from thinc.api import Adam

from benchmarks import tables
from benchmarks.harness import Output, Stopwatch, in_process, write_output
from benchmarks.systems import NESTED, Systems, hashed_cnn
from spacy_nested_ner.comparison.trainings import bare

WORDS = "the human IL-2 gene promoter binds NF-kappa B in T cells and US courts"
SPANCAT = {"@misc": "spacy.ngram_range_suggester.v1", "min_size": 1, "max_size": 8}
# How many times as long as spancat a system may take to predict and to learn.
LIMITS = {
    "piqn_ner": (1.3, 1.6),
    "locate_and_label_ner": (1.0, 1.7),
    "proposer_regressor_ner": (1.5, 2.2),
    "diffusion_ner": (2.0, 2.4),
}


def main(
    system: Systems = NESTED,
    docs: Annotated[int, typer.Option(help="To predict; half as many to learn from")] = 64,
    output: Output = None,
) -> None:
    """Print both ratios of each system; those without a limit cannot be over it."""
    cells = [{"system": name, **in_process(ratios, name, docs)} for name in system]
    typer.echo(tables.measurements({"cells": cells}))
    write_output(output, {"docs": docs, "cells": cells})
    if slow := [cell["system"] for cell in cells if is_slow(cell)]:
        typer.echo(f"Over the limit: {', '.join(slow)}", err=True)
        raise typer.Exit(1)


def is_slow(cell: Dict[str, Any]) -> bool:
    """Whether a measurement is over a limit of its system."""
    limits = LIMITS.get(cell["system"], (float("inf"), float("inf")))
    return cell["predicting"] >= limits[0] or cell["learning"] >= limits[1]


def ratios(name: str, n_docs: int) -> Dict[str, Any]:
    """CPU time of a system to predict and to learn, by that of spancat."""
    ours = pipeline(name, {"threshold": 1.0, "model": {"tok2vec": hashed_cnn()}})
    theirs = pipeline("spancat", {"threshold": 1.0, "suggester": SPANCAT})
    return {
        "predicting": ratio(*(predicts(nlp, n_docs) for nlp in (ours, theirs))),
        "learning": ratio(*(learns(nlp, n_docs // 2) for nlp in (ours, theirs))),
    }


def pipeline(factory: str, settings: Dict[str, Any]) -> Language:
    """One component with random weights."""
    fix_random_seed(0)
    nlp = spacy.blank("en")
    nlp.add_pipe(factory, config=settings)
    nlp.initialize(lambda: [Example(bare(nlp, doc), doc) for doc in references(nlp, 8)])
    return nlp


def references(nlp: Language, number: int) -> List[Doc]:
    """Docs of 5 to 45 words with two nested entities each."""
    chance, docs = random.Random(0), []
    for _ in range(number):
        doc = Doc(nlp.vocab, words=chance.choices(WORDS.split(), k=chance.randint(5, 45)))
        start = chance.randint(0, len(doc) - 4)
        doc.spans["sc"] = [
            Span(doc, start, start + 4, label="DNA"),
            Span(doc, start + 1, start + 2, label="protein"),
        ]
        docs.append(doc)
    return docs


def predicts(nlp: Language, number: int) -> Callable[[], None]:
    """A prediction of so many docs in one batch."""

    def run() -> None:
        list(nlp.pipe((bare(nlp, doc) for doc in references(nlp, number)), batch_size=number))

    return run


def learns(nlp: Language, number: int) -> Callable[[], None]:
    """A training step on so many docs."""
    optimizer, docs = Adam(0.001), references(nlp, number)

    def run() -> None:
        nlp.update([Example(bare(nlp, doc), doc) for doc in docs], sgd=optimizer)

    return run


def ratio(ours: Callable[[], None], theirs: Callable[[], None]) -> float:
    """Least CPU time of ours by least of theirs, in turn."""
    least = [float("inf"), float("inf")]
    for _ in range(4):
        for i, run in enumerate((ours, theirs)):
            with Stopwatch() as watch:
                run()
            least[i] = min(least[i], watch.cpu)
    return least[0] / least[1]


if __name__ == "__main__":
    typer.run(main)
