"""What is learned from little data? F1 of trainings on so many sentences, each drawn at random, in
equal CPU time.

python -m benchmarks.small_data run corpus/genia results/small --docs 50 --docs 200
python -m benchmarks.small_data run corpus/genia results/small_minilm --transformer DIRECTORY_OR_HUB_NAME --minutes 8
python -m benchmarks.small_data report results/small

Dev and test are those of the corpus. What the output has already is not trained again.
"""  # noqa: E501

import itertools
import random
import shutil
from pathlib import Path
from typing import Annotated, List

import spacy
import typer
from spacy.tokens import DocBin

from benchmarks import compare, tables
from benchmarks.harness import digest_of, made_once
from benchmarks.systems import SYSTEMS, Systems, check_number, read

app = typer.Typer(add_completion=False, help=__doc__)


@app.command()
def run(
    corpus: compare.Corpus,
    output: compare.Output,
    docs: Annotated[List[int], typer.Option(help="Drawn from train")] = [50, 100, 200, 500],  # noqa: B006
    draw: Annotated[List[int], typer.Option(help="Seeds of draw and training")] = [0, 1, 2, 3, 4],  # noqa: B006
    system: Systems = SYSTEMS,
    transformer: compare.Transformer = None,
    mixed_precision: compare.MixedPrecision = False,
    adversarial: compare.Adversarial = None,
    embed: compare.Embed = False,
    vectors: compare.Vectors = None,
    english_words: compare.EnglishWords = False,
    pretrained_cnn: compare.PretrainedCNN = False,
    encoder_rate: compare.EncoderRate = None,
    frozen_layers: compare.FrozenLayers = 0,
    minutes: Annotated[float, typer.Option(min=0.01, help="CPU time of each training")] = 1.0,
    dev_limit: compare.DevLimit = 100,
    choose_limit: Annotated[
        int, typer.Option(help="First dev docs that choose model and threshold")
    ] = 400,
    test_limit: compare.TestLimit = 0,
    eval_frequency: Annotated[int, typer.Option(help="Steps between scores on dev")] = 200,
) -> None:
    """Train what has no result in the output folder yet, and print the table."""
    own = {name: value for name, value in locals().items() if name not in ("docs", "draw")}
    compare.check(own)
    for number, n in itertools.product(draw, docs):
        data = drawn(corpus, output, n, number)
        settings = {**compare.BY_STEPS, **own, "corpus": data, "output": output / f"{n}_docs"}
        settings.update(seed=[number], steps=0, cpu_clock=True)
        compare.train_all(settings, one_corpus=False)
    report(output)


def drawn(corpus: Path, output: Path, n: int, seed: int) -> Path:
    """Write a corpus with so many random docs of train below the output. Returns its folder.

    Raises typer.BadParameter if train has fewer, or if another corpus of that name was drawn from.
    """

    def draw(folder: Path) -> None:
        docs = read(spacy.blank("en"), corpus / "train.spacy", 0)
        check_number(n, docs, corpus)
        for part in ("dev", "test"):
            shutil.copy(corpus / f"{part}.spacy", folder)
        chosen = random.Random(seed).sample(docs, n)
        DocBin(docs=chosen, store_user_data=True).to_disk(folder / "train.spacy")

    folder = output / "data" / f"{corpus.name}_{n}_docs_{seed}"
    return made_once(folder, draw, data=digest_of(corpus))


@app.command()
def report(output: Annotated[Path, typer.Argument(help="Folder of a run")]) -> None:
    """Print the results as a Markdown table."""
    typer.echo(tables.small_data(compare.results_of_trials(output, "*_docs")))


if __name__ == "__main__":
    app()
