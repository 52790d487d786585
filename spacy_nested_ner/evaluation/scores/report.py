"""All numbers of one pipeline on one data set, and of several beside each other."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any, Dict, Iterable, Iterator, Optional, Sequence, Set, Tuple, TypeVar

from spacy.tokens import Doc

from spacy_nested_ner.evaluation.scores.bootstrap import LEVEL, bootstrap, unit_counts
from spacy_nested_ner.evaluation.scores.calibration import calibration, precision_at_coverage
from spacy_nested_ner.evaluation.scores.entities import EntityTable
from spacy_nested_ner.evaluation.scores.errors import errors
from spacy_nested_ner.evaluation.scores.metrics import (
    PRF,
    by_crowd,
    by_depth,
    by_label,
    by_length,
    by_nesting,
    classification,
    localisation,
    macro,
    partial,
    strict,
    type_only,
)

WARM_UP = 2

Given = TypeVar("Given")


@dataclass(frozen=True)
class Run:
    """A pipeline's predictions on the examples whose reference is annotated.

    skipped: examples left out because their reference is not. seconds: spent on prediction, without
    tokenisation. words: tokens that were predicted on.
    """

    table: EntityTable
    skipped: int
    seconds: float
    words: int


class Stopwatch:
    """Counts seconds."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def timed(self, docs: Iterable[Doc]) -> Iterator[Doc]:
        """Counts the time that the docs take to come, not what is done with them."""
        begin = perf_counter()
        for doc in docs:
            self.seconds += perf_counter() - begin
            yield doc
            begin = perf_counter()


def each_with(given: Sequence[Given], docs: Iterable[Doc]) -> Iterator[Tuple[Given, Doc]]:
    """What the docs were predicted for, with each of them.

    RAISES (ValueError): If there are fewer docs, or more.
    """
    number = 0
    for number, doc in enumerate(docs, start=1):
        if number <= len(given):
            yield given[number - 1], doc
    if number != len(given):
        raise ValueError(
            f"The pipeline is given {len(given)} docs and returns {number}: a component drops "
            "docs, or adds some."
        )


def check_text(reference: Doc, predicted: Doc) -> None:
    """Raise ValueError if the texts differ in more than whitespace."""
    if reference.text == predicted.text:
        return
    if "".join(reference.text.split()) != "".join(predicted.text.split()):
        raise ValueError(
            f"The predicted text {predicted.text[:40]!r} is not the text of the data "
            f"{reference.text[:40]!r}: a component of the pipeline has changed it, or drops docs. "
            "Entities can only be compared on the same text."
        )


def no_predictions(
    keys: Set[str],
    spans_key: str,
    nothing: str = "The pipeline predicts nothing",
    uses: str = "it uses",
) -> str:
    """What to say where no doc has spans of the key, with the keys that are used."""
    used = ", ".join(map(repr, sorted(keys))) or "none"
    return (
        f"{nothing} under spans key {spans_key!r}; {uses}: {used}. Choose the key with "
        "--spans-key; gold and predictions are read from the same one."
    )


def scores(run: Run) -> Dict[str, Any]:
    """All numbers of one pipeline, ready for JSON. docs/guide/evaluation.md explains them."""
    table = run.table
    labels = by_label(table)
    return {
        "strict": {
            "micro": strict(table).to_dict(),
            "macro": macro(list(labels.values())),
            "by_label": _dicts(labels),
            "by_length": _dicts(by_length(table)),
            "by_depth": _dicts(by_depth(table)),
            "by_nesting": _dicts(by_nesting(table)),
            "by_entities_in_sentence": _dicts(by_crowd(table)),
        },
        "localisation": localisation(table).to_dict(),
        "classification": classification(table).to_dict(),
        "partial": partial(table).to_dict(),
        "type": type_only(table).to_dict(),
        "errors": errors(table),
        "misaligned_predictions": int((table.predicted & ~table.fits).sum()),
        "calibration": calibration(table),
        "precision_at_coverage": precision_at_coverage(table),
        "speed": {
            "words": run.words,
            "seconds": run.seconds,
            "words_per_second": run.words / run.seconds if run.seconds else None,
        },
    }


def data_facts(run: Run) -> Dict[str, int]:
    """What the data holds."""
    table = run.table
    return {
        "documents": table.docs,
        "sentences": table.sentences,
        "words": table.words,
        "entities": int(table.gold.sum()),
        "documents_without_annotation": run.skipped,
    }


def compare_runs(
    runs: Sequence[Run], samples: int = 1000, seed: int = 0
) -> Optional[Dict[str, Any]]:
    """Bootstrap intervals of each run and of the differences of all pairs, see `bootstrap`, and how
    many "texts" or "docs" were drawn from. None for data of one doc.

    RAISES (ValueError): If the runs are not on the same data.
    """
    if any(not _same_gold(runs[0].table, run.table) for run in runs[1:]):
        raise ValueError("The pipelines have not been run on the same gold entities.")
    if runs[0].table.docs < 2 or not samples:
        return None
    counts = [unit_counts(run.table) for run in runs]
    drawn = bootstrap(counts, samples, seed)
    drawn["by_label"] = [
        dict(zip(run.table.labels, each)) for run, each in zip(runs, drawn["by_label"])
    ]
    units = len(counts[0])
    drawn_from = {"texts" if units < runs[0].table.docs else "docs": units}
    return {"samples": samples, "seed": seed, "level": LEVEL, "drawn": drawn_from, **drawn}


def _same_gold(a: EntityTable, b: EntityTable) -> bool:
    def gold(table: EntityTable) -> set:
        columns = (table.doc, table.start, table.end, table.label)
        rows = zip(*(column[table.gold].tolist() for column in columns))
        return {(doc, start, end, table.labels[label]) for doc, start, end, label in rows}

    return a.docs == b.docs and gold(a) == gold(b)


def _dicts(groups: Dict[str, PRF]) -> Dict[str, Dict[str, Optional[float]]]:
    return {name: score.to_dict() for name, score in groups.items()}
