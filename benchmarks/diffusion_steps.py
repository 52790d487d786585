"""F1 and speed of a trained diffusion_ner over denoising steps and noisy spans, as Markdown.

python benchmarks/diffusion_steps.py training/diffusion_cnn/model-best corpus/genia/dev.spacy
"""

import time
from pathlib import Path
from typing import Annotated, Any, Dict, List, Optional, Set, Tuple

import torch
import typer
from ablation import Entity, micro_f1
from measuring import only_pipe, provenance, read, write_result
from spacy.language import Language
from spacy.tokens import Doc

from spacy_nested_ner.cli.pipelines import load_pipeline


def main(
    model: Annotated[str, typer.Argument(help="A trained pipeline")],
    data: Annotated[Path, typer.Argument(help="Docs to score, a .spacy file")],
    steps: Annotated[List[int], typer.Option(help="Denoising steps")] = [1, 2, 3, 5, 10],  # noqa: B006
    spans: Annotated[List[int], typer.Option(help="Noisy spans")] = [30, 60, 120],  # noqa: B006
    limit: int = 600,
    threads: int = 1,
    repeats: Annotated[int, typer.Option(help="Times to predict; the fastest counts")] = 3,
    output: Annotated[Optional[Path], typer.Option(help="Also write JSON")] = None,
) -> None:
    """Strict micro F1 at the pipeline's own threshold and words per second of CPU time; no
    retraining. The last row is the pipeline as it is."""
    torch.set_num_threads(threads)
    nlp = load_pipeline(model)
    name = only_pipe(nlp, lambda factory, _: factory == "diffusion_ner", "a diffusion_ner").name
    gold, own = read(nlp, data, limit), nlp.get_pipe(name).cfg
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
        shown = choice["n_spans"] or f"{choice['spans_per_word']} per word"
        typer.echo(f"| {shown} | {choice['steps']} | {100 * f1:.1f} | {speed:.0f} |")
        if output is not None:
            write_result(output, {**provenance(), "docs": len(gold), "rows": rows})


def predict(
    nlp: Language, name: str, gold: List[Doc], settings: Dict[str, Any]
) -> Tuple[float, float]:
    """CPU seconds of a prediction on the words of the gold docs, and its F1."""
    plain = [Doc(nlp.vocab, words=[token.text for token in doc]) for doc in gold]
    begin = time.process_time()
    docs = list(nlp.pipe(plain, component_cfg={name: settings}))
    seconds = time.process_time() - begin
    key = nlp.get_pipe(name).key
    return seconds, micro_f1([entities(doc, key) for doc in docs], [entities(d, key) for d in gold])


def entities(doc: Doc, key: str) -> Set[Entity]:
    """All of a doc."""
    return {(span.start, span.end, span.label_) for span in doc.spans.get(key, [])}


if __name__ == "__main__":
    typer.run(main)
