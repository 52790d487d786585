"""Command lines with damaged or odd inputs, options and outputs: each ends with exit code 0, 1 or 2
and a message, without a traceback, a hang or a draft, and leaves its inputs as they were."""

from __future__ import annotations

import hashlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import zlib
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence

import pytest
import spacy
import srsly
import torch
from spacy.tokens import DocBin

from spacy_nested_ner.files import DRAFT
from tests.conftest import make_examples, make_pipeline, train
from tests.stress.children import Ended, in_child, spacy_command

LONGEST = 120.0
MEMORY = 4 << 30
LINES: Dict[str, Sequence[str]] = {
    "analyze": ["{model}", "{gold}", "{folder}"],
    "convert": ["columns", "{columns}", "{folder}"],
    "evaluate": ["{model}", "{gold}"],
    "export": ["papers-json", "{gold}", "{file}"],
    "inspect": ["{gold}", "{gold}"],
    "threshold": ["{model}", "{gold}"],
    "visualize": ["{model}", "{gold}", "{file}"],
}
NUMBERS = ("0", "-1", "1", "7", "nan", "inf", "1e999", "9" * 25, "0x10", "", "abc")
TEXTS = ("", "sc", "nest", "x" * 5000, "ü\u2028\U0001f9ec", "a=b", "=", "-", "en", "zh", "xx", "..")
GPU = ("-1", "-7", "99", "x", "")
OPTIONS: Dict[str, Dict[str, Sequence[str]]] = {
    "analyze": {
        "--format": ("svg", "png", "pdf"),
        "--doc": NUMBERS,
        "--vary": ("steps=1,2", "steps=nan", "=", "x=1", "n_spans=", "steps=1e999", "n_spans=0"),
        "--spans-key": TEXTS,
        "--gpu-id": GPU,
    },
    "convert": {
        "--tokens": ("spacy", "cut", "character", "x"),
        "--group": ("article", ""),
        "--sentences": ("lines", "rules", "x"),
        "--set": ("tags=1", "tags=-1", "tags=x", "scheme=BIO", "=", "x", "nothing=1", "words=9"),
        "--split-seed": NUMBERS,
        "--split-fractions": ("1,0,0", "nan,nan,nan", "0.5,0.5", "-1,1,1", "inf,0,0", ""),
        "--lang": TEXTS,
        "--spans-key": TEXTS,
    },
    "evaluate": {
        "-o": ("{file}",),
        "--samples": NUMBERS,
        "--seed": NUMBERS,
        "--batch-size": NUMBERS,
        "--spans-key": TEXTS,
        "--gpu-id": GPU,
    },
    "export": {
        "--questions": ("genia", "ace2004", "x", "{json}", "{gold}", ""),
        "--lang": TEXTS,
        "--spans-key": TEXTS,
    },
    "inspect": {
        "--config": ("{config}",),
        "-o": ("{file}",),
        "--lang": TEXTS,
        "--rare": NUMBERS,
        "--spans-key": TEXTS,
    },
    "threshold": {"--output": ("{folder}",), "--limit": NUMBERS, "--gpu-id": GPU},
    "visualize": {
        "--limit": NUMBERS,
        "--seed": NUMBERS,
        "--scores": ("{json}",),
        "--spans-key": TEXTS,
        "--gpu-id": GPU,
    },
}
FLAGS = ("--verbose", "--gold-tokens", "--ents", "--json", "--skip-errors", "--resplit", "--help")
FORMATS = ("brat", "genia", "papers-json", "mrc-json", "x", "", "conll")
JUNK = (None, True, 0, -1, 1.5, "x", "", [], [1], {}, {"x": 1}, b"", b"\x93\x01", [[]], 2**63)


class World:
    """Good files, and odd ones that are made anew for each command line."""

    def __init__(self, folder: Path) -> None:
        self.good, self.scratch = folder / "good", folder / "scratch"
        self.good.mkdir()
        nlp = train(make_pipeline("piqn_ner"), 60)
        nlp.to_disk(self.good / "model")
        docs = [eg.reference for eg in make_examples(spacy.blank("en"))]
        DocBin(docs=docs, store_user_data=True).to_disk(self.good / "gold.spacy")
        lines = "The O\nIL-2 B-DNA\ngene I-DNA\n\n" * 20
        (self.good / "columns.txt").write_text(lines, encoding="utf8")
        configs = Path(__file__).parents[2] / "configs"
        shutil.copy(configs / "locate_and_label_cnn.cfg", self.good / "config.cfg")
        scores = {"nested_p": 0.5, "nested_r": 0.5, "nested_f": 0.5}
        srsly.write_json(self.good / "scores.json", scores)
        self.before = self.digests()
        self.count = 0

    def digests(self) -> Dict[str, str]:
        files = [path for path in self.good.rglob("*") if path.is_file()]
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    def renew(self) -> None:
        shutil.rmtree(self.scratch, ignore_errors=True)
        (self.scratch / "cwd").mkdir(parents=True)
        (self.scratch / "there").mkdir()
        (self.scratch / "there" / "a.txt").write_text("a", encoding="utf8")

    def new_path(self, suffix: str = "") -> Path:
        self.count += 1
        return self.scratch / f"{self.count}{suffix}"


# What stands for an argument --------------------------------------------------------------------


def odd_path(world: World, rng: random.Random, suffix: str) -> str:
    """A path that is not what is expected there."""
    path = world.new_path(suffix)
    kind = rng.randrange(9)
    if kind == 0:
        path.mkdir()
    elif kind == 1:
        os.mkfifo(path)
    elif kind == 2:
        path.write_bytes(b"")
    elif kind == 3:
        path.write_bytes(rng.randbytes(rng.randrange(1, 3000)))
    elif kind == 4:
        path.symlink_to(path)
    elif kind == 5:
        return str(world.good / "columns.txt" / "inside")
    elif kind == 6:
        path.write_text(rng.choice(["1", "[]", '"x"', "{}", "null", "[" * 5000]), encoding="utf8")
    elif kind == 7:
        return rng.choice(["", ".", "/", "/dev/null", "/dev/zero", "~", "\n", "x" * 300])
    return str(path)


def odd_data(world: World, rng: random.Random) -> str:
    """A `.spacy` file that is damaged."""
    content = (world.good / "gold.spacy").read_bytes()
    kind = rng.randrange(6)
    if kind == 0:
        content = content[: rng.randrange(len(content))]
    elif kind == 1:
        place = rng.randrange(len(content))
        content = content[:place] + rng.randbytes(3) + content[place + 3 :]
    elif kind == 2:
        content = zlib.compress(srsly.msgpack_dumps(rng.choice(JUNK)))
    elif kind == 3:
        content = zlib.compress(bytes(1 << 22))
    else:
        content = zlib.compress(srsly.msgpack_dumps(odd_docbin(content, rng)))
    path = world.new_path(".spacy")
    path.write_bytes(content)
    return str(path)


def odd_docbin(content: bytes, rng: random.Random) -> Dict[str, Any]:
    """What a file holds, with one or two of its parts changed."""
    message: Dict[str, Any] = srsly.msgpack_loads(zlib.decompress(content))
    for _ in range(rng.randrange(1, 3)):
        key = rng.choice(sorted(message))
        value = message[key]
        kind = rng.randrange(5)
        if kind == 0:
            del message[key]
        elif kind == 1:
            message[key] = rng.choice(JUNK)
        elif isinstance(value, bytes) and value:
            place = rng.randrange(len(value))
            size = rng.choice([1, 4, 8])
            junk = rng.choice([rng.randbytes(size), bytes(size), b"\xff" * size])
            message[key] = rng.choice([value[:place], value[:place] + junk + value[place + size :]])
        elif isinstance(value, list) and value:
            place = rng.randrange(len(value))
            item = rng.choice([*JUNK, rng.randbytes(20), rng.getrandbits(62)])
            message[key] = rng.choice([value[:place], [*value[:place], item, *value[place + 1 :]]])
    return message


def odd_model(world: World, rng: random.Random) -> str:
    """A pipeline with a file that is cut, empty or gone."""
    path = world.new_path()
    shutil.copytree(world.good / "model", path)
    victim = rng.choice(sorted(each for each in path.rglob("*") if each.is_file()))
    content = victim.read_bytes()
    if rng.random() < 0.3:
        victim.unlink()
    else:
        victim.write_bytes(rng.choice([b"", b"{}", b"[]", content[: rng.randrange(len(content))]]))
    return str(path)


def odd_config(world: World, rng: random.Random) -> str:
    """A config with a value of another type, or cut."""
    lines = (world.good / "config.cfg").read_text("utf8").splitlines()
    if rng.random() < 0.2:
        lines = lines[: rng.randrange(len(lines))]
    else:
        places = [i for i, line in enumerate(lines) if " = " in line]
        place = rng.choice(places)
        value = rng.choice(["null", '"x"', "-1", "[]", "{}", "nan", "[1, null]", "true", "${x.y}"])
        lines[place] = lines[place].split(" = ")[0] + f" = {value}"
        if rng.random() < 0.5:
            at = lines.index("[components.ner.model]") + rng.choice([0, 1])
            name = rng.choice(["lengths", "seed_iou", "regressor", "tok2vec", "dropout"])
            lines.insert(at + 1, f"{name} = {value}")
    path = world.new_path(".cfg")
    path.write_text("\n".join(lines), encoding="utf8")
    return str(path)


def odd_json(world: World, rng: random.Random) -> str:
    """JSON of another form than scores or questions have."""
    part = rng.choice([1, "x", None, [], {}, {"spans_key": "sc"}, float("nan"), -5, 1e9])
    value = rng.choice(
        [
            part,
            {"pipelines": part},
            {"pipelines": [part], "data": {"spans_key": "sc"}},
            {"pipelines": [{"strict": {"micro": part}}], "data": {"spans_key": "sc"}},
            {"nested_f": part},
            {"nested_f": part, "nested_p": part, "nested_r": part},
            {"spans_sc_f": part},
            {"DNA": part},
        ]
    )
    path = world.new_path(".json")
    path.write_text(json.dumps(value), encoding="utf8")
    return str(path)


def odd_output(world: World, rng: random.Random, suffix: str) -> str:
    """An output that cannot be written, or that is unusual."""
    places = [
        world.scratch / "there",
        world.scratch / "there" / "a.txt",
        world.scratch / "there" / "a.txt" / "inside",
        world.scratch / "new" / "deep" / f"x{suffix}",
        world.scratch / ("x" * 300),
        Path("/dev/full"),
        Path("/dev/null"),
        Path("/dev/null/x"),
        Path("/proc/nowhere/x"),
        Path("."),
        Path("/"),
        Path(odd_path(world, rng, suffix) or "."),
    ]
    return str(rng.choice(places))


def filled(world: World, rng: random.Random, text: str, odd: bool) -> str:
    """A good or an odd value for a place of a command line."""
    outputs = {"{file}": ".json", "{folder}": ""}
    if text in outputs:
        suffix = outputs[text]
        return odd_output(world, rng, suffix) if odd else str(world.new_path(suffix))
    goods = {
        "{model}": world.good / "model",
        "{gold}": world.good / "gold.spacy",
        "{columns}": world.good / "columns.txt",
        "{config}": world.good / "config.cfg",
        "{json}": world.good / "scores.json",
    }
    odds: Dict[str, Callable[[World, random.Random], str]] = {
        "{model}": odd_model,
        "{gold}": odd_data,
        "{config}": odd_config,
        "{json}": odd_json,
    }
    if text not in goods:
        return rng.choice(FORMATS) if odd and text in ("columns", "papers-json") else text
    if not odd:
        return str(goods[text])
    if text in odds and rng.random() < 0.7:
        return odds[text](world, rng)
    return odd_path(world, rng, goods[text].suffix)


def draw(world: World, rng: random.Random) -> List[str]:
    """A command line."""
    command = rng.choice(sorted(LINES))
    odd = rng.random() < 0.8
    place = rng.randrange(len(LINES[command]))
    args = [filled(world, rng, text, odd and i == place) for i, text in enumerate(LINES[command])]
    if rng.random() < 0.1:
        args.pop(rng.randrange(len(args)))
    if rng.random() < 0.05:
        args.insert(0, rng.choice(args) if args else "x")
    for _ in range(rng.choice([0, 1, 1, 2])):
        name = rng.choice(sorted(OPTIONS[command]))
        value = rng.choice(OPTIONS[command][name])
        args += [name, filled(world, rng, value, rng.random() < 0.8)]
    if rng.random() < 0.1:
        args.append(rng.choice(FLAGS))
    return ["nested-ner", command, *args]


# The trial --------------------------------------------------------------------------------------


def run(world: World, args: List[str], real: bool) -> Ended:
    cwd = world.scratch / "cwd"
    if real:
        command = [sys.executable, "-m", "spacy", *args]
        done = subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, errors="replace", timeout=LONGEST
        )
        return Ended(done.returncode, done.stdout + done.stderr)

    def act() -> None:
        os.chdir(cwd)
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        spacy_command(*args)()

    return in_child(act, LONGEST)


def problem_of(world: World, ended: Ended) -> str:
    """What is wrong with how a command line ended; "" if nothing is."""
    if ended.code is None:
        return "hangs"
    if ended.code < 0:
        return f"crash: {signal.Signals(-ended.code).name}"
    if ended.has_traceback:
        return "traceback"
    if ended.code not in (0, 1, 2):
        return f"exit code {ended.code}"
    if not ended.output.strip():
        return "no message"
    if any(world.scratch.rglob(f"{DRAFT}*")) or any(world.good.rglob(f"{DRAFT}*")):
        return "draft"
    return "" if world.digests() == world.before else "an input was changed"


@pytest.mark.share(4)
def test_command_lines(trial, tmp_path) -> None:
    torch.set_num_threads(1)
    world = World(tmp_path)
    warm = [
        "nested-ner",
        "analyze",
        world.good / "model",
        world.good / "gold.spacy",
        tmp_path / "w",
    ]
    with pytest.raises(SystemExit):  # imports all that the forks need
        spacy_command(*warm)()
    counts: Counter = Counter()
    codes: Counter = Counter()
    found: List[str] = []
    for number in trial.inputs(2000):
        rng = random.Random(f"{trial.seed} {number}")
        world.renew()
        args = draw(world, rng)
        real = number % 50 == 49
        ended = run(world, args, real)
        problem = problem_of(world, ended)
        counts["tried"] += 1
        counts["as_processes_of_their_own"] += real
        codes[str(ended.code)] += 1
        if problem:
            counts[problem.split(":")[0]] += 1
            found.append(
                f"seed {trial.seed}, number {number}: {problem}\n{args}\n{ended.output[-3000:]}"
            )
            assert len(found) < 20, "\n\n".join(found)
    trial.record(inputs=counts["tried"], **counts, exit_codes=dict(codes))
    assert not found, "\n\n".join(found)
