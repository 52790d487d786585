"""Pipelines and gold data that the commands are given."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Iterator, List

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.training import Example


def load_pipeline(model: str) -> Language:
    """Load a pipeline from a folder or a package.

    Raises ValueError that names the folder if there is none.
    """
    import spacy

    try:
        return spacy.load(model)
    except OSError as err:
        remedy = "Give the folder that `spacy train` wrote, such as model-best."
        raise ValueError(f"{model}: no trained pipeline there. {remedy} ({err})") from err


def read_examples(nlp: Language, data_path: Path) -> List[Example]:
    """Examples as `spacy evaluate` makes them: with gold tokens only if spaces are unknown.

    Raises ValueError, with the path, if the file is missing or is no DocBin.
    """
    from spacy.training import Corpus

    if (
        data_path.is_file() and data_path.suffix != ".spacy"
    ):  # spaCy's reader would find nothing in it and only warn
        raise ValueError(f"{data_path} is not a .spacy file. Convert the corpus first.")
    with reading(data_path):
        return list(Corpus(data_path)(nlp))


@contextmanager
def reading(data_path: Path) -> Iterator[None]:
    """Raise ValueError, with the path, if there is no file or what reads it finds no DocBin."""
    if not data_path.is_file():
        raise ValueError(f"{data_path}: no such file. Expected gold data in a .spacy file.")
    try:
        yield
    except Exception as err:  # zlib, msgpack and numpy all have errors of their own
        problem = "is not a .spacy file (DocBin) or is damaged. Convert the corpus again."
        raise ValueError(f"{data_path} {problem} ({err})") from err
