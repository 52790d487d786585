"""Train and measure several systems alike, then show the results as one table and one plot.

python benchmarks/compare.py run corpus/genia results/genia_cnn --minutes 60
python benchmarks/compare.py run corpus/genia results/genia_minilm --transformer DIRECTORY --train-limit 4000 --minutes 60
python benchmarks/compare.py report results/genia_cnn

Each training runs in a process of its own and leaves a JSON file when it is done; those that are
there already are not run again. The plot needs matplotlib.
"""  # noqa: E501

import itertools
import json
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any, Dict, Iterator, List, Optional

import spacy
import srsly
import thinc
import torch
import typer
from ablation import CONFIGS, f1_at, found_by, read, use_transformer
from inference import encoder_seconds, peak, seconds
from measuring import provenance, write_result
from spacy import util
from spacy.cli._util import setup_gpu
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training.initialize import init_nlp
from spacy.training.loop import train as train_loop
from thinc.api import Config

app = typer.Typer(add_completion=False, help=__doc__)

SYSTEMS = [
    "piqn_ner",
    "locate_and_label_ner",
    "diffusion_ner",
    "proposer_regressor_ner",
    "mrc_ner",
    "spancat",
]
BATCH_SIZES = (1, 8, 64)


class Clock:
    """The seconds that one training may take, from its first batch on, and the steps it made."""

    budget: float = 0.0
    begin: Optional[float] = None
    steps: int = 0

    def share(self) -> float:
        """How much of the budget is used up, 0 to 1; 0 before the first batch."""
        if self.begin is None:
            return 0.0
        return min(1.0, (time.perf_counter() - self.begin) / self.budget)


CLOCK = Clock()


@util.registry.batchers("benchmarks.until_time_is_up.v1")
def until_time_is_up(batcher: Any) -> Any:
    """Batches of one epoch after the other; the last comes when the budget is used up."""

    def batches(examples: List[Any]) -> Iterator[List[Any]]:
        examples = list(examples)
        CLOCK.begin = time.perf_counter()
        while True:
            for batch in batcher(examples):
                if CLOCK.share() >= 1:
                    return
                CLOCK.steps += 1
                yield batch
            random.shuffle(examples)

    return batches


@thinc.registry.schedules("benchmarks.linear_over_time.v1")
def linear_over_time(initial_rate: float, warmup_steps: int) -> Iterator[float]:
    """Warm-up over steps, then linear decay over the budget."""
    for step in itertools.count():
        yield initial_rate * min(1.0, step / max(1, warmup_steps)) * (1 - CLOCK.share())


@app.command()
def run(
    corpus: Annotated[Path, typer.Argument(help="Folder with train, dev and test.spacy")],
    output: Annotated[Path, typer.Argument(help="Folder for models and JSON")],
    system: Annotated[List[str], typer.Option(help="Repeat for several")] = SYSTEMS,
    transformer: Annotated[
        Optional[str], typer.Option(help="Directory or hub name; a CNN from scratch without it")
    ] = None,
    frozen: Annotated[bool, typer.Option(help="The transformer does not learn")] = False,
    mixed_precision: Annotated[
        bool, typer.Option(help="Train the transformer in bfloat16")
    ] = False,
    minutes: Annotated[float, typer.Option(help="Wall-clock budget of each training")] = 0.0,
    steps: Annotated[int, typer.Option(help="Or this many steps; 0: the config's own")] = 0,
    train_limit: Annotated[int, typer.Option(help="First training docs; 0: all")] = 0,
    dev_limit: Annotated[int, typer.Option(help="First dev docs that choose the model")] = 600,
    test_limit: Annotated[int, typer.Option(help="First test docs; 0: all")] = 0,
    eval_frequency: Annotated[int, typer.Option(help="Steps between scores on dev")] = 500,
    seed: Annotated[List[int], typer.Option(help="Repeat for several")] = [0],  # noqa: B006
    threads: int = 1,
    gpu_id: int = -1,
) -> None:
    """Train what has no result in the output folder yet, one after the other."""
    settings = {key: value for key, value in locals().items() if key not in ("system", "seed")}
    settings.update(corpus=str(corpus), output=str(output), command=" ".join(sys.argv))
    output.mkdir(parents=True, exist_ok=True)
    for number in seed:
        for name in system:
            target = output / f"{name}_seed{number}.json"
            if target.exists():
                typer.echo(f"{target}: done already")
                continue
            typer.echo(f"{target}: training")
            task = json.dumps({**settings, "system": name, "seed": number, "target": str(target)})
            subprocess.run([sys.executable, __file__, "one", task], check=True)
    report(output)


@app.command(hidden=True)
def one(task: str) -> None:
    """One training and its measurements, in a process of its own."""
    settings = json.loads(task)
    torch.set_num_threads(settings["threads"])
    setup_gpu(settings["gpu_id"], silent=True)
    target = Path(settings["target"])
    folder = target.with_suffix("")
    log = folder.with_suffix(".jsonl")
    folder.mkdir(exist_ok=True)
    log.unlink(missing_ok=True)  # of a run that was broken off; the logger would not write
    nlp = init_nlp(training_config(settings, log), use_gpu=settings["gpu_id"])
    begin, cpu = time.perf_counter(), time.process_time()
    train_loop(nlp, folder, use_gpu=settings["gpu_id"])
    training = {
        "minutes": (time.perf_counter() - begin) / 60,
        "cpu_minutes": (time.process_time() - cpu) / 60,
        "peak_mib": peak(),
        "steps": CLOCK.steps or nlp.config["training"]["max_steps"],
        "curve": [(row["step"], row["score"]) for row in srsly.read_jsonl(log)],
    }
    result = {
        "settings": settings,
        **provenance(),
        "training": training,
        **measured(folder, settings),
    }
    write_result(target, result)


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
    config["system"]["seed"] = settings["seed"]
    config["corpora"]["train"]["limit"] = settings["train_limit"]
    config["corpora"]["dev"]["limit"] = settings["dev_limit"]
    training["eval_frequency"] = settings["eval_frequency"]
    training["logger"] = {
        "@loggers": "spacy.ConsoleLogger.v3",
        "progress_bar": "eval",
        "output_file": str(log),
    }
    if settings["minutes"]:
        limit_time(training, settings["minutes"])
    elif settings["steps"]:
        training["max_steps"] = settings["steps"]
    return Config(config)


def limit_time(training: Dict[str, Any], minutes: float) -> None:
    """End after so many minutes, with learning rates that decay over them."""
    CLOCK.budget = 60 * minutes
    training.update(max_steps=0, max_epochs=1)
    training["batcher"] = {
        "@batchers": "benchmarks.until_time_is_up.v1",
        "batcher": training["batcher"],
    }
    optimizer = training["optimizer"]
    for key in ("learn_rate", "head_learn_rate"):
        rate = optimizer.get(key)
        if isinstance(rate, dict) and rate["@schedules"] == "warmup_linear.v1":
            optimizer[key] = {
                "@schedules": "benchmarks.linear_over_time.v1",
                "initial_rate": rate["initial_rate"],
                "warmup_steps": rate["warmup_steps"],
            }


def measured(folder: Path, settings: Dict[str, Any]) -> Dict[str, Any]:
    """Strict F1 on test and speed, of whichever of the best and the last model scores higher on
    dev. The threshold is the config's own, and the one that is best on dev."""
    corpus = Path(settings["corpus"])
    choices = []
    for name in ("model-best", "model-last"):
        nlp = spacy.load(folder / name)
        at = found_by(nlp, read(nlp, corpus / "dev.spacy", settings["dev_limit"]))
        pipe: Any = nlp.get_pipe("ner")
        own = pipe.cfg["threshold"]
        tuned = max((f1_at(at, i / 20), i / 20) for i in range(1, 20))[1]
        choices.append((f1_at(at, own), name, own, tuned))
    _, name, own, tuned = max(choices)
    nlp = spacy.load(folder / name)
    test = read(nlp, corpus / "test.spacy", settings["test_limit"])
    begin = time.perf_counter()
    at = found_by(nlp, test)
    rate = sum(map(len, test)) / (time.perf_counter() - begin)
    return {
        "model": name,
        "f1": f1_at(at, own),
        "f1_tuned": f1_at(at, tuned),
        "threshold": own,
        "threshold_tuned": tuned,
        "words_per_second": rate,
        "ratio": {str(size): ratio_at(nlp, test[:192], size) for size in BATCH_SIZES},
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
    results = [srsly.read_json(path) for path in sorted(output.glob("*_seed*.json"))]
    if not results:
        raise typer.BadParameter(f"{output}: no results. Use the command `run` first.")
    columns = [
        "system",
        "seed",
        "test F1",
        "threshold tuned on dev",
        "steps",
        "minutes",
        "CPU minutes",
    ]
    columns += ["words/s", *(f"ratio, batch {size}" for size in BATCH_SIZES)]
    typer.echo(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    for result in sorted(results, key=lambda result: -result["f1"]):
        training, settings = result["training"], result["settings"]
        row = [settings["system"], settings["seed"], f"{100 * result['f1']:.1f}"]
        row += [f"{100 * result['f1_tuned']:.1f} ({result['threshold_tuned']:.2f})"]
        row += [training["steps"], f"{training['minutes']:.1f}"]
        row += [f"{training['cpu_minutes']:.1f}", f"{result['words_per_second']:.0f}"]
        row += [f"{result['ratio'][str(size)]:.2f}" for size in BATCH_SIZES]
        typer.echo(f"| {' | '.join(map(str, row))} |")
    draw(results, output / "curves.svg")


def draw(results: List[Dict[str, Any]], target: Path) -> None:
    """Dev F1 over the steps of each training."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for result in results:
        settings = result["settings"]
        steps, scores = zip(*result["training"]["curve"])
        axes.plot(steps, scores, label=f"{settings['system']} (seed {settings['seed']})")
    axes.set_xlabel("steps")
    axes.set_ylabel("F1 on dev")
    axes.legend()
    figure.savefig(target, bbox_inches="tight")
    typer.echo(f"Dev scores drawn in {target}")


if __name__ == "__main__":
    app()
