"""Many documents: speed, memory, killed processes and equal output of each way to annotate them.

python -m benchmarks.annotate prepare FOLDER
python -m benchmarks.annotate speed FOLDER --output RESULTS/speed.json
python -m benchmarks.annotate start FOLDER --output RESULTS/start.json
python -m benchmarks.annotate memory FOLDER --output RESULTS/memory.json
python -m benchmarks.annotate same FOLDER --output RESULTS/same.json
python -m benchmarks.annotate kills FOLDER --output RESULTS/kills.json
python -m benchmarks.annotate sizing FOLDER --output RESULTS/sizing.json

`prepare` needs nothing but the repository: it trains a pipeline on the corpus in assets/genia and
makes the sentences of it. RESULTS is benchmarks/results/annotate.
"""

import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Callable, Dict, Iterator, List, Optional, Tuple

import spacy
import srsly
import torch
import typer
from spacy.tokens import Doc

import spacy_nested_ner.scale.workers
from benchmarks import tables
from benchmarks.clusters import local_ray, local_spark
from benchmarks.harness import Output, Results, Stopwatch, cpu_of, in_process, peak, write_output
from benchmarks.systems import CONFIGS, SYSTEMS, Systems, read, untrained_system
from spacy_nested_ner.cli import nested_ner_cli
from spacy_nested_ner.scale import Annotator

app = typer.Typer(add_completion=False, help=__doc__)

Folder = Annotated[Path, typer.Argument(help="What `prepare` made")]
Limit = Annotated[int, typer.Option(help="First sentences; 0 for all")]
CORPUS = CONFIGS.parent / "assets" / "genia" / "GENIAcorpus3.02.tgz"
SENTENCES, NEW_WORDS = "sentences.parquet", "new_words.parquet"
ROWS = 2_500  # of a row group, which is a fragment
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@app.command()
def prepare(
    folder: Annotated[Path, typer.Argument(help="To write")],
    sentences: Annotated[int, typer.Option(max=10**6)] = 100_000,  # ids have six digits
    steps: Annotated[int, typer.Option(help="Of the training")] = 600,
) -> None:
    """A pipeline and sentences: those of GENIA in any order, the outermost entities of each
    exchanged for others of their labels; and again with three new words in each."""
    import pyarrow as pa
    from pyarrow.parquet import write_table

    corpus, training = folder / "corpus", folder / "training"
    nested_ner = ["nested-ner", "convert", "genia", str(CORPUS), str(corpus), "--tokens", "spacy"]
    spacy_command(*nested_ner)
    paths = [f"--paths.{part}={corpus / part}.spacy" for part in ("train", "dev")]
    config = str(CONFIGS / "locate_and_label_cnn.cfg")
    length = [f"--training.max_steps={steps}", "--corpora.dev.limit=300"]
    spacy_command("train", config, f"--output={training}", *paths, *length)
    shutil.copytree(training / "model-best", folder / "model", dirs_exist_ok=True)
    docs = read(spacy.blank("en"), corpus / "train.spacy", 0)
    texts = list(exchanged(docs, sentences))
    ids = [f"{i:06}" for i in range(sentences)]
    write_table(pa.table({"id": ids, "text": texts}), folder / SENTENCES, row_group_size=ROWS)
    texts = list(with_new_words(texts))
    write_table(pa.table({"id": ids, "text": texts}), folder / NEW_WORDS, row_group_size=ROWS)


def spacy_command(*arguments: str) -> None:
    """`python -m spacy ...` to its end."""
    subprocess.run([sys.executable, "-m", "spacy", *arguments], check=True)


def exchanged(docs: List[Doc], number: int) -> Iterator[str]:
    """Texts like those of the docs."""
    chance = random.Random(0)
    outer = [outermost(doc) for doc in docs]
    mentions: Dict[str, List[str]] = {}
    for doc, entities in zip(docs, outer):
        for start, end, label in entities:
            mentions.setdefault(label, []).append(doc.text[start:end])
    for _ in range(number):
        which = chance.randrange(len(docs))
        text, parts, place = docs[which].text, [], 0
        for start, end, label in outer[which]:
            parts += [text[place:start], chance.choice(mentions[label])]
            place = end
        yield "".join([*parts, text[place:]])


def outermost(doc: Doc) -> List[Tuple[int, int, str]]:
    """Characters and labels of the entities that no other contains."""
    found: List[Tuple[int, int, str]] = []
    spans = [(s.start_char, s.end_char, s.label_) for s in doc.spans["sc"]]
    for start, end, label in sorted(spans, key=lambda span: (span[0], -span[1])):
        if not found or start >= found[-1][1]:
            found.append((start, end, label))
    return found


def with_new_words(texts: List[str]) -> Iterator[str]:
    """Each text with three words that no other has."""
    chance = random.Random(1)
    for number, text in enumerate(texts):
        stem = "".join(chance.choices(LETTERS, k=4))
        yield f"{stem}{number}a and {text} with {stem}{number}b-{stem}{number}c"


def sentences_of(folder: Path, limit: int, file: str = SENTENCES) -> Tuple[List[str], List[str]]:
    """Ids and texts."""
    from pyarrow.parquet import read_table

    table = read_table(folder / file).slice(0, limit or None)
    return table["id"].to_pylist(), table["text"].to_pylist()


# Speed


def bare(folder: Path, limit: int, output: Path, workers: int) -> None:
    """A loop over `nlp.pipe` that keeps what it finds."""
    nlp = spacy.load(folder / "model")
    ids, texts = sentences_of(folder, limit)
    found = [
        (name, [(s.start_char, s.end_char, s.label_) for s in doc.spans["sc"]])
        for name, doc in zip(ids, nlp.pipe(texts))
    ]
    srsly.write_json(output.with_suffix(".json"), found)


def one_machine(folder: Path, limit: int, output: Path, workers: int) -> None:
    """`nested-ner annotate`."""
    paths = [str(folder / "model"), str(folder / SENTENCES), str(output)]
    options = ["--workers", str(workers), "--limit", str(limit)]
    spacy_command("nested-ner", "annotate", *paths, *options)


def spark(folder: Path, limit: int, output: Path, workers: int) -> None:
    """`mapInArrow`, with so many Python workers."""
    annotator = Annotator(folder / "model")
    with tempfile.TemporaryDirectory() as scratch, local_spark(Path(scratch), workers) as session:
        session.conf.set("spark.sql.files.maxPartitionBytes", 1 << 20)
        frame = session.read.parquet(str(folder / SENTENCES))
        if limit:
            frame = frame.filter(f"id < '{limit:06}'")
        found = frame.mapInArrow(annotator.spark, schema=annotator.ddl)
        found.write.parquet(str(output))


def ray(folder: Path, limit: int, output: Path, workers: int) -> None:
    """`map_batches`, with so many actors."""
    annotator = Annotator(folder / "model")
    with local_ray(workers) as cluster:
        data = cluster.data.read_parquet(str(folder / SENTENCES), override_num_blocks=40)
        if limit:
            data = data.limit(limit)
        actors = cluster.data.ActorPoolStrategy(size=workers)
        found = data.map_batches(
            annotator.actor, compute=actors, batch_size=ROWS, batch_format="pyarrow"
        )
        found.write_parquet(str(output))


WAYS: Dict[str, Tuple[Callable[[Path, int, Path, int], None], int]] = {
    "bare": (bare, 1),
    "one": (one_machine, 1),
    "two": (one_machine, 2),
    "spark": (spark, 1),
    "ray": (ray, 1),
    "spark two": (spark, 2),
    "ray two": (ray, 2),
}


class Tree:
    """CPU time of this process and of all below it, and the most memory that they have at once, in
    MiB, as seen ten times a second. A page that several of them share counts once; processes that
    end sooner do not count."""

    def __init__(self) -> None:
        self.seconds: Dict[int, float] = {}
        self.mib = 0.0
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch)

    @property
    def cpu_seconds(self) -> float:
        return sum(self.seconds.values())

    def __enter__(self) -> "Tree":
        self._watcher.start()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._ended.set()
        self._watcher.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.1):
            self.look()
        self.look()

    def look(self) -> None:
        """Take the time and the memory of now."""
        shares = 0
        for pid in {os.getpid(), *below(os.getpid())}:
            with suppress(OSError):  # it has just ended
                self.seconds[pid] = cpu_of(pid)
                memory = Path(f"/proc/{pid}/smaps_rollup").read_text("utf8")
                shares += int(memory.split("Pss:")[1].split()[0])
        self.mib = max(self.mib, shares / 1024)


def below(pid: int) -> List[int]:
    """The processes that a process has started, and those that these have."""
    found: List[int] = []
    for path in sorted(Path(f"/proc/{pid}/task").glob("*/children")):
        with suppress(OSError):
            for child in map(int, path.read_text("utf8").split()):
                found += [child, *below(child)]
    return found


@app.command()
def speed(
    folder: Folder,
    way: Annotated[List[str], typer.Option(help=f"Of {', '.join(WAYS)}")] = list(WAYS),  # noqa: B006
    limit: Limit = 0,
    repeats: int = 1,
    output: Output = None,
) -> None:
    """Sentences per second of each way, with loading and writing, from a process of its own; the
    ways in turn, and their ratios to the bare loop and to one worker.

    CPU seconds are those of all processes: they compare ways where the machine has other work, too.
    """
    results = Results(output, sentences=limit or len(sentences_of(folder, 0)[0]))
    for repeat in range(repeats):
        for name in way:
            results.add(f"{name}, {number_of(results, name)}", measured(folder, name, limit))
            typer.echo(f"{repeat + 1}/{repeats} {name}: {list(results.cells.values())[-1]}")
    typer.echo(tables.annotation(results.cells))


def number_of(results: Results, name: str) -> int:
    """The number of the next measurement of a way."""
    return 1 + sum(key.split(", ")[0] == name for key in results.cells)


def measured(folder: Path, name: str, limit: int) -> Dict[str, Any]:
    """One way."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as scratch:
        found = in_process(run_way, folder, name, limit, Path(scratch) / "out")
    words, sentences = words_of(folder, limit)
    return {
        "workers": WAYS[name][1],
        "sentences": sentences,
        "sentences_per_second": sentences / found["seconds"],
        "words_per_second": words / found["seconds"],
        **found,
        "load_before": load,
    }


def run_way(folder: Path, name: str, limit: int, output: Path) -> Dict[str, Any]:
    """Wall and CPU seconds of one way."""
    function, workers = WAYS[name]
    with Tree() as tree, Stopwatch() as watch:
        function(folder, limit, output, workers)
    mib = sum(path.stat().st_size for path in output.rglob("*.parquet")) / 2**20
    return {"seconds": watch.seconds, "cpu_seconds": tree.cpu_seconds, "output_mib": mib}


def words_of(folder: Path, limit: int) -> Tuple[int, int]:
    """Tokens and sentences of the input."""
    tokenizer = spacy.blank("en").tokenizer
    texts = sentences_of(folder, limit)[1]
    return sum(len(tokenizer(text)) for text in texts), len(texts)


# Start and memory


@app.command()
def start(
    folder: Folder,
    workers: Annotated[List[int], typer.Option(help="Repeat for several")] = [1, 2, 4, 8],  # noqa: B006
    limit: Annotated[int, typer.Option(help="First sentences of each worker")] = 500,
    output: Output = None,
) -> None:
    """What workers cost that are forked from one process, and such as start from nothing."""
    cells = []
    for number in workers:
        for way in ("fork", "spawn"):
            found = in_process(started, folder, way, number, limit)
            cells.append({"way": way, "workers": number, **found})
    typer.echo(tables.measurements({"cells": cells}))
    write_output(output, {"sentences_of_each": limit, "cells": cells})


def started(folder: Path, way: str, number: int, limit: int) -> Dict[str, Any]:
    """Wall and CPU seconds of a short run, and the memory of all its processes."""
    from pyarrow.parquet import read_table, write_table

    if way == "spawn":
        spawning = multiprocessing.get_context("spawn")
        spacy_nested_ner.scale.workers.forking_context = lambda module: spawning
    with tempfile.TemporaryDirectory() as scratch:
        table = read_table(folder / SENTENCES).slice(0, number * limit)
        write_table(table, Path(scratch) / SENTENCES, row_group_size=limit)
        paths = [str(folder / "model"), str(Path(scratch) / SENTENCES), str(Path(scratch) / "out")]
        with Tree() as tree, Stopwatch() as watch:
            command = ["annotate", *paths, "--workers", str(number)]
            if nested_ner_cli(command, standalone_mode=False):
                raise RuntimeError("annotate has failed")
    return {"seconds": watch.seconds, "cpu_seconds": tree.cpu_seconds, "mib": tree.mib}


@app.command()
def memory(folder: Folder, limit: Limit = 0, output: Output = None) -> None:
    """Peak of a worker after half of the texts with ever new words, and after all."""
    cells = [{"way": "annotator", **in_process(halves, folder, limit)}]
    typer.echo(tables.measurements({"cells": cells}))
    write_output(output, {"cells": cells})


def halves(folder: Path, limit: int) -> Dict[str, Any]:
    """MiB at the peak of each half, and growth of the second over the first."""
    ids, texts = sentences_of(folder, limit, NEW_WORDS)
    annotator, peaks = Annotator(folder / "model"), []
    for start in range(0, len(ids), annotator.batch_size):
        part = slice(start, start + annotator.batch_size)
        annotator.annotate(list(ids[part]), list(texts[part]))
        if start < len(ids) // 2 <= start + annotator.batch_size:
            peaks.append(peak())
    first, second = peaks[0], peak()
    return {"texts": len(texts), "mib": first, "second_mib": second, "growth": second / first - 1}


# Equal output


@app.command()
def same(
    folder: Folder,
    limit: Annotated[int, typer.Option(help=f"A multiple of {ROWS}")] = 10_000,
    output: Output = None,
) -> None:
    """Rows of each way beside those of the annotator in one process: other spans, other scores."""
    if limit < ROWS or limit % ROWS:
        raise typer.BadParameter(f"--limit must be a multiple of {ROWS}, not {limit}.")
    expected = in_process(rows_of, folder, "direct", limit)
    cells = []
    for name in [name for name in WAYS if name != "bare"]:
        found = in_process(rows_of, folder, name, limit)
        cells.append({"way": name, **differences(expected["rows"], found["rows"])})
    typer.echo(tables.measurements({"cells": cells}))
    write_output(output, {"cells": cells})


def rows_of(folder: Path, name: str, limit: int) -> Dict[str, Any]:
    """The rows of a way, in the order of their ids."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile, read_table

    if name == "direct":
        batches = ParquetFile(folder / SENTENCES).iter_batches(ROWS)
        annotator = Annotator(folder / "model")
        table = pa.Table.from_batches(annotator.spark(islice(batches, limit // ROWS)))
    else:
        with tempfile.TemporaryDirectory() as scratch:
            function, workers = WAYS[name]
            function(folder, limit, Path(scratch) / "out", workers)
            table = read_table(Path(scratch) / "out")
    return {"rows": table.sort_by("id").to_pylist()}


def differences(expected: List[Dict[str, Any]], found: List[Dict[str, Any]]) -> Dict[str, Any]:
    """How many rows and spans there are, how many rows differ in their spans, and in a score."""
    spans = [place(row) for row in expected]
    assert [row["id"] for row in found] == [row["id"] for row in expected]
    return {
        "texts": len(expected),
        "spans": sum(map(len, spans)),
        "other_spans": sum(place(row) != other for row, other in zip(found, spans)),
        "other_scores": sum(row != other for row, other in zip(found, expected)),
    }


def place(row: Dict[str, Any]) -> List[Tuple[int, int, str]]:
    """The spans of a row without their scores."""
    return [(span["start"], span["end"], span["label"]) for span in row["spans"]]


# Killed processes


@app.command()
def kills(
    folder: Folder,
    runs: Annotated[int, typer.Option(help="In which a process was there to be killed")] = 20,
    limit: Annotated[int, typer.Option(help="First sentences, 100 a fragment")] = 1_000,
    seed: int = 0,
    output: Output = None,
) -> None:
    """Runs in which a worker is killed, and runs in which the parent is and --resume follows, at
    random moments: is the output that of an undisturbed run, byte for byte by id?"""
    chance = random.Random(seed)
    cells: List[Dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        run = Run(folder, Path(scratch), limit)
        seconds, expected = run.undisturbed()
        for what in ("worker", "parent"):
            tried = equal = 0
            # A run that ends before the moment has come shows nothing.
            while run.dead < runs and tried < 5 * runs:
                found = run.disturbed(what, chance.uniform(0.1, 0.9) * seconds)
                tried, equal = tried + 1, equal + (found == expected)
            cells.append({"killed": what, "runs": tried, "equal": equal, "dead": run.take_dead()})
    typer.echo(tables.measurements({"cells": cells}))
    write_output(output, {"texts": limit, "seed": seed, "cells": cells})
    if any(cell["equal"] < cell["runs"] for cell in cells):
        raise typer.Exit(1)


class Run:
    """Runs of `nested-ner annotate` with two workers."""

    def __init__(self, folder: Path, scratch: Path, limit: int) -> None:
        from pyarrow.parquet import read_table, write_table

        self.model, self.input, self.output = folder / "model", scratch / SENTENCES, scratch / "out"
        self.dead = 0
        table = read_table(folder / SENTENCES).slice(0, limit)
        write_table(table, self.input, row_group_size=100)

    def start(self, *options: str) -> subprocess.Popen:
        paths = [str(path) for path in (self.model, self.input, self.output)]
        command = [sys.executable, "-m", "spacy", "nested-ner", "annotate", *paths, "--workers"]
        command += ["2", *options]
        return subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def undisturbed(self) -> Tuple[float, bytes]:
        """Seconds and output."""
        with Stopwatch() as watch:
            assert self.start().wait() == 0
        return watch.seconds, self.take()

    def disturbed(self, what: str, seconds: float) -> bytes:
        """The output of a run in which a process was killed after so many seconds."""
        process = self.start()
        time.sleep(seconds)
        if what == "parent":
            process.kill()
            self.dead += process.wait() == -signal.SIGKILL
            process = self.start("--resume")
        else:
            self.dead += kill_one(process.pid)
        return self.take() if process.wait() == 0 else b""

    def take(self) -> bytes:
        """All rows by id as one stream of bytes; the output goes."""
        import pyarrow as pa
        from pyarrow.parquet import read_table

        table = read_table(self.output).sort_by("id").combine_chunks()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        shutil.rmtree(self.output)
        return sink.getvalue().to_pybytes()

    def take_dead(self) -> int:
        """How many processes were killed since this was last asked for."""
        dead, self.dead = self.dead, 0
        return dead


def kill_one(parent: int) -> bool:
    """Kill a worker, if there is one. Needs a machine without a GPU: see `forking_context`."""
    found = []
    for pid in below(parent):
        with suppress(OSError):  # it has just ended
            if "multiprocessing.forkserver" in Path(f"/proc/{pid}/cmdline").read_text("utf8"):
                found.append(pid)
    if len(found) < 2:  # the first forks the others
        return False
    os.kill(found[1], signal.SIGKILL)
    return True


# Sizing


@app.command()
def sizing(
    folder: Folder,
    transformer: Annotated[Optional[str], typer.Option(help="Directory or hub name")] = None,
    system: Systems = SYSTEMS,
    limit: Limit = 2_000,
    output: Output = None,
) -> None:
    """Words per second of one core, and memory of a worker, of each system of the shipped configs
    with random weights; nothing reaches the threshold of 1, so that predicted spans cost nothing.
    """
    cells = []
    for name in system:
        with tempfile.TemporaryDirectory() as model:
            in_process(save_untrained, folder, name, transformer, Path(model))
            cells.append({"system": name, **in_process(rate, folder, Path(model), limit)})
    typer.echo(tables.measurements({"cells": cells}))
    write_output(output, {"transformer": bool(transformer), "cells": cells})


def save_untrained(
    folder: Path, system: str, transformer: Optional[str], model: Path
) -> Dict[str, Any]:
    """Write the pipeline of a system with random weights."""
    docs = read(spacy.blank("en"), folder / "corpus" / "dev.spacy", 64)
    untrained_system(system, docs, transformer).to_disk(model)
    return {"docs": len(docs)}


def rate(folder: Path, model: Path, limit: int) -> Dict[str, Any]:
    """Words per CPU second, and MiB."""
    torch.set_num_threads(1)
    ids, texts = sentences_of(folder, limit)
    annotator, words = Annotator(model), 0
    annotator.annotate(list(ids[:64]), list(texts[:64]))
    with Stopwatch() as watch:
        for start in range(0, len(ids), annotator.batch_size):
            part = slice(start, start + annotator.batch_size)
            batch = annotator.annotate(list(ids[part]), list(texts[part]))
            words += sum(batch["n_tokens"].to_pylist())
    return {"words_per_cpu_second": words / watch.cpu, "mib": peak()}


if __name__ == "__main__":
    app()
