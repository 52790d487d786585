"""A pipe on disk and in bytes: damaged parts are found before they are used, and named."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, TypeVar

import numpy as np
import srsly

from spacy_nested_ner.model.head_model import head_shim, set_label_dim, set_tok2vec
from spacy_nested_ner.pipeline.configured import STATE, ConfiguredPipe

P = TypeVar("P", bound="SavedPipe")

CHECKSUMS = "checksums.json"
# What spaCy saves of a pipe, the vocabulary apart.
PARTS = ("cfg", "model")
# What there is to load without any of these.
VOCABULARY_ALONE = ["vocab"]


class SavedPipe(ConfiguredPipe):
    """Saves checksums along with the pipe, and compares them when it is loaded.

    They cover the weights and what `cfg` holds beside settings. Settings may be edited in the file:
    they are checked by themselves. A pipe that was saved without checksums loads without them.
    """

    _continues = False  # it has been loaded, and has not learned since

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """The pipe, with its checksums."""
        self._check_savable()
        saved = srsly.msgpack_loads(super().to_bytes(exclude=exclude))
        parts = {name: saved[name] for name in PARTS if name in saved}
        return srsly.msgpack_dumps({**saved, CHECKSUMS: _checksums(parts)})

    def to_disk(self, path: Any, *, exclude: Iterable[str] = ()) -> None:
        """Save the pipe, with its checksums."""
        self._check_savable()
        super().to_disk(path, exclude=exclude)
        files = [Path(path) / name for name in PARTS]
        parts = {file.name: file.read_bytes() for file in files if file.is_file()}
        srsly.write_json(Path(path) / CHECKSUMS, _checksums(parts))

    def from_bytes(self: P, bytes_data: bytes, *, exclude: Iterable[str] = ()) -> P:
        """Load the pipe; see `from_disk`."""
        with self._loading("the content of the bytes"):
            saved = dict(srsly.msgpack_loads(bytes_data))
        exclude = list(exclude)
        parts = {name: saved[name] for name in PARTS if name in saved and name not in exclude}
        self._compare(parts, saved.get(CHECKSUMS), "'{}' in the bytes".format)
        names = list(parts) or VOCABULARY_ALONE
        del saved, parts  # weights can be large
        with self._put_back(names):
            for name in names:
                with self._loading(f"'{name}' in the bytes"):
                    super().from_bytes(bytes_data, exclude=_others(name, names[0], exclude))
                    self._check_state()
            self._after_loading("the bytes")
        return self

    def from_disk(self: P, path: Any, *, exclude: Iterable[str] = ()) -> P:
        """Load the pipe. Saved settings win over those of the config, as in spaCy's own
        components: change them in `pipe.cfg`, and how many words the head sees at once in
        `pipe.model.attrs["batch_words"]`.

        RAISES (ValueError): For a file that is missing or damaged, by its path; if the weights
            belong to other labels than the saved ones.
        """
        folder, exclude = Path(path), list(exclude)
        names = [name for name in PARTS if name not in exclude]
        parts = {name: self._read(folder / name) for name in names}
        saved = None
        if (folder / CHECKSUMS).exists():
            with self._loading(str(folder / CHECKSUMS)):
                saved = srsly.json_loads(self._read(folder / CHECKSUMS))
        self._compare(parts, saved, lambda name: str(folder / name))
        del parts  # weights can be large
        names = names or VOCABULARY_ALONE
        with self._put_back(names):
            for name in names:
                with self._loading(str(folder / name)):
                    super().from_disk(folder, exclude=_others(name, names[0], exclude))
                    self._check_state()
            self._after_loading(str(path))
        return self

    def _check_savable(self) -> None:
        """Raises ValueError for what could not be loaded again. Settings that NumPy counted become
        numbers that JSON knows."""
        for name, value in self.cfg.items():
            if isinstance(value, np.generic):
                self.cfg[name] = value.item()
        self._check_state()
        self._check_labels()

    def _check_labels(
        self,
        weights: str = "the weights",
        remedy: str = "Restore the trained labels; add further ones with add_label",
    ) -> None:
        """Raises ValueError if the weights, as they are called here, belong to other labels."""
        trained = self.model.attrs["labels"]
        if head_shim(self.model).is_built and trained != list(self.cfg["labels"]):
            raise ValueError(
                self._says(
                    f"{weights} were trained for the labels {trained}, but the component has "
                    f"{list(self.cfg['labels'])}. {remedy}"
                )
            )

    def _read(self, file: Path) -> bytes:
        if not file.is_file():
            problem = "is not a file" if file.exists() else "is missing"
            raise ValueError(self._says(f"{file} {problem}. {REMEDY}"))
        return file.read_bytes()

    def _compare(self, parts: Mapping[str, bytes], saved: Any, place: Callable[[str], str]) -> None:
        """Raise ValueError for a part that is not what was saved."""
        if saved is None:
            return
        with self._loading(place(CHECKSUMS)):
            saved = {name: saved[name] for name in parts}
        for name, data in parts.items():
            with self._loading(place(name)):
                found = _checksum(name, data)
            if found != saved[name]:
                problem = f"is damaged or was replaced: it does not match {place(CHECKSUMS)}"
                raise ValueError(self._says(f"{place(name)} {problem}. {REMEDY}"))

    @contextmanager
    def _loading(self, place: str) -> Iterator[None]:
        """Whatever goes wrong becomes an error that names the place."""
        try:
            yield
        except Exception as err:  # msgpack, JSON, numpy, torch, Thinc: each has errors of its own
            if place in str(err):
                raise
            problem = str(err).removeprefix(self._says("").removesuffix(".")).removesuffix(".")
            raise ValueError(
                self._says(f"{place} is damaged, or was saved with another config.cfg: {problem}")
            ) from err

    @contextmanager
    def _put_back(self, names: List[str]) -> Iterator[None]:
        """If loading these parts fails, a trained pipe is as it was.

        It may have got labels since it was saved.
        """
        if not head_shim(self.model).is_built:
            yield
            return
        cfg, model = srsly.msgpack_dumps(self.cfg), None
        if "model" in names:
            model = self.model.to_bytes()
            set_label_dim(self.model, None)
        try:
            yield
        except BaseException:
            self.cfg.clear()
            self.cfg.update(srsly.msgpack_loads(cfg))
            if model is not None:
                set_label_dim(self.model, None)
                self.model.from_bytes(model)
                set_tok2vec(self.model)
            raise

    def _after_loading(self, source: str) -> None:
        set_tok2vec(self.model)  # what was saved may point elsewhere
        remedy = "Load cfg and model from the same training"
        self._check_labels(f"the weights in {source}", remedy)
        for label in self.cfg["labels"]:
            self.vocab.strings.add(label)
        self._continues, self._practised = True, None


REMEDY = "Copy the pipeline again, with cfg and model from the same training"


def _checksums(parts: Mapping[str, bytes]) -> Dict[str, str]:
    return {name: _checksum(name, data) for name, data in parts.items()}


def _checksum(name: str, data: bytes) -> str:
    """Of the weights, or of the part of `cfg` that is no setting."""
    if name == "cfg":
        cfg = srsly.json_loads(data)
        data = srsly.json_dumps({key: cfg[key] for key in STATE}, sort_keys=True).encode("utf8")
    return hashlib.sha256(data).hexdigest()


def _others(name: str, first: str, exclude: Iterable[str]) -> list[str]:
    """What to leave out to load one part alone; the vocabulary comes with the first one."""
    others = [other for other in PARTS if other != name]
    return [*others, *exclude, *([] if name == first else ["vocab"])]
