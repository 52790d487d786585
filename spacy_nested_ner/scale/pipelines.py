"""Pipelines that a process loads once, known by the hash of their files."""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Optional,
    Tuple,
    Union,
)

from spacy_nested_ner.forks import in_forked_processes

if TYPE_CHECKING:
    from spacy.language import Language

LEARNED_CHARACTERS = 2_000_000
"""Of the first texts, whose words stay in the vocabulary and in the tokenizer's cache."""

KEPT_SHAPES = 256
"""torch compiles a product for each shape of its input and keeps the last 1,024 of them, about a
megabyte each: a process would grow for the first hundred thousand texts."""

TRIMMED_CHARACTERS = 500_000
"""After so many, memory that is free goes back to the system."""

_loaded: Dict[Tuple[str, str, int], LoadedPipeline] = {}
_loading = threading.Lock()


def _new_locks() -> None:
    global _loading
    _loading = threading.Lock()
    for pipeline in _loaded.values():
        pipeline.renew_lock()


in_forked_processes(_new_locks)


def locate(model: Union[str, os.PathLike]) -> str:
    """The name of an installed package, or the whole path of a folder.

    Raises ValueError if there is no pipeline.
    """
    from spacy.util import is_package

    name = os.fspath(model)
    if is_package(name):
        return name
    folder = Path(name).resolve()
    if not (folder / "config.cfg").is_file():
        remedy = (
            "Give a folder that `spacy train` wrote, such as model-best, or install the package."
        )
        raise ValueError(f"{name}: no trained pipeline there. {remedy}")
    return str(folder)


def folder_of(model: str) -> Path:
    """Where the files of a pipeline lie. model: as `locate` returns it."""
    from spacy.util import get_package_path, is_package

    return get_package_path(model) if is_package(model) else Path(model)


def hash_of(model: str) -> str:
    """SHA-256 over names and contents of all files of a pipeline, but for hidden and compiled ones.

    model: as `locate` returns it.
    """
    folder, total = folder_of(model), hashlib.sha256()
    for path in sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).parts):
        parts = path.relative_to(folder).parts
        if not path.is_file() or any(p.startswith(".") or p == "__pycache__" for p in parts):
            continue
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
        total.update(f"{'/'.join(parts)}\0{digest.hexdigest()}\n".encode())
    return total.hexdigest()


def load(model: str, expected_hash: str, gpu_id: int = -1) -> LoadedPipeline:
    """The pipeline, from memory if this process has loaded it before.

    Raises ValueError if there is none, or if its files are not those that have this hash.
    """
    key = (model, expected_hash, gpu_id)
    with _loading:
        if key not in _loaded:
            _loaded[key] = _read(*key)
        return _loaded[key]


def _read(model: str, expected_hash: str, gpu_id: int) -> LoadedPipeline:
    import spacy
    from spacy.util import raise_error

    keep_few_shapes()
    found = hash_of(locate(model))
    if found != expected_hash:
        raise ValueError(
            f"{model}: its files have the hash {found[:12]}, but the annotator was made for "
            f"{expected_hash[:12]}. Copy the same pipeline to all machines, or make a new "
            "annotator"
        )
    if gpu_id >= 0:
        spacy.require_gpu(gpu_id)
    nlp = spacy.load(model)
    set_error_handler(nlp, raise_error)  # a handler of its own could drop texts in silence
    keys = None
    with suppress(Exception):  # what a pipeline makes at its first use must outlive a memory zone
        [doc] = nlp.pipe(["Two words."])
        keys = list(doc.spans)
    return LoadedPipeline(nlp, keys)


def set_error_handler(nlp: Language, handler: Callable[..., None]) -> None:
    """As `Language.set_error_handler`, which fails at spaCy's parsers and `ner`: they take no
    handler and raise their errors in any case."""
    nlp.default_error_handler = handler
    for _, pipe in nlp.pipeline:
        if hasattr(pipe, "set_error_handler"):
            with suppress(AttributeError):
                pipe.set_error_handler(handler)


def check_key(model: str, spans_key: str, keys: Iterable[str]) -> None:
    """Raises ValueError unless a spans key is one of those that a pipeline writes."""
    if spans_key not in keys:
        used = ", ".join(map(repr, keys)) or "none"
        raise ValueError(
            f"{model} predicts nothing under spans key {spans_key!r}; it uses: {used}. Choose "
            "another key (--spans-key, spans_key=...), or a pipeline with a component that writes "
            "doc.spans."
        )


def keep_few_shapes() -> None:
    """Bound the memory that torch takes for shapes; to be called before its first product. What the
    user has set stays."""
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(KEPT_SHAPES))


class LoadedPipeline:
    """A pipeline, used by one thread at a time. keys: of the spans that it writes, None where that
    is not known."""

    def __init__(self, nlp: Language, keys: Optional[List[str]] = None) -> None:
        self.nlp = nlp
        self.keys = keys
        self._learned = 0
        self._untrimmed = 0
        self.renew_lock()

    def renew_lock(self) -> None:
        """Let nobody be using it."""
        self._lock = threading.Lock()

    @property
    def max_length(self) -> int:
        """Characters of the longest text that the pipeline takes."""
        return self.nlp.max_length

    @contextmanager
    def zone(self, texts: List[str]) -> Iterator[Language]:
        """The pipeline for these texts, in a memory zone: what is made in the `with` block is
        invalid after it, and the words of the texts are forgotten.

        The first texts are read without one: in it the tokenizer caches nothing, and words that it
        does not know cost more.
        """
        with self._lock:
            if self._learned < LEARNED_CHARACTERS:
                self._learned += sum(map(len, texts))
                yield self.nlp
            else:
                with self.nlp.memory_zone():
                    yield self.nlp
            self._untrimmed += sum(map(len, texts))
            if self._untrimmed >= TRIMMED_CHARACTERS:
                self._untrimmed = 0
                _trim()


def _trim() -> None:
    """Give free memory back to the system. The C library of Linux keeps it between what is in use,
    where the next batch, of other lengths, may not fit in: a process would grow without end."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library does not know it
            ctypes.CDLL(None).malloc_trim(0)
