"""Texts that the commands are given."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Iterator, Tuple

from wasabi import msg

if TYPE_CHECKING:
    from spacy_nested_ner.scale.inputs import Text


def file_texts(path: Path, column: str) -> Iterator[Tuple[str, Text]]:
    """Each text of a file or folder with its id, read as they are asked for.

    Raises ValueError if there are none, or if they cannot be read.
    """
    from spacy_nested_ner.scale.inputs import Columns, cut, input_files, read

    columns = Columns(column)
    files, others = input_files(path)
    if others:
        msg.warn(f"Left out, for they are of no known kind: {', '.join(others)}")
    fragments = list(cut(files, columns))
    if not fragments:
        raise ValueError(f"{path} holds no texts.")
    batches = (batch for each in fragments for batch in read(each, columns, size=1000))
    return (pair for ids, texts in batches for pair in zip(ids, texts))
