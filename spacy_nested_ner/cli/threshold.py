"""`nested-ner threshold`: the best thresholds of a trained pipeline, stored with it."""

# No `from __future__ import annotations`: typer reads the annotations at run time.

from pathlib import Path
from typing import Annotated, Optional

import typer
from wasabi import msg

from spacy_nested_ner.cli.options import CodeOpt, GpuOpt, ModelArg
from spacy_nested_ner.cli.output import check_replaced, failing, warn_of
from spacy_nested_ner.cli.pipelines import (
    check_arguments,
    load_pipeline,
    not_gold,
    raw_examples,
    read_as_one,
    read_gold,
    use_gpu,
)

DataArg = Annotated[
    Path,
    typer.Argument(
        metavar="DATA",
        help="Gold data to choose thresholds on, .spacy file or folder: dev, not test",
    ),
]
OutputOpt = Annotated[
    Optional[Path],
    typer.Option(
        "--output",
        "-o",
        help="Folder for the pipeline with these thresholds; it is replaced; may be MODEL",
    ),
]
LimitOpt = Annotated[
    int, typer.Option(min=0, help="Use only this many docs of DATA, from the first; 0 for all")
]

BetaOpt = Annotated[
    float,
    typer.Option(help="Highest F-beta: with 2, recall weighs twice as much as precision"),
]


def threshold_cli(
    model: ModelArg,
    data_path: DataArg,
    output_path: OutputOpt = None,
    beta: BetaOpt = 1.0,
    limit: LimitOpt = 0,
    gpu_id: GpuOpt = -1,
    code: CodeOpt = None,
) -> None:
    """For each component that scores spans, find the threshold at which strict F is highest.

    It predicts from raw text, or with the tokens of DATA where a text is not known. With the
    shipped configs `spacy train` does this by itself, on the tokens that it trains on. Without
    --output the thresholds are only shown.
    """
    from spacy_nested_ner.evaluation.scores.fit_thresholds import (
        describe,
        fit_thresholds,
        with_thresholds,
    )
    from spacy_nested_ner.files import written_folder

    with failing("Cannot choose thresholds."):
        check_arguments([model], data_path)
        check_replaced(output_path, "meta.json", data_path, Path(model))
        warn_of(read_as_one(data_path))
        use_gpu(gpu_id)
        nlp = load_pipeline(model)
        gold = read_gold(nlp, data_path)[: limit or None]
        keys = {getattr(pipe, "key", None) for _, pipe in nlp.pipeline}
        warn_of(not_gold(gold, data_path, [key for key in keys if isinstance(key, str)]))
        examples, unknown = raw_examples(nlp, gold, data_path)
        if unknown:
            msg.warn(
                f"For {unknown} docs only the words are known, not the text: the tokens of the "
                "data are used for these docs."
            )
        fits, reasons = fit_thresholds(nlp, examples, beta=beta)
        if not fits:
            why = " ".join(f"'{name}': {reason}." for name, reason in reasons.items())
            raise ValueError(f"No threshold of {model} can be chosen on {data_path}. {why}")
        if output_path is not None:
            with written_folder(output_path, marker="meta.json") as draft:
                with_thresholds(nlp, fits).to_disk(draft)
    for name, fit in fits.items():
        msg.good(f"'{name}': {describe(fit)}")
    for name, reason in reasons.items():
        msg.info(f"'{name}': {reason}")
    if output_path is None:
        msg.info("Nothing is saved. --output DIR saves the pipeline with these thresholds.")
    else:
        msg.good("Pipeline:")
        typer.echo(str(output_path.resolve()))
