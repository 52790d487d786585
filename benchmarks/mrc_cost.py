"""What `mrc_ner` costs beside its encoder alone on the same pairs of question and sentence, and
how its memory grows with the labels.

python benchmarks/mrc_cost.py ENCODER DATA.spacy
"""

import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any, Dict, List, Tuple

import spacy
import torch
import typer
from measuring import questions_for
from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.util import fix_random_seed

from spacy_nested_ner.architectures.pair_encoder import pair_shim

app = typer.Typer(add_completion=False, help=__doc__)

Call = Tuple[Tuple[Any, ...], Dict[str, Any]]


@app.command()
def compare(
    encoder: Annotated[str, typer.Argument(help="Directory or hub name of a pretrained encoder")],
    data: Annotated[Path, typer.Argument(help="A .spacy file")],
    labels: List[int] = [5, 20, 114],  # noqa: B006 (read only)
    limit: int = 64,
    repeats: int = 3,
) -> None:
    """Time and memory for so many labels, each in a process of its own, on one thread, with random
    weights of the head and a threshold of 1, so that the predicted spans cost nothing."""
    for n_labels in labels:
        command = [sys.executable, __file__, "one", encoder, str(data), str(n_labels)]
        output = subprocess.run(
            [*command, "--limit", str(limit), "--repeats", str(repeats)],
            check=True,
            capture_output=True,
            text=True,
        )
        found = json.loads(output.stdout.splitlines()[-1])
        typer.echo(
            f"{n_labels:4} labels: {found['component']:8.2f} s, encoder alone "
            f"{found['encoder']:8.2f} s, ratio {found['ratio']:.2f}, {found['mib']:6.0f} MiB"
        )


@app.command(hidden=True)
def one(encoder: str, data: Path, n_labels: int, limit: int = 64, repeats: int = 3) -> None:
    """One number of labels, for `compare`."""
    torch.set_num_threads(1)
    fix_random_seed(0)
    nlp = pipeline(encoder, n_labels)
    docs = list(DocBin().from_disk(data).get_docs(nlp.vocab))[:limit]
    module = pair_shim(nlp.get_pipe("ner").model.get_ref("tok2vec")).module
    predict(nlp, docs[:1])
    before = peak()
    calls: List[Call] = []
    hook = module.register_forward_pre_hook(
        lambda _, args, kwargs: calls.append((args, kwargs)), with_kwargs=True
    )
    predict(nlp, docs)
    hook.remove()
    mib = peak() - before
    component, alone = [], []
    for _ in range(repeats):
        component.append(predict(nlp, docs))
        alone.append(replay(module, calls))
    ratios = [a / b for a, b in zip(component, alone)]
    found = {
        "component": statistics.median(component),
        "encoder": statistics.median(alone),
        "ratio": statistics.median(ratios),
        "mib": mib,
    }
    typer.echo(json.dumps(found))


def pipeline(encoder: str, n_labels: int) -> Language:
    """`mrc_ner` with as many labels, which share the questions of the GENIA set."""
    questions = questions_for([f"L{i}" for i in range(n_labels)])
    tok2vec = {"@architectures": "spacy_nested_ner.PairEncoder.v1", "name": encoder}
    nlp = spacy.blank("en")
    model = {"questions": questions, "tok2vec": tok2vec}
    pipe = nlp.add_pipe("mrc_ner", name="ner", config={"threshold": 1.0, "model": model})
    for label in questions:
        pipe.add_label(label)  # type: ignore[attr-defined]
    nlp.initialize()
    return nlp


def predict(nlp: Language, docs: List[Doc]) -> float:
    """CPU seconds of one pass over fresh copies of the docs."""
    fresh = [Doc(nlp.vocab, words=[token.text for token in doc]) for doc in docs]
    begin = time.process_time()
    for _ in nlp.pipe(fresh, batch_size=64):
        pass
    return time.process_time() - begin


@torch.no_grad()
def replay(module: torch.nn.Module, calls: List[Call]) -> float:
    """CPU seconds of the encoder on the inputs that the component gave it."""
    begin = time.process_time()
    for args, kwargs in calls:
        module(*args, **kwargs)
    return time.process_time() - begin


def peak() -> float:
    """Largest resident size of this process so far, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    app()
