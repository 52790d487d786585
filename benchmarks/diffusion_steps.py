"""F1 and speed of a trained diffusion_ner over denoising steps and noisy spans, as Markdown.

python -m benchmarks.diffusion_steps training/diffusion_cnn/model-best corpus/genia/dev.spacy
"""

from typing import Annotated, Any, Dict, List, Tuple

import torch
import typer
from spacy.language import Language
from spacy.tokens import Doc

from benchmarks.harness import Data, Output, Stopwatch, write_output
from benchmarks.scores import entities_of, micro_f1
from benchmarks.systems import bare, only_pipe, read
from spacy_nested_ner.cli.pipelines import load_pipeline


def main(
    model: Annotated[str, typer.Argument(help="A trained pipeline")],
    data: Data,
    steps: Annotated[List[int], typer.Option(help="Denoising steps")] = [1, 2, 3, 5, 10],  # noqa: B006
    spans: Annotated[List[int], typer.Option(help="Noisy spans")] = [30, 60, 120],  # noqa: B006
    limit: int = 600,
    threads: int = 1,
    repeats: Annotated[int, typer.Option(help="Times to predict; the fastest counts")] = 3,
    output: Output = None,
) -> None:
    """Strict micro F1 at the pipeline's own threshold and words per second of CPU time; no
    retraining. The last row is the pipeline as it is."""
    torch.set_num_threads(threads)
    nlp = load_pipeline(model)
    pipe = only_pipe(nlp, lambda factory, _: factory == "diffusion_ner", "a diffusion_ner")
    name, own, gold = pipe.name, pipe.cfg, read(nlp, data, limit)
    choices = [{"n_spans": k, "steps": n} for k in spans for n in steps]
    choices.append({key: own[key] for key in ("n_spans", "spans_per_word", "steps")})
    predict(nlp, name, gold, choices[-1])  # what a pipeline does only once is not part of its speed
    typer.echo("| noisy spans | steps | F1 | words per CPU second |\n|---|---|---|---|")
    rows = []
    for choice in choices:
        runs = [predict(nlp, name, gold, choice) for _ in range(repeats)]
        seconds, f1 = min(seconds for seconds, _ in runs), runs[0][1]
        speed = sum(map(len, gold)) / seconds
        rows.append({**choice, "f": f1, "words_per_cpu_second": speed})
        spans_cell = choice["n_spans"] or f"{choice['spans_per_word']} per word"
        typer.echo(f"| {spans_cell} | {choice['steps']} | {100 * f1:.1f} | {speed:.0f} |")
        write_output(output, {"docs": len(gold), "rows": rows})


def predict(
    nlp: Language, name: str, gold: List[Doc], settings: Dict[str, Any]
) -> Tuple[float, float]:
    """CPU seconds of a prediction on the words of the gold docs, and its F1."""
    plain, key = [bare(nlp, doc) for doc in gold], nlp.get_pipe(name).key  # type: ignore[attr-defined]
    with Stopwatch() as watch:
        docs = list(nlp.pipe(plain, component_cfg={name: settings}))
    found, expected = ([entities_of(doc, key) for doc in each] for each in (docs, gold))
    return watch.cpu, micro_f1(found, expected)


if __name__ == "__main__":
    typer.run(main)
