"""Commands that are killed, or that run out of disk: what was there before stays as a whole, or
what is new stands as a whole; no drafts stay; and the command can be run again.

Each event that touches a file of the output is met by each kind of end, and moments of the whole
run by chance.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

import pytest
import spacy
import torch
from spacy.tokens import DocBin

from spacy_nested_ner.files import DRAFT
from tests.conftest import (
    make_examples,
    make_pipeline,
    scores_of,
    spans_of,
    train,
)
from tests.stress.children import (
    FULL,
    Ended,
    in_child,
    spacy_command,
    struck,
    watching,
    with_little_space,
)

KINDS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, FULL)
TIMED = 20
"""Moments by chance of each kind."""
LONGEST = 120.0
"""Seconds after which a command is taken to hang."""
SPLITS = ("train", "dev", "test")


@dataclass
class Case:
    """A command with an output that is there before.

    check: raises AssertionError unless what a folder holds is whole; `True`: after SIGKILL.
    """

    args: List[Any]
    output: Path
    before: Path
    check: Callable[[Path, bool], None]
    most_events: int = 1000
    events: int = 0
    seconds: float = 0.0
    largest: int = 0
    counts: Counter = field(default_factory=Counter)

    def restore(self) -> None:
        shutil.rmtree(self.output, ignore_errors=True)
        shutil.copytree(self.before, self.output)

    def act(self) -> Callable[[], None]:
        return spacy_command(*self.args)


def drafts(folder: Path) -> List[Path]:
    return list(folder.rglob(f"{DRAFT}*"))


def digests(folder: Path) -> Dict[str, str]:
    """Of all files, drafts left out."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and DRAFT not in str(path)
    }


# The cases --------------------------------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """A fork has no other threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def gold(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("gold") / "gold.spacy"
    docs = [eg.reference for eg in make_examples(spacy.blank("en"))]
    DocBin(docs=docs, store_user_data=True).to_disk(path)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model-best"
    train(make_pipeline("piqn_ner"), 60).to_disk(path)
    return path


def columns(label: str, sentences: int) -> str:
    line = f"The O O\nIL-2 B-{label} B-protein\ngene I-{label} O\n"
    return "".join(f"{line}x{i} O O\n\n" for i in range(sentences))


def convert_case(folder: Path) -> Case:
    """Four files in one set."""
    for name, label in (("old", "DNA"), ("new", "RNA")):
        for split in SPLITS:
            path = folder / name / f"{split}.txt"
            path.parent.mkdir(exist_ok=True)
            path.write_text(columns(label, 40), encoding="utf8")

    def args(name: str) -> List[Any]:
        inputs = [f"{split}={folder / name / split}.txt" for split in SPLITS]
        return ["nested-ner", "convert", "columns", *inputs, folder / "out"]

    sets = []
    for name in ("old", "new"):
        assert in_child(spacy_command(*args(name)), LONGEST).code == 0
        sets.append(digests(folder / "out"))
        os.replace(folder / "out", folder / f"set-{name}")

    def check(output: Path, killed: bool) -> None:
        found = digests(output)
        assert found in sets or (
            killed and any(found.items() <= whole.items() for whole in sets)
        ), f"files of two sets: {sorted(found)}"

    return Case(args("new"), folder / "out", folder / "set-old", check)


def file_case(folder: Path, args: List[Any], name: str, is_whole: Callable[[str], Any]) -> Case:
    """One file, old or new."""
    before = folder / "before"
    before.mkdir()
    (before / name).write_text("old", encoding="utf8")

    def check(output: Path, killed: bool) -> None:
        assert [path.name for path in output.iterdir() if path not in drafts(output)] == [name]
        text = (output / name).read_text("utf8")
        assert text == "old" or is_whole(text), f"half a file: {text[-100:]!r}"

    place = [folder / "out" / name if arg is None else arg for arg in args]
    return Case(["nested-ner", *place], folder / "out", before, check)


def threshold_case(folder: Path, model: Path, gold: Path) -> Case:
    """A pipeline, old or new: a folder."""
    (folder / "before").mkdir()
    shutil.copytree(model, folder / "before" / "fitted")
    old = digests(folder / "before")

    def check(output: Path, killed: bool) -> None:
        found = digests(output)
        if found == old or (killed and not found):
            return
        nlp = spacy.load(output / "fitted")
        assert nlp.meta["thresholds"] and spans_of(nlp("IL-2 gene")) is not None

    args = ["nested-ner", "threshold", model, gold, "--output", folder / "out" / "fitted"]
    return Case(args, folder / "out", folder / "before", check)


def training_case(folder: Path, gold: Path) -> Case:
    """Pipelines that are saved step by step. spaCy itself removes those that were there."""
    overrides = {
        "--output": folder / "out",
        "--paths.train": gold,
        "--paths.dev": gold,
        "--training.max_steps": 8,
        "--components.ner.model.tok2vec.width": 32,
        "--components.ner.model.tok2vec.embed_size": 100,
        "--training.eval_frequency": 2,
    }
    config = Path(__file__).parents[2] / "configs" / "piqn_cnn.cfg"
    args = ["train", config, *(part for pair in overrides.items() for part in pair)]

    def state(path: Path) -> Any:
        nlp = spacy.load(path)
        docs = list(nlp.pipe(eg.predicted for eg in make_examples(nlp)))
        threshold = nlp.get_pipe("ner").cfg["threshold"]
        return [threshold, [[spans_of(doc), scores_of(doc)] for doc in docs]]

    def record() -> None:
        """A training that keeps each pipeline that it saves."""
        from spacy_nested_ner.evaluation import callbacks

        written = callbacks.written_folder

        @contextmanager
        def keeping(path: Path, marker: str) -> Iterator[Path]:
            with written(path, marker) as draft:
                yield draft
            shutil.copytree(path, folder / "saved" / str(len(list((folder / "saved").iterdir()))))

        callbacks.written_folder = keeping
        spacy_command(*args)()

    (folder / "saved").mkdir()
    assert in_child(record, LONGEST).code == 0
    states = [json.loads(json.dumps(state(path))) for path in (folder / "saved").iterdir()]
    assert len(states) >= 5
    os.replace(folder / "out", folder / "before")

    def check(output: Path, killed: bool) -> None:
        for name in ("model-last", "model-best"):
            if not (output / name).exists():
                continue  # removed by spaCy, or not saved yet
            try:
                found = json.loads(json.dumps(state(output / name)))
            except Exception:
                assert name == "model-best", "model-last cannot be loaded"
                continue  # spaCy was copying it: it is refused
            assert found in states or not killed, f"{name} is of no step"

    return Case(args, folder / "out", folder / "before", check, most_events=20)


@pytest.fixture
def case(request, tmp_path, gold, model) -> Case:
    """A case that has been run once, unharmed, to see how long it takes and what it touches."""
    if request.param == "convert":
        made = convert_case(tmp_path)
    elif request.param == "train":
        made = training_case(tmp_path, gold)
    elif request.param == "threshold":
        made = threshold_case(tmp_path, model, gold)
    elif request.param == "visualize":
        args = ["visualize", model, gold, None]
        made = file_case(tmp_path, args, "page.html", lambda t: t.rstrip().endswith("</html>"))
    else:
        args = ["evaluate", model, gold, "--samples", 10, "-o", None]
        made = file_case(tmp_path, args, "scores.json", lambda text: json.loads(text)["data"])
    made.restore()
    seen = tmp_path / "events"

    def count() -> None:
        watching(made.output, lambda number, *_: seen.write_text(str(number + 1)))
        made.act()()

    begin = time.monotonic()
    ended = in_child(count, LONGEST)
    assert ended.code == 0, ended.output
    made.seconds = time.monotonic() - begin
    made.events = int(seen.read_text())
    made.largest = max(p.stat().st_size for p in made.output.rglob("*") if p.is_file())
    return made


# The trials -------------------------------------------------------------------------------------


def plan(case: Case, rng: random.Random) -> List[Tuple[Any, str, float]]:
    """Kind, and the event, the share of the run time or the size of a file where it happens."""
    found: List[Tuple[Any, str, float]] = []
    for kind in KINDS:
        events = rng.sample(range(case.events), min(case.events, case.most_events))
        found += [(kind, "event", event) for event in events]
        by_chance = "bytes" if kind == FULL else "time"
        found += [(kind, by_chance, rng.random()) for _ in range(TIMED)]
    rng.shuffle(found)
    return found


def strike(case: Case, kind: Any, how: str, where: float) -> Ended:
    if how == "event":
        return in_child(struck(case.act(), case.output, int(where), kind), LONGEST)
    if how == "bytes":
        return in_child(with_little_space(case.act(), int(where * case.largest)), LONGEST)
    return in_child(case.act(), LONGEST, after=where * case.seconds, number=kind)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param("convert", marks=pytest.mark.share(1.5)),
        pytest.param("train", marks=pytest.mark.share(5)),
        "visualize",
        "evaluate",
        "threshold",
    ],
    indirect=True,
)
def test_kills(trial, case: Case, request) -> None:
    rng = random.Random(trial.seed)
    todo = plan(case, rng)
    counts: Counter = Counter()
    kinds: Counter = Counter()
    for number in trial.inputs(len(todo)):
        kind, how, where = todo[number]
        about = f"seed {trial.seed}, number {number}: {kind!s} at {how} {where}"
        case.restore()
        ended = strike(case, kind, how, where)
        assert ended.code is not None, f"{about}: hangs\n{ended.output}"
        counts["tried"] += 1
        counts["ended_early"] += ended.code != 0
        killed = kind == signal.SIGKILL
        kinds[getattr(kind, "name", kind)] += 1
        left = drafts(case.output)
        counts["drafts_after_sigkill"] += len(left)
        assert killed or not left, f"{about}: {left}"
        try:
            case.check(case.output, killed)
        except AssertionError as err:
            raise AssertionError(f"{about}: {err}\n{ended.output}") from err
        again = in_child(case.act(), LONGEST)
        assert again.code == 0, f"{about}: cannot be run again\n{again.output}"
        case.check(case.output, False)
        assert not drafts(case.output), f"{about}: drafts after the next run"
        counts["whole"] += 1
    trial.record(
        inputs=counts["tried"],
        **counts,
        kinds=dict(kinds),
        events_of_the_output=case.events,
        seconds_of_the_command=round(case.seconds, 2),
    )


@pytest.mark.share(1.5)
def test_kills_of_real_commands(trial, tmp_path) -> None:
    """The same, through the shell's own way: a process that starts from nothing."""
    case = convert_case(tmp_path)
    rng = random.Random(trial.seed)
    command = [sys.executable, "-m", "spacy", *map(str, case.args)]
    case.restore()
    begin = time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    seconds = time.monotonic() - begin
    counts: Counter = Counter()
    for number in trial.inputs(30):
        kind = KINDS[number % 3]
        case.restore()
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            time.sleep(seconds * (0.5 + rng.random() / 2))
            process.send_signal(kind)
            output = process.communicate(timeout=LONGEST)[0].decode("utf8")
        counts["tried"] += 1
        counts["ended_early"] += process.returncode != 0
        case.check(case.output, kind == signal.SIGKILL)
        assert kind == signal.SIGKILL or not drafts(case.output), f"{number}: {kind}\n{output}"
        again = in_child(case.act(), LONGEST)
        assert again.code == 0 and not drafts(case.output), again.output
        case.check(case.output, False)
    trial.record(inputs=counts["tried"], **counts)
