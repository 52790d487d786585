"""F1 of a trained pipeline under run-time settings that differ from its own, without retraining.

python -m benchmarks.run_time MODEL corpus/genia/dev.spacy '{}' '{"nms_decay": 1}'
"""

from typing import Annotated, List

import srsly
import torch
import typer

from benchmarks import tables
from benchmarks.harness import Data, Output, write_output
from benchmarks.scores import best_threshold, found_by, micro_at
from benchmarks.systems import only_pipe, read
from spacy_nested_ner.cli.pipelines import load_pipeline
from spacy_nested_ner.pipeline.component import NestedNER


def main(
    model: Annotated[str, typer.Argument(help="A trained pipeline")],
    data: Data,
    settings: Annotated[List[str], typer.Argument(help="JSON; '{}' for the pipeline's own")],
    limit: Annotated[int, typer.Option(help="First docs; 0: all")] = 0,
    threads: int = 1,
    output: Output = None,
) -> None:
    """Strict micro scores at the pipeline's own threshold, and at the best one for these docs."""
    torch.set_num_threads(threads)
    nlp = load_pipeline(model)
    pipe = only_pipe(nlp, lambda _, pipe: isinstance(pipe, NestedNER), "nested systems")
    docs, own = read(nlp, data, limit), dict(pipe.cfg)
    rows = []
    for text in settings:
        try:
            changes = dict(srsly.json_loads(text))
        except (TypeError, ValueError) as err:
            raise typer.BadParameter(f"{text} is no JSON object: {err}") from err
        if unknown := sorted(set(changes) - set(own)):
            raise typer.BadParameter(f"No run-time setting of {model}: {', '.join(unknown)}.")
        pipe.cfg = {**own, **changes}
        scores = found_by(nlp, docs, pipe.name)
        best, threshold = best_threshold(scores, parts=40)
        own_score = micro_at(scores, pipe.cfg["threshold"])
        row = {name: own_score.to_dict()[name] or 0.0 for name in "prf"}
        rows.append({"settings": text, **row, "best_f": best, "best_threshold": threshold})
    result = {"docs": len(docs), "rows": rows}
    typer.echo(tables.measurements(result))
    write_output(output, result)


if __name__ == "__main__":
    typer.run(main)
