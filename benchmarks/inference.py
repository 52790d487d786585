"""Speed and memory of a component beside its encoder alone and beside spaCy's spancat.

python benchmarks/inference.py ratio MODEL DATA.spacy
python benchmarks/inference.py untrained DIRECTORY_OR_HUB_NAME DATA.spacy
python benchmarks/inference.py encoder DIRECTORY_OR_HUB_NAME DATA.spacy
python benchmarks/inference.py long-doc
python benchmarks/inference.py memory proposer_regressor_ner
"""

import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any, Dict, List, Optional, Tuple

import spacy
import torch
import typer
from measuring import CONFIGS, read
from spacy import util
from spacy.language import Language
from spacy.pipeline.tok2vec import Tok2VecListener
from spacy.tokens import Doc, Span
from spacy.training import Example
from spacy.util import fix_random_seed, minibatch, registry
from spacy_transformers.layers import TransformerListener
from thinc.api import Adam, Config

from spacy_nested_ner.encoders.pair_encoder import pair_shim

app = typer.Typer(add_completion=False, help=__doc__)

SPANCAT = {
    "suggester": {"@misc": "spacy.ngram_range_suggester.v1", "min_size": 1, "max_size": 20},
    "threshold": 1.0,
}
SYSTEMS: Dict[str, Dict[str, Any]] = {
    "tok2vec": {},
    "piqn_ner": {"threshold": 1.0},
    # Without a trained filter: every seed is a proposal, more than a trained model would let pass.
    "locate_and_label_ner": {"threshold": 1.0, "filter_threshold": 0.0},
    "proposer_regressor_ner": {"threshold": 1.0},
    "spancat": SPANCAT,
}
FINE_TUNED = [name for name in SYSTEMS if name != "tok2vec"] + ["diffusion_ner"]
SENTENCE_WORDS = [32, 128, 512]
Call = Tuple[Tuple[Any, ...], Dict[str, Any]]
LISTENERS = (Tok2VecListener, TransformerListener)
SORTED = {"@architectures": "spacy_nested_ner.SortedTransformer.v1"}
SPACY_TRANSFORMERS = {
    "@architectures": "spacy-transformers.Tok2VecTransformer.v3",
    "tokenizer_config": {"use_fast": True},
    "get_spans": {
        "@span_getters": "spacy-transformers.strided_spans.v1",
        "window": 128,
        "stride": 96,
    },
    "pooling": {"@layers": "reduce_mean.v1"},
}


@app.command()
def ratio(
    model: Annotated[str, typer.Argument(help="Pipeline: an encoder, then one component")],
    data: Annotated[Path, typer.Argument(help="A .spacy file")],
    batch_size: int = 64,
    limit: int = 512,
    repeats: int = 5,
    threads: int = 1,
) -> None:
    """t(whole pipeline) / t(encoder alone), in one run, medians of pairs; and what the last
    component adds to the peak memory of the encoder.

    The encoder alone is the pipeline without its last component, or that component's own tok2vec.
    """
    torch.set_num_threads(threads)
    nlp = spacy.load(model)
    last = nlp.pipe_names[-1]
    docs = read(nlp, data, limit)
    encoder, whole, peaks = [], [], []
    for _ in range(repeats):
        encoder.append(encoder_seconds(nlp, docs, batch_size))
        peaks.append(peak())
        whole.append(seconds(nlp, docs, batch_size))
        peaks.append(peak())
    ratios = [a / b for a, b in zip(whole, encoder)]
    n_words = sum(len(doc) for doc in docs)
    typer.echo(
        f"{last}, batch {batch_size}, {threads} thread(s): ratio {statistics.median(ratios):.2f} "
        f"({min(ratios):.2f} to {max(ratios):.2f}), encoder alone "
        f"{n_words / statistics.median(encoder):.0f} words/s, whole "
        f"{n_words / statistics.median(whole):.0f} words/s; the component adds "
        f"{peaks[1] - peaks[0]:.0f} MiB to the peak"
    )


@app.command()
def untrained(
    name: Annotated[str, typer.Argument(help="Directory or hub name of a transformer")],
    data: Annotated[Path, typer.Argument(help="A .spacy file")],
    system: Annotated[List[str], typer.Option(help="Repeat for several")] = FINE_TUNED,
    limit: int = 128,
    repeats: int = 3,
    adversarial: Annotated[float, typer.Option(help="Of the nested systems in training")] = 0.0,
) -> None:
    """All systems with random weights on one SortedTransformer, on one thread: t(pipeline) /
    t(encoder alone), and the time of training on a sentence beside spancat's.

    Nothing reaches the threshold of 1, so that predicted spans cost nothing. The first stage of
    locate_and_label_ner lets every seed pass that an untrained filter gives its threshold to.
    """
    torch.set_num_threads(1)
    docs = read(spacy.blank("en"), data, limit)
    learned: Dict[str, float] = {}
    rows = {}
    for each in ["spancat", *(other for other in system if other != "spancat")]:
        changes = {} if each == "spancat" else {"adversarial": adversarial}
        nlp = untrained_system(each, docs, name, **changes)
        learned[each] = statistics.median(training_seconds(nlp, docs) for _ in range(repeats))
        rows[each] = [
            statistics.median(
                seconds(nlp, docs, size) / encoder_seconds(nlp, docs, size) for _ in range(repeats)
            )
            for size in (8, 64)
        ]
    typer.echo("| system | ratio, batch 8 | ratio, batch 64 | training / spancat's |")
    typer.echo("|---|---|---|---|")
    for each, (small, large) in rows.items():
        share = learned[each] / learned["spancat"]
        typer.echo(f"| {each} | {small:.2f} | {large:.2f} | {share:.2f} |")


def untrained_system(
    system: str, docs: List[Doc], transformer: Optional[str] = None, **changes: Any
) -> Language:
    """A system of the shipped config with random weights, initialised on the docs, as component
    "ner". Nothing reaches its threshold of 1. Adversarial training, which doubles a step, only
    where it is among the changes.

    transformer: directory or hub name of the encoder; a CNN without it. changes: settings of the
    component that differ, those of its model under "model".
    """
    fix_random_seed(0)
    settings = shipped_config(system, transformer)["components"]["ner"]
    settings["model"].update(changes.pop("model", {}))
    settings.pop("adversarial", None)
    nlp = spacy.blank("en")
    config = {**settings, "threshold": 1.0, **changes}
    nlp.add_pipe(config.pop("factory"), name="ner", config=config)
    nlp.initialize(lambda: [Example(bare(nlp, doc), doc) for doc in docs])
    return nlp


def shipped_config(system: str, transformer: Optional[str]) -> Config:
    """The config on a transformer, or on a CNN from scratch without one; interpolated."""
    kind = "transformer" if transformer else "cnn"
    config = util.load_config(CONFIGS / f"{system.removesuffix('_ner')}_{kind}.cfg")
    if transformer:
        config["paths"]["transformer"] = transformer
    return config.interpolate()


def training_seconds(nlp: Language, docs: List[Doc]) -> float:
    """CPU time of updates in batches of 16, without the optimizer, which all have alike."""
    begin = time.process_time()
    for batch in minibatch(docs, 16):
        nlp.update([Example(bare(nlp, doc), doc) for doc in batch], sgd=False)
    return time.process_time() - begin


def bare(nlp: Language, doc: Doc) -> Doc:
    """The words of a doc, without what is known of them."""
    return Doc(nlp.vocab, words=[token.text for token in doc])


def encoder_seconds(nlp: Language, docs: List[Doc], batch_size: int) -> float:
    """CPU time of the encoder alone; that of an encoder of pairs on the same pairs."""
    last = nlp.pipe_names[-1]
    pipe: Any = nlp.get_pipe(last)
    tok2vec = pipe.model.get_ref("tok2vec")
    if "two_sided" in tok2vec.attrs:
        module = pair_shim(tok2vec).module
        return replay(module, calls_of(module, nlp, docs, batch_size))
    if tok2vec.has_ref("tok2vec"):  # below the small transformer of mrc_ner
        tok2vec = tok2vec.get_ref("tok2vec")
    if isinstance(tok2vec, LISTENERS):
        with nlp.select_pipes(disable=[last]):
            return seconds(nlp, docs, batch_size)
    fresh = [bare(nlp, doc) for doc in docs]
    begin = time.process_time()
    for batch in minibatch(fresh, batch_size):
        tok2vec.predict(batch)
    return time.process_time() - begin


def calls_of(
    module: torch.nn.Module, nlp: Language, docs: List[Doc], batch_size: int
) -> List[Call]:
    """What a module is called with when the docs are predicted."""
    calls: List[Call] = []
    hook = module.register_forward_pre_hook(
        lambda _, args, kwargs: calls.append((args, kwargs)), with_kwargs=True
    )
    seconds(nlp, docs, batch_size)
    hook.remove()
    return calls


@torch.no_grad()
def replay(module: torch.nn.Module, calls: List[Call]) -> float:
    """CPU seconds of a module on inputs that it was given before."""
    begin = time.process_time()
    for args, kwargs in calls:
        module(*args, **kwargs)
    return time.process_time() - begin


@app.command()
def encoder(
    name: Annotated[str, typer.Argument(help="Directory or hub name")],
    data: Annotated[Path, typer.Argument(help="A .spacy file")],
    limit: int = 400,
    repeats: int = 3,
    threads: int = 1,
) -> None:
    """SortedTransformer beside spacy-transformers: largest difference of the vectors, and CPU time,
    medians of alternating runs; training is forward and backward in batches of 16; mixed precision
    is SortedTransformer's alone."""
    torch.set_num_threads(threads)
    nlp = spacy.blank("en")
    docs = [bare(nlp, doc) for doc in read(nlp, data, limit)]
    ours, theirs = (
        registry.resolve({"model": {**settings, "name": name}})["model"]
        for settings in (SORTED, SPACY_TRANSFORMERS)
    )
    for model in (ours, theirs):
        model.initialize(X=docs[:1])
    pairs = zip(ours.predict(docs[:64]), theirs.predict(docs[:64]))
    difference = max(abs(a - b).max() for a, b in pairs)
    typer.echo(f"vectors differ by at most {difference:.1e}")
    typer.echo("| | spacy-transformers s | SortedTransformer s | ratio |\n|---|---|---|---|")
    rows = (("inference", 1), ("inference", 8), ("inference", 64), ("training", 16))
    for what, batch_size in (*rows, ("training, mixed precision", 16)):
        ours.attrs["mixed_precision"] = what.endswith("precision")
        times = [
            [pass_seconds(model, docs, batch_size, what != "inference") for model in (theirs, ours)]
            for _ in range(repeats)
        ]
        a, b = (statistics.median(column) for column in zip(*times))
        typer.echo(f"| {what}, batch {batch_size} | {a:.1f} | {b:.1f} | {a / b:.2f} |")


def pass_seconds(model: Any, docs: List[Doc], batch_size: int, is_train: bool) -> float:
    """CPU time of one pass of a tok2vec over the docs."""
    begin = time.process_time()
    for batch in minibatch(docs, batch_size):
        if is_train:
            vectors, backprop = model(batch, is_train=True)
            backprop(vectors)
        else:
            model.predict(batch)
    return time.process_time() - begin


def seconds(nlp: Language, docs: List[Doc], batch_size: int) -> float:
    """CPU time of one pass over fresh copies of the docs."""
    fresh = [bare(nlp, doc) for doc in docs]
    begin = time.process_time()
    for _ in nlp.pipe(fresh, batch_size=batch_size):
        pass
    return time.process_time() - begin


@app.command()
def long_doc(words: int = 1500, repeats: int = 5) -> None:
    """Time and memory of one doc without sentence boundaries; spancat with 1- to 20-grams.

    Each system runs in a process of its own, on one thread, with random weights on the same
    HashEmbedCNN and a threshold of 1, so that the predicted spans cost nothing. Memory is what a
    prediction adds to the peak of the process.
    """
    results = {}
    for name in SYSTEMS:
        command = [sys.executable, __file__, "one", name, "--words", str(words)]
        output = subprocess.run(
            [*command, "--repeats", str(repeats)], check=True, capture_output=True, text=True
        )
        results[name] = json.loads(output.stdout.splitlines()[-1])
    for name, result in results.items():
        typer.echo(f"{name:24} {result['seconds']:8.3f} s {result['mib']:8.0f} MiB")
    theirs = results["spancat"]
    for name, ours in results.items():
        if name in ("tok2vec", "spancat"):
            continue
        typer.echo(
            f"{name} / spancat: time {ours['seconds'] / theirs['seconds']:.2f}, "
            f"memory {ours['mib'] / theirs['mib']:.2f}"
        )


@app.command()
def memory(
    name: Annotated[str, typer.Argument(help="Factory of this package")],
    words: Annotated[List[int], typer.Option(help="Words of the sentence")] = SENTENCE_WORDS,
) -> None:
    """What one sentence adds to the peak of a process, read as a whole: window = its words."""
    typer.echo("| words | prediction MiB | training step MiB |\n|---|---|---|")
    for size in words:
        used = []
        for mode in ("--no-training", "--training"):
            command = [sys.executable, __file__, "one-sentence", name, str(size), mode]
            output = subprocess.run(command, check=True, capture_output=True, text=True)
            used.append(float(output.stdout.splitlines()[-1]))
        typer.echo(f"| {size} | {used[0]:.0f} | {used[1]:.0f} |")


@app.command(hidden=True)
def one_sentence(name: str, words: int, training: bool = False) -> None:
    """One figure of `memory`."""
    nlp = random_pipeline(name, {**SYSTEMS.get(name, {}), "window": words, "stride": words})
    reference = nlp.make_doc(" ".join(["gene"] * words))
    reference.spans["sc"] = [Span(reference, 1, 4, "DNA"), Span(reference, 2, 3, "protein")]
    example = Example(nlp.make_doc(reference.text), reference)
    before = peak()
    if training:
        nlp.update([example], sgd=Adam(0.001))
    else:
        nlp(example.predicted)
    typer.echo(peak() - before)


@app.command(hidden=True)
def one(name: str, words: int = 1500, repeats: int = 5) -> None:
    """One system, for `long-doc`."""
    nlp = random_pipeline(name, SYSTEMS[name])
    doc = nlp.make_doc("human IL-2 gene " * (words // 3))
    before = peak()
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        nlp(doc.copy())
        times.append(time.process_time() - begin)
    typer.echo(json.dumps({"seconds": statistics.median(times), "mib": peak() - before}))


def random_pipeline(name: str, config: Dict[str, Any]) -> Language:
    """One component with random weights on its default encoder, warm, on one thread."""
    torch.set_num_threads(1)
    fix_random_seed(0)
    nlp = spacy.blank("en")
    nlp.add_pipe(name, config=config)
    reference = nlp.make_doc("the human IL-2 gene promoter")
    reference.spans["sc"] = [Span(reference, 1, 4, "DNA"), Span(reference, 2, 3, "protein")]
    example = Example(nlp.make_doc(reference.text), reference)
    nlp.initialize(lambda: [example])
    nlp(nlp.make_doc("warm up"))
    return nlp


def peak() -> float:
    """Largest resident size of this process so far, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    app()
