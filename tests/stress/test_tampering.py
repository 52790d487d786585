"""Damaged and foreign files of saved pipelines: an error that names the file, or the same spans."""

import json
import os
import pickle
import random
import shutil
import struct
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

import numpy as np
import pytest
import spacy
import srsly
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors
from spacy.language import Language

from spacy_nested_ner.cli.pipelines import load_pipeline
from tests.conftest import found_in, make_examples
from tests.integration.conftest import docs_of
from tests.stress.pipelines import SYSTEMS, small_pipeline

REGIONS = {"model": 64}
OTHER_REGIONS = 16
STATE = ("labels", "learned_from")
pytestmark = pytest.mark.filterwarnings("ignore")


class Planted:
    """Leaves a trace when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return Path.touch, (self.trace,)


Change = Callable[[bytes, slice, random.Random], bytes]


def _flip(data: bytes, region: slice, draw: random.Random) -> bytes:
    place = draw.randrange(region.start, region.stop)
    return data[:place] + bytes([data[place] ^ 1 << draw.randrange(8)]) + data[place + 1 :]


CHANGES: Dict[str, Change] = {
    "flip": _flip,
    "zeros": lambda data, at, draw: data[: at.start] + bytes(at.stop - at.start) + data[at.stop :],
    "insert": lambda data, at, draw: data[: at.start] + draw.randbytes(9) + data[at.start :],
    "cut": lambda data, at, draw: data[: at.start] + data[at.stop :],
    "replace": lambda data, at, draw: (
        data[: at.start] + draw.randbytes(at.stop - at.start) + data[at.stop :]
    ),
}
WHOLE = ["missing", "empty", "folder", "pickle", "dangling link", "link to itself", "pipe"]
# JSON of the wrong kind in place of a file.
VALUES = [b"null", b"[]", b"{}", b"7", b'"text"', b"[[[[1]]]]", b"{" * 100_000, b"1e999"]


def regions_of(data: bytes, name: str) -> List[slice]:
    """The file in pieces of about the same size."""
    number = max(1, min(len(data), REGIONS.get(name, OTHER_REGIONS)))
    bounds = np.linspace(0, len(data), number + 1).astype(int).tolist()
    return [slice(a, b) for a, b in pairwise(bounds) if a < b]


class Tampered:
    """A saved pipeline one file of which is changed at a time."""

    def __init__(self, nlp: Language, folder: Path) -> None:
        self.folder, self.trace = folder / "pipeline", folder / "trace"
        nlp.to_disk(self.folder)
        self.files = sorted(
            path.relative_to(self.folder) for path in self.folder.rglob("*") if path.is_file()
        )
        self.whole = {file: (self.folder / file).read_bytes() for file in self.files}
        self.expected = found_in(nlp, docs_of(nlp))
        self.cfg = srsly.json_loads(self.whole[Path("ner/cfg")])
        self.counts: Counter = Counter()
        self.slowest = 0.0

    def put(self, file: Path, data: bytes) -> None:
        """Write one file."""
        (self.folder / file).write_bytes(data)

    def spoil(self, file: Path, how: str) -> None:
        """Put something else in the place of a file."""
        path = self.folder / file
        path.unlink()
        if how == "empty":
            path.touch()
        elif how == "folder":
            path.mkdir()
        elif how == "pickle":
            path.write_bytes(pickle.dumps(Planted(self.trace)))
        elif how == "dangling link":
            path.symlink_to(self.folder / "nowhere")
        elif how == "link to itself":
            path.symlink_to(path)
        elif how == "pipe":
            os.mkfifo(path)

    def restore(self, file: Path) -> None:
        """As it was saved."""
        path = self.folder / file
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        path.write_bytes(self.whole[file])

    def outcome(self, file: Path, load: Callable[[Path], Language]) -> str:
        """What comes of the changed file: "same", "changed", "settings edited", "named" or the
        error that does not name the file."""
        begin = time.monotonic()
        try:
            nlp = load(self.folder)
            cfg = nlp.get_pipe("ner").cfg
            if cfg != self.cfg and all(cfg[key] == self.cfg[key] for key in STATE):
                list(nlp.pipe(docs_of(nlp)))
                return "settings edited"
            return "same" if alike(found_in(nlp, docs_of(nlp)), self.expected) else "changed"
        except Exception as err:
            # A changed config may fit its own rules but not the weights.
            name = file.name if file.name == "config.cfg" else str(self.folder / file)
            named = name in str(err)
            return "named" if named else f"{type(err).__name__}: {err}"
        finally:
            self.slowest = max(self.slowest, time.monotonic() - begin)
            assert not self.trace.exists(), f"{file}: a planted pickle has run"

    def check(self, file: Path, what: str) -> None:
        """Our files must be named, spaCy's where this package's commands load a pipeline."""
        if file.parts[0] == "ner":
            result = self.outcome(file, spacy.load)
            assert result in ("named", "same", "settings edited"), f"{file}, {what}: {result}"
            self.counts[f"our files: {result}"] += 1
            return
        if "pipe" in what:  # spaCy would wait for ever
            result = self.outcome(file, lambda path: load_pipeline(str(path)))
            self.counts["spaCy's files: a named pipe, by the commands"] += 1
        else:
            result = self.outcome(file, spacy.load)
            kind = result if result in ("named", "same", "changed") else "error without the file"
            self.counts[f"spaCy's files: {kind}"] += 1
            if kind == "error without the file":
                result = self.outcome(file, lambda path: load_pipeline(str(path)))
                self.counts["of these named by the commands"] += result == "named"
        assert result in ("named", "same", "changed"), f"{file}, {what}: {result}"


def alike(found: List[tuple], expected: List[tuple]) -> bool:
    """The same spans, and scores within 1e-5."""
    return all(
        spans == wanted and np.allclose(scores, wanted_scores, rtol=0, atol=1e-5)
        for (spans, scores), (wanted, wanted_scores) in zip(found, expected)
    )


def tries(tampered: Tampered, seed: int) -> List[Tuple[Path, str, Any]]:
    """Every change of every region of every file, in an order of chance."""
    found: List[Tuple[Path, str, Any]] = []
    for file, data in tampered.whole.items():
        found += [(file, name, at) for at in regions_of(data, file.name) for name in CHANGES]
        found += [(file, how, None) for how in WHOLE]
        found += [(file, "value", value) for value in VALUES]
    random.Random(seed).shuffle(found)
    return found


@pytest.mark.share(2)
@pytest.mark.parametrize("system", SYSTEMS)
def test_tampered_files(trial, tmp_path, system: str) -> None:
    tampered = Tampered(small_pipeline(system), tmp_path)
    assert tampered.outcome(Path("ner/model"), spacy.load) == "same"
    all_tries = tries(tampered, trial.seed)
    for number in trial.inputs(len(all_tries)):
        file, what, more = all_tries[number]
        draw = random.Random(f"{trial.seed} {number}")
        data = tampered.whole[file]
        if what in CHANGES:
            changed = CHANGES[what](data, more, draw)
            tampered.put(file, changed)
        elif what == "value":
            tampered.put(file, more)
        else:
            tampered.spoil(file, what)
        tampered.check(file, f"{what} {more!r:.60}, seed {trial.seed}, number {number}")
        tampered.restore(file)
    record(trial, tampered, tries=number + 1, of=len(all_tries))


def record(trial: Any, tampered: Tampered, **more: int) -> None:
    trial.record(
        **more,
        outcomes=dict(sorted(tampered.counts.items())),
        planted_pickles_that_ran=int(tampered.trace.exists()),
        seconds_of_slowest=round(tampered.slowest, 2),
    )


@pytest.mark.parametrize("system", SYSTEMS)
def test_files_of_other_pipelines(trial, tmp_path, system: str) -> None:
    """Files of the same pipeline after one more update, and of the next system."""
    nlp = small_pipeline(system)
    tampered = Tampered(nlp, tmp_path)
    other = spacy.load(tampered.folder)
    other.update(make_examples(other), sgd=other.create_optimizer())
    other.to_disk(tmp_path / "trained on")
    next_system = SYSTEMS[(SYSTEMS.index(system) + 1) % len(SYSTEMS)]
    small_pipeline(next_system).to_disk(tmp_path / "next")
    tried = [
        (folder, file, link)
        for folder in ("trained on", "next")
        for file in tampered.files
        for link in (False, True)
        if folder == "trained on" or file.name != "config.cfg"  # the config is the pipeline
    ]
    random.Random(trial.seed).shuffle(tried)
    for number in trial.inputs(len(tried)):
        folder, file, link = tried[number]
        path = tampered.folder / file
        path.unlink()
        if link:
            path.symlink_to(tmp_path / folder / file)
        else:
            shutil.copy(tmp_path / folder / file, path)
        tampered.check(file, f"from {folder}, seed {trial.seed}, number {number}")
        tampered.restore(file)
    record(trial, tampered, tries=number + 1, of=len(tried))


def weights_in(model: bytes) -> Tuple[Any, int, int, Dict[str, Any]]:
    """The message of a saved model, where the head is in it, and what is saved of the head."""
    message = srsly.msgpack_loads(model)
    for node, shims in enumerate(message["shims"]):
        for place, shim in enumerate(shims):
            saved = srsly.msgpack_loads(shim)
            if "head" in saved:
                return message, node, place, saved
    raise ValueError("there is no head")


def lies(model: bytes) -> Iterator[Tuple[str, bytes]]:
    """The model with a head that is not what it says it is."""

    def model_with(**changed: Any) -> bytes:
        message, node, place, saved = weights_in(model)
        message["shims"][node][place] = srsly.msgpack_dumps({**saved, **changed})
        return srsly.msgpack_dumps(message)

    _, _, _, saved = weights_in(model)
    weights, head = saved["weights"], srsly.json_loads(saved["head"])
    size = struct.unpack("<Q", weights[:8])[0]
    header, body = json.loads(weights[8 : 8 + size]), weights[8 + size :]
    name = next(key for key in header if key != "__metadata__")

    def weights_with(header: Any) -> bytes:
        text = json.dumps(header).encode("utf8")
        return struct.pack("<Q", len(text)) + text + body

    for length in (0, 1, size + 1, 2**31, 2**40, 2**63 - 1, 2**64 - 1):
        yield f"header of {length}", model_with(weights=struct.pack("<Q", length) + weights[8:])
    entry = header[name]
    for change in (
        {"shape": [2**31, 2**31]},
        {"shape": [-1]},
        {"shape": "large"},
        {"data_offsets": [0, 2**62]},
        {"data_offsets": [8, 0]},
        {"dtype": "F64"},
        {"dtype": "pickle"},
    ):
        lie = weights_with({**header, name: {**entry, **change}})
        yield f"tensor with {change}", model_with(weights=lie)
    yield "no tensors", model_with(weights=weights_with({}))
    tensors = load_tensors(weights)
    for value in (np.nan, np.inf):
        spoiled = {key: np.full_like(array, value) for key, array in tensors.items()}
        yield f"all weights {value}", model_with(weights=save_tensors(spoiled))
    for change in ({"n_labels": 7}, {"width": 33}, {"width": "wide"}, {"settings": {"no": 1}}):
        yield f"head with {change}", model_with(head=srsly.json_dumps({**head, **change}))
    for change in ({"head": "{"}, {"head": 3}, {"weights": b""}, {"weights": 5}):
        yield f"saved {change}", model_with(**change)
    message = srsly.msgpack_loads(model)
    for key, value in (("nodes", []), ("attrs", None), ("params", [[]]), ("shims", 0)):
        yield f"{key} {value}", srsly.msgpack_dumps({**message, key: value})


@pytest.mark.parametrize("system", SYSTEMS)
def test_lies_about_the_weights(trial, tmp_path, system: str) -> None:
    """In a pipeline without checksums, where nothing but the readers themselves can object."""
    tampered = Tampered(small_pipeline(system), tmp_path)
    file = Path("ner/model")
    (tampered.folder / "ner" / "checksums.json").unlink()
    told = list(lies(tampered.whole[file]))
    random.Random(trial.seed).shuffle(told)
    for number in trial.inputs(len(told)):
        what, data = told[number]
        tampered.put(file, data)
        result = tampered.outcome(file, spacy.load)
        not_finite = "weights" in what and "Component 'ner': the scores are not finite" in result
        assert result in ("named", "same") or not_finite, f"{what}: {result}"
        tampered.counts["not finite" if not_finite else result] += 1
    record(trial, tampered, tries=number + 1, of=len(told))


@pytest.mark.share(2)
@pytest.mark.parametrize("system", SYSTEMS)
def test_tampered_bytes(trial, tmp_path, system: str) -> None:
    """Changed bytes of the component never give other spans in silence."""
    nlp = small_pipeline(system)
    tampered, data = Tampered(nlp, tmp_path), nlp.to_bytes()
    own = srsly.msgpack_loads(data)["ner"]
    begin = data.index(own)
    tried = [
        (at, name)
        for at in [slice(a, a + len(data) // 200) for a in range(0, len(data), len(data) // 200)]
        for name in CHANGES
    ]
    random.Random(trial.seed).shuffle(tried)
    for number in trial.inputs(len(tried)):
        at, what = tried[number]
        at = slice(at.start, min(at.stop, len(data)))
        is_own = begin <= at.start and at.stop <= begin + len(own)
        changed = CHANGES[what](data, at, random.Random(f"{trial.seed} {number}"))
        fresh = spacy.blank("en", config=nlp.config)
        result = tampered.outcome(
            Path("the bytes"), lambda _, fresh=fresh, changed=changed: fresh.from_bytes(changed)
        )
        kind = result if result in ("same", "changed", "settings edited") else "error"
        named = "Component 'ner'" in result or "of this component" in result
        where = "ours" if is_own else "spaCy's"
        tampered.counts[f"{where}: {kind}{', named' * (kind == 'error' and named)}"] += 1
        assert not (is_own and kind == "changed"), f"{what} {at}, seed {trial.seed}"
    record(trial, tampered, tries=number + 1, of=len(tried))
