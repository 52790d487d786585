"""What `mrc_ner` costs beside its encoder alone on the same pairs of question and sentence, and
how its time and memory grow with the labels; the forms that read a sentence once with all
questions beside the encoder of pairs; and what a single doc gains by questions that are kept.

python benchmarks/mrc_cost.py prediction ENCODER DATA.spacy
python benchmarks/mrc_cost.py training ENCODER DATA.spacy
python benchmarks/mrc_cost.py forms ENCODER DATA.spacy
python benchmarks/mrc_cost.py single ENCODER DATA.spacy
"""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any, Dict, List, Optional

import spacy
import torch
import typer
from inference import SORTED, bare, calls_of, peak, replay, seconds
from measuring import provenance, questions_for, read, write_result
from spacy.language import Language
from spacy.training import Example
from spacy.util import fix_random_seed

from spacy_nested_ner.encoders.pair_encoder import pair_shim

app = typer.Typer(add_completion=False, help=__doc__)

EncoderName = Annotated[str, typer.Argument(help="Directory or hub name of a pretrained encoder")]
Data = Annotated[Path, typer.Argument(help="A .spacy file")]
Output = Annotated[Optional[Path], typer.Option(help="Also write JSON")]
# What reads question and sentence: the pretrained encoder, or two layers over what it, or a small
# CNN, makes of each.
FORMS = ["pairs", "once", "cnn"]


@app.command()
def prediction(
    encoder: EncoderName,
    data: Data,
    labels: List[int] = [5, 20, 114],  # noqa: B006 (read only)
    limit: int = 64,
    repeats: int = 3,
) -> None:
    """CPU time and memory for so many labels, each in a process of its own, on one thread, with
    random weights of the head and a threshold of 1, so that the predicted spans cost nothing."""
    typer.echo("| labels | mrc_ner s | encoder alone s | ratio | MiB |\n|---|---|---|---|---|")
    for n_labels in labels:
        found = _measure("one-prediction", encoder, data, n_labels, limit, str(repeats))
        typer.echo(
            f"| {n_labels} | {found['component']:.1f} | {found['encoder']:.1f} | "
            f"{found['ratio']:.2f} | {found['mib']:.0f} |"
        )


@app.command()
def training(
    encoder: EncoderName,
    data: Data,
    labels: List[int] = [5, 18],  # noqa: B006 (read only)
    limit: int = 16,
) -> None:
    """CPU time and memory of a training step without the optimizer, gradient checkpointing off
    and on."""
    typer.echo("| labels | checkpointing | step s | MiB |\n|---|---|---|---|")
    for n_labels in labels:
        for how in ("no", "yes"):
            found = _measure("one-step", encoder, data, n_labels, limit, how)
            typer.echo(f"| {n_labels} | {how} | {found['seconds']:.1f} | {found['mib']:.0f} |")


@app.command()
def forms(
    encoder: EncoderName,
    data: Data,
    labels: List[int] = [5, 20],  # noqa: B006 (read only)
    limit: int = 16,
    output: Output = None,
) -> None:
    """CPU time of a prediction and of a training step without the optimizer on so many sentences:
    by the encoder of pairs, by the same encoder with each sentence read once, and by a CNN."""
    torch.set_num_threads(1)
    cells = []
    typer.echo("| labels | form | prediction s | training step s |\n|---|---|---|---|")
    for n_labels in labels:
        for form in FORMS:
            nlp = pipeline(encoder, n_labels, form=form)
            docs = read(spacy.blank("en"), data, limit)
            seconds(nlp, docs[:1], 64)
            predicting = statistics.median(seconds(nlp, docs, 64) for _ in range(3))
            examples = [Example(bare(nlp, doc), bare(nlp, doc)) for doc in docs]
            begin = time.process_time()
            nlp.update(examples, sgd=False)
            found = {"prediction": predicting, "training": time.process_time() - begin}
            cells.append({"labels": n_labels, "form": form, **found})
            shown = f"{found['prediction']:.2f} | {found['training']:.2f}"
            typer.echo(f"| {n_labels} | {form} | {shown} |")
    if output is not None:
        write_result(output, {"cells": cells, **provenance()})


@app.command()
def single(
    encoder: EncoderName,
    data: Data,
    labels: List[int] = [5, 20, 114],  # noqa: B006 (read only)
    limit: int = 16,
    repeats: int = 5,
    output: Output = None,
) -> None:
    """CPU time of one sentence alone, median of sentences and repeats: with the questions read for
    each, and with those kept that were read before."""
    torch.set_num_threads(1)
    cells = []
    typer.echo("| form | labels | read each time ms | kept ms |\n|---|---|---|---|")
    for form in ("cnn", "once"):
        for n_labels in labels:
            nlp = pipeline(encoder, n_labels, form=form)
            docs = read(spacy.blank("en"), data, limit)
            pipe: Any = nlp.get_pipe("ner")
            cache = pipe.model.get_ref("tok2vec").get_ref("cross").shims[0].questions
            anew, kept = [], []
            seconds(nlp, docs[:1], 1)
            for doc in docs * repeats:
                kept.append(1000 * seconds(nlp, [doc], 1))
                cache.forget()
                anew.append(1000 * seconds(nlp, [doc], 1))
            found = {"read_ms": statistics.median(anew), "kept_ms": statistics.median(kept)}
            cells.append({"form": form, "labels": n_labels, **found})
            typer.echo(f"| {form} | {n_labels} | {found['read_ms']:.1f} | {found['kept_ms']:.1f} |")
    if output is not None:
        write_result(output, {"cells": cells, **provenance()})


def _measure(command: str, encoder: str, data: Path, n_labels: int, *more: Any) -> Dict[str, float]:
    """What a hidden command prints, run in a process of its own."""
    arguments = [command, encoder, str(data), str(n_labels), *map(str, more)]
    output = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(output.stdout.splitlines()[-1])


@app.command(hidden=True)
def one_prediction(encoder: str, data: Path, n_labels: int, limit: int, repeats: int) -> None:
    """One number of labels, for `prediction`."""
    nlp, docs = pipeline(encoder, n_labels), read(spacy.blank("en"), data, limit)
    module = pair_shim(nlp.get_pipe("ner").model.get_ref("tok2vec")).module
    seconds(nlp, docs[:1], 64)
    before = peak()
    component, alone = [seconds(nlp, docs, 64)], []
    mib = peak() - before
    calls = calls_of(module, nlp, docs, 64)
    for _ in range(repeats):
        component.append(seconds(nlp, docs, 64))
        alone.append(replay(module, calls))
    ratios = [a / b for a, b in zip(component[1:], alone)]
    found = {
        "component": statistics.median(component),
        "encoder": statistics.median(alone),
        "ratio": statistics.median(ratios),
        "mib": mib,
    }
    typer.echo(json.dumps(found))


@app.command(hidden=True)
def one_step(encoder: str, data: Path, n_labels: int, limit: int, checkpointing: str) -> None:
    """One row of `training`."""
    nlp, docs = (
        pipeline(encoder, n_labels, checkpointing == "yes"),
        read(spacy.blank("en"), data, limit),
    )
    examples = [Example(bare(nlp, doc), bare(nlp, doc)) for doc in docs]
    nlp.update(examples[:1], sgd=False)
    before, begin = peak(), time.process_time()
    nlp.update(examples, sgd=False)
    found = {"seconds": time.process_time() - begin, "mib": peak() - before}
    typer.echo(json.dumps(found))


def pipeline(
    encoder: str, n_labels: int, checkpointing: bool = False, form: str = "pairs"
) -> Language:
    """`mrc_ner` with so many labels, whose questions all differ, on one thread; pairs are read in
    batches of 512 pieces, as by the config. form: one of `FORMS`."""
    torch.set_num_threads(1)
    fix_random_seed(0)
    model: Dict[str, Any] = {}
    if form == "pairs":
        model["tok2vec"] = {
            "@architectures": "spacy_nested_ner.PairEncoder.v1",
            "name": encoder,
            "gradient_checkpointing": checkpointing,
        }
        model["batch_words"] = 512
    elif form == "once":
        model["tok2vec"] = {**SORTED, "name": encoder}
        model["hidden_width"] = 192
    nlp = spacy.blank("en")
    questions = questions_for([f"L{i}" for i in range(n_labels)])
    model["questions"] = questions
    pipe = nlp.add_pipe("mrc_ner", name="ner", config={"threshold": 1.0, "model": model})
    for label in questions:
        pipe.add_label(label)  # type: ignore[attr-defined]
    nlp.initialize()
    return nlp


if __name__ == "__main__":
    app()
