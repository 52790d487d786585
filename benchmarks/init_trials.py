"""Does the config that `nested-ner init` writes beat what spaCy's `init config` writes for `spancat`,
in equal CPU time?

python -m benchmarks.init_trials run corpus/genia results/init_cnn/genia --minutes 5
python -m benchmarks.init_trials run corpus/litbank results/init_cnn/sixty --sentences 60 --labels 3 --seed 0 --seed 1
python -m benchmarks.init_trials report results/init_cnn/genia results/init_cnn/sixty

Both configs are trained as they are, for a CPU; `spancat` is stopped when it has had the CPU time
that the other training took. What the output has already is not trained again. OMP_NUM_THREADS=1
makes it a training on one thread.
"""  # noqa: E501

from collections import Counter
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Dict, List, Optional

import spacy
import typer
from spacy import util
from spacy.cli.init_config import init_config
from spacy.tokens import Doc, DocBin
from thinc.api import Config

from benchmarks import tables
from benchmarks.harness import digest_of, made_once, results_of, train_tasks
from benchmarks.systems import read
from spacy_nested_ner.cli.init import init_cli
from spacy_nested_ner.comparison.trainings import Task, train_and_score
from spacy_nested_ner.training.budget import limit_time

app = typer.Typer(add_completion=False, help=__doc__)

CONFIG = "init.cfg"


@app.command()
def run(
    corpus: Annotated[Path, typer.Argument(help="Folder with train, dev and test.spacy")],
    output: Annotated[Path, typer.Argument(help="Folder for models and JSON")],
    minutes: Annotated[
        Optional[float], typer.Option(help="For init; without, it chooses the steps")
    ] = None,
    sentences: Annotated[
        int, typer.Option(help="Cut train and dev to so many with nested entities; 0: all")
    ] = 0,
    labels: Annotated[int, typer.Option(help="Keep the most frequent labels; 0: all")] = 0,
    seed: Annotated[List[int], typer.Option(help="Repeat for several")] = [0],  # noqa: B006
) -> None:
    """Train what has no result in the output folder yet, and print the table."""
    source = {"sentences": sentences, "labels": labels, "data": digest_of(corpus)}
    data = corpus
    if sentences or labels:
        make = partial(cut, corpus, sentences=sentences, labels=labels)
        data = made_once(output / "data", make, **source)
    settings: Dict[str, Any] = {
        "corpus": str(corpus),
        "sentences": sentences,
        "labels": labels,
        "init_minutes": minutes,
        "gpu_id": -1,
        **{part: str(data / f"{part}.spacy") for part in ("dev", "test")},
    }
    parts = (data / "train.spacy", data / "dev.spacy")

    def init(folder: Path) -> None:
        with redirect_stdout(None):  # which names a file that is moved
            init_cli(*parts, folder / CONFIG, minutes=minutes)

    config = made_once(output / "init", init, **source, minutes=minutes)
    ours, theirs = util.load_config(config / CONFIG), init_spancat(data)
    for number in seed:
        settings.update(seed=number)
        (found,) = train_one(ours, output, {**settings, "system": "nested-ner init"})
        used = found["training"]["cpu_minutes"]
        limit_time(theirs["training"], used, cpu_clock=True)
        train_one(theirs, output, {**settings, "system": "init config", "minutes": used})
    report([output])


def train_one(config: Config, output: Path, settings: Dict[str, Any]) -> List[Dict[str, Any]]:
    """The result of a config."""
    config = config.copy()
    config["system"]["seed"] = settings["seed"]
    name = f"{settings['system'].replace(' ', '_')}_seed{settings['seed']}"
    task = Task(settings, output / f"{name}.json", config.to_str())
    return train_tasks([task], train_and_score, ["minutes"])  # those that the other one took


def init_spancat(data: Path) -> Config:
    """What `spacy init config --pipeline spancat` writes."""
    config = init_config(lang="en", pipeline=["spancat"], optimize="efficiency", gpu=False)
    config["paths"].update({part: str(data / f"{part}.spacy") for part in ("train", "dev")})
    return config


def cut(corpus: Path, folder: Path, sentences: int, labels: int) -> None:
    """Write a smaller corpus: the most frequent labels of train, and of train and dev as many docs
    in which entities nest, evenly spread. Test keeps its docs."""
    parts = {part: read(spacy.blank("en"), corpus / f"{part}.spacy", 0) for part in PARTS}
    counts = Counter(span.label_ for doc in parts["train"] for span in doc.spans["sc"])
    kept = [label for label, _ in counts.most_common(labels or None)]
    for part, docs in parts.items():
        for doc in docs:
            doc.spans["sc"] = [span for span in doc.spans["sc"] if span.label_ in kept]
        if sentences and part != "test":
            docs = spread([doc for doc in docs if is_nested(doc)], sentences)
        DocBin(docs=docs, store_user_data=True).to_disk(folder / f"{part}.spacy")


PARTS = ("train", "dev", "test")


def is_nested(doc: Doc) -> bool:
    """Whether one entity lies in another."""
    spans = {(span.start, span.end) for span in doc.spans["sc"]}
    return any(a != b and a[0] <= b[0] and b[1] <= a[1] for a in spans for b in spans)


def spread(docs: List[Doc], n: int) -> List[Doc]:
    """So many docs at equal distances; all where there are fewer."""
    n = min(n, len(docs))
    return [docs[i * len(docs) // n] for i in range(n)]


@app.command()
def report(
    output: Annotated[List[Path], typer.Argument(help="Folders with JSON files")],
) -> None:
    """Print the results as a Markdown table."""
    typer.echo(tables.init_trials({folder.name: results_of(folder) for folder in output}))


if __name__ == "__main__":
    app()
