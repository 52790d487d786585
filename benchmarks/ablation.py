"""Trainings that differ in one setting, and a table of what each is worth."""

import sys
import time
from pathlib import Path
from typing import Annotated, Any, Dict, List, Optional, Set, Tuple

import torch
import typer
from measuring import CONFIGS, provenance, read, write_result
from spacy import util
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training.initialize import init_nlp
from spacy.training.loop import train as train_loop
from thinc.api import Config

Variants = Dict[str, Dict[str, Any]]
Entity = Tuple[int, int, str]
Scored = Tuple[List[List[Tuple[Entity, float]]], List[Set[Entity]]]
# Entities of so many words, the first inclusive, the last exclusive.
LENGTHS = {"1-4 words": (1, 5), "5-9": (5, 10), "10 and more": (10, 10**6)}


def run(shipped: str, variants: Variants) -> None:
    """A command line that trains the variants.

    shipped: name of the config, unless the command line names another. variants: by name, the
        settings of the model that differ from it; those of the component itself under "component";
        those that change predictions alone under "run_time": a variant that has no others than the
        one before it is not trained.
    """

    def main(
        train: Annotated[Path, typer.Argument(help="Training docs, a .spacy file")],
        dev: Annotated[Path, typer.Argument(help="Docs to score, a .spacy file")],
        steps: int = 1000,
        dev_docs: int = 600,
        only: Annotated[Optional[List[str]], typer.Option(help="Names of variants")] = None,
        output: Annotated[Optional[Path], typer.Option(help="Also write JSON")] = None,
        train_limit: Annotated[int, typer.Option(help="First training docs; 0: all")] = 0,
        transformer: Annotated[
            Optional[str], typer.Option(help="Directory or hub name, for *_transformer.cfg")
        ] = None,
        mixed_precision: Annotated[bool, typer.Option(help="Of the transformer")] = False,
        config: Annotated[str, typer.Option(help="Name of a shipped config")] = shipped,
    ) -> None:
        """Train each variant; print F1 at its best threshold, F1 by length there, and CPU time."""
        torch.set_num_threads(1)
        results = {}
        source = util.load_config(CONFIGS / f"{config}.cfg")
        source["corpora"]["train"]["limit"] = train_limit
        if transformer is not None:
            use_transformer(source, transformer, mixed_precision=mixed_precision)
        typer.echo(f"| variant | F1 | {' | '.join(LENGTHS)} | best threshold | CPU seconds |")
        typer.echo("|---" * (4 + len(LENGTHS)) + "|")
        nlp, learned, used = None, None, 0.0
        for name in only or variants:
            settings = {**variants[name]}
            dials = settings.pop("run_time", {})
            if nlp is None or settings != learned:
                begin = time.process_time()
                nlp, learned = trained(source, settings, train, steps), settings
                used = time.process_time() - begin
            own = dict(nlp.get_pipe("ner").cfg)
            nlp.get_pipe("ner").cfg.update(dials)
            results[name] = {**scored(nlp, dev, dev_docs), "seconds": used}
            nlp.get_pipe("ner").cfg.update(own)
            shown = " | ".join(f"{100 * results[name][key]:.1f}" for key in ("f1", *LENGTHS))
            threshold = results[name]["threshold"]
            typer.echo(f"| {name} | {shown} | {threshold:.2f} | {used:.0f} |")
            if output is not None:
                write_result(output, {**provenance(), "variants": results})

    typer.run(main)


def use_transformer(config: Dict[str, Any], name: str, **settings: bool) -> None:
    """Which transformer a `*_transformer.cfg` reads, and further settings of it."""
    config["paths"]["transformer"] = name
    config["components"]["ner"]["model"]["tok2vec"].update(settings)


def trained(source: Config, settings: Dict[str, Any], train: Path, steps: int) -> Any:
    """A pipeline after so many steps of a config, with these settings."""
    config = source.copy()
    config["paths"].update(train=str(train), dev=str(train))
    config["training"].update(max_steps=steps, eval_frequency=steps)
    model = {key: value for key, value in settings.items() if key != "component"}
    config["components"]["ner"].update(settings.get("component", {}))
    config["components"]["ner"]["model"].update(model)
    # Scored once at the end, by `scored`: the loop itself looks at one doc.
    config["corpora"]["dev"]["limit"] = 1
    config["training"]["logger"] = {"@loggers": "spacy.ConsoleLogger.v3", "console_output": False}
    nlp = init_nlp(Config(config))
    train_loop(nlp, stdout=sys.stderr)  # the table is the only thing on stdout
    return nlp


def scored(nlp: Any, dev: Path, limit: int) -> Dict[str, float]:
    """Best threshold on the score, the strict micro F1 that it gives, and F1 by length there."""
    found, expected = found_by(nlp, read(nlp, dev, limit))
    f1, threshold = best_threshold((found, expected))
    best = kept(found, threshold)
    by_length = {
        name: micro_f1(*(_of_length(spans, *bounds) for spans in (best, expected)))
        for name, bounds in LENGTHS.items()
    }
    return {"f1": f1, "threshold": threshold, **by_length}


def found_by(nlp: Language, gold: List[Doc], name: str = "ner") -> Scored:
    """Entities that a component predicts in each doc with their scores, and the gold ones."""
    pipe: Any = nlp.get_pipe(name)
    own, pipe.cfg["threshold"] = pipe.cfg["threshold"], 0.05
    plain = (Doc(nlp.vocab, words=[token.text for token in doc]) for doc in gold)
    found = []
    for doc in nlp.pipe(plain, batch_size=64):
        spans = doc.spans[pipe.key]
        entities = [(span.start, span.end, span.label_) for span in spans]
        found.append(list(zip(entities, map(float, spans.attrs["scores"]))))
    pipe.cfg["threshold"] = own
    return found, [{(s.start, s.end, s.label_) for s in doc.spans[pipe.key]} for doc in gold]


def f1_at(scores: Scored, threshold: float) -> float:
    """Strict micro F1 of what reaches the threshold."""
    found, gold = scores
    return micro_f1(kept(found, threshold), gold)


def best_threshold(scores: Scored, parts: int = 20) -> Tuple[float, float]:
    """The highest strict micro F1 at a multiple of `1 / parts`, and that threshold."""
    return max((f1_at(scores, i / parts), i / parts) for i in range(1, parts))


def kept(found: List[List[Tuple[Entity, float]]], threshold: float) -> List[Set[Entity]]:
    """What reaches the threshold."""
    return [{entity for entity, score in each if score >= threshold} for each in found]


def _of_length(spans: List[Set[Entity]], least: int, below: int) -> List[Set[Entity]]:
    return [{span for span in group if least <= span[1] - span[0] < below} for group in spans]


def micro_f1(found: List[Set[Entity]], expected: List[Set[Entity]]) -> float:
    """Strict F1 over all docs; 0 where there is nothing."""
    right = sum(len(a & b) for a, b in zip(found, expected))
    return 2 * right / max(1, sum(map(len, found)) + sum(map(len, expected)))
