"""F1 and speed of a trained diffusion_ner over denoising steps and noisy spans, as Markdown.

python -m benchmarks.diffusion_steps training/diffusion_cnn/model-best corpus/genia/dev.spacy
"""

from typing import Annotated, Any, Dict, List

import torch
import typer
from spacy.language import Language
from spacy.tokens import Doc

from benchmarks.harness import Data, Output, Stopwatch, write_output
from benchmarks.scores import best_threshold, found_by
from benchmarks.systems import only_pipe, read
from spacy_nested_ner.cli.pipelines import load_pipeline
from spacy_nested_ner.comparison.trainings import bare


def main(
    model: Annotated[str, typer.Argument(help="A trained pipeline")],
    data: Data,
    steps: Annotated[List[int], typer.Option(help="Denoising steps")] = [1, 2, 3, 5, 10],  # noqa: B006
    spans: Annotated[List[int], typer.Option(help="Noisy spans")] = [30, 60, 120],  # noqa: B006
    carried: Annotated[List[str], typer.Option(help="Spans that go on")] = ["distinct"],  # noqa: B006
    limit: int = 600,
    threads: int = 1,
    repeats: Annotated[int, typer.Option(help="Times to predict; the fastest counts")] = 3,
    output: Output = None,
) -> None:
    """Strict micro F1 at the threshold that is best on these docs, and words per second of CPU
    time; no retraining. The last row is the pipeline as it is."""
    torch.set_num_threads(threads)
    nlp = load_pipeline(model)
    pipe = only_pipe(nlp, lambda factory, _: factory == "diffusion_ner", "a diffusion_ner")
    name, own, gold = pipe.name, pipe.cfg, read(nlp, data, limit)
    choices = [
        {"n_spans": k, "steps": n, "carried": which}
        for k in spans
        for n in steps
        for which in carried
    ]
    choices.append({key: own[key] for key in ("n_spans", "spans_per_word", "steps", "carried")})
    seconds(nlp, name, gold, choices[-1])  # what a pipeline does only once is not part of its speed
    typer.echo("| noisy spans | steps | go on | F1 | words per CPU second |\n|---|---|---|---|---|")
    rows = []
    for choice in choices:
        fastest = min(seconds(nlp, name, gold, choice) for _ in range(repeats))
        before = dict(own)
        own.update(choice)
        f1, _ = best_threshold(found_by(nlp, gold, name))
        own.update(before)
        speed = sum(map(len, gold)) / fastest
        rows.append({**choice, "f": f1, "words_per_cpu_second": speed})
        spans_cell = choice["n_spans"] or f"{choice['spans_per_word']} per word"
        cells = [spans_cell, choice["steps"], choice["carried"], f"{100 * f1:.1f}", f"{speed:.0f}"]
        typer.echo(f"| {' | '.join(map(str, cells))} |")
        write_output(output, {"docs": len(gold), "rows": rows})


def seconds(nlp: Language, name: str, gold: List[Doc], settings: Dict[str, Any]) -> float:
    """CPU seconds of a prediction on the words of the gold docs."""
    plain = [bare(nlp, doc) for doc in gold]
    with Stopwatch() as watch:
        for _ in nlp.pipe(plain, component_cfg={name: dict(settings)}):
            pass
    return watch.cpu


if __name__ == "__main__":
    typer.run(main)
