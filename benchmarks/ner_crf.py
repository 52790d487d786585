"""edsnlp's `eds.ner_crf` on the sentences, in the CPU time and on the tokens of `small_data`.

pip install "edsnlp[ml]"
python -m benchmarks.ner_crf corpus/genia results/small_minilm --transformer DIRECTORY_OR_HUB_NAME --docs 200

One CRF for each label: of entities of one label that overlap it learns and finds one alone. Set up
as in edsnlp's tutorial; `python -m benchmarks.small_data report` shows it beside the others.
"""  # noqa: E501

import itertools
import random
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Dict, Iterator, List

import torch
import typer
from spacy.tokens import Doc
from spacy.util import fix_random_seed, minibatch

from benchmarks import compare
from benchmarks.harness import Stopwatch, peak, train_tasks
from benchmarks.scores import entities_of, micro_f1
from benchmarks.small_data import drawn, report
from benchmarks.systems import read
from spacy_nested_ner.comparison.trainings import Task, bare
from spacy_nested_ner.training.budget import CLOCK, linear_over_time, until_time_is_up

SYSTEM = "eds.ner_crf"
KEY = "sc"
# Of edsnlp's tutorial and of its `train`.
WARMUP, GRAD_MAX_NORM = 0.1, 5.0


def main(
    corpus: compare.Corpus,
    output: compare.Output,
    transformer: Annotated[str, typer.Option(help="Directory or hub name")],
    docs: Annotated[List[int], typer.Option(help="Drawn from train")] = [200],  # noqa: B006
    draw: Annotated[List[int], typer.Option(help="Seeds of draw and training")] = [0, 1, 2],  # noqa: B006
    minutes: Annotated[float, typer.Option(min=0.01, help="CPU time of each training")] = 6.0,
    batch_size: Annotated[int, typer.Option(help="Docs")] = 16,
    transformer_rate: Annotated[float, typer.Option(help="Highest learning rate")] = 5e-5,
    rate: Annotated[float, typer.Option(help="That of the rest")] = 3e-4,
    on: Annotated[str, typer.Option(help="Part of the corpus to score")] = "test",
) -> None:
    """Train what has no result in the output folder yet, and print the table."""
    settings: Dict[str, Any] = {"transformer": transformer, "minutes": minutes, "cpu_clock": True}
    settings.update(batch_size=batch_size, transformer_rate=transformer_rate, rate=rate)
    settings.update(on=on, system=SYSTEM)
    tasks = []
    for number, n in itertools.product(draw, docs):
        data = drawn(corpus, output, n, number)
        target = output / f"{n}_docs" / f"{SYSTEM}_seed{number}.json"
        tasks.append(Task({**settings, "corpus": str(data), "seed": number}, target))
    train_tasks(tasks, one, compare.OF_A_DRAW)
    report(output)


def one(task: Task) -> Dict[str, Any]:
    """One training and its F1."""
    settings, corpus = task.settings, Path(task.settings["corpus"])
    torch.set_num_threads(1)
    fix_random_seed(settings["seed"])
    nlp = blank(settings["transformer"])
    docs = read(nlp, corpus / "train.spacy", 0)
    nlp.post_init(docs)
    with Stopwatch() as watch:
        train(nlp, docs, settings)
    training = {"minutes": watch.seconds / 60, "steps": CLOCK.steps}
    training["cpu_minutes"] = CLOCK.share() * settings["minutes"]
    f1 = score(nlp, read(nlp, corpus / f"{settings['on']}.spacy", 0))
    training["peak_mib"] = peak()
    # It has no threshold.
    return {"edsnlp": version("edsnlp"), "training": training, "f1": f1, "f1_tuned": f1}


def blank(transformer: str) -> Any:
    """An untrained pipeline of edsnlp."""
    import edsnlp

    nlp = edsnlp.blank("en")
    reader = {"@factory": "eds.transformer", "model": transformer, "window": 128, "stride": 96}
    settings = {
        "embedding": {"@factory": "eds.text_cnn", "kernel_sizes": [3], "embedding": reader},
        "mode": "joint",
        "window": 20,
        "target_span_getter": KEY,
        "span_setter": KEY,
    }
    nlp.add_pipe("eds.ner_crf", name="ner", config=settings)
    return nlp


def train(nlp: Any, docs: List[Doc], settings: Dict[str, Any]) -> None:
    """Steps until the time is up."""
    ner, rates = nlp.get_pipe("ner"), [settings["transformer_rate"], settings["rate"]]
    pretrained = list(ner.embedding.embedding.parameters())
    known = set(map(id, pretrained))
    new = [each for each in ner.parameters() if id(each) not in known]
    optimizer = torch.optim.AdamW([{"params": pretrained}, {"params": new}])
    schedules = [linear_over_time(each, WARMUP) for each in rates]
    ner.train()
    for batch in batches(docs, settings["batch_size"], settings["minutes"]):
        for group, schedule in zip(optimizer.param_groups, schedules):
            group["lr"] = next(schedule)
        loss = ner(ner.prepare_batch(batch, supervision=True))["loss"]
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(ner.parameters(), GRAD_MAX_NORM)
        optimizer.step()
    ner.eval()


def batches(docs: List[Doc], size: int, minutes: float) -> Iterator[List[Doc]]:
    """Those of one pass after the other, in random order."""
    limited = until_time_is_up(partial(minibatch, size=size), minutes, cpu_clock=True)
    return limited(random.sample(docs, len(docs)))  # which shuffles after the first pass


def score(nlp: Any, gold: List[Doc]) -> float:
    """Strict micro F1."""
    found = nlp.pipe([bare(nlp, doc) for doc in gold])
    return micro_f1(*([entities_of(doc, KEY) for doc in docs] for docs in (found, gold)))


if __name__ == "__main__":
    typer.run(main)
