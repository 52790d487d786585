"""A pipe whose settings live in its `cfg`, checked wherever they are used."""

from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Set, Type

from spacy.pipeline import TrainablePipe
from spacy.vocab import Vocab

from spacy_nested_ner.model.types import HeadModel, system_of
from spacy_nested_ner.pipeline.sentences import NOTHING_SEEN
from spacy_nested_ner.pipeline.settings import PipeSettings
from spacy_nested_ner.settings import S, defaults_of, names_of, take, unknown_name
from spacy_nested_ner.systems.base import Options
from spacy_nested_ner.warn import warn

# What `pipe.cfg` holds beside settings.
STATE = ("labels", "learned_from")


class Taken(NamedTuple):
    """Checked settings, and the values with their types that they were made of."""

    values: Dict[str, Any]
    types: List[type]
    settings: Any


class ConfiguredPipe(TrainablePipe):
    """Settings of `NestedNER`, and errors and warnings that name the component."""

    def __init__(
        self,
        vocab: Vocab,
        model: HeadModel,
        name: str,
        *,
        scorer: Optional[Callable] = None,
        **settings: Any,
    ) -> None:
        """Create the pipe.

        settings: Any of `PipeSettings` and of the system's options; defaults for the others. They
            live in `pipe.cfg` and are checked whenever they are used.
        RAISES (ValueError): For a setting that is not known or out of its range, by name.
        """
        self.vocab, self.model, self.name = vocab, model, name
        self.scorer = scorer
        self._options = system_of(model).options
        self._warned: Set[str] = set()
        self._practised: Optional[Set[int]] = None  # labels with gold in the updates so far
        self._taken: Dict[type, Taken] = {}
        self.cfg: Dict[str, Any] = {
            "labels": [],
            "learned_from": dict(NOTHING_SEEN),
            **defaults_of(PipeSettings),
            **defaults_of(self._options),
            **settings,
        }
        self._check_settings()

    def __setattr__(self, name: str, value: Any) -> None:
        """Raises AttributeError for a setting: as an attribute it would change nothing."""
        if name in (self.cfg or ()) and name not in STATE and not hasattr(type(self), name):
            raise AttributeError(
                self._says(f"set pipe.cfg[{name!r}]: pipe.{name} would change nothing")
            )
        super().__setattr__(name, value)

    def _check_settings(self, **options: Any) -> None:
        """Raise at once for wrong settings: they are no matter for a doc's error handler.

        options: of one call.
        """
        self._settings()
        self.options(**options)

    def _check_state(self) -> None:
        """Of what was read from a file: settings, labels and what the pipe learned from."""
        self._check_settings()
        labels, seen = self.cfg["labels"], self.cfg["learned_from"]
        if not isinstance(labels, list) or not all(
            label and isinstance(label, str) for label in labels
        ):
            raise ValueError(self._says(f"labels must be a list of texts, got {labels!r}"))
        if len(set(labels)) < len(labels):
            raise ValueError(self._says(f"labels must be unique, got {labels!r}"))
        numbers: List[Any] = [None]
        if isinstance(seen, dict):  # a pipe of an older version may know less
            seen = self.cfg["learned_from"] = {**NOTHING_SEEN, **seen}
            numbers = list(seen.values())
        if set(seen) != set(NOTHING_SEEN) or not all(
            isinstance(n, int) and n >= 0 for n in numbers
        ):
            known = ", ".join(NOTHING_SEEN)
            raise ValueError(self._says(f"learned_from must hold {known}, got {seen!r}"))

    def _settings(self) -> PipeSettings:
        """Those of `pipe.cfg` that all components share, checked."""
        return self._take(PipeSettings, self.cfg)

    def options(self, **changed: Any) -> Options:
        """The head's run-time options, checked: those of one call before those of `pipe.cfg`."""
        if not changed:
            return self._take(self._options, self.cfg)
        names = names_of(self._options)
        unknown = ", ".join(sorted(set(changed) - set(names)))
        if unknown:
            known = ", ".join(names) or "none"
            raise ValueError(
                self._says(f"{unknown} cannot be set for one call, only {known}; see pipe.cfg")
            )
        return self._take(self._options, {**self.cfg, **changed})

    def _take(self, kind: Type[S], values: Mapping[str, Any]) -> S:
        """Settings of a kind, checked where the values are not those of the last time: every doc
        asks for them."""
        last = self._taken.get(kind)
        values = dict(values)  # another thread may change `pipe.cfg` meanwhile
        types = [type(value) for value in values.values()]  # 1 is equal to True, and no flag
        if last is None or last.values != values or last.types != types:
            self._check_names(values)
            with self._named():
                last = self._taken[kind] = Taken(values, types, take(kind, values))
        return last.settings

    def _check_names(self, values: Mapping[str, Any]) -> None:
        known = [*names_of(PipeSettings), *names_of(self._options)]
        problem = unknown_name([name for name in values if name not in STATE], known)
        if problem is not None:
            raise ValueError(self._says(problem))

    @contextmanager
    def _named(self) -> Iterator[None]:
        """A ValueError within names the component."""
        try:
            yield
        except ValueError as err:
            raise ValueError(self._says(str(err).removesuffix("."))) from err

    def _says(self, problem: str) -> str:
        return f"Component '{self.name}': {problem}."

    def _warn_once(self, key: str, problem: str) -> None:
        if key not in self._warned:
            warn(self._says(problem))
            self._warned.add(key)  # not before: as an error it is to come again
