"""Are picked sentences worth more than random ones? F1 at the same number of annotated entities.

python -m benchmarks.picking run corpus/genia results/picking --rounds 5 --n 100 --steps 1000 --seed 0 --seed 1
python -m benchmarks.picking report results/picking

A pipeline is trained on random sentences. `nested-ner pick` takes others by what it finds in them,
the next one is trained on all so far, and so on. Beside it pipelines are trained on random sentences
with as many entities. What the output has already is not trained again.
"""  # noqa: E501

import random
import tempfile
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, Dict, List, Optional

import spacy
import typer
from spacy.language import Language
from spacy.tokens import Doc, DocBin

from benchmarks import compare, tables
from benchmarks.harness import Results, in_process, result_of
from benchmarks.scores import found_by
from benchmarks.systems import System, read
from spacy_nested_ner.comparison.trainings import Task
from spacy_nested_ner.evaluation.data.picking import candidate, pick

app = typer.Typer(add_completion=False, help=__doc__)

FILE = "picking.json"


@app.command()
def run(
    corpus: Annotated[Path, typer.Argument(help="Folder with train, dev and test.spacy")],
    output: Annotated[Path, typer.Argument(help=f"Folder for {FILE}")],
    system: System = "locate_and_label_ner",
    transformer: compare.Transformer = None,
    mixed_precision: compare.MixedPrecision = False,
    adversarial: Annotated[
        Optional[float], typer.Option(help="The config's own without it")
    ] = None,
    start: Annotated[int, typer.Option(help="Random sentences of the first training")] = 200,
    n: Annotated[int, typer.Option("--n", help="Sentences to pick in a round")] = 100,
    rounds: Annotated[int, typer.Option(help="Rounds after the first training")] = 5,
    pool: Annotated[int, typer.Option(help="Random sentences to pick from; 0: all")] = 4000,
    steps: Annotated[int, typer.Option(help="Of each training")] = 1000,
    dev_limit: Annotated[int, typer.Option(help="First dev docs; 0: all")] = 200,
    test_limit: compare.TestLimit = 0,
    seed: compare.Seeds = [0],  # noqa: B006
    threads: int = 1,
    gpu_id: int = -1,
) -> None:
    """Train what is not in the output yet, one after the other, and print the table."""
    settings: Dict[str, Any] = {
        "corpus": str(corpus),
        "system": system,
        "transformer": transformer,
        "mixed_precision": mixed_precision,
        "adversarial": adversarial,
        "start": start,
        "n": n,
        "pool": pool,
        "steps": steps,
        "dev_limit": dev_limit,
        "test_limit": test_limit,
    }
    compare.check(settings)
    results = Results(output / FILE, **settings)
    docs = read(spacy.blank("en"), corpus / "train.spacy", 0)
    shared = {**compare.BY_STEPS, **settings, "threads": threads, "gpu_id": gpu_id}
    shared.update(choose_limit=dev_limit, eval_frequency=max(1, steps // 4))
    for number in seed:
        Loop(results, docs, {**shared, "seed": number}).run(rounds)
    report(output)


class Loop:
    """The rounds of one seed."""

    def __init__(self, results: Results, docs: List[Doc], settings: Dict[str, Any]) -> None:
        self.results = results
        self.docs = docs
        self.settings = settings
        self.order = list(range(len(docs)))
        random.Random(settings["seed"]).shuffle(self.order)
        self.first = self.order[: settings["start"]]

    def run(self, rounds: int) -> None:
        """Train what is not there yet."""
        chosen, cell = self.first, self._cell("start", 0, self.first)
        for number in range(1, rounds + 1):
            chosen = [*chosen, *cell["next"]]
            cell = self._cell("picked", number, chosen)
            self._cell("random", number, self.at_random(cell["entities"]))

    def _cell(self, way: str, number: int, chosen: List[int]) -> Dict[str, Any]:
        """A training on these sentences."""
        key = f"{way}, seed {self.settings['seed']}, round {number}"
        if key not in self.results.cells:
            typer.echo(f"{key}: training on {len(chosen)} sentences", err=True)
            left = [] if way == "random" else self.left(chosen)
            threads = self.settings["threads"]
            found = in_process(one, self.settings, self.docs, chosen, left, threads=threads)
            what = {"way": way, "seed": self.settings["seed"], "round": number}
            sizes = {"sentences": len(chosen), "entities": self._entities(chosen)}
            self.results.add(key, {**what, **sizes, **found})
        return self.results.cells[key]

    def left(self, chosen: List[int]) -> List[int]:
        """The sentences to pick from without the chosen ones."""
        start, pool = self.settings["start"], self.settings["pool"]
        taken = set(chosen)
        others = self.order[start : start + pool if pool else None]
        return [i for i in others if i not in taken]

    def at_random(self, entities: int) -> List[int]:
        """The first sentences of the order that have so many entities, or just more."""
        totals = accumulate(self._entities([i]) for i in self.order)
        enough = (count for count, total in enumerate(totals, start=1) if total >= entities)
        return self.order[: max(len(self.first), next(enough, len(self.order)))]

    def _entities(self, chosen: List[int]) -> int:
        return sum(len(self.docs[i].spans["sc"]) for i in chosen)


def one(
    settings: Dict[str, Any], docs: List[Doc], chosen: List[int], left: List[int]
) -> Dict[str, Any]:
    """F1 on test of a training on the chosen sentences, and which of the others it would pick."""
    corpus = Path(settings["corpus"]).resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sentences = DocBin(docs=[docs[i] for i in chosen], store_user_data=True)
        sentences.to_disk(folder / "train.spacy")
        for part in ("dev", "test"):
            (folder / f"{part}.spacy").symlink_to(corpus / f"{part}.spacy")
        result = compare.one(Task({**settings, "corpus": name}, folder / "model.json"))
        nlp = spacy.load(folder / "model" / result["model"])
    figures = ("f1", "f1_tuned", "threshold_tuned")
    return {
        **{figure: result[figure] for figure in figures},
        "minutes": result["training"]["minutes"],
        "next": picked(nlp, docs, left, settings["n"], result["threshold_tuned"]),
    }


def picked(nlp: Language, docs: List[Doc], left: List[int], n: int, threshold: float) -> List[int]:
    """Numbers of the docs that are picked, as `nested-ner pick` does."""
    found = found_by(nlp, [docs[i] for i in left]).found
    candidates = (
        candidate(
            docs[i].text,
            [(label, docs[i][start:end].text, p) for (start, end, label), p in spans],
            threshold,
            i,
        )
        for i, spans in zip(left, found)
    )
    return [each.item for each in pick(candidates, n)]


@app.command()
def report(output: Annotated[Path, typer.Argument(help=f"Folder with {FILE}")]) -> None:
    """Print the results as a Markdown table."""
    typer.echo(tables.picking(result_of(output, FILE)["cells"]))


if __name__ == "__main__":
    app()
