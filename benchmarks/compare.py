"""Train and measure several systems alike, then show the results as one table and one plot.

python -m benchmarks.compare run corpus/genia results/genia_cnn --minutes 60
python -m benchmarks.compare run corpus/genia results/genia_minilm --transformer DIRECTORY --train-limit 4000 --minutes 60
python -m benchmarks.compare report results/genia_cnn
python -m benchmarks.compare less-data corpus/genia results/less_data --system mrc_ner --system spancat --transformer DIRECTORY

Each training runs in a process of its own and leaves a JSON file when it is done; those that are
there already are not run again. The plot needs matplotlib.
"""  # noqa: E501

import itertools
import statistics
import time
from pathlib import Path
from typing import Annotated, Any, Dict, List, Optional

import spacy
import srsly
import typer
from spacy import util
from spacy.cli._util import setup_gpu
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training.initialize import init_nlp
from spacy.training.loop import train as train_loop
from thinc.api import Config

from benchmarks import tables
from benchmarks.budget import CLOCK, limit_time
from benchmarks.harness import Stopwatch, in_process, peak, provenance, write_result
from benchmarks.passes import encoder_seconds, seconds
from benchmarks.plots import draw_lines
from benchmarks.scores import best_threshold, f1_at, found_by
from benchmarks.systems import CONFIGS, SYSTEMS, read, use_transformer

app = typer.Typer(add_completion=False, help=__doc__)

Corpus = Annotated[Path, typer.Argument(help="Folder with train, dev and test.spacy")]
Output = Annotated[Path, typer.Argument(help="Folder for models and JSON")]
Systems = Annotated[List[str], typer.Option(help="Repeat for several")]
Transformer = Annotated[
    Optional[str], typer.Option(help="Directory or hub name; a CNN from scratch without it")
]
MixedPrecision = Annotated[bool, typer.Option(help="Train the transformer in bfloat16")]
DevLimit = Annotated[int, typer.Option(help="First dev docs that choose the best model")]
TestLimit = Annotated[int, typer.Option(help="First test docs; 0: all")]
Seeds = Annotated[List[int], typer.Option(help="Repeat for several")]


@app.command()
def run(
    corpus: Corpus,
    output: Output,
    system: Systems = SYSTEMS,
    transformer: Transformer = None,
    frozen: Annotated[bool, typer.Option(help="The transformer does not learn")] = False,
    mixed_precision: MixedPrecision = False,
    minutes: Annotated[float, typer.Option(help="Wall-clock budget of each training")] = 0.0,
    cpu_clock: Annotated[
        bool, typer.Option(help="Count CPU time, for a machine that is shared; not with a GPU")
    ] = False,
    steps: Annotated[int, typer.Option(help="Or this many steps; 0: the config's own")] = 0,
    train_limit: Annotated[int, typer.Option(help="First training docs; 0: all")] = 0,
    dev_limit: DevLimit = 600,
    choose_limit: Annotated[
        int, typer.Option(help="Those that choose between it and the last one; 0: all")
    ] = 0,
    test_limit: TestLimit = 0,
    eval_frequency: Annotated[int, typer.Option(help="Steps between scores on dev")] = 500,
    seed: Seeds = [0],  # noqa: B006
    threads: int = 1,
    gpu_id: int = -1,
    speed: Annotated[bool, typer.Option(help="Measure t(pipeline) / t(encoder), too")] = True,
    adversarial: Annotated[
        Optional[float], typer.Option(help="Of the nested systems; the config's own without it")
    ] = None,
) -> None:
    """Train what has no result in the output folder yet, one after the other."""
    if cpu_clock and gpu_id >= 0:
        raise typer.BadParameter("CPU time says nothing of a GPU. Leave out --cpu-clock.")
    if cpu_clock and not minutes:
        raise typer.BadParameter("--cpu-clock counts --minutes, and there are none.")
    if frozen and adversarial:
        raise typer.BadParameter("A frozen encoder has nothing to move. Leave out --adversarial.")
    train_each(locals())
    report(output)


def train_each(settings: Dict[str, Any]) -> List[Dict[str, Any]]:
    """The results of each system and seed with the settings of `run`; those that are not there yet
    are trained."""
    shared = {key: value for key, value in settings.items() if key not in ("system", "seed")}
    output = Path(settings["output"])
    shared.update(corpus=str(settings["corpus"]), output=str(output))
    results = []
    for number, name in itertools.product(settings["seed"], settings["system"]):
        target = output / f"{name}_seed{number}.json"
        if target.exists():
            typer.echo(f"{target}: done already")
        else:
            typer.echo(f"{target}: training")
            task = {**shared, "system": name, "seed": number, "target": str(target)}
            write_result(target, in_process(one, task, threads=settings["threads"]))
        results.append(srsly.read_json(target))
    return results


@app.command()
def less_data(
    corpus: Corpus,
    output: Output,
    system: Systems = SYSTEMS,
    transformer: Transformer = None,
    mixed_precision: MixedPrecision = False,
    train_limit: Annotated[int, typer.Option(help="Training docs that are 100 %")] = 4000,
    percent: Annotated[List[int], typer.Option(help="Repeat for several")] = [10, 25, 50, 100],  # noqa: B006
    steps: Annotated[int, typer.Option(help="Of the training on all of them")] = 1250,
    least_steps: Annotated[int, typer.Option(help="Of the shorter ones")] = 300,
    dev_limit: DevLimit = 600,
    test_limit: TestLimit = 0,
    seed: Seeds = [0],  # noqa: B006
) -> None:
    """F1 of trainings on a share of the data, in as many passes as that on all of it, but no fewer
    steps than some (section 5.4 and figure 1 of BERT-MRC); a table and `less_data.svg`."""
    settings = {
        **locals(),
        "minutes": 0.0,
        "cpu_clock": False,
        "frozen": False,
        "threads": 1,
        "gpu_id": -1,
    }
    settings.update(speed=False, choose_limit=dev_limit, adversarial=None)
    curves: Dict[str, List[float]] = {}
    for share in percent:
        n_steps = max(least_steps, steps * share // 100)
        settings.update(output=output / f"{share}_percent", train_limit=train_limit * share // 100)
        settings.update(steps=n_steps, eval_frequency=max(1, n_steps // 4))
        for result in train_each(settings):
            each = result["settings"]
            name = f"{each['system']} (seed {each['seed']})"
            curves.setdefault(name, []).append(100 * result["f1"])
    typer.echo(f"| test F1 | {' | '.join(f'{share} %' for share in percent)} |")
    typer.echo("|---" * (1 + len(percent)) + "|")
    for name, scores in curves.items():
        typer.echo(f"| {name} | {' | '.join(f'{score:.1f}' for score in scores)} |")
    lines = {name: (percent, scores) for name, scores in curves.items()}
    draw_lines(lines, output / "less_data.svg", "% of the training data", "F1 on test")


def one(settings: Dict[str, Any]) -> Dict[str, Any]:
    """One training and its measurements."""
    setup_gpu(settings["gpu_id"], silent=True)
    folder = Path(settings["target"]).with_suffix("")
    log = folder.with_suffix(".jsonl")
    folder.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)  # of a run that was broken off; the logger would not write
    nlp = init_nlp(training_config(settings, log), use_gpu=settings["gpu_id"])
    with Stopwatch() as watch:
        train_loop(nlp, folder, use_gpu=settings["gpu_id"])
    training = {
        "minutes": watch.seconds / 60,
        "cpu_minutes": watch.cpu / 60,
        "peak_mib": peak(),
        "steps": CLOCK.steps or nlp.config["training"]["max_steps"],
        "curve": [(row["step"], row["score"]) for row in srsly.read_jsonl(log)],
    }
    scores = measured(folder, settings)
    return {"settings": settings, **provenance(), "training": training, **scores}


def training_config(settings: Dict[str, Any], log: Path) -> Config:
    """The shipped config of the system with the budget and the data of this comparison."""
    encoder = "transformer" if settings["transformer"] else "cnn"
    name = settings["system"].removesuffix("_ner")
    config = util.load_config(CONFIGS / f"{name}_{encoder}.cfg")
    corpus, training = Path(settings["corpus"]), config["training"]
    config["paths"].update({part: str(corpus / f"{part}.spacy") for part in ("train", "dev")})
    if settings["transformer"]:
        how = {key: settings[key] for key in ("mixed_precision", "frozen")}
        use_transformer(config, settings["transformer"], **how)
    adversarial = 0.0 if settings["frozen"] else settings["adversarial"]
    if adversarial is not None and settings["system"] != "spancat":
        config["components"]["ner"]["adversarial"] = adversarial
    config["system"]["seed"] = settings["seed"]
    config["corpora"]["train"]["limit"] = settings["train_limit"]
    config["corpora"]["dev"]["limit"] = settings["dev_limit"]
    training["eval_frequency"] = settings["eval_frequency"]
    training["before_to_disk"] = None  # scored at the config's own threshold, too
    training["logger"] = {
        "@loggers": "spacy.ConsoleLogger.v3",
        "progress_bar": "eval",
        "output_file": str(log),
    }
    if settings["minutes"]:
        if settings["cpu_clock"]:
            threads = settings["threads"]
            limit_time(training, settings["minutes"], lambda: time.process_time() / threads)
        else:
            limit_time(training, settings["minutes"])
    elif settings["steps"]:
        training["max_steps"] = settings["steps"]
    return Config(config)


def measured(folder: Path, settings: Dict[str, Any]) -> Dict[str, Any]:
    """Strict F1 on test and speed, of whichever of the best and the last model scores higher on
    dev: the best of many scores on a few docs may be the luckiest. The threshold is the config's
    own, and the one that is best on dev."""
    corpus = Path(settings["corpus"])
    choices = []
    for name in ("model-best", "model-last"):
        nlp = spacy.load(folder / name)
        at = found_by(nlp, read(nlp, corpus / "dev.spacy", settings["choose_limit"]))
        pipe: Any = nlp.get_pipe("ner")
        own = pipe.cfg["threshold"]
        choices.append((f1_at(at, own), name, own, best_threshold(at)[1]))
    _, name, own, tuned = max(choices)
    nlp = spacy.load(folder / name)
    test = read(nlp, corpus / "test.spacy", settings["test_limit"])
    with Stopwatch() as watch:
        at = found_by(nlp, test)
    sizes = tables.BATCH_SIZES if settings["speed"] else ()
    return {
        "model": name,
        "f1": f1_at(at, own),
        "f1_tuned": f1_at(at, tuned),
        "threshold": own,
        "threshold_tuned": tuned,
        "words_per_second": sum(map(len, test)) / watch.seconds,
        "ratio": {str(size): ratio_at(nlp, test[:64], size) for size in sizes},
    }


def ratio_at(nlp: Language, docs: List[Doc], batch_size: int) -> float:
    """t(pipeline) / t(encoder alone), median of three pairs."""
    pairs = [
        seconds(nlp, docs, batch_size) / encoder_seconds(nlp, docs, batch_size) for _ in range(3)
    ]
    return statistics.median(pairs)


@app.command()
def report(output: Annotated[Path, typer.Argument(help="Folder with the JSON files")]) -> None:
    """Print the results as a Markdown table; draw the dev scores beside them (curves.svg)."""
    results = tables.trainings(output)
    if not results:
        raise typer.BadParameter(f"{output}: no results. Use the command `run` first.")
    typer.echo(tables.comparison(results))
    if tables.over_seeds(results):
        typer.echo(f"\n{tables.over_seeds(results)}")
    curves = {}
    for result in results:
        name = f"{result['settings']['system']} (seed {result['settings']['seed']})"
        curves[name] = tuple(zip(*result["training"]["curve"]))
    draw_lines(curves, output / "curves.svg", "steps", "F1 on dev")


if __name__ == "__main__":
    app()
