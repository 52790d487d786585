"""What `mrc_ner` costs beside its encoder alone on the sentences, and how its time and memory grow
with the labels, by how question and sentence meet; a training step of each form; and what a single
doc gains by questions that are kept.

python -m benchmarks.mrc_cost prediction ENCODER DATA.spacy
python -m benchmarks.mrc_cost training ENCODER DATA.spacy
python -m benchmarks.mrc_cost forms ENCODER DATA.spacy
python -m benchmarks.mrc_cost single ENCODER DATA.spacy
"""

import statistics
from pathlib import Path
from typing import Annotated, Any, Dict, List

import spacy
import typer
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import fix_random_seed

from benchmarks import tables
from benchmarks.harness import Data, Output, Stopwatch, in_process, peak, write_output
from benchmarks.inference import SORTED
from benchmarks.passes import NO_OPTIMIZER, passes_of, seconds
from benchmarks.systems import questions_for, read
from spacy_nested_ner.comparison.timing import in_turn, median_ratio
from spacy_nested_ner.comparison.trainings import bare
from spacy_nested_ner.model.types import encoder_of

app = typer.Typer(add_completion=False, help=__doc__)

EncoderName = Annotated[str, typer.Argument(help="Directory or hub name of a pretrained encoder")]
# What reads question and sentence together: so many layers of the pretrained encoder, one layer
# after it (late), two layers over what it (once), or a small CNN, makes of each.
JOINT_LAYERS = {"all layers": None, "top 2 layers": 2, "top layer": 1, "late": 0}
FORMS = [*JOINT_LAYERS, "once", "cnn"]
# Padded pieces or words at once.
BATCH_WORDS = {"all layers": 512, "top 2 layers": 512, "top layer": 512, "late": 2048}


@app.command()
def prediction(
    encoder: EncoderName,
    data: Data,
    labels: List[int] = [5, 20, 114],  # noqa: B006 (read only)
    form: List[str] = list(JOINT_LAYERS),  # noqa: B006 (read only)
    limit: int = 64,
    repeats: int = 3,
    output: Output = None,
) -> None:
    """CPU time and memory for so many labels beside the encoder alone, which reads each sentence
    once; each in a process of its own, on one thread, with random weights of the head and a
    threshold of 1, so that the predicted spans cost nothing."""
    cells = [
        {
            "labels": n,
            "form": each,
            **in_process(prediction_costs, encoder, data, n, limit, repeats, each),
        }
        for n in labels
        for each in form
    ]
    show(cells, output)


@app.command()
def training(
    encoder: EncoderName,
    data: Data,
    labels: List[int] = [5, 18],  # noqa: B006 (read only)
    limit: int = 16,
    output: Output = None,
) -> None:
    """CPU time and memory of a training step without the optimizer, gradient checkpointing off
    and on."""
    cells = [
        {"labels": n, "checkpointing": how, **in_process(step_costs, encoder, data, n, limit, how)}
        for n in labels
        for how in ("no", "yes")
    ]
    show(cells, output)


@app.command()
def forms(
    encoder: EncoderName,
    data: Data,
    labels: List[int] = [5, 20],  # noqa: B006 (read only)
    limit: int = 16,
    output: Output = None,
) -> None:
    """CPU time of a prediction and of a training step without the optimizer on so many sentences:
    by the encoder of pairs in each of its forms, by the same encoder under two fresh layers, and by
    a CNN."""
    cells = [
        {"labels": n, "form": form, **in_process(form_costs, encoder, data, n, limit, form)}
        for n in labels
        for form in FORMS
    ]
    show(cells, output)


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
    cells = []
    for form in ("cnn", "once"):
        for n_labels in labels:
            found = in_process(single_costs, encoder, data, n_labels, limit, repeats, form)
            cells.append({"form": form, "labels": n_labels, **found})
    show(cells, output)


def show(cells: List[Dict[str, Any]], output: Output) -> None:
    """Print a table, write the file."""
    result = {"cells": cells}
    typer.echo(tables.measurements(result))
    write_output(output, result)


def prediction_costs(
    encoder: str, data: Path, n_labels: int, limit: int, repeats: int, form: str
) -> Dict[str, Any]:
    """One row of `prediction`."""
    nlp, docs = pipeline(encoder, n_labels, form=form), sentences(data, limit)
    seconds(nlp, docs[:1], 64)
    before = peak()
    seconds(nlp, docs, 64)
    mib = peak() - before
    times = in_turn(passes_of(nlp, docs, 64), repeats)
    return {
        "seconds": statistics.median(times["whole"]),
        "encoder_seconds": statistics.median(times["encoder"]),
        "ratio": median_ratio(times["whole"], times["encoder"]),
        "mib": mib,
    }


def step_costs(
    encoder: str, data: Path, n_labels: int, limit: int, checkpointing: str
) -> Dict[str, Any]:
    """One row of `training`."""
    nlp, docs = pipeline(encoder, n_labels, checkpointing == "yes"), sentences(data, limit)
    step_seconds(nlp, docs[:1])
    before = peak()
    return {"seconds": step_seconds(nlp, docs), "mib": peak() - before}


def form_costs(encoder: str, data: Path, n_labels: int, limit: int, form: str) -> Dict[str, Any]:
    """One row of `forms`."""
    nlp, docs = pipeline(encoder, n_labels, form=form), sentences(data, limit)
    seconds(nlp, docs[:1], 64)
    predicting = statistics.median(seconds(nlp, docs, 64) for _ in range(3))
    return {"prediction": predicting, "training": step_seconds(nlp, docs)}


def single_costs(
    encoder: str, data: Path, n_labels: int, limit: int, repeats: int, form: str
) -> Dict[str, Any]:
    """One row of `single`."""
    nlp, docs = pipeline(encoder, n_labels, form=form), sentences(data, limit)
    pipe: Any = nlp.get_pipe("ner")
    shim: Any = encoder_of(pipe.model).get_ref("cross").shims[0]
    anew, kept = [], []
    seconds(nlp, docs[:1], 1)
    for doc in docs * repeats:
        kept.append(1000 * seconds(nlp, [doc], 1))
        shim.question_cache.forget()
        anew.append(1000 * seconds(nlp, [doc], 1))
    return {"read_ms": statistics.median(anew), "kept_ms": statistics.median(kept)}


def sentences(data: Path, limit: int) -> List[Doc]:
    """The first docs of a file."""
    return read(spacy.blank("en"), data, limit)


def step_seconds(nlp: Language, docs: List[Doc]) -> float:
    """CPU time of one training step on docs without entities."""
    examples = [Example(bare(nlp, doc), bare(nlp, doc)) for doc in docs]
    with Stopwatch() as watch:
        nlp.update(examples, sgd=NO_OPTIMIZER)
    return watch.cpu


def pipeline(
    encoder: str, n_labels: int, checkpointing: bool = False, form: str = "all layers"
) -> Language:
    """`mrc_ner` with so many labels, whose questions all differ. form: one of `FORMS`."""
    fix_random_seed(0)
    model: Dict[str, Any] = {}
    if form in JOINT_LAYERS:
        model["tok2vec"] = {
            "@architectures": "spacy_nested_ner.PairEncoder.v1",
            "name": encoder,
            "joint_layers": JOINT_LAYERS[form],
            "gradient_checkpointing": checkpointing,
        }
        model["batch_words"] = BATCH_WORDS[form]
    elif form == "once":
        model["tok2vec"] = {**SORTED, "name": encoder}
        model.update(hidden_width=192, joint_layers=2)
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
