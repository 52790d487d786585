"""Trainings that differ in one setting of the model, and a table of what each is worth."""

import json
import time
from pathlib import Path
from typing import Annotated, Any, Dict, List, Optional

import torch
import typer
from spacy import util
from spacy.tokens import Doc, DocBin
from spacy.training.initialize import init_nlp
from spacy.training.loop import train as train_loop
from thinc.api import Config

CONFIGS = Path(__file__).parents[1] / "configs"
Variants = Dict[str, Dict[str, Any]]


def run(config: str, variants: Variants) -> None:
    """A command line that trains the variants.

    config: name of a shipped config. variants: by name, the settings of the model that differ from
    it.
    """

    def main(
        train: Annotated[Path, typer.Argument(help="Training docs, a .spacy file")],
        dev: Annotated[Path, typer.Argument(help="Docs to score, a .spacy file")],
        steps: int = 1000,
        dev_docs: int = 600,
        only: Annotated[Optional[List[str]], typer.Option(help="Names of variants")] = None,
        output: Annotated[Optional[Path], typer.Option(help="Also write JSON")] = None,
    ) -> None:
        """Train each variant and print F1 at its best threshold and CPU time, as Markdown."""
        torch.set_num_threads(1)
        results = {}
        typer.echo("| variant | F1 | best threshold | CPU seconds |\n|---|---|---|---|")
        for name in only or variants:
            begin = time.process_time()
            nlp = trained(CONFIGS / f"{config}.cfg", variants[name], train, steps)
            used = time.process_time() - begin
            threshold, f1 = best_threshold(nlp, dev, dev_docs)
            results[name] = {"f1": f1, "threshold": threshold, "seconds": used}
            typer.echo(f"| {name} | {100 * f1:.1f} | {threshold:.2f} | {used:.0f} |")
            if output is not None:
                output.write_text(json.dumps(results, indent=2), encoding="utf8")

    typer.run(main)


def trained(path: Path, settings: Dict[str, Any], train: Path, steps: int) -> Any:
    """A pipeline after so many steps of a config, with these settings of the model."""
    config = util.load_config(path)
    config["paths"].update(train=str(train), dev=str(train))
    config["training"].update(max_steps=steps, eval_frequency=steps, dropout=0.1)
    config["components"]["ner"]["model"].update(settings)
    # Scored once at the end, by `best_threshold`: the loop itself looks at one doc.
    config["corpora"]["dev"]["limit"] = 1
    config["training"]["logger"] = {"@loggers": "spacy.ConsoleLogger.v3", "console_output": False}
    nlp = init_nlp(Config(config))
    train_loop(nlp)
    return nlp


def best_threshold(nlp: Any, dev: Path, limit: int) -> "tuple[float, float]":
    """Threshold on the score and the strict micro F1 that it gives."""
    gold = list(DocBin().from_disk(dev).get_docs(nlp.vocab))[:limit]
    nlp.get_pipe("ner").cfg["threshold"] = 0.05
    plain = (Doc(nlp.vocab, words=[token.text for token in doc]) for doc in gold)
    found = [
        [((s.start, s.end, s.label_), score) for s, score in zip(spans, spans.attrs["scores"])]
        for spans in (doc.spans["sc"] for doc in nlp.pipe(plain, batch_size=64))
    ]
    expected = [{(s.start, s.end, s.label_) for s in doc.spans["sc"]} for doc in gold]
    n_gold = sum(map(len, expected))
    best = (0.0, 0.0)
    for threshold in (i / 20 for i in range(1, 20)):
        kept = [{span for span, score in spans if score >= threshold} for spans in found]
        right = sum(len(a & b) for a, b in zip(kept, expected))
        f1 = 2 * right / max(1, n_gold + sum(map(len, kept)))
        best = max(best, (f1, threshold))
    return best[1], best[0]
