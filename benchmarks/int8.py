"""int8 weights of pretrained encoders: speed and F1 of a pipeline, and ways that were tried.

python -m benchmarks.int8 pipeline MODEL TEST.spacy --output FILE
python -m benchmarks.int8 ways DIRECTORY_OR_HUB_NAME DATA.spacy --output FILE

The second one tries ONNX Runtime, too, where `onnx` and `onnxruntime` are installed.
"""

import copy
import importlib.util
import statistics
import tempfile
import warnings
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Callable, Dict, List, Tuple

import spacy
import torch
import typer
from spacy.language import Language
from torch import Tensor
from transformers import AutoModel, AutoTokenizer

from benchmarks import tables
from benchmarks.harness import Data, Output, Stopwatch, in_process, write_output
from benchmarks.passes import seconds
from benchmarks.products import without_one_dnn
from benchmarks.systems import read
from spacy_nested_ner.cli.pipelines import read_examples
from spacy_nested_ner.comparison.timing import in_turn, median_ratio
from spacy_nested_ner.encoders.batching import cut_batches, pieces_at_once
from spacy_nested_ner.layers.int8 import to_int8
from spacy_nested_ner.layers.packed_encoder import read_rows
from spacy_nested_ner.pipeline.compress import compress

app = typer.Typer(add_completion=False, help=__doc__)

BATCH_SIZES = (1, 8, 64)
Batch = Tuple[Tensor, Tensor]
Encoder = Callable[[Tensor, Tensor], Tensor]


@app.command()
def pipeline(
    model: Annotated[str, typer.Argument(help="A trained pipeline, not compressed")],
    data: Data,
    limit: Annotated[int, typer.Option(help="First docs that are timed")] = 128,
    score_limit: Annotated[int, typer.Option(help="First docs that are scored; 0: all")] = 0,
    repeats: int = 5,
    threads: int = 1,
    output: Output = None,
) -> None:
    """Strict F1 and size before and after `compress`, and how many times as fast it is: medians of
    pairs of runs in turn, CPU time."""
    found = in_process(costs, model, data, limit, score_limit, repeats, threads=threads)
    typer.echo(tables.measurements(found))
    f = found["f1"]
    typer.echo(f"F1 {f['float32']:.2f}, int8 {f['int8']:.2f}; MB {found['megabytes']}")
    write_output(output, {"threads": threads, **found})


def costs(model: str, data: Path, limit: int, score_limit: int, repeats: int) -> Dict[str, Any]:
    """The figures of `pipeline`."""
    pipelines = {"float32": spacy.load(model), "int8": spacy.load(model)}
    compress(pipelines["int8"])
    f1, megabytes = {}, {}
    for name, nlp in pipelines.items():
        scores = nlp.evaluate(read_examples(nlp, data)[: score_limit or None])
        f1[name] = 100 * scores["nested_f"]
        with tempfile.TemporaryDirectory() as folder:
            nlp.to_disk(folder)
            files = [path for path in Path(folder).rglob("*") if path.is_file()]
            megabytes[name] = round(sum(path.stat().st_size for path in files) / 1e6, 1)
    docs = read(pipelines["float32"], data, limit)
    cells = [{"batch_size": size, **ratio(pipelines, docs, size, repeats)} for size in BATCH_SIZES]
    return {"f1": f1, "megabytes": megabytes, "cells": cells}


def ratio(
    pipelines: Dict[str, Language], docs: List[Any], batch_size: int, repeats: int
) -> Dict[str, Any]:
    """Medians of milliseconds for a doc, and how many times as fast int8 is."""
    runs = {name: partial(seconds, nlp, docs, batch_size) for name, nlp in pipelines.items()}
    runs["float32_by_mkl"] = partial(without_one_dnn, runs["float32"])
    in_turn(runs, 1)
    times = in_turn(runs, repeats)
    per_doc = {f"{n}_ms": 1000 * statistics.median(t) / len(docs) for n, t in times.items()}
    speedup = median_ratio(times["float32"], times["int8"])
    by_mkl = median_ratio(times["float32_by_mkl"], times["int8"])
    return {**per_doc, "speedup": speedup, "speedup_by_mkl": by_mkl}


@app.command()
def ways(
    name: Annotated[str, typer.Argument(help="Directory or hub name of a transformer")],
    data: Data,
    limit: Annotated[int, typer.Option(help="First docs, of which the last are left over")] = 128,
    repeats: int = 5,
    output: Output = None,
) -> None:
    """Ways to an encoder in int8, on one thread: CPU milliseconds of a doc by batch size; how far
    its vectors are from those in float32, and from its own where the doc is alone, relative to
    their norm."""
    found = in_process(ways_costs, name, data, limit, repeats)
    typer.echo(tables.measurements(found))
    write_output(output, found)


@torch.no_grad()
def ways_costs(name: str, data: Path, limit: int, repeats: int) -> Dict[str, Any]:
    """The figures of `ways`."""
    warnings.simplefilter("ignore")  # torch announces that its quantisation moves
    texts = [doc.text for doc in read(spacy.blank("en"), data, limit)]
    tokenizer = AutoTokenizer.from_pretrained(name)
    inputs = [torch.tensor(tokenizer(text)["input_ids"]) for text in texts]
    encoders = _encoders(name)
    times = _times(encoders, inputs, repeats)
    cells = []
    sample = inputs[:32]
    expected = vectors_of(encoders["float32"], sample, 1)
    for way, encoder in encoders.items():
        alone, batched = vectors_of(encoder, sample, 1), vectors_of(encoder, sample, len(sample))
        cell: Dict[str, Any] = {"way": way}
        for size, of_all in times.items():
            cell[f"ms_{size}"] = 1000 * statistics.median(of_all[way]) / len(inputs)
            cell[f"speedup_{size}"] = median_ratio(of_all["float32"], of_all[way])
        cells.append(
            {**cell, "error": distance(alone, expected), "by_batch": distance(batched, alone)}
        )
    return {"cells": cells}


def _encoders(name: str) -> Dict[str, Encoder]:
    model = AutoModel.from_pretrained(name).eval()
    model.pooler = None
    linear = {torch.nn.Linear}
    dynamic = torch.ao.quantization.quantize_dynamic(model, linear, dtype=torch.qint8)
    products, whole = copy.deepcopy(model), copy.deepcopy(model)
    to_int8(products, attention=False)
    to_int8(whole, attention=True)
    modules = {
        "float32": model,
        "torch dynamic int8": dynamic,
        "rounded by row": products,
    }

    def runs(module: Any) -> Encoder:
        return lambda ids, mask: module(ids, attention_mask=mask).last_hidden_state

    found = {way: runs(module) for way, module in modules.items()}
    found["float32, no padding"] = partial(read_rows, model)
    found["rounded by row, no padding"] = partial(read_rows, whole)
    if importlib.util.find_spec("onnxruntime") and importlib.util.find_spec("onnx"):
        found["ONNX Runtime int8"] = _onnx(model)
    return found


def _onnx(model: Any) -> Encoder:
    """The model in ONNX Runtime with weights in int8 and activations rounded on the fly."""
    import onnxruntime
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory() as folder:
        files = [str(Path(folder) / name) for name in ("float32.onnx", "int8.onnx")]
        ids = torch.ones((2, 8), dtype=torch.long)
        mask = torch.ones_like(ids)
        mask[1, 6:] = 0
        axes = {name: {0: "batch", 1: "pieces"} for name in ("ids", "mask", "states")}
        torch.onnx.export(
            model,
            (ids, mask),
            files[0],
            input_names=["ids", "mask"],
            output_names=["states"],
            dynamic_axes=axes,
            dynamo=False,
        )
        quantize_dynamic(*files, weight_type=QuantType.QInt8, per_channel=True)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(files[1], options)

    def run(ids: Tensor, mask: Tensor) -> Tensor:
        given = {"ids": ids.numpy(), "mask": mask.long().numpy()}
        return torch.from_numpy(session.run(["states"], given)[0])

    return run


def _times(
    encoders: Dict[str, Encoder], inputs: List[Tensor], repeats: int
) -> Dict[int, Dict[str, List[float]]]:
    """CPU seconds of runs in turn, by batch size and way."""
    found: Dict[int, Dict[str, List[float]]] = {}
    for size in BATCH_SIZES:
        runs = {way: partial(_seconds, encoder, inputs, size) for way, encoder in encoders.items()}
        in_turn(runs, 1)
        found[size] = in_turn(runs, repeats)
    return found


def _seconds(encoder: Encoder, inputs: List[Tensor], batch_size: int) -> float:
    with Stopwatch() as watch:
        vectors_of(encoder, inputs, batch_size)
    return watch.cpu


def vectors_of(encoder: Encoder, inputs: List[Tensor], batch_size: int) -> List[Tensor]:
    """Vectors of the pieces of each input, as `SortedTransformer` cuts batches."""
    found: Dict[int, Tensor] = {}
    for begin in range(0, len(inputs), batch_size):
        lengths = torch.tensor([len(ids) for ids in inputs[begin : begin + batch_size]]).numpy()
        for rows in cut_batches(lengths, pieces_at_once(torch.device("cpu"))):
            chosen = [inputs[begin + row] for row in rows]
            ids = torch.nn.utils.rnn.pad_sequence(chosen, batch_first=True)
            mask = (
                torch.arange(ids.shape[1]) < torch.tensor([len(each) for each in chosen])[:, None]
            )
            for row, states, each in zip(rows, encoder(ids, mask), chosen):
                found[begin + int(row)] = states[: len(each)]
    return [found[i] for i in range(len(inputs))]


def distance(some: List[Tensor], others: List[Tensor]) -> float:
    """Of vectors from others, relative to the norm of these."""
    a, b = torch.cat(some), torch.cat(others)
    return float((a - b).norm() / b.norm())


if __name__ == "__main__":
    app()
