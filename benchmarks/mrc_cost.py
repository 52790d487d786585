"""What `mrc_ner` costs beside its encoder alone on the same pairs of question and sentence, and
how its time and memory grow with the labels.

python benchmarks/mrc_cost.py prediction ENCODER DATA.spacy
python benchmarks/mrc_cost.py training ENCODER DATA.spacy
"""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any, Dict, List

import spacy
import torch
import typer
from inference import bare, calls_of, peak, replay, seconds
from measuring import questions_for, read
from spacy.language import Language
from spacy.training import Example
from spacy.util import fix_random_seed

from spacy_nested_ner.encoders.pair_encoder import pair_shim

app = typer.Typer(add_completion=False, help=__doc__)

EncoderName = Annotated[str, typer.Argument(help="Directory or hub name of a pretrained encoder")]
Data = Annotated[Path, typer.Argument(help="A .spacy file")]


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


def pipeline(encoder: str, n_labels: int, checkpointing: bool = False) -> Language:
    """`mrc_ner` with so many labels, whose questions all differ, on one thread; read in batches of
    512 pieces, as by the config."""
    torch.set_num_threads(1)
    fix_random_seed(0)
    tok2vec = {
        "@architectures": "spacy_nested_ner.PairEncoder.v1",
        "name": encoder,
        "gradient_checkpointing": checkpointing,
    }
    nlp = spacy.blank("en")
    questions = questions_for([f"L{i}" for i in range(n_labels)])
    model = {"tok2vec": tok2vec, "questions": questions, "batch_words": 512}
    pipe = nlp.add_pipe("mrc_ner", name="ner", config={"threshold": 1.0, "model": model})
    for label in questions:
        pipe.add_label(label)  # type: ignore[attr-defined]
    nlp.initialize()
    return nlp


if __name__ == "__main__":
    app()
