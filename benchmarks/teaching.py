"""What plain text is worth to a small pipeline beside gold sentences: F1 of pipelines that learn from
gold alone, beside it from text that a large pipeline has annotated (`nested-ner teach`), or after
their CNN was pretrained on the text (`spacy pretrain`).

python -m benchmarks.teaching run training/teacher/model-best corpus/genia results/teaching --train-limit 4000 --minutes 8 --seed 0 --seed 1
python -m benchmarks.teaching report results/teaching

The gold sentences are those that the teacher has learned from, the text is that of all others. Each
pipeline gets the same CPU time on one thread, that of pretraining not counted. What the output has
already is not trained again.
"""  # noqa: E501

import itertools
from pathlib import Path
from typing import Annotated, Any, Dict, List

import spacy
import srsly
import typer
from spacy import util
from spacy.language import DEFAULT_CONFIG_PRETRAIN_PATH
from spacy.tokens import Doc, DocBin
from spacy.training.pretrain import pretrain
from thinc.api import Config

from benchmarks import compare, tables
from benchmarks.harness import digest_of, made_once, results_of, train_tasks
from benchmarks.systems import known, read, shipped_cnn
from spacy_nested_ner.cli.teach import teach_cli
from spacy_nested_ner.comparison.trainings import Task, train_and_score
from spacy_nested_ner.pipeline.gold import WEIGHTS
from spacy_nested_ner.scale.pipelines import hash_of
from spacy_nested_ner.training.budget import limit_time

app = typer.Typer(add_completion=False, help=__doc__)

TEXTS = "texts.jsonl"
# Folders of training data.
FOLDERS = ["gold", "gold and teacher", "gold and teacher, no weights"]
GOLD, TAUGHT, UNWEIGHTED = FOLDERS
PRETRAINED = "gold, pretrained CNN"
WAYS = [*FOLDERS, PRETRAINED]


@app.command()
def run(
    teacher: Annotated[str, typer.Argument(help="A trained pipeline")],
    corpus: compare.Corpus,
    output: compare.Output,
    train_limit: Annotated[int, typer.Option(help="First training docs, with gold")] = 4000,
    minutes: Annotated[float, typer.Option(help="CPU time of each student")] = 8.0,
    system: Annotated[
        str, typer.Option(help="Of the students", callback=known)
    ] = "locate_and_label_ner",
    way: Annotated[List[str], typer.Option(help="Repeat for several")] = WAYS,
    epochs: Annotated[int, typer.Option(help="Of pretraining")] = 10,
    seed: compare.Seeds = [0],  # noqa: B006
) -> None:
    """Let the teacher teach, train what has no result in the output folder yet, and print the
    table."""
    if unknown := set(way).difference(WAYS):
        raise typer.BadParameter(f"No way is {unknown.pop()!r}: {', '.join(WAYS)}.")
    data = made_once(
        output / "data",
        lambda folder: write_data(teacher, corpus, folder, train_limit),
        teacher=hash_of(teacher),
        train_limit=train_limit,
        data=digest_of(corpus),
    )
    settings: Dict[str, Any] = {"teacher": Path(teacher).name, "corpus": str(corpus)}
    settings.update(train_limit=train_limit, minutes=minutes, student=system, gpu_id=-1)
    settings.update({part: str(corpus / f"{part}.spacy") for part in ("dev", "test")})
    settings["epochs"] = epochs
    config = shipped_cnn(system)
    limit_time(config["training"], minutes, cpu_clock=True)
    tasks = []
    for number, name in itertools.product(seed, way):
        folder = GOLD if name == PRETRAINED else name
        config["paths"].update(train=str(data / folder), dev=settings["dev"])
        config["system"]["seed"] = number
        used = with_pretraining(config, data, epochs) if name == PRETRAINED else config
        target = output / f"{name.replace(', ', '_').replace(' ', '_')}_seed{number}.json"
        own = {**settings, "system": name, "seed": number}
        tasks.append(Task(own, target, used.to_str()))
    train_tasks(tasks, train_and_score)
    report(output)


def write_data(teacher: str, corpus: Path, folder: Path, train_limit: int) -> None:
    """A folder of `.spacy` files for each way."""
    docs = read(spacy.blank("en"), corpus / "train.spacy", 0)
    for way in FOLDERS:
        (folder / way).mkdir()
        _write(folder / way / "gold.spacy", docs[:train_limit])
    texts, taught = folder / TEXTS, folder / TAUGHT / "taught.spacy"
    srsly.write_jsonl(texts, [{"text": doc.text} for doc in docs[train_limit:]])
    teach_cli(teacher, texts, taught)
    plain = list(DocBin().from_disk(taught).get_docs(spacy.blank("en").vocab))
    for doc in plain:
        doc.spans["sc"].attrs.pop(WEIGHTS)
    _write(folder / UNWEIGHTED / "taught.spacy", plain)


def with_pretraining(config: Config, data: Path, epochs: int) -> Config:
    """A config that begins with a CNN that was pretrained on the text, which is done here if it was
    not yet."""
    filled = util.load_model_from_config(config, auto_fill=True).config
    config = util.load_config(DEFAULT_CONFIG_PRETRAIN_PATH).merge(filled)
    config["pretraining"].update(component="ner", layer="tok2vec", max_epochs=epochs)
    config["corpora"]["pretrain"] = {"@readers": "spacy.JsonlCorpus.v1", "path": str(data / TEXTS)}
    weights = data / "pretrained" / f"model{epochs - 1}.bin"
    if not weights.exists():
        weights.parent.mkdir(exist_ok=True)
        pretrain(config.interpolate(), weights.parent)
    config["initialize"]["init_tok2vec"] = str(weights)
    return config


def _write(path: Path, docs: List[Doc]) -> None:
    DocBin(docs=docs, store_user_data=True).to_disk(path)


@app.command()
def report(output: Annotated[Path, typer.Argument(help="Folder of a run")]) -> None:
    """Print the results as a Markdown table."""
    typer.echo(tables.teaching(results_of(output)))


if __name__ == "__main__":
    app()
