"""What `mrc_ner` costs beside its encoder alone on the same pairs of question and sentence, and
how its memory grows with the labels.

python benchmarks/mrc_cost.py ENCODER DATA.spacy
"""

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Annotated, List

import spacy
import torch
import typer
from inference import calls_of, peak, replay, seconds
from spacy.language import Language
from spacy.tokens import DocBin
from spacy.util import fix_random_seed

from spacy_nested_ner.architectures.pair_encoder import pair_shim
from spacy_nested_ner.architectures.questions import number_word

app = typer.Typer(add_completion=False, help=__doc__)


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
    seconds(nlp, docs[:1], 64)
    before = peak()
    calls = calls_of(module, nlp, docs, 64)
    mib = peak() - before
    component, alone = [], []
    for _ in range(repeats):
        component.append(seconds(nlp, docs, 64))
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
    """`mrc_ner` with so many labels, whose questions all differ: made by the template."""
    tok2vec = {"@architectures": "spacy_nested_ner.PairEncoder.v1", "name": encoder}
    nlp = spacy.blank("en")
    config = {"threshold": 1.0, "model": {"tok2vec": tok2vec}}
    pipe = nlp.add_pipe("mrc_ner", name="ner", config=config)
    for i in range(n_labels):
        pipe.add_label(f"kind_{number_word(i + 1)}")  # type: ignore[attr-defined]
    nlp.initialize()
    return nlp


if __name__ == "__main__":
    app()
