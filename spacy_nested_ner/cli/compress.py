"""`nested-ner compress`: a trained pipeline with int8 weights, for CPUs."""

# No `from __future__ import annotations`: typer reads the annotations at run time.

import re
import statistics
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Dict, List, Optional, Tuple

import typer
from wasabi import msg

from spacy_nested_ner.cli.options import CodeOpt, ModelArg
from spacy_nested_ner.cli.output import check_replaced, failing, print_table, warn_of
from spacy_nested_ner.cli.pipelines import (
    as_examples,
    load_pipeline,
    not_gold,
    read_as_one,
    read_examples,
    read_gold,
)

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.training import Example

BATCH_SIZES = (1, 8, 64)
# Docs that are timed at each batch size, and how often.
TIMED_DOCS = {1: 32, 8: 64, 64: 128}
REPEATS = 3

OutputArg = Annotated[
    Path, typer.Argument(metavar="OUTPUT", help="Folder for the compressed pipeline; not MODEL")
]
CheckOpt = Annotated[
    Optional[Path],
    typer.Option(
        "--check",
        metavar="DATA",
        help="Before saving, compare F and speed with MODEL on this gold data, .spacy file or "
        "folder",
    ),
]
ToleranceOpt = Annotated[
    float,
    typer.Option(
        min=0.0, help="Largest loss of F on DATA, in points; beyond that nothing is saved"
    ),
]


def compress_cli(
    model: ModelArg,
    output_path: OutputArg,
    check_path: CheckOpt = None,
    tolerance: ToleranceOpt = 0.3,
    code: CodeOpt = None,
) -> None:
    """Round the weights of pretrained encoders to int8: smaller, and faster on CPUs.

    The compressed pipeline is used like any other, but cannot be trained further.
    """
    from spacy_nested_ner.corpora.docbin import check_data
    from spacy_nested_ner.files import written_folder
    from spacy_nested_ner.pipeline.compress import compress

    with failing("Cannot compress."):
        if output_path.resolve() == Path(model).resolve():
            raise ValueError(f"{output_path} is MODEL, which is needed for further training.")
        check_replaced(output_path, "meta.json", Path(model), check_path)
        if check_path is not None:
            check_data(check_path)
            warn_of(read_as_one(check_path))
        nlp = load_pipeline(model)
        try:
            names = compress(nlp)
        except ValueError as err:
            raise ValueError(f"{model}: {str(err).removesuffix('.')}.") from err
        with written_folder(output_path, marker="meta.json") as draft:
            nlp.to_disk(draft)
            if check_path is not None:
                report = compare(load_pipeline(model), load_pipeline(str(draft)), check_path)
                print_report(report)
                check(report, tolerance)
    msg.good(f"int8 weights in {', '.join(map(repr, names))}. Pipeline:")
    typer.echo(str(output_path.resolve()))


def compare(before: "Language", after: "Language", data_path: Path) -> Dict[str, Any]:
    """Scores in percent, and docs per second by batch size, of both pipelines.

    Raises ValueError if the data cannot be read or hold nothing that the pipelines are scored by.
    """
    docs = read_gold(before, data_path)
    warn_of(not_gold(docs, data_path, {key for doc in docs for key in doc.spans}))
    pipelines = {"before": before, "after": after}
    scores = {}
    for which, nlp in pipelines.items():
        found = nlp.evaluate(read_examples(nlp, data_path))
        scores[which] = {
            name: 100 * value
            for name, value in found.items()
            if re.fullmatch(r"nested_f|spans_.+_f|ents_f", name) and value is not None
        }
    if not scores["before"]:
        raise ValueError(f"{data_path} has no gold entities to compare the pipelines by.")
    return {"scores": scores, "speed": _speed(pipelines, as_examples(before, docs, data_path))}


def _speed(pipelines: "Dict[str, Language]", examples: "List[Example]") -> List[Dict[str, Any]]:
    """Medians of runs in turn, by the clock on the wall."""
    from spacy_nested_ner.comparison.timing import in_turn, median_ratio

    rows = []
    for size in BATCH_SIZES:
        texts = [eg.reference.text for eg in examples[: TIMED_DOCS[size]]]
        runs = {which: partial(_rate, nlp, texts, size) for which, nlp in pipelines.items()}
        in_turn(runs, 1)
        rates = in_turn(runs, REPEATS)
        medians = {which: statistics.median(values) for which, values in rates.items()}
        ratio = median_ratio(rates["after"], rates["before"])
        rows.append({"batch_size": size, **medians, "ratio": ratio})
    return rows


def _rate(nlp: "Language", texts: List[str], batch_size: int) -> float:
    """Docs per second."""
    begin = time.perf_counter()
    for _ in nlp.pipe(texts, batch_size=batch_size):
        pass
    return len(texts) / (time.perf_counter() - begin)


def print_report(report: Dict[str, Any]) -> None:
    """Scores and speed, before and after."""
    rows: List[Tuple[str, ...]] = []
    for name, before in report["scores"]["before"].items():
        rows.append((name, f"{before:.2f}", f"{_after(report, name):.2f}"))
    for row in report["speed"]:
        rates = (f"{row[which]:.1f}" for which in ("before", "after"))
        rows.append((f"docs/s, batch {row['batch_size']} ({row['ratio']:.2f} times)", *rates))
    print_table(rows, ("", "before", "after"))


def check(report: Dict[str, Any], tolerance: float) -> None:
    """Warn where it is no faster. Raises ValueError if a score loses more than the tolerance, or if
    none is above 0."""
    slow = [str(row["batch_size"]) for row in report["speed"] if row["ratio"] < 1]
    if slow:
        msg.warn(f"On this machine int8 is not faster at batch size {', '.join(slow)}.")
    if not any(report["scores"]["before"].values()):
        raise ValueError(
            "The pipeline finds no right entity in DATA, so the check cannot show a loss. Use "
            "data with the labels of the pipeline. Nothing is written."
        )
    for name, before in report["scores"]["before"].items():
        after = _after(report, name)
        if before - after > tolerance:
            raise ValueError(
                f"{name} falls from {before:.2f} to {after:.2f}, by {before - after:.2f} points; "
                f"--tolerance is {tolerance:g}. Nothing is written."
            )


def _after(report: Dict[str, Any], name: str) -> float:
    return report["scores"]["after"].get(name, 0.0)
