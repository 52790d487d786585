"""`nested-ner adapt`: a pretrained encoder that has read the user's own raw text."""

# No `from __future__ import annotations`: typer reads the annotations at run time.

from pathlib import Path
from typing import Annotated

import typer
from wasabi import msg

from spacy_nested_ner.cli.options import GpuOpt, TextOpt, TextsArg
from spacy_nested_ner.cli.output import check_replaced, failing
from spacy_nested_ner.cli.pipelines import use_gpu
from spacy_nested_ner.cli.texts import UsableTexts, file_texts

EncoderArg = Annotated[
    str, typer.Argument(metavar="ENCODER", help="Folder or hub name of a pretrained transformer")
]
OutputArg = Annotated[Path, typer.Argument(metavar="OUTPUT", help="Folder for the adapted encoder")]
PassesOpt = Annotated[int, typer.Option(min=1, help="Passes over the texts")]
RateOpt = Annotated[
    float, typer.Option(help="Peak learning rate; use 0.0001 for an encoder the size of BERT")
]


def adapt_cli(
    encoder: EncoderArg,
    texts_path: TextsArg,
    output_path: OutputArg,
    text: TextOpt = "text",
    passes: PassesOpt = 4,
    rate: RateOpt = 0.0003,
    gpu_id: GpuOpt = -1,
) -> None:
    """Let a pretrained transformer learn the language of raw text by guessing masked words, before
    it learns entities from annotated data.

    Then give OUTPUT wherever a transformer is named: `--paths.transformer`, `init --encoder`.
    """
    from spacy.util import fix_random_seed
    from tqdm import tqdm

    from spacy_nested_ner.files import written_folder
    from spacy_nested_ner.training.adapt import adapt

    with failing("Cannot adapt. Nothing was written."):
        if rate <= 0:
            raise ValueError(f"--rate must be above 0, got {rate:g}.")
        if Path(encoder).is_dir() and output_path.resolve() == Path(encoder).resolve():
            raise ValueError(f"OUTPUT is the encoder itself, {encoder}. Give another folder.")
        # Also a folder of texts that is the output.
        check_replaced(output_path, "model.safetensors", Path(encoder), texts_path / "texts")
        texts = file_texts(texts_path, text, output_path)
        use_gpu(gpu_id)
        fix_random_seed(0)
        reading = UsableTexts()
        device = "cpu" if gpu_id < 0 else f"cuda:{gpu_id}"
        with written_folder(output_path, marker="model.safetensors") as draft:
            losses = adapt(
                encoder,
                (each for _, each in reading.usable(texts)),
                draft,
                passes,
                rate,
                device,
                lambda steps: tqdm(steps, unit=" steps", mininterval=1.0, disable=None),
            )
    if reading.unusable:
        msg.warn(reading.left_out())
    learned = losses.last < losses.first
    say = msg.good if learned else msg.warn
    say(f"Loss on masked words: {losses.first:.2f} at first, {losses.last:.2f} at the end.")
    if not learned:
        msg.warn("The loss has not fallen: give more text, more --passes, or a lower --rate.")
    typer.echo(str(output_path.resolve()))
