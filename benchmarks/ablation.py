"""What each part of a system is worth: trainings that differ in one setting, at equal steps or in
equal CPU time.

python -m benchmarks.ablation diffusion corpus/genia/train.spacy corpus/genia/dev.spacy
python -m benchmarks.ablation piqn TRAIN DEV --only recommended --only "quantity 0.2" --output results/piqn.json

The variants of each system are in `benchmarks/ablations`. What the output has already is not
trained again.
"""  # noqa: E501

import sys
from pathlib import Path
from typing import Annotated, Any, Dict, List, Optional

import typer
from spacy import util
from spacy.training.initialize import init_nlp
from spacy.training.loop import train as train_loop
from thinc.api import Config

from benchmarks import compare
from benchmarks.ablations import Variants, table_of
from benchmarks.harness import Output, Results, Stopwatch, in_process
from benchmarks.scores import LENGTHS, at_best_threshold, found_by
from benchmarks.systems import CONFIGS, load_shipped, read, use_transformer
from spacy_nested_ner.training.budget import CLOCK, limit_time


def main(
    system: Annotated[str, typer.Argument(help="Name of a table in benchmarks/ablations")],
    train: Annotated[Path, typer.Argument(help="Training docs, a .spacy file")],
    dev: Annotated[Path, typer.Argument(help="Docs to score, a .spacy file")],
    steps: int = 1000,
    minutes: Annotated[float, typer.Option(help="Of CPU time, in place of the steps")] = 0.0,
    dev_docs: int = 600,
    only: Annotated[Optional[List[str]], typer.Option(help="Names of variants")] = None,
    output: Output = None,
    train_limit: Annotated[int, typer.Option(help="First training docs; 0: all")] = 0,
    transformer: Annotated[
        Optional[str], typer.Option(help="Directory or hub name, for *_transformer.cfg")
    ] = None,
    mixed_precision: Annotated[bool, typer.Option(help="Of the transformer")] = False,
    config: Annotated[
        Optional[str], typer.Option(help="Name of a shipped config; the table's own without it")
    ] = None,
    batch_size: Annotated[
        int, typer.Option(help="Words or docs, as the config counts; 0: the config's own")
    ] = 0,
    seed: int = 0,
) -> None:
    """Train each variant; print F1 at its best threshold, F1 by length there, and CPU time."""
    shipped, variants = table_of(system)
    names = only or list(variants)
    if unknown := [name for name in names if name not in variants]:
        raise typer.BadParameter(f"{system} has no variant {unknown[0]!r}: {', '.join(variants)}.")
    source = config or shipped
    if transformer and "transformer" not in util.load_config(CONFIGS / f"{source}.cfg")["paths"]:
        other = f"--config {system}_transformer"
        raise typer.BadParameter(f"{source} has no transformer. Give {other}.")
    compare.check({"transformer": transformer, "mixed_precision": mixed_precision})
    settings = {"system": system, "train": str(train), "dev": str(dev), "steps": steps}
    if minutes:
        settings.update(steps=0, minutes=minutes)
    settings.update(dev_docs=dev_docs, train_limit=train_limit, config=source, seed=seed)
    settings.update(transformer=transformer, mixed_precision=mixed_precision, batch_size=batch_size)
    results = Results(output, "variants", **settings)
    typer.echo(f"| variant | F1 | {' | '.join(LENGTHS)} | best threshold | CPU seconds |")
    typer.echo("|---" * (4 + len(LENGTHS)) + "|")
    for group in trained_alike(variants, names):
        if any(name not in results.cells for name in group):
            found = in_process(measured, settings, {name: variants[name] for name in group})
            for name in group:
                results.add(name, found[name])
        for name in group:
            typer.echo(row(name, results.cells[name]))


def trained_alike(variants: Variants, names: List[str]) -> List[List[str]]:
    """Groups of variants that follow each other and differ in their predictions alone."""
    groups: List[List[str]] = []
    for name in names:
        if groups and training_of(variants[name]) == training_of(variants[groups[-1][0]]):
            groups[-1].append(name)
        else:
            groups.append([name])
    return groups


def training_of(variant: Dict[str, Any]) -> Dict[str, Any]:
    """The settings that a variant is trained with."""
    return {key: value for key, value in variant.items() if key != "run_time"}


def row(name: str, found: Dict[str, Any]) -> str:
    """A variant in the table."""
    figures = " | ".join(f"{100 * found[key]:.1f}" for key in ("f1", *LENGTHS))
    return f"| {name} | {figures} | {found['threshold']:.2f} | {found['seconds']:.0f} |"


def measured(settings: Dict[str, Any], variants: Variants) -> Dict[str, Any]:
    """Scores of variants that one training serves, by name."""
    source = source_config(settings)
    first, *_ = variants.values()
    if "minutes" in settings:
        limit_time(source["training"], settings["minutes"], cpu_clock=True)
    with Stopwatch() as watch:
        nlp = trained(source, training_of(first), Path(settings["train"]), settings["steps"])
    pipe, found = nlp.get_pipe("ner"), {}
    gold, own = read(nlp, Path(settings["dev"]), settings["dev_docs"]), dict(pipe.cfg)
    for name, variant in variants.items():
        pipe.cfg.update({**own, **variant.get("run_time", {})})
        found[name] = {**at_best_threshold(found_by(nlp, gold)), "seconds": watch.cpu}
        found[name]["steps"] = settings["steps"] or CLOCK.steps
    return found


def source_config(settings: Dict[str, Any]) -> Config:
    """A shipped config with the data and the encoder of this run."""
    source = load_shipped(settings["config"])
    source["corpora"]["train"]["limit"] = settings["train_limit"]
    source["system"]["seed"] = settings.get("seed", 0)
    if settings.get("batch_size"):
        batcher, size = source["training"]["batcher"], settings["batch_size"]
        batcher.update({key: size for key in ("size", "smallest") if key in batcher})
    if settings["transformer"] is not None:
        how = {"mixed_precision": settings["mixed_precision"]}
        use_transformer(source, settings["transformer"], **how)
    return source


def trained(source: Config, settings: Dict[str, Any], train: Path, steps: int) -> Any:
    """A pipeline after so many steps of a config, with these settings; 0 steps: when its own time
    is up."""
    config = source.copy()
    config["paths"].update(train=str(train), dev=str(train))
    config["training"].update(max_steps=steps, eval_frequency=steps or 10**6)
    model = {key: value for key, value in settings.items() if key not in ("component", "tok2vec")}
    config["components"]["ner"].update(settings.get("component", {}))
    config["components"]["ner"]["model"].update(model)
    config["components"]["ner"]["model"]["tok2vec"].update(settings.get("tok2vec", {}))
    # Scored once at the end: the loop itself looks at one doc.
    config["corpora"]["dev"]["limit"] = 1
    config["training"]["logger"] = {"@loggers": "spacy.ConsoleLogger.v3", "console_output": False}
    nlp = init_nlp(Config(config))
    train_loop(nlp, stdout=sys.stderr)  # the table is the only thing on stdout
    return nlp


if __name__ == "__main__":
    typer.run(main)
