"""`nested-ner init`: a config for one's own data."""

# No `from __future__ import annotations`: typer reads the annotations at run time.

import shlex
from enum import Enum
from pathlib import Path
from typing import Annotated, Optional

import typer
from wasabi import msg

from spacy_nested_ner.cli.options import GpuOpt, LangOpt, SpansKeyOpt, TrainArg, VectorsOpt
from spacy_nested_ner.cli.output import failing, keep_inputs, warn_of


class Optimize(str, Enum):
    """What matters more."""

    speed = "speed"
    accuracy = "accuracy"


DevArg = Annotated[
    Path, typer.Argument(metavar="DEV", help="Development data, .spacy file or folder")
]
ConfigArg = Annotated[Path, typer.Argument(metavar="CONFIG", help="Config file to write")]
EncoderOpt = Annotated[
    str,
    typer.Option(
        help="cnn: a small CNN; for English it is pretrained. listener: the same in a component "
        "'tok2vec' that other components can share. Otherwise the folder or hub name of a "
        "pretrained transformer"
    ),
]
OptimizeOpt = Annotated[
    Optional[Optimize],
    typer.Option(
        help="For a pretrained transformer. accuracy: with adversarial training. speed: without, "
        "which trains in half the time (default: for up to 500 sentences what is better for the "
        "system, for more as in the shipped config; speed if --minutes allows few steps)",
        show_default=False,
    ),
]
MinutesOpt = Annotated[
    Optional[float],
    typer.Option(
        help="Training time on this machine; some steps are run first to measure their speed"
    ),
]
ForceOpt = Annotated[bool, typer.Option("--force", "-F", help="Overwrite an existing file")]


def init_cli(
    train_path: TrainArg,
    dev_path: DevArg,
    config_path: ConfigArg,
    encoder: EncoderOpt = "cnn",
    vectors: VectorsOpt = None,
    optimize: OptimizeOpt = None,
    minutes: MinutesOpt = None,
    spans_key: SpansKeyOpt = "sc",
    lang: LangOpt = "en",
    gpu_id: GpuOpt = -1,
    force: ForceOpt = False,
) -> None:
    """Write a config for `spacy train` that fits the data, and explain the choices."""
    from spacy_nested_ner.cli._recipe import recipe_for
    from spacy_nested_ner.files import written_together

    with failing("Cannot make a config."):
        if config_path.exists() and not force:
            raise ValueError(f"{config_path} already exists. Choose another name, or use --force.")
        keep_inputs(config_path, train_path, dev_path)
        goal = optimize.value if optimize else None
        recipe = recipe_for(train_path, dev_path, encoder, spans_key, lang, goal, vectors)
        if minutes is not None:
            recipe.fit_time(minutes, gpu_id)
        with written_together([config_path]) as drafts:
            for draft in drafts.values():
                draft.write_text(recipe.text(), encoding="utf8")
    for what, why in recipe.reasons.items():
        typer.echo(f"{what:10} {why}")
    warn_of(recipe.warnings)
    msg.good("Train with")
    gpu = ["--gpu-id", str(gpu_id)] if gpu_id >= 0 else []
    config = config_path.as_posix()  # cmd.exe takes no quotes such as a backslash would get
    command = ["python", "-m", "spacy", "train", config, "--output", "training", *gpu]
    typer.echo(shlex.join(command))
