"""Damaged corpora through every reader, as `nested-ner convert` reads them."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any, Dict, Iterator, List, Optional

import pytest

from spacy_nested_ner.corpora import readers
from tests.stress.bases import Count, bases
from tests.stress.breaking import break_one
from tests.stress.long import Long, long_inputs
from tests.stress.mutations import mutate, write
from tests.stress.worker import Job, Outcome, Worker

MEGABYTE = 1 << 20
SECONDS_PER_MEGABYTE, SECONDS_AT_LEAST = 20, 10
MEMORY_TIMES, MEMORY_AT_LEAST = 20, 64 * MEGABYTE

ITEMS = (
    *(".txt without .ann", "not annotated", "further annotation of a task"),
    *("not accepted", "earlier accepted answer"),
)
"""Reasons for which whole items are left out; the others are those of single annotations."""

THROUGH_THE_COMMAND = 20
"""One input of so many goes through the command line."""


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as own:
        yield own


def test_there_is_a_corpus_of_every_format(trial, tmp_path, worker):
    """And what the test counts in it is what its reader reads."""
    corpora = bases()
    missing = set(readers.get_all()) - {base.name for base in corpora}
    trial.record(formats=len(readers.get_all()), missing=sorted(missing))
    assert missing <= {"xmi"}  # whose library is optional
    for i, base in enumerate(corpora):
        folder = tmp_path / str(i)
        write(base.files, folder)
        job = Job(base.name, folder / base.entry, folder / "out", settings=base.settings)
        outcome = worker.run(job, 60)
        assert outcome.kind == "converted", outcome.message
        assert not _loss(outcome.report, False, base.count(base.files)), base


@pytest.mark.share(6)
def test_damaged_corpora(trial, tmp_path, worker):
    """Each is converted or refused with an error that names the file, in bounded time and memory,
    and what is read plus what is counted as left out is what is there."""
    corpora = bases()
    tally: Dict[str, Counter] = {base.name: Counter() for base in corpora}
    faults: List[str] = []
    for number in trial.inputs(10_000):
        base = corpora[number % len(corpora)]
        rng = Random(f"{trial.seed} {number}")
        folder = tmp_path / "input"
        what, files = mutate(rng, base.files)
        size = write(files, folder)
        there = base.count(files)
        counts = tally[base.name]
        counts["inputs"] += 1
        outcome: Optional[Outcome] = None
        for skip in (False, True):
            if outcome and outcome.kind == "converted" and rng.random() < 0.75:
                continue  # there is nothing to skip
            command = rng.randrange(THROUGH_THE_COMMAND) == 0
            source = folder / base.entry if base.entry else folder
            job = Job(base.name, source, tmp_path / "out", skip, command, settings=base.settings)
            outcome = worker.run(job, max(SECONDS_AT_LEAST, SECONDS_PER_MEGABYTE * size / MEGABYTE))
            counts["conversions"] += 1
            counts["through the command"] += command
            counts[outcome.kind] += 1
            counts["counted"] += outcome.kind == "converted" and there is not None
            for fault, detail in _faults(outcome, skip, folder, size, there):
                counts[fault] += fault != outcome.kind  # which is counted above
                faults.append(f"seed {trial.seed} number {number} {base.name} {what}: {detail}")
            shutil.rmtree(tmp_path / "out", ignore_errors=True)
        shutil.rmtree(folder)
    _record(trial, tally, faults)
    assert not faults, "\n".join(faults[:20])


def _faults(
    outcome: Outcome, skip: bool, folder: Path, size: int, there: Optional[Count]
) -> Iterator[Any]:
    """Kind and detail of everything that is not as it should be."""
    mode = "with errors skipped" if skip else "without skipping"
    if outcome.kind in ("traceback", "hang"):
        yield outcome.kind, f"{mode}: {outcome.message[-1500:]}"
    if outcome.memory > max(MEMORY_TIMES * size, MEMORY_AT_LEAST):
        yield "memory over the bound", f"{mode}: {outcome.memory:,} bytes for {size:,}"
    if outcome.kind == "refused":
        named = "".join(outcome.message.split())  # the command wraps lines
        if folder.name not in named and not any(f.name in named for f in folder.rglob("*")):
            yield "error without a file", f"{mode}: {outcome.message[:300]}"
        if outcome.written:
            yield "written in spite of an error", f"{mode}: {outcome.written}"
    if outcome.kind == "converted":
        loss = _loss(outcome.report, skip, there)
        if loss:
            yield "silent loss", f"{mode}: {loss}"


def _loss(
    report: Dict[str, Any], skip: bool, there: Optional[Count], errors: Optional[int] = None
) -> str:
    """What is there and neither read nor left out; "" if nothing is.

    errors: how many were skipped, if that is known. `there` is then what they leave.
    """
    if len(report["first_skipped_errors"]) != min(20, report["skipped_errors"]):
        return "errors that were skipped are not reported"
    if report["skipped_errors"] and not skip:
        return "errors were skipped unasked"
    if there is None:
        return ""
    splits = report["splits"].values()
    dropped: Counter = Counter()
    for split in splits:
        for reason, details in split["dropped"].items():
            dropped["items" if reason in ITEMS else "entities"] += sum(details.values())
    found = Count(sum(s["entities"] for s in splits) + dropped["entities"], dropped["items"])
    less = found.entities <= there.entities and found.items <= there.items
    if errors is not None:
        less = report["skipped_errors"] == errors and found == there
    if found == there if not report["skipped_errors"] else less:
        return ""
    return f"{found} of {there}, {report['skipped_errors']} errors skipped"


def _record(trial: Any, tally: Dict[str, Counter], faults: List[str]) -> None:
    kinds = (
        *("inputs", "conversions", "through the command", "converted", "counted", "refused"),
        *("traceback", "hang", "memory over the bound", "silent loss", "error without a file"),
        "written in spite of an error",
    )
    total: Counter = sum(tally.values(), Counter())
    trial.record(
        **{kind.replace(" ", "_"): total[kind] for kind in kinds},
        bounds={
            "seconds": f"{SECONDS_PER_MEGABYTE} per MB, at least {SECONDS_AT_LEAST}",
            "memory": f"{MEMORY_TIMES} times the input, at least {MEMORY_AT_LEAST:,} bytes, "
            "by the peak resident size of the process",
        },
        formats={
            name: {kind.replace(" ", "_"): counts[kind] for kind in kinds}
            for name, counts in sorted(tally.items())
        },
        first_faults=faults[:20],
    )


def test_one_wrong_annotation(trial, tmp_path, worker):
    """Refused; with errors skipped one error is counted, and no more is left out than has to be."""
    corpora = [base for base in bases() if break_one(Random(0), base)]
    faults: List[str] = []
    tally: Counter = Counter()
    for number in trial.inputs(1_000):
        base = corpora[number % len(corpora)]
        broken = break_one(Random(f"{trial.seed} {number}"), base)
        there = base.count(base.files)
        assert broken is not None and there is not None
        files, lost = broken
        write(files, tmp_path / "input")
        source = tmp_path / "input" / base.entry
        tally[base.name] += 1
        for skip in (False, True):
            job = Job(base.name, source, tmp_path / "out", skip, settings=base.settings)
            outcome = worker.run(job, 60)
            left = Count(there.entities - lost.entities, there.items - lost.items)
            # A corpus of one item has nothing left without it.
            if skip and (outcome.kind == "converted" or left.entities):
                fine = outcome.kind == "converted" and not _loss(outcome.report, True, left, 1)
            else:
                fine = outcome.kind == "refused"
            if not fine:
                faults.append(f"seed {trial.seed} number {number} {base.name} {skip}: {outcome}")
            shutil.rmtree(tmp_path / "out", ignore_errors=True)
        shutil.rmtree(tmp_path / "input")
    trial.record(inputs=tally.total(), not_as_told=len(faults), formats=dict(sorted(tally.items())))
    assert not faults, "\n".join(faults[:10])


MOST_GROWTH = 8
"""Of the time for four times the input: half way between growth with the input, 4 times, and with
its square, 16 times."""

MEMORY_OF_ONE = 128 * MEGABYTE
"""What a doc of some hundred thousand tokens may take, however short they are."""

TOO_SHORT = 0.2
"""Seconds of CPU time that say nothing."""


@pytest.mark.share(3)
def test_time_and_memory_grow_with_the_input(trial, tmp_path, worker):
    """Four times the input takes about four times as long."""
    inputs = list(long_inputs())
    Random(trial.seed).shuffle(inputs)
    tried: List[Dict[str, Any]] = []
    for number in trial.inputs(len(inputs)):
        one = inputs[number]
        for _ in range(3):  # a machine that does other things as well measures too much at times
            small, large = (_timed(one, n, tmp_path, worker) for n in (one.n, 4 * one.n))
            ratio = large["seconds"] / max(small["seconds"], TOO_SHORT / MOST_GROWTH)
            if ratio <= MOST_GROWTH:
                break
        tried.append(
            {
                **{"format": one.name, "what": one.what, "group": one.group},
                **{"n": one.n, "n_times_4": 4 * one.n, "bytes": large["bytes"]},
                "seconds": [small["seconds"], large["seconds"]],
                "ratio": round(ratio, 2),
                "memory": [small["memory"], large["memory"]],
            }
        )
    tried.sort(key=lambda row: (row["format"], row["what"], row["group"]))
    steep = [row for row in tried if row["ratio"] > MOST_GROWTH and row["seconds"][1] > TOO_SHORT]
    large_ones = [
        row for row in tried if row["memory"][1] > max(MEMORY_TIMES * row["bytes"], MEMORY_OF_ONE)
    ]
    trial.record(
        inputs=len(tried),
        of=len(inputs),
        grew_faster=len(steep),
        memory_over_the_bound=len(large_ones),
        largest_memory=max(row["memory"][1] for row in tried),
        largest_ratio=max(row["ratio"] for row in tried),
        most_seconds_per_megabyte=max(
            round(row["seconds"][1] * MEGABYTE / row["bytes"], 1) for row in tried
        ),
        tried=tried,
    )
    assert not steep, steep
    assert not large_ones, large_ones


def _timed(one: Long, n: int, folder: Path, worker: Worker) -> Dict[str, Any]:
    """The faster of two runs."""
    files, entities = one.build(n)
    source = folder / "long"
    size = write(files, source)
    outcomes = []
    for _ in range(2):
        job = Job(one.name, source, folder / "out", group=one.group)
        if one.name == "genia":
            job.source = source / next(iter(files))
        outcome = worker.run(job, 60)
        assert outcome.kind == "converted", (one, n, outcome.message)
        there = Count(entities)
        assert not _loss(outcome.report, False, there), (one, n)
        outcomes.append(outcome)
        shutil.rmtree(folder / "out")
    shutil.rmtree(source)
    return {
        "bytes": size,
        "seconds": round(min(outcome.seconds for outcome in outcomes), 3),
        "memory": max(outcome.memory for outcome in outcomes),
    }
