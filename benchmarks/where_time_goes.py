"""Shares of the time of each system: encoder, head, decoding, spaCy; in a training step assignment,
gold alignment and optimizer, too.

python -m benchmarks.where_time_goes run DIRECTORY_OR_HUB_NAME corpus/genia/dev.spacy results/shares_minilm
python -m benchmarks.where_time_goes report results/shares_minilm
"""  # noqa: E501

import warnings
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Dict, List, Optional

import spacy
import typer
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import minibatch

from benchmarks import tables
from benchmarks.harness import Data, in_process, provenance, result_of
from benchmarks.shares import Place, Shares
from benchmarks.systems import FINDING, SYSTEMS, Systems, read, shipped_optimizer, untrained_system
from spacy_nested_ner.comparison.trainings import bare
from spacy_nested_ner.files import write_json
from spacy_nested_ner.model.head_model import collect_spans, head_shim
from spacy_nested_ner.model.types import encoder_of
from spacy_nested_ner.pipeline.component import NestedNER
from spacy_nested_ner.pipeline.decode import choose_ents, select_spans
from spacy_nested_ner.pipeline.gold import gold_segments
from spacy_nested_ner.pipeline.segments import cut_segments

app = typer.Typer(add_completion=False, help=__doc__)

# The parts of the package; those of `tables.SHARES`.
PLACES: Dict[Place, Optional[str]] = {
    "spacy_nested_ner/encoders/": "encoder",
    "spacy_nested_ner/encoders/batching.py": None,
    "spacy_nested_ner/model/": "batches",
    "spacy_nested_ner/matching.py": "assignment",
    cut_segments: "batches",
    collect_spans: "decoding",
    select_spans: "decoding",
    choose_ents: "decoding",
    gold_segments: "gold alignment",
}


@app.command()
def run(
    encoder: Annotated[str, typer.Argument(help='Directory or hub name; "cnn"')],
    data: Data,
    output: Annotated[Path, typer.Argument(help="Folder for shares.json")],
    system: Systems = SYSTEMS,
    limit: Annotated[int, typer.Option(help="First docs")] = 64,
    repeats: int = 1,
) -> None:
    """Measure each system in a process of its own, on one thread, with random weights of the heads
    and a threshold that as many spans reach as the docs have entities."""
    result: Dict[str, Any] = {**provenance(), "systems": {}}
    for name in system:
        found = in_process(measured, name, data, limit, encoder, repeats)
        result["docs"], result["systems"][name] = found.pop("docs"), found
        total = found["seconds"]
        typer.echo(f"{name}: {total['prediction']:.1f} s, {total['training']:.1f} s", err=True)
        write_json(output / "shares.json", result)
    report(output)


def measured(system: str, data: Path, limit: int, encoder: str, repeats: int) -> Dict[str, Any]:
    """CPU seconds by part of a prediction and of training steps on the docs."""
    warnings.simplefilter("ignore")
    transformer = None if encoder == "cnn" else encoder
    docs = read(spacy.blank("en"), data, limit)
    nlp = untrained_system(system, docs, transformer, **FINDING.get(system, {}))
    pipe: Any = nlp.get_pipe("ner")
    n_entities = sum(len(doc.spans["sc"]) for doc in docs)
    optimizer = shipped_optimizer(system, transformer)
    learn(nlp, docs[:16], optimizer, Shares())  # which changes the scores
    pipe.cfg["threshold"] = score_of_rank(nlp, docs, n_entities)
    clock = Shares(PLACES, passes=("encoder", "head"), whole=("optimizer",))
    watch(nlp, clock)
    for _ in range(repeats):
        with clock.on("rest"):
            found = list(nlp.pipe((doc.text for doc in docs), batch_size=64))
    prediction = dict(clock.seconds)
    clock.seconds.clear()
    for _ in range(repeats):
        learn(nlp, docs, optimizer, clock)
    training = dict(clock.seconds)
    return {
        "docs": len(docs),
        "entities": n_entities,
        "spans": sum(len(doc.spans["sc"]) for doc in found),
        "prediction": prediction,
        "training": training,
        "seconds": {
            "prediction": sum(prediction.values()) / repeats,
            "training": sum(training.values()) / repeats,
        },
    }


def score_of_rank(nlp: Language, docs: List[Doc], rank: int) -> float:
    """The score that so many predicted spans reach, at least one; 0 where nothing is predicted."""
    pipe: Any = nlp.get_pipe("ner")
    pipe.cfg["threshold"] = 0.0
    scores = Counter(
        float(score)
        for doc in nlp.pipe((doc.text for doc in docs), batch_size=64)
        for score in doc.spans["sc"].attrs["scores"]
    )
    return [0.0, *sorted(scores.elements(), reverse=True)[: max(1, rank)]][-1]


def learn(nlp: Language, docs: List[Doc], optimizer: Any, clock: Shares) -> None:
    """Training steps of 16 docs."""
    for batch in minibatch(docs, 16):
        examples = [Example(bare(nlp, doc), doc) for doc in batch]
        with clock.on("rest"):
            nlp.update(examples, sgd=optimizer)


def watch(nlp: Language, clock: Shares) -> None:
    """Put the clock on the parts of the pipeline that no place in the package tells."""
    pipe: Any = nlp.get_pipe("ner")
    clock.wrap(nlp, "make_doc", "docs")
    clock.wrap(pipe, "finish_update", "optimizer")
    if isinstance(pipe, NestedNER):
        clock.wrap(pipe, "set_annotations", "spans")
        clock.watch_head(head_shim(pipe.model).module, "head", rest="decoding")
        # An encoder of pairs learns inside the graph of the head.
        shims: List[Any] = encoder_of(pipe.model).shims
        for shim in shims:  # a CNN has none: Thinc, not torch, calls its layers
            clock.watch_encoder(shim.module, "encoder")
    else:  # spancat, whose decoding makes the spans, too
        pipe.model = clock.wrap_model(pipe.model, "head")
        clock.wrap(pipe, "suggester", "head")
        clock.wrap(pipe, "set_annotations", "decoding")
        clock.wrap(pipe, "get_loss", "gold alignment")


@app.command()
def report(output: Annotated[Path, typer.Argument(help="Folder with shares.json")]) -> None:
    """Print the shares as Markdown tables."""
    result = result_of(output, "shares.json")
    for what in tables.SHARES:
        typer.echo(f"\n{what}, % of the CPU time\n\n{tables.shares(result['systems'], what)}")


if __name__ == "__main__":
    app()
