"""`nested-ner compare`: which system is best for one's own data in a given time."""

# No `from __future__ import annotations`: typer reads the annotations at run time.

import itertools
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Dict, Iterator, List, Optional, Sequence

import typer
from wasabi import msg

from spacy_nested_ner.cli.init import DevArg
from spacy_nested_ner.cli.options import GpuOpt, LangOpt, SpansKeyOpt, TrainArg, VectorsOpt
from spacy_nested_ner.cli.output import failing, warn_of

if TYPE_CHECKING:
    from spacy_nested_ner.comparison.trainings import Task

TestArg = Annotated[Path, typer.Argument(metavar="TEST", help="Test data, .spacy file or folder")]
OutputArg = Annotated[
    Path, typer.Argument(metavar="OUTPUT", help="Folder for pipelines and results (JSON)")
]
SystemOpt = Annotated[
    Optional[List[str]],
    typer.Option(
        help="Factory of a system, or spancat; repeat the option for several (default: all)",
        show_default=False,
    ),
]
EncoderOpt = Annotated[
    str,
    typer.Option(
        help="cnn: a small CNN; for English it is pretrained. Otherwise the folder or hub name of "
        "a pretrained transformer"
    ),
]
MinutesOpt = Annotated[float, typer.Option(help="Minutes per training")]
SeedOpt = Annotated[
    List[int], typer.Option(help="Random seed; repeat the option for means with intervals")
]
CpuClockOpt = Annotated[
    bool, typer.Option("--cpu-clock", help="Measure CPU time, for a machine that is shared")
]
# Of dev, for the scores while a system learns; they count as its time.
SCORED_WORDS, EVAL_FREQUENCY = 20_000, 500


@dataclass(frozen=True)
class Plan:
    """What all trainings of a comparison have in common."""

    train: Path
    dev: Path
    test: Path
    encoder: str
    minutes: float
    cpu_clock: bool
    spans_key: str
    lang: str
    gpu_id: int
    vectors: Optional[str] = None

    def to_dict(self) -> Dict[str, Any]:
        """As their results tell it, with a digest of the files that it names."""
        from spacy_nested_ner.cli._recipe import is_cnn
        from spacy_nested_ner.comparison.provenance import digest

        encoder = [] if is_cnn(self.encoder) else [Path(self.encoder)]
        vectors = [] if self.vectors is None else [Path(self.vectors) / "vocab"]
        folders = [folder for folder in (*encoder, *vectors) if folder.is_dir()]
        own = [path for folder in folders for path in sorted(folder.iterdir())]
        own = [path for path in own if not path.name.startswith(".")]  # what a file manager adds
        contents = [part for path in (self.train, self.dev, self.test) for part in _contents(path)]
        contents += [path.read_bytes() for path in own if path.is_file()]
        paths = {"train": str(self.train), "dev": str(self.dev), "test": str(self.test)}
        return {**asdict(self), **paths, "data": digest(contents)}


def compare_cli(
    train_path: TrainArg,
    dev_path: DevArg,
    test_path: TestArg,
    output_path: OutputArg,
    system: SystemOpt = None,
    encoder: EncoderOpt = "cnn",
    vectors: VectorsOpt = None,
    minutes: MinutesOpt = 10.0,
    seed: SeedOpt = [0],  # noqa: B006
    cpu_clock: CpuClockOpt = False,
    spans_key: SpansKeyOpt = "sc",
    lang: LangOpt = "en",
    gpu_id: GpuOpt = -1,
) -> None:
    """Train systems in the same way for the same time, and say which one is best for the data.

    Trainings whose results are already in the folder are not repeated.
    """
    from spacy_nested_ner.comparison.tables import (
        by_system,
        each_training,
        over_seeds,
        tuned_means,
        verdict,
    )
    from spacy_nested_ner.comparison.trainings import Unfinished

    failed: Optional[Unfinished] = None
    with failing("Cannot compare systems."):
        plan = Plan(
            train_path,
            dev_path,
            test_path,
            encoder,
            minutes,
            cpu_clock,
            spans_key,
            lang,
            gpu_id,
            vectors,
        )
        try:
            results = _results(_names(system), seed, output_path, plan)
        except Unfinished as err:
            failed, results = err, err.results
            if not results:
                raise
    typer.echo("")
    for table in filter(None, (each_training(results), over_seeds(results))):
        typer.echo(f"{table}\n")
    msg.good(verdict(results))
    first = by_system(results)[next(iter(tuned_means(results)))][0]
    best = first["settings"]  # not the best seed: the test set would have chosen it
    typer.echo(str((output_path / f"{best['system']}_seed{best['seed']}" / "model").resolve()))
    if failed:
        msg.fail("Not all trainings succeeded.", str(failed), exits=1)


def _names(systems: Optional[Sequence[str]]) -> List[str]:
    """Raises ValueError for what is no system."""
    from spacy_nested_ner.cli._recipe import SPANCAT
    from spacy_nested_ner.systems import BEST_FIRST, get_system

    known = [*(get_system(name).factory for name in BEST_FIRST), SPANCAT]
    for name in systems or ():
        if name not in known:
            raise ValueError(f"There is no system '{name}'. Choose from: {', '.join(known)}.")
    return list(dict.fromkeys(systems or known))


def _results(
    systems: List[str], seeds: List[int], output: Path, plan: Plan
) -> List[Dict[str, Any]]:
    """Of all systems and seeds, those that were there included."""
    from spacy_nested_ner.cli._recipe import check_minutes
    from spacy_nested_ner.comparison.trainings import train_and_score, train_each

    check_minutes(plan.minutes)
    if plan.cpu_clock and plan.gpu_id >= 0:
        raise ValueError("CPU time says nothing about a GPU. Leave out --cpu-clock.")
    shared = plan.to_dict()
    configs = _configs(systems, plan)
    tasks = [
        _task(configs[name], output, {**shared, "system": name, "seed": number})
        for number, name in itertools.product(dict.fromkeys(seeds), systems)
    ]
    todo = sum(not task.target.exists() for task in tasks)
    if todo:
        clock = "CPU " if plan.cpu_clock else ""
        msg.info(f"Trainings: {todo}, {plan.minutes:g} {clock}minutes each, plus scoring")
    return train_each(tasks, train_and_score, typer.echo)


def _configs(systems: Sequence[str], plan: Plan) -> Dict[str, Any]:
    """By system; warns of what one cannot find.

    Raises ValueError for data that cannot be read or hold no entities.
    """
    from spacy_nested_ner.cli import _recipe
    from spacy_nested_ner.cli.inspect import inspect

    train, dev, encoder = plan.train, plan.dev, plan.encoder
    spans_key, lang = plan.spans_key, plan.lang
    vectors = plan.vectors
    known = None if vectors is None else _recipe.known_words(vectors, encoder, train, lang)
    report = inspect(train, dev, spans_key, lang)
    _recipe.check_learnable(report, lang)
    sentences, longest = _recipe.sentences_and_longest(train, spans_key, lang)
    warn_of([*_recipe.too_long(longest, encoder), *_recipe.of_data(report)])
    if known is not None:
        warn_of(known.warnings())
    words = batches = ""
    lengths = {path: _lengths(path, spans_key, lang) for path in (dev, plan.test)}
    totals = itertools.accumulate(lengths[dev])
    dev_limit = max(1, sum(total <= SCORED_WORDS for total in totals))
    found = {}
    for name in systems:
        config = _recipe.config_of(name, train, dev, encoder, spans_key, lang)
        words = _recipe.use_words(config, encoder, lang, known)
        _recipe.fit_rate(config, sentences)
        _recipe.use_encoder(config, encoder, _recipe.goal_for(name, encoder, sentences))
        batches = _recipe.fit_batches(config, report["train"]) or batches
        config["corpora"]["dev"]["limit"] = dev_limit
        if name == _recipe.SPANCAT:
            lost = _recipe.not_suggested(config, report)
        else:
            lost = _recipe.out_of_reach(name, report["limits"])
        if lost:
            msg.warn(f"{name} cannot find {lost} entities of the training data.")
        found[name] = config
    if words:
        msg.info(f"Vectors: {words}")
    if batches:
        msg.info(f"Batches: {batches}")
    return found


def _lengths(path: Path, spans_key: str, lang: str) -> List[int]:
    """Words of each doc. Raises ValueError if the docs have no entities."""
    from spacy_nested_ner.cli.pipelines import blank_pipeline, read_examples

    docs = [eg.reference for eg in read_examples(blank_pipeline(lang), path)]
    if not any(doc.spans.get(spans_key) for doc in docs):
        raise ValueError(f"{path} has no entities under spans key {spans_key!r}.")
    return [len(doc) for doc in docs]


def _contents(path: Path) -> Iterator[bytes]:
    """Of a file; of a folder, those of its files behind how many there are, each with its size."""
    from spacy_nested_ner.corpora.docbin import spacy_files

    files = spacy_files(path)
    if path.is_dir():
        yield f"{len(files)} files".encode()
    for file in files:
        data = file.read_bytes() if file.is_file() else b""
        if path.is_dir():
            yield f"{len(data)} bytes".encode()
        yield data


def _task(config: Any, output: Path, settings: Dict[str, Any]) -> "Task":
    from spacy_nested_ner.comparison.provenance import digest
    from spacy_nested_ner.comparison.trainings import Task
    from spacy_nested_ner.training.budget import limit_time

    config = config.copy()
    config["system"]["seed"] = settings["seed"]
    training = config["training"]
    training["eval_frequency"] = EVAL_FREQUENCY
    training["before_to_disk"] = None  # thresholds are chosen once, at the end
    limit_time(training, settings["minutes"], settings["cpu_clock"])
    name = f"{settings['system']}_seed{settings['seed']}"
    paths = dict.fromkeys(config["paths"])  # of the files the contents count
    settings["config"] = digest([config.merge({"paths": paths}).to_str().encode("utf8")])
    return Task(settings, output / f"{name}.json", config.to_str())
