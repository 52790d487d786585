"""The registry of corpus readers: one reader per file format.

    @readers.register("my_format")
    def read_my_format(path: Path, options: ReadOptions) -> Iterator[Record]: ...

Other packages add readers through the entry point group `spacy_nested_ner_readers`.
"""

from __future__ import annotations

import catalogue

from spacy_nested_ner.corpora.records import Reader

readers = catalogue.create("spacy_nested_ner", "readers", entry_points=True)


def get_reader(name: str) -> Reader:
    """The reader of a format.

    Raises ValueError with the known formats if there is none of that name.
    """
    if name not in readers:
        known = ", ".join(sorted(readers.get_all()))
        raise ValueError(f"No reader for corpus format {name!r}. Known formats: {known}.")
    return readers.get(name)
