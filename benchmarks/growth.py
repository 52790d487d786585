"""How time and memory of each system grow with words, labels, entities and the longest span.

python -m benchmarks.growth run results/growth_cnn
python -m benchmarks.growth run results/growth_minilm --transformer DIRECTORY_OR_HUB_NAME
python -m benchmarks.growth report results/growth_cnn

All systems have random weights and the same encoder, and run on one thread. Each cell of the grid
runs in a process of its own; those that are in the folder already are not run again. The plot needs
matplotlib.
"""

import random
import statistics
import warnings
from pathlib import Path
from typing import Annotated, Any, Callable, Dict, List, NamedTuple, Optional

import spacy
import typer
from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.training import Example
from spacy.util import registry

from benchmarks import tables
from benchmarks.harness import Results, Stopwatch, in_process, peak, result_of
from benchmarks.passes import NO_OPTIMIZER
from benchmarks.plots import pyplot
from benchmarks.systems import (
    SYSTEMS,
    UNFILTERED,
    Systems,
    questions_for,
    shipped_config,
    takes,
    untrained_system,
)
from spacy_nested_ner.comparison.trainings import bare
from spacy_nested_ner.systems.locate_and_label.settings import seed_lengths

app = typer.Typer(add_completion=False, help=__doc__)

GENIA = ["DNA", "RNA", "protein", "cell_line", "cell_type"]
ENTITY_WORDS = 8
WORDS_PER_ENTITY = 10  # unless their number is what grows
# Longest span of "unlimited": as long as the doc.
UNLIMITED = 0


class Axis(NamedTuple):
    """What grows, over which values, and on what it is measured."""

    values: List[int]
    docs: int
    words: int
    training: bool
    title: str


AXES = {
    "words": Axis([25, 100, 400, 1500, 4000], 1, 0, False, "words of one doc, prediction"),
    "step": Axis([25, 100, 400, 1500, 4000], 1, 0, True, "words of one doc, training step"),
    "labels": Axis([5, 20, 114], 32, 25, False, "labels, prediction of 32 docs of 25 words"),
    "entities": Axis(
        [0, 5, 20, 60], 8, 80, True, "entities per doc, training step on 8 docs of 80 words"
    ),
    "span": Axis(
        [8, 16, 32, UNLIMITED], 1, 1500, False, "longest span, prediction of one doc of 1,500 words"
    ),
}


class Cell(NamedTuple):
    """One measurement. shrink: the docs have so many times fewer words."""

    system: str
    axis: str
    value: int
    shrink: int = 1

    @property
    def key(self) -> str:
        """Name in the JSON file."""
        return f"{self.system} {self.axis} {self.value}"

    @property
    def n_words(self) -> int:
        """Words of each doc."""
        return max(1, (AXES[self.axis].words or self.value) // self.shrink)

    @property
    def n_entities(self) -> int:
        """Gold entities of each doc, which only training looks at."""
        return self.value if self.axis == "entities" else self.n_words // WORDS_PER_ENTITY


@app.command()
def run(
    output: Annotated[Path, typer.Argument(help="Folder for growth.json")],
    system: Systems = SYSTEMS,
    axis: Annotated[List[str], typer.Option(help="Repeat for several")] = list(AXES),  # noqa: B006
    transformer: Annotated[
        Optional[str], typer.Option(help="Directory or hub name; a CNN without it")
    ] = None,
    repeats: Annotated[int, typer.Option(help="Pairs of system and encoder, at most")] = 3,
    enough_seconds: Annotated[float, typer.Option(help="CPU time that makes one pair do")] = 4.0,
    cell_seconds: Annotated[int, typer.Option(help="CPU time that a cell may take")] = 120,
    cell_gib: Annotated[float, typer.Option(help="Memory that a cell may take")] = 8.0,
    shrink: Annotated[int, typer.Option(help="Docs with so many times fewer words")] = 1,
) -> None:
    """Measure what is not in the folder yet."""
    if unknown := set(axis).difference(AXES):
        raise typer.BadParameter(f"No axis is {unknown.pop()!r}: {', '.join(AXES)}.")
    settings: Dict[str, Any] = {"transformer": transformer, "shrink": shrink, "repeats": repeats}
    settings.update(enough_seconds=enough_seconds)
    results = Results(output / "growth.json", **settings)
    cells = [Cell(s, a, value, shrink) for a in axis for s in system for value in values_of(s, a)]
    limits = {"cell_seconds": cell_seconds, "cell_gib": cell_gib}
    left = [cell for cell in cells if is_left(results.cells.get(cell.key), limits)]
    for i, cell in enumerate(left, start=1):
        found = in_process(
            measure,
            *(cell, transformer, repeats, enough_seconds),
            cpu_seconds=cell_seconds,
            gib=cell_gib,
        )
        results.add(cell.key, {**found, **limits} if "limit" in found else found)
        typer.echo(f"{i}/{len(left)} {cell.key}: {tables.growth_cell(found)}", err=True)


def is_left(cell: Optional[Dict[str, Any]], limits: Dict[str, float]) -> bool:
    """Whether a cell has to be measured: it is not there, or exceeded a limit below this one."""
    if cell is None or "limit" not in cell:
        return cell is None
    name = {"time": "cell_seconds", "memory": "cell_gib"}[cell["limit"]]
    return cell.get(name, limits[name]) < limits[name]


def values_of(system: str, axis: str) -> List[int]:
    """The spans of most systems are bounded by the window alone, 128 words or the whole doc."""
    bounded = system == "spancat" or takes(system, "lengths")
    return [32, UNLIMITED] if axis == "span" and not bounded else AXES[axis].values


def measure(
    cell: Cell, transformer: Optional[str], repeats: int, enough_seconds: float
) -> Dict[str, Any]:
    """CPU seconds of the system and of the encoder alone, medians of pairs, and what each of them
    adds to the peak of the process, MiB; a training step is without the optimizer."""
    warnings.simplefilter("ignore")
    axis = AXES[cell.axis]
    labels = GENIA if cell.axis != "labels" else [f"L{i}" for i in range(cell.value)]
    sample = synthetic_docs(1, 2 * len(labels), labels, len(labels))
    nlp = untrained_system(cell.system, sample, transformer, **settings_of(cell, labels))
    encoder = encoder_alone(transformer, sample)
    docs = synthetic_docs(axis.docs, cell.n_words, labels, cell.n_entities)
    step = training_step if axis.training else prediction
    step(nlp, encoder, sample)  # what happens once is not measured
    alone, whole = step(nlp, encoder, docs)
    before = peak()
    encoder_times, times = [alone()], []
    encoder_mib = peak() - before
    times.append(whole())
    mib = peak() - before
    while len(times) < repeats and sum(times) < enough_seconds:
        encoder_times.append(alone())
        times.append(whole())
    return {
        "seconds": statistics.median(times),
        "ratio": statistics.median(a / b for a, b in zip(times, encoder_times)),
        "mib": mib,
        "encoder_seconds": statistics.median(encoder_times),
        "encoder_mib": encoder_mib,
        "repeats": len(times),
    }


def settings_of(cell: Cell, labels: List[str]) -> Dict[str, Any]:
    """What differs from the shipped config."""
    changes: Dict[str, Any] = {"model": {}, **UNFILTERED.get(cell.system, {})}
    longest = cell.value or cell.n_words if cell.axis == "span" else ENTITY_WORDS
    if cell.system == "spancat":
        changes["suggester"] = {
            "@misc": "spacy.ngram_range_suggester.v1",
            "min_size": 1,
            "max_size": longest,
        }
    elif cell.axis == "span" and cell.value == UNLIMITED:
        changes.update(window=longest, stride=longest)
    if cell.axis == "span" and takes(cell.system, "lengths"):
        changes["model"]["lengths"] = seed_lengths(longest)
    if takes(cell.system, "questions"):
        changes["model"]["questions"] = questions_for(labels)
    return changes


def encoder_alone(transformer: Optional[str], sample: List[Doc]) -> Any:
    """A second copy of the encoder that the systems have, and that reads each doc once."""
    settings = shipped_config(SYSTEMS[0], transformer)["components"]["ner"]["model"]["tok2vec"]
    encoder = registry.resolve({"model": settings})["model"]
    encoder.initialize(X=sample)
    return encoder


def synthetic_docs(number: int, words: int, labels: List[str], n_entities: int) -> List[Doc]:
    """Docs of random words without sentence boundaries, with as many entities of up to eight words
    at random places, which may nest and cross. The labels take turns."""
    chance, vocab = random.Random(0), spacy.blank("en").vocab
    vocabulary = [str(i) for i in range(2000)]  # of one or two word pieces, as words of a text
    docs = []
    for _ in range(number):
        doc = Doc(vocab, words=chance.choices(vocabulary, k=words))
        places = [
            (start, start + length)
            for start in range(words)
            for length in range(1, ENTITY_WORDS + 1)
            if start + length <= words
        ]
        chosen = chance.sample(places, min(n_entities, len(places)))
        doc.spans["sc"] = [
            Span(doc, *place, label=labels[i % len(labels)]) for i, place in enumerate(chosen)
        ]
        docs.append(doc)
    return docs


Timed = Callable[[], float]


def prediction(nlp: Language, encoder: Any, docs: List[Doc]) -> List[Timed]:
    """The encoder alone and the system, each over fresh copies of the docs."""
    pipe: Any = nlp.get_pipe("ner")
    return [
        timed(encoder.predict, lambda: [[bare(nlp, doc) for doc in docs]]),
        timed(lambda fresh: list(pipe.pipe(fresh)), lambda: [[bare(nlp, doc) for doc in docs]]),
    ]


def training_step(nlp: Language, encoder: Any, docs: List[Doc]) -> List[Timed]:
    """Forward and backward pass of the encoder alone and of the system."""

    def learn(fresh: List[Doc]) -> None:
        vectors, backprop = encoder(fresh, is_train=True)
        backprop(vectors)

    return [
        timed(learn, lambda: [[bare(nlp, doc) for doc in docs]]),
        timed(
            lambda examples: nlp.update(examples, sgd=NO_OPTIMIZER),
            lambda: [[Example(bare(nlp, doc), doc) for doc in docs]],
        ),
    ]


def timed(function: Callable[..., Any], arguments: Callable[[], List[Any]]) -> Timed:
    """CPU seconds of a call; its arguments are made anew for each one, outside the clock."""

    def call() -> float:
        given = arguments()
        with Stopwatch() as watch:
            function(*given)
        return watch.cpu

    return call


@app.command()
def report(output: Annotated[Path, typer.Argument(help="Folder with growth.json")]) -> None:
    """Print Markdown tables; draw the growth of time and memory beside them (growth.svg)."""
    cells = result_of(output, "growth.json")["cells"]
    measured = [name for name in AXES if any(key.split()[1] == name for key in cells)]
    for name in measured:
        typer.echo(f"\n{AXES[name].title}: CPU seconds (times the encoder alone), MiB\n")
        typer.echo(tables.growth(cells, name))
    draw(cells, measured, output / "growth.svg")


def names_of_values(axis: str) -> List[str]:
    """The values of an axis as they are shown."""
    unlimited = axis == "span"
    values = AXES[axis].values
    return ["unlimited" if unlimited and v == UNLIMITED else str(v) for v in values]


def draw(cells: Dict[str, Any], measured: List[str], target: Path) -> None:
    """A column for each axis that was measured: time above, memory below."""
    size = (4 * len(measured), 6)
    figure, grid = pyplot().subplots(2, len(measured), figsize=size, squeeze=False)
    for column, name in enumerate(measured):
        axis = AXES[name]
        for row, (what, unit) in enumerate((("seconds", "CPU seconds"), ("mib", "MiB"))):
            axes = grid[row, column]
            for system in SYSTEMS:
                points = {v: cells.get(Cell(system, name, v).key, {}) for v in axis.values}
                known = {v: found[what] for v, found in points.items() if what in found}
                places = [axis.values.index(value) for value in known]
                axes.plot(places, list(known.values()), marker="o", label=system)
            axes.set_xticks(range(len(axis.values)), names_of_values(name))
            axes.set_yscale("log" if what == "seconds" else "symlog")
            axes.set_ylabel(unit)
        grid[0, column].set_title(name)
    grid[0, 0].legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(target, metadata={"Date": None})
    typer.echo(f"\nDrawn in {target}")


if __name__ == "__main__":
    app()
