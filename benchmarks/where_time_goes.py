"""Shares of the time of each system: encoder, head, decoding, spaCy; in a training step assignment,
gold alignment and optimizer, too.

python benchmarks/where_time_goes.py run DIRECTORY_OR_HUB_NAME corpus/genia/dev.spacy results/shares_minilm
python benchmarks/where_time_goes.py report results/shares_minilm
"""  # noqa: E501

import functools
import time
import warnings
from collections import Counter, defaultdict
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Callable, Dict, Iterator, List

import spacy
import srsly
import torch
import typer
from inference import bare, shipped_config, untrained_system
from measuring import SYSTEMS, provenance, read, write_result
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import minibatch, registry

from spacy_nested_ner.encoders.pair_encoder import pair_shim
from spacy_nested_ner.model import head_model
from spacy_nested_ner.pipeline import component
from spacy_nested_ner.systems.locate_and_label import head as locate_and_label

app = typer.Typer(add_completion=False, help=__doc__)

PREDICTION = ["encoder", "head", "batches", "decoding", "spans", "docs", "rest"]
TRAINING = ["encoder", "encoder, backward", "head", "head, backward", "assignment", "batches"]
TRAINING += ["gold alignment", "optimizer", "rest"]
# Methods of the heads that do not belong to the network itself.
ASSIGNING = ("assign", "match", "label_target", "sample")
DECODING = ("decode", "_decode", "entities")


class Stopwatch:
    """CPU seconds by category. While an inner category runs, the outer one does not."""

    def __init__(self) -> None:
        self.seconds: Dict[str, float] = defaultdict(float)
        self.running: List[str] = []
        self.since = 0.0

    @contextmanager
    def on(self, category: str) -> Iterator[None]:
        """Charge what happens in the `with` block to a category."""
        self._charge()
        self.running.append(category)
        try:
            yield
        finally:
            self._charge()
            self.running.pop()

    def switch(self, category: str) -> None:
        """Go on with another category up to the end of the innermost block."""
        self._charge()
        if self.running:
            self.running[-1] = category

    def _charge(self) -> None:
        now = time.process_time()
        if self.running:
            self.seconds[self.running[-1]] += now - self.since
        self.since = now

    def wrap(self, owner: Any, name: str, category: str) -> None:
        """Charge the calls of a function or method, which is replaced in its owner."""
        setattr(owner, name, self.charged(getattr(owner, name), category))

    def charged(self, function: Callable, category: str) -> Callable:
        """A function whose calls are charged."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self.on(category):
                return function(*args, **kwargs)

        return call

    def wrap_model(self, model: Any, forward: str, backward: str) -> None:
        """Charge both passes of a Thinc model."""
        function = model._func

        def call(*args: Any, **kwargs: Any) -> Any:
            with self.on(forward):
                output, backprop = function(*args, **kwargs)
            return output, self.charged(backprop, backward)

        model._func = call

    def wrap_module(self, module: Any, category: str, tensors: Callable[[Any], List[Any]]) -> None:
        """Charge both passes of a torch module in a larger graph.

        tensors: of its output, those from which on the backward pass is in the module.
        """
        forward = module.forward

        def call(*args: Any, **kwargs: Any) -> Any:
            with self.on(category):
                output = forward(*args, **kwargs)
            for tensor in tensors(output):
                if tensor.requires_grad:
                    tensor.register_hook(lambda _: self.switch(f"{category}, backward"))
            return output

        module.forward = call


@app.command()
def run(
    transformer: Annotated[str, typer.Argument(help="Directory or hub name")],
    data: Annotated[Path, typer.Argument(help="A .spacy file")],
    output: Annotated[Path, typer.Argument(help="Folder for shares.json")],
    system: Annotated[List[str], typer.Option(help="Repeat for several")] = SYSTEMS,
    limit: Annotated[int, typer.Option(help="First docs")] = 64,
    repeats: int = 1,
) -> None:
    """Measure all systems in one process, on one thread, with random weights of the heads and a
    threshold that as many spans reach as the docs have entities."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    docs = read(spacy.blank("en"), data, limit)
    result: Dict[str, Any] = {**provenance(), "docs": len(docs), "systems": {}}
    for name in system:
        result["systems"][name] = shares(name, docs, transformer, repeats)
        total = result["systems"][name]["seconds"]
        typer.echo(f"{name}: {total['prediction']:.1f} s, {total['training']:.1f} s", err=True)
        write_result(output / "shares.json", result)
    report(output)


@contextmanager
def plain_functions() -> Iterator[None]:
    """Leave the modules of the package as they were."""
    places = [(head_model, "collect_spans"), (component, "cut_segments")]
    places += [(locate_and_label, "best_entity")]
    before = [getattr(*place) for place in places]
    try:
        yield
    finally:
        for place, function in zip(places, before):
            setattr(*place, function)


def shares(system: str, docs: List[Doc], transformer: str, repeats: int) -> Dict[str, Any]:
    """CPU seconds by category of a prediction and of training steps on the docs."""
    changes = {"filter_threshold": 0.0} if system == "locate_and_label_ner" else {}
    nlp = untrained_system(system, docs, transformer, **changes)
    pipe: Any = nlp.get_pipe("ner")
    n_entities = sum(len(doc.spans["sc"]) for doc in docs)
    pipe.cfg["threshold"] = score_of_rank(nlp, docs, n_entities)
    settings = shipped_config(system, transformer)["training"]["optimizer"]
    optimizer = registry.resolve({"optimizer": settings})["optimizer"]
    learn(nlp, docs[:16], optimizer)
    clock = Stopwatch()
    with plain_functions():
        watch(nlp, clock)
        clock.seconds.clear()
        for _ in range(repeats):
            with clock.on("rest"):
                found = list(nlp.pipe((doc.text for doc in docs), batch_size=64))
        prediction = dict(clock.seconds)
        clock.seconds.clear()
        for _ in range(repeats):
            learn(nlp, docs, optimizer, clock)
        training = dict(clock.seconds)
    return {
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
    """The score that so many predicted spans reach."""
    pipe: Any = nlp.get_pipe("ner")
    pipe.cfg["threshold"] = 0.0
    scores = Counter(
        float(score)
        for doc in nlp.pipe((doc.text for doc in docs), batch_size=64)
        for score in doc.spans["sc"].attrs["scores"]
    )
    return sorted(scores.elements(), reverse=True)[: rank + 1][-1]


def learn(nlp: Language, docs: List[Doc], optimizer: Any, clock: Any = None) -> None:
    """Training steps of 16 docs."""
    clock = clock or Stopwatch()
    for batch in minibatch(docs, 16):
        examples = [Example(bare(nlp, doc), doc) for doc in batch]
        with clock.on("rest"):
            nlp.update(examples, sgd=optimizer)


def watch(nlp: Language, clock: Stopwatch) -> None:
    """Put the clock on all parts of the pipeline."""
    pipe: Any = nlp.get_pipe("ner")
    encoder = pipe.model.get_ref("tok2vec")
    if "two_sided" in encoder.attrs:  # of pairs: encodes inside the graph of the head
        module = pair_shim(encoder).module
        clock.wrap_module(module, "encoder", lambda output: [output.last_hidden_state])
    else:
        clock.wrap_model(encoder, "encoder", "encoder, backward")
    clock.wrap(nlp, "make_doc", "docs")
    clock.wrap(pipe, "finish_update", "optimizer")
    if pipe.model.has_ref("head"):
        watch_ours(pipe, clock)
    else:
        watch_spancat(pipe, clock)


def watch_ours(pipe: Any, clock: Stopwatch) -> None:
    """The parts of a component of this package."""
    clock.wrap_model(pipe.model, "batches", "head, backward")
    head = head_model.head_shim(pipe.model).module
    clock.wrap_module(
        head,
        "head",
        lambda output: [loss.total for loss in output.values()] if isinstance(output, dict) else [],
    )
    for names, category in ((ASSIGNING, "assignment"), (DECODING, "decoding")):
        for name in names:
            if hasattr(head, name) and not is_network(head, name):
                clock.wrap(head, name, category)
    clock.wrap(locate_and_label, "best_entity", "assignment")
    clock.wrap(head_model, "collect_spans", "decoding")
    clock.wrap(component, "cut_segments", "batches")
    clock.wrap(pipe, "set_annotations", "decoding")
    clock.wrap(pipe, "_span_group", "spans")
    clock.wrap(pipe, "_gold", "gold alignment")


def is_network(head: Any, name: str) -> bool:
    """What bears a name of decoding or assignment but is a module or computes with weights:
    `proposer_regressor_ner` decodes with its joint pointer, `mrc_ner` matches with a layer."""
    return isinstance(getattr(head, name), torch.nn.Module) or (
        name == "decode" and type(head).__name__ == "ProposerRegressor"
    )


def watch_spancat(pipe: Any, clock: Stopwatch) -> None:
    """The parts of spaCy's spancat; its decoding makes the spans, too."""
    clock.wrap_model(pipe.model, "head", "head, backward")
    clock.wrap(pipe, "suggester", "head")
    clock.wrap(pipe, "set_annotations", "decoding")
    clock.wrap(pipe, "get_loss", "gold alignment")


@app.command()
def report(output: Annotated[Path, typer.Argument(help="Folder with shares.json")]) -> None:
    """Print the shares as Markdown tables."""
    path = output / "shares.json"
    if not path.exists():
        raise typer.BadParameter(f"{output}: no results. Use the command `run` first.")
    result = srsly.read_json(path)
    for what, columns in (("prediction", PREDICTION), ("training", TRAINING)):
        typer.echo(f"\n{what}, % of the CPU time\n\n| | s | {' | '.join(columns)} |")
        typer.echo("|---" * (2 + len(columns)) + "|")
        for name, system in result["systems"].items():
            seconds, total = system[what], sum(system[what].values())
            shown = " | ".join(f"{100 * seconds.get(each, 0.0) / total:.1f}" for each in columns)
            typer.echo(f"| `{name}` | {system['seconds'][what]:.2f} | {shown} |")


if __name__ == "__main__":
    app()
