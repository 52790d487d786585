"""Train and measure several systems alike, then show the results as one table and one plot.

python -m benchmarks.compare run corpus/genia results/genia_cnn --minutes 60
python -m benchmarks.compare run corpus/genia results/genia_minilm --transformer DIRECTORY --train-limit 4000 --minutes 60
python -m benchmarks.compare report results/genia_cnn results/genia_minilm

Each training runs in a process of its own and leaves a JSON file when it is done; those that are
there already are not run again. The plot needs matplotlib.
"""  # noqa: E501

import itertools
from pathlib import Path
from typing import Annotated, Any, Dict, List, Optional

import torch
import typer
from spacy.cli._util import setup_gpu
from spacy.language import Language
from spacy.tokens import Doc
from thinc.api import Config

from benchmarks import tables
from benchmarks.harness import NO_RESULTS, digest_of, peak, results_of, train_tasks
from benchmarks.passes import passes_of
from benchmarks.plots import draw_lines
from benchmarks.systems import (
    SYSTEMS,
    Systems,
    add_embed,
    load_shipped,
    read,
    use_transformer,
    use_vectors,
)
from spacy_nested_ner.comparison import tables as comparison
from spacy_nested_ner.comparison.tables import BATCH_SIZES
from spacy_nested_ner.comparison.timing import in_turn, median_ratio
from spacy_nested_ner.comparison.trainings import Task, better, scores_of, train
from spacy_nested_ner.training.budget import limit_time

app = typer.Typer(add_completion=False, help=__doc__)

Corpus = Annotated[Path, typer.Argument(help="Folder with train, dev and test.spacy")]
Output = Annotated[Path, typer.Argument(help="Folder for models and JSON")]
Transformer = Annotated[
    Optional[str], typer.Option(help="Directory or hub name; a CNN from scratch without it")
]
MixedPrecision = Annotated[
    bool,
    typer.Option(help="Train the transformer in bfloat16; only for hardware that can multiply so"),
]
Adversarial = Annotated[
    Optional[float], typer.Option(help="Of the nested systems; the config's own without it")
]
Embed = Annotated[
    bool,
    typer.Option(help="spaCy's features of a word beside the transformer, but for mrc_ner"),
]
Vectors = Annotated[
    Optional[str], typer.Option(help="Of a CNN: pipeline whose static vectors it reads, too")
]
EnglishWords = Annotated[bool, typer.Option(help="Of a CNN: it reads the vectors of English words")]
PretrainedCNN = Annotated[
    bool, typer.Option(help="The CNN of the shipped configs: it reads these and is pretrained")
]
FrozenLayers = Annotated[
    int, typer.Option(min=0, help="So many lower layers of the transformer do not learn")
]
EncoderRate = Annotated[
    Optional[float],
    typer.Option(help="Learning rate of the encoder, but for spancat; without, the config's own"),
]
DevLimit = Annotated[int, typer.Option(help="First dev docs that choose the best model")]
TestLimit = Annotated[int, typer.Option(help="First test docs; 0: all")]
Seeds = Annotated[List[int], typer.Option(help="Repeat for several")]

# What differs between trainings of which each has drawn its own sentences.
OF_A_DRAW = ("corpus", "data")
# Settings of `run` for other benchmarks: what they do not set, in trainings of so many steps.
BY_STEPS: Dict[str, Any] = {
    "transformer": None,
    "mixed_precision": False,
    "frozen": False,
    "frozen_layers": 0,
    "adversarial": None,
    "embed": False,
    "vectors": None,
    "english_words": False,
    "pretrained_cnn": False,
    "encoder_rate": None,
    "minutes": 0.0,
    "cpu_clock": False,
    "batch_size": 0,
    "train_limit": 0,
    "choose_limit": 0,
    "speed": False,
    "threads": 1,
    "gpu_id": -1,
}


@app.command()
def run(
    corpus: Corpus,
    output: Output,
    system: Systems = SYSTEMS,
    transformer: Transformer = None,
    frozen: Annotated[bool, typer.Option(help="The transformer does not learn")] = False,
    frozen_layers: FrozenLayers = 0,
    mixed_precision: MixedPrecision = False,
    minutes: Annotated[float, typer.Option(help="Wall-clock budget of each training")] = 0.0,
    cpu_clock: Annotated[
        bool, typer.Option(help="Count CPU time, for a machine that is shared; not with a GPU")
    ] = False,
    steps: Annotated[int, typer.Option(help="Or this many steps; 0: the config's own")] = 0,
    batch_size: Annotated[int, typer.Option(help="Docs of a step; 0: the config's own")] = 0,
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
    adversarial: Adversarial = None,
    embed: Embed = False,
    vectors: Vectors = None,
    english_words: EnglishWords = False,
    pretrained_cnn: PretrainedCNN = False,
    encoder_rate: EncoderRate = None,
) -> None:
    """Train what has no result in the output folder yet, one after the other."""
    if cpu_clock and gpu_id >= 0:
        raise typer.BadParameter("CPU time says nothing about a GPU. Leave out --cpu-clock.")
    if cpu_clock and not minutes:
        raise typer.BadParameter("--cpu-clock counts --minutes, and there are none.")
    if steps and minutes:
        raise typer.BadParameter("A training ends after --steps or after --minutes, not both.")
    settings = locals()
    check(settings)
    train_all(settings)
    report([output])


# What to say of options that only a transformer has.
NOT_OF_A_CNN = {
    "batch_size": "A CNN learns from batches of words.",
    "embed": "A CNN reads the features of words already.",
    "frozen": "A CNN from scratch has to learn.",
    "frozen_layers": "A CNN from scratch has to learn.",
    "mixed_precision": "A CNN learns in float32.",
}


def check(settings: Dict[str, Any]) -> None:
    """Raise typer.BadParameter for options that a training would ignore."""
    frozen = settings.get("frozen") or settings.get("frozen_layers")
    if frozen and settings["adversarial"]:
        raise typer.BadParameter("A frozen encoder has nothing to move. Leave out --adversarial.")
    for name, why in NOT_OF_A_CNN.items():
        if settings.get(name) and not settings["transformer"]:
            raise typer.BadParameter(f"{why} Leave out --{name.replace('_', '-')}.")
    of_a_cnn = [
        name for name in ("vectors", "english_words", "pretrained_cnn") if settings.get(name)
    ]
    options = [f"--{name.replace('_', '-')}" for name in of_a_cnn]
    if options and settings["transformer"]:
        raise typer.BadParameter(f"A transformer reads no static vectors. Leave out {options[0]}.")
    if len(options) > 1:
        raise typer.BadParameter(f"Give {' or '.join(options)}, not both.")


def train_all(settings: Dict[str, Any], one_corpus: bool = True) -> List[Dict[str, Any]]:
    """The results of each system and seed with the settings of `run`; those that are not there yet
    are trained.

    one_corpus: all seeds learn from the same data. Errors: see `train_tasks`.
    """
    shared = {key: value for key, value in settings.items() if key not in ("system", "seed")}
    output = Path(shared.pop("output"))
    corpus = Path(settings["corpus"])
    shared.update(corpus=str(corpus), data=digest_of(corpus))
    tasks = [
        Task({**shared, "system": name, "seed": number}, output / f"{name}_seed{number}.json")
        for number, name in itertools.product(settings["seed"], settings["system"])
    ]
    return train_tasks(tasks, one, () if one_corpus else OF_A_DRAW)


def one(task: Task) -> Dict[str, Any]:
    """One training and its measurements, on the tokens of the corpus."""
    settings, corpus = task.settings, Path(task.settings["corpus"])
    torch.set_num_threads(settings["threads"])
    setup_gpu(settings["gpu_id"], silent=True)
    training = train(training_config(settings), task.folder, settings["gpu_id"])
    training["peak_mib"] = peak()
    best = better(task.folder, corpus / "dev.spacy", settings["choose_limit"], True)
    found = scores_of(best, corpus / "test.spacy", settings["test_limit"], True)
    sizes = BATCH_SIZES if settings["speed"] else ()
    docs = read(best.nlp, corpus / "test.spacy", settings["test_limit"])[:64]
    ratio = {str(size): ratio_at(best.nlp, docs, size) for size in sizes}
    return {"training": training, **found, "ratio": ratio}


def training_config(settings: Dict[str, Any]) -> Config:
    """The shipped config of the system with the budget and the data of this comparison."""
    encoder = "transformer" if settings["transformer"] else "cnn"
    name = settings["system"].removesuffix("_ner")
    config = load_shipped(
        f"{name}_{encoder}", settings["english_words"], settings["pretrained_cnn"]
    )
    corpus, training = Path(settings["corpus"]), config["training"]
    config["paths"].update({part: str(corpus / f"{part}.spacy") for part in ("train", "dev")})
    if settings["transformer"]:
        how = {key: settings[key] for key in ("mixed_precision", "frozen", "frozen_layers")}
        use_transformer(config, settings["transformer"], **how)
    if settings["embed"]:
        add_embed(config)
    if settings["vectors"] is not None:
        use_vectors(config, settings["vectors"])
    if settings["encoder_rate"] is not None and settings["system"] != "spancat":
        training["optimizer"]["learn_rate"]["initial_rate"] = settings["encoder_rate"]
    rests = settings["frozen"] or settings["frozen_layers"]
    adversarial = 0.0 if rests else settings["adversarial"]
    if adversarial is not None and settings["system"] != "spancat":
        config["components"]["ner"]["adversarial"] = adversarial
    config["system"]["seed"] = settings["seed"]
    config["corpora"]["train"]["limit"] = settings["train_limit"]
    config["corpora"]["dev"]["limit"] = settings["dev_limit"]
    training["eval_frequency"] = settings["eval_frequency"]
    if settings["batch_size"]:
        training["batcher"]["size"] = settings["batch_size"]
    training["before_to_disk"] = None  # scored at the config's own threshold, too
    if settings["minutes"]:
        limit_time(training, settings["minutes"], settings["cpu_clock"])
    elif settings["steps"]:
        training["max_steps"] = settings["steps"]
    return Config(config)


def ratio_at(nlp: Language, docs: List[Doc], batch_size: int) -> float:
    """t(pipeline) / t(encoder alone), median of three pairs."""
    times = in_turn(passes_of(nlp, docs, batch_size), 3)
    return median_ratio(times["whole"], times["encoder"])


def results_of_trials(output: Path, pattern: str) -> Dict[str, List[Dict[str, Any]]]:
    """As those of `tables`; typer.BadParameter if there are none."""
    found = tables.results_of_trials(output, pattern)
    if not found:
        raise typer.BadParameter(NO_RESULTS.format(folder=output))
    return found


@app.command()
def report(
    output: Annotated[List[Path], typer.Argument(help="Folders with JSON files")],
) -> None:
    """Print the results of each folder as Markdown tables, draw the dev scores beside them
    (curves.svg), and print which system is best in which time."""
    everything = []
    for folder in output:
        results = results_of(folder)
        for table in (comparison.each_training(results), comparison.over_seeds(results)):
            typer.echo(f"{table}\n")
        curves = {}
        for result in results:
            name = f"{result['settings']['system']} (seed {result['settings']['seed']})"
            curves[name] = tuple(zip(*result["training"]["curve"]))
        draw_lines(curves, folder / "curves.svg", "steps", "F1 on dev")
        everything += results
    typer.echo(tables.best_systems(everything))


if __name__ == "__main__":
    app()
