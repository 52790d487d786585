"""F1 and speed of a trained diffusion_ner over denoising steps and noisy spans, as Markdown.

python benchmarks/diffusion_steps.py training/diffusion_cnn/model-best corpus/genia/dev.spacy
"""

from pathlib import Path
from typing import Annotated, List

import torch
import typer
from measuring import only_pipe

from spacy_nested_ner.cli.pipelines import load_pipeline, read_examples
from spacy_nested_ner.evaluation.probes import step_trade_off


def main(
    model: Annotated[str, typer.Argument(help="A trained pipeline")],
    data: Annotated[Path, typer.Argument(help="Docs to score, a .spacy file")],
    steps: Annotated[List[int], typer.Option(help="Denoising steps")] = [1, 2, 3, 5, 10],  # noqa: B006
    spans: Annotated[List[int], typer.Option(help="Noisy spans")] = [30, 60, 120],  # noqa: B006
    limit: int = 600,
    threads: int = 1,
) -> None:
    """Strict micro F1 at the pipeline's own threshold and words per second; no retraining."""
    torch.set_num_threads(threads)
    nlp = load_pipeline(model)
    pipe = only_pipe(nlp, lambda factory, _: factory == "diffusion_ner", "a diffusion_ner")
    examples = read_examples(nlp, data)[:limit]
    typer.echo("| noisy spans | steps | F1 | words/s |\n|---|---|---|---|")
    for row in step_trade_off(nlp, pipe, examples, steps, spans):
        f1, speed = 100 * row["f"], row["words_per_second"]
        typer.echo(f"| {row['spans']} | {row['steps']} | {f1:.1f} | {speed:.0f} |")


if __name__ == "__main__":
    typer.run(main)
