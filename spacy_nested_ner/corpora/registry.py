"""The registries of corpus readers and writers, by the name of the format.

    @readers.register("my_format")
    def read_my_format(path: Path, options: ReadOptions) -> Iterator[Record]: ...

    @writers.register("my_format")
    def write_my_format(sentences: Iterable[WordSentence], file: TextIO, question: Question): ...

The modules of `corpora.formats` are imported when one of the two is first asked for something.
Other packages add readers and writers through the entry point groups `spacy_nested_ner_readers` and
`spacy_nested_ner_writers`.
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Callable, Dict, Generic, TypeVar, overload

import catalogue

from spacy_nested_ner.corpora.records import Reader, TaskWriter, Writer

F = TypeVar("F")


class FormatRegistry(catalogue.Registry, Generic[F]):
    """A registry that holds the formats of this package without importing them before they are
    needed. F: what it holds, for type checkers."""

    @overload
    def register(self, name: str) -> Callable[[F], F]: ...

    @overload
    def register(self, name: str, *, func: F) -> F: ...

    def register(self, name: str, *, func: Any = None) -> Any:
        """Register a function under a name; without one, a decorator that does."""
        return super().register(name, func=func)

    def __contains__(self, name: str) -> bool:
        import_formats()
        return super().__contains__(name)

    def get(self, name: str) -> Any:
        """What is registered under a name. Raises catalogue.RegistryError if there is nothing."""
        import_formats()
        return super().get(name)

    def get_all(self) -> Dict[str, Any]:
        """Everything that is registered, by name."""
        import_formats()
        return super().get_all()


readers: FormatRegistry[Reader] = FormatRegistry(("spacy_nested_ner", "readers"), entry_points=True)
writers: FormatRegistry[Writer] = FormatRegistry(("spacy_nested_ner", "writers"), entry_points=True)
# Of the import files of annotation tools, by the format that their exports are read with.
task_writers: FormatRegistry[TaskWriter] = FormatRegistry(
    ("spacy_nested_ner", "task_writers"), entry_points=True
)


def import_formats() -> None:
    """Import every module of `corpora.formats`, each of which registers what it has."""
    formats = import_module("spacy_nested_ner.corpora.formats")
    for module in iter_modules(formats.__path__):
        import_module(f"{formats.__name__}.{module.name}")


def get_reader(name: str) -> Reader:
    """The reader of a format.

    Raises ValueError with the known formats if there is none of that name.
    """
    return _known(readers, name, "reader for corpus format")


def get_writer(name: str) -> Writer:
    """The writer of a format. Raises ValueError as `get_reader`."""
    return _known(writers, name, "writer for format")


def get_task_writer(name: str) -> TaskWriter:
    """The writer of an annotation tool's import files. Raises ValueError as `get_reader`."""
    return _known(task_writers, name, "annotation tool")


def _known(registry: FormatRegistry, name: str, what: str) -> Any:
    if name in registry:
        return registry.get(name)
    known = sorted(registry.get_all())
    similar = get_close_matches(name.lower(), known, n=1)
    hint = f"Did you mean {similar[0]!r}? " if similar else ""
    raise ValueError(f"No {what} {name!r}. {hint}Known formats: {', '.join(known)}.")
