"""Speed and memory of a component beside its encoder alone and beside spaCy's spancat.

python -m benchmarks.inference trained DATA.spacy MODEL [MODEL ...]
python -m benchmarks.inference untrained DIRECTORY_OR_HUB_NAME_OR_cnn DATA.spacy
python -m benchmarks.inference encoder DIRECTORY_OR_HUB_NAME DATA.spacy
python -m benchmarks.inference cnn DATA.spacy
python -m benchmarks.inference long-doc
python -m benchmarks.inference memory proposer_regressor_ner
"""

import statistics
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Dict, List, Optional

import spacy
import typer
from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.training import Example
from spacy.util import fix_random_seed, registry
from thinc.api import Adam

from benchmarks import tables
from benchmarks.harness import Data, Output, Stopwatch, in_process, peak, write_output
from benchmarks.passes import (
    encoder_seconds,
    pass_seconds,
    passes_of,
    seconds,
    training_seconds,
)
from benchmarks.systems import (
    NESTED,
    SYSTEMS,
    UNFILTERED,
    Systems,
    hashed_cnn,
    known,
    read,
    shipped_cnn,
    untrained_system,
)
from spacy_nested_ner.comparison.timing import in_turn, median_ratio
from spacy_nested_ner.comparison.trainings import bare
from spacy_nested_ner.encoders.by_torch import use_torch

app = typer.Typer(add_completion=False, help=__doc__)
BatchSizes = Annotated[List[int], typer.Option(help="Repeat for several")]
SPANCAT = {"@misc": "spacy.ngram_range_suggester.v1", "min_size": 1, "max_size": 20}
SENTENCE_WORDS = [32, 128, 512]
PASSES = [("inference", 1), ("inference", 8), ("inference", 64), ("training", 16)]
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
def trained(
    data: Data,
    model: Annotated[List[str], typer.Argument(help="Pipelines: an encoder, then one component")],
    batch_size: BatchSizes = [1, 8, 64],  # noqa: B006
    limit: int = 512,
    join: Annotated[
        int, typer.Option(help="Their words as docs of so many, without sentences; 0: as they are")
    ] = 0,
    repeats: int = 3,
    output: Output = None,
) -> None:
    """Trained pipelines on one thread: t(pipeline) / t(encoder alone), and the time of prediction
    by that of a spancat among them and by that of its encoder.

    The encoder alone is the pipeline without its last component, or that component's own tok2vec.
    """
    found = [
        in_process(trained_costs, each, data, batch_size, limit, join, repeats) for each in model
    ]
    cells = beside_spancat(found)
    typer.echo(tables.measurements({"cells": cells}))
    write_output(output, {"join": join, "cells": cells})


def trained_costs(
    model: str, data: Path, batch_sizes: List[int], limit: int, join: int, repeats: int
) -> Dict[str, Any]:
    """The figures of `trained`."""
    nlp = spacy.load(model)
    docs = read(nlp, data, limit)
    if join:
        words = [token.text for doc in docs for token in doc]
        docs = [Doc(nlp.vocab, words=words[i : i + join]) for i in range(0, len(words), join)]
    return {
        "system": nlp.get_pipe_meta(nlp.pipe_names[-1]).factory,
        **prediction_costs(nlp, docs, batch_sizes, repeats),
    }


def prediction_costs(
    nlp: Language, docs: List[Doc], batch_sizes: List[int], repeats: int
) -> Dict[str, Any]:
    """Ratio to the encoder and CPU seconds of a pipeline at each batch size."""
    found: Dict[str, Any] = {}
    for size in batch_sizes:
        times = in_turn(passes_of(nlp, docs, size), repeats)
        found[f"batch_{size}"] = statistics.median(times["whole"])
        found[f"ratio_{size}"] = median_ratio(times["whole"], times["encoder"])
    return found


def beside_spancat(found: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """The figures of some systems, and what each takes by what spancat and by what spancat's
    encoder takes, if it is there. That is the encoder as spaCy runs it: inside a component of this
    package a CNN multiplies with torch, in less time."""
    theirs = next((costs for costs in found if costs["system"] == "spancat"), None)
    if theirs is None:
        return found
    cells = []
    for costs in found:
        cell = dict(costs)
        for what in costs:
            if what == "training" or what.startswith("batch_"):
                cell[f"{what}_by_spancat"] = costs[what] / theirs[what]
            if what.startswith("batch_"):
                encoder = theirs[what] / theirs[what.replace("batch", "ratio")]
                cell[f"{what}_by_encoder"] = costs[what] / encoder
        cells.append(cell)
    return cells


def beside_encoder(
    nlp: Language, docs: List[Doc], batch_size: int, repeats: int
) -> Dict[str, float]:
    """A pipeline beside its encoder alone."""
    encoder, whole, peaks = [], [], []
    for _ in range(repeats):
        encoder.append(encoder_seconds(nlp, docs, batch_size))
        peaks.append(peak())
        whole.append(seconds(nlp, docs, batch_size))
        peaks.append(peak())
    ratios = [a / b for a, b in zip(whole, encoder)]
    n_words = sum(len(doc) for doc in docs)
    return {
        "ratio": statistics.median(ratios),
        "least": min(ratios),
        "most": max(ratios),
        "words_per_second": n_words / statistics.median(whole),
        "encoder_words_per_second": n_words / statistics.median(encoder),
        "mib": peaks[1] - peaks[0],
    }


@app.command()
def untrained(
    name: Annotated[
        str, typer.Argument(help="Directory or hub name of a transformer, or cnn from scratch")
    ],
    data: Data,
    system: Systems = SYSTEMS,
    batch_size: BatchSizes = [8, 64],  # noqa: B006
    limit: int = 128,
    repeats: int = 3,
    adversarial: Annotated[float, typer.Option(help="Of the nested systems in training")] = 0.0,
    output: Output = None,
) -> None:
    """All systems with random weights on one encoder, on one thread: t(pipeline) /
    t(encoder alone), the times of prediction and of training by spancat's, and those of prediction
    by that of spancat's encoder.

    Nothing reaches the threshold of 1, so that predicted spans cost nothing. The first stage of
    locate_and_label_ner lets every seed pass that an untrained filter gives its threshold to.
    After the first step diffusion_ner has more distinct spans than a trained one.
    """
    transformer = None if name == "cnn" else name
    names = ["spancat", *(other for other in system if other != "spancat")]
    found = [
        in_process(
            untrained_costs, each, transformer, data, batch_size, limit, repeats, adversarial
        )
        for each in names
    ]
    cells = beside_spancat(found)
    typer.echo(tables.measurements({"cells": cells}))
    write_output(output, {"cells": cells})


def untrained_costs(
    system: str,
    transformer: Optional[str],
    data: Path,
    batch_sizes: List[int],
    limit: int,
    repeats: int,
    adversarial: float,
) -> Dict[str, Any]:
    """Ratios of a system at each batch size, and CPU seconds of prediction and of training on the
    docs."""
    docs = read(spacy.blank("en"), data, limit)
    changes = {} if system == "spancat" else {"adversarial": adversarial}
    nlp = untrained_system(system, docs, transformer, **changes)
    # First: after a training step mrc_ner would read its questions again, which a pipeline in use
    # does once.
    prediction = prediction_costs(nlp, docs, batch_sizes, repeats)
    training = statistics.median(training_seconds(nlp, docs) for _ in range(repeats))
    return {"system": system, "training": training, **prediction}


@app.command()
def encoder(
    name: Annotated[str, typer.Argument(help="Directory or hub name")],
    data: Data,
    limit: int = 400,
    repeats: int = 3,
    threads: int = 1,
    output: Output = None,
) -> None:
    """SortedTransformer beside spacy-transformers: largest difference of the vectors, and CPU time,
    medians of alternating runs; training is forward and backward in batches of 16; mixed precision
    is SortedTransformer's alone."""
    found = in_process(encoder_costs, name, data, limit, repeats, threads=threads)
    typer.echo(f"vectors differ by at most {found['difference']:.1e}")
    typer.echo(tables.measurements(found))
    write_output(output, found)


def encoder_costs(name: str, data: Path, limit: int, repeats: int) -> Dict[str, Any]:
    """The figures of `encoder`."""
    nlp = spacy.blank("en")
    docs = [bare(nlp, doc) for doc in read(nlp, data, limit)]
    ours, theirs = (
        registry.resolve({"model": {**settings, "name": name}})["model"]
        for settings in (SORTED, SPACY_TRANSFORMERS)
    )
    for model in (ours, theirs):
        model.initialize(X=docs[:1])
    pairs = zip(ours.predict(docs[:64]), theirs.predict(docs[:64]))
    difference = float(max(abs(a - b).max() for a, b in pairs))
    cells = []
    for what, batch_size in (*PASSES, ("training, mixed precision", 16)):
        ours.attrs["mixed_precision"] = what.endswith("precision")
        models = {"spacy_transformers": theirs, "sorted_transformer": ours}
        cells.append(_side_by_side(models, docs, what, batch_size, repeats))
    return {"difference": difference, "cells": cells}


def _side_by_side(
    models: Dict[str, Any], docs: List[Doc], what: str, batch_size: int, repeats: int
) -> Dict[str, Any]:
    """CPU seconds of two tok2vecs in turn, medians, and how many times as fast the second is."""
    passes = {
        name: partial(pass_seconds, model, docs, batch_size, what != "inference")
        for name, model in models.items()
    }
    times = in_turn(passes, repeats)
    a, b = (statistics.median(times[name]) for name in models)
    return {"what": what, "batch_size": batch_size, **dict(zip(models, (a, b))), "ratio": a / b}


@app.command()
def cnn(data: Data, limit: int = 400, repeats: int = 5, output: Output = None) -> None:
    """EnglishCNN beside HashEmbedCNN, both with the products that a component of this package gives
    them: CPU time, medians of alternating runs; training is forward and backward in batches of
    16."""
    found = in_process(cnn_costs, data, limit, repeats)
    typer.echo(tables.measurements(found))
    write_output(output, found)


def cnn_costs(data: Path, limit: int, repeats: int) -> Dict[str, Any]:
    """The figures of `cnn`."""
    nlp = spacy.blank("en")
    docs = [bare(nlp, doc) for doc in read(nlp, data, limit)]
    models = {}
    for name, english_words in (("hash_embed_cnn", False), ("english_cnn", True)):
        config = shipped_cnn("piqn_ner", english_words)["components"]["ner"]["model"]["tok2vec"]
        models[name] = registry.resolve({"model": config})["model"]
        models[name].initialize(X=docs)  # predicts them all, so that no pass is the first
        use_torch(models[name])
    return {"cells": [_side_by_side(models, docs, *each, repeats) for each in PASSES]}


@app.command()
def long_doc(
    words: int = 1500,
    repeats: int = 5,
    system: Annotated[List[str], typer.Option(help="Repeat for several")] = ["tok2vec", *SYSTEMS],  # noqa: B006
    output: Output = None,
) -> None:
    """Time and memory of one doc without sentence boundaries; spancat with 1- to 20-grams.

    Each system runs in a process of its own, on one thread, with random weights on a HashEmbedCNN,
    `spancat` on its default encoder, and a threshold of 1, so that the predicted spans cost
    nothing. Memory is what a prediction adds to the peak of the process.
    """
    known([each for each in system if each != "tok2vec"])
    names = ["spancat", *(other for other in system if other != "spancat")]
    cells = [{"system": name, **in_process(long_doc_costs, name, words, repeats)} for name in names]
    theirs = cells[0]
    for cell in cells[1:]:
        cell["ratio"] = cell["seconds"] / theirs["seconds"]
    typer.echo(tables.measurements({"cells": cells}))
    write_output(output, {"words": words, "cells": cells})


def long_doc_costs(name: str, words: int, repeats: int) -> Dict[str, Any]:
    """One system, for `long-doc`."""
    config = {} if name == "tok2vec" else {**UNFILTERED.get(name, {}), "threshold": 1.0}
    if name == "spancat":
        config["suggester"] = SPANCAT
    nlp = random_pipeline(name, config)
    doc = nlp.make_doc("human IL-2 gene " * (words // 3))
    before, times = peak(), []
    for _ in range(repeats):
        with Stopwatch() as watch:
            nlp(doc.copy())
        times.append(watch.cpu)
    return {"seconds": statistics.median(times), "mib": peak() - before}


@app.command()
def memory(
    name: Annotated[str, typer.Argument(help="Factory of this package")],
    words: Annotated[List[int], typer.Option(help="Words of the sentence")] = SENTENCE_WORDS,
    output: Output = None,
) -> None:
    """What one sentence adds to the peak of a process, read as a whole: window = its words."""
    cells = []
    for size in words:
        cell = {"words": size, **in_process(sentence_memory, name, size, False)}
        trained = in_process(sentence_memory, name, size, True)
        cells.append({**cell, "training_mib": trained["mib"]})
    typer.echo(tables.measurements({"cells": cells}))
    write_output(output, {"system": name, "cells": cells})


def sentence_memory(name: str, words: int, training: bool) -> Dict[str, Any]:
    """One figure of `memory`."""
    config = {**UNFILTERED.get(name, {}), "threshold": 1.0, "window": words, "stride": words}
    nlp = random_pipeline(name, config)
    reference = nlp.make_doc(" ".join(["gene"] * words))
    reference.spans["sc"] = [Span(reference, 1, 4, "DNA"), Span(reference, 2, 3, "protein")]
    example = Example(nlp.make_doc(reference.text), reference)
    before = peak()
    if training:
        nlp.update([example], sgd=Adam(0.001))
    else:
        nlp(example.predicted)
    return {"mib": peak() - before}


def random_pipeline(name: str, config: Dict[str, Any]) -> Language:
    """One component with random weights, warm; those of this package on a HashEmbedCNN, others on
    their default encoder."""
    fix_random_seed(0)
    if name in NESTED:
        config = {**config, "model": {"tok2vec": hashed_cnn()}}
    nlp = spacy.blank("en")
    nlp.add_pipe(name, config=config)
    reference = nlp.make_doc("the human IL-2 gene promoter")
    reference.spans["sc"] = [Span(reference, 1, 4, "DNA"), Span(reference, 2, 3, "protein")]
    example = Example(nlp.make_doc(reference.text), reference)
    nlp.initialize(lambda: [example])
    nlp(nlp.make_doc("warm up"))
    return nlp


if __name__ == "__main__":
    app()
