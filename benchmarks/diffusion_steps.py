"""F1 and speed of a trained diffusion_ner over denoising steps and noisy spans, as Markdown.

python benchmarks/diffusion_steps.py training/diffusion_cnn/model-best corpus/genia/dev.spacy
"""

import time
from pathlib import Path
from typing import Annotated, List

import spacy
import torch
import typer
from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.training import Example


def main(
    model: Annotated[str, typer.Argument(help="A trained pipeline")],
    data: Annotated[Path, typer.Argument(help="Docs to score, a .spacy file")],
    component: Annotated[str, typer.Option(help="Name of the component")] = "ner",
    steps: Annotated[List[int], typer.Option(help="Denoising steps")] = [1, 2, 5, 10],  # noqa: B006
    spans: Annotated[List[int], typer.Option(help="Noisy spans")] = [30, 60, 120],  # noqa: B006
    limit: int = 600,
    batch_size: int = 64,
    threads: int = 1,
) -> None:
    """Strict micro F1 at the pipeline's own threshold and words per CPU second; no retraining."""
    torch.set_num_threads(threads)
    nlp = spacy.load(model)
    gold = list(DocBin().from_disk(data).get_docs(nlp.vocab))[:limit]
    n_words = sum(len(doc) for doc in gold)
    options = nlp.get_pipe(component).cfg
    predict(nlp, gold[:batch_size], batch_size)  # the first call pays for what is set up once
    typer.echo("| noisy spans | steps | F1 | words/s |\n|---|---|---|---|")
    for n_spans in spans:
        for n_steps in steps:
            options.update(n_spans=n_spans, spans_per_word=0.0, steps=n_steps)
            begin = time.process_time()
            found = predict(nlp, gold, batch_size)
            used = time.process_time() - begin
            examples = [Example(a, b) for a, b in zip(found, gold)]
            f1 = nlp.get_pipe(component).score(examples)["nested_f"]
            typer.echo(f"| {n_spans} | {n_steps} | {100 * f1:.1f} | {n_words / used:.0f} |")


def predict(nlp: Language, docs: List[Doc], batch_size: int) -> List[Doc]:
    """Predictions on fresh copies of the docs."""
    fresh = [Doc(nlp.vocab, words=[token.text for token in doc]) for doc in docs]
    return list(nlp.pipe(fresh, batch_size=batch_size))


if __name__ == "__main__":
    typer.run(main)
