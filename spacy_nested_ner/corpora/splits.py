"""Train, dev and test: from the names of files and folders, or by chance with a seed."""

from __future__ import annotations

import logging
import re
import unicodedata
from array import array
from hashlib import blake2b
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

from spacy_nested_ner.corpora.errors import CorpusError
from spacy_nested_ner.corpora.parsing.paths import check_input, walk
from spacy_nested_ner.corpora.records import SPLITS

Fractions = Tuple[float, float, float]
"""Shares of train, dev and test."""

DEFAULT_FRACTIONS: Fractions = (0.8, 0.1, 0.1)

_logger = logging.getLogger("spacy_nested_ner")

_NAMES: Dict[str, str] = {
    **{split: split for split in SPLITS},
    "training": "train",
    "development": "dev",
    "val": "dev",
    "valid": "dev",
    "validation": "dev",
    "testing": "test",
    "testa": "dev",
    "testb": "test",
}


def split_of_name(name: str) -> str:
    """The split that a file or folder name speaks of, such as "dev" for `eng-val_new.txt`; ""
    if it names none or several."""
    # Of other scripts letters stand beside a word without a blank.
    words = re.split(
        r"[^a-z\u00df-\u024f\u1e00-\u1eff]+", unicodedata.normalize("NFC", name.lower())
    )
    found = {_NAMES[word] for word in words if word in _NAMES}
    return found.pop() if len(found) == 1 else ""


def split_of_folder(path: Path, root: Path) -> str:
    """The split that a folder on the way from `root` to the file speaks of."""
    for folder in path.relative_to(root).parent.parts:
        if split := split_of_name(folder):
            return split
    return ""


def named_files(path: Path) -> List[Tuple[Path, str]]:
    """Files with the split that their name speaks of: the file itself, or those of a folder.

    Of a folder the files that name a split are taken (train, dev, valid, test ...), in the order
    train, dev, test, but for `.spacy` files, which `convert` may have written there.

    Raises CorpusError if no file of the folder names one.
    """
    check_input(path)
    if path.is_file():
        return [(path, split_of_name(path.name))]
    shown = sorted(
        file for file in path.iterdir() if not file.name.startswith(".") and file.suffix != ".spacy"
    )
    named = [(file, split_of_name(file.name)) for file in shown]
    folders = [file for file, split in named if split and file.is_dir()]
    if folders:
        _logger.warning(
            "Folders inside %s are not read: %s. To read one, give it as an input.",
            path,
            ", ".join(folder.name for folder in folders),
        )
    found = [(file, split) for file, split in named if split and file not in folders]
    if not found:
        problem = (
            "no file in this folder has train, dev or test in its name, .spacy files apart. Give "
            "the files as inputs."
        )
        raise CorpusError(problem, path)
    endings = {file.suffix for file, _ in found}
    unread = [
        file.name
        for file, split in named
        if not split and file.suffix in endings and file.is_file()
    ]
    if unread:
        _logger.warning(
            "Files in %s without train, dev or test in their names are not read: %s. To read one, "
            "give it as an input.",
            path,
            ", ".join(unread),
        )
    return sorted(found, key=lambda pair: SPLITS.index(pair[1]))


def files_below(path: Path, *suffixes: str) -> List[Tuple[Path, str]]:
    """Files with one of these endings and the split that a folder around them speaks of: the file
    itself, or those at any depth of a folder, sorted.

    Raises CorpusError if there are none.
    """
    check_input(path)
    if path.is_file():
        return [(path, "")]
    alike = [file for file in walk(path) if file.name.lower().endswith(suffixes)]
    files = [file for file in alike if file.name.endswith(suffixes)]
    unread = [file for file in alike if not file.name.endswith(suffixes)]
    if unread:
        _logger.warning(
            "%d file(s) below %s are not read, because their endings are in capitals: %s ...",
            len(unread),
            path,
            unread[0].name,
        )
    if not files:
        raise CorpusError(f"no file that ends in {' or '.join(suffixes)} below this folder.", path)
    return [(file, split_of_folder(file, path)) for file in files]


def random_split(
    doc_ids: Iterable[str], fractions: Fractions = DEFAULT_FRACTIONS, seed: int = 0
) -> Callable[[str], str]:
    """Divide documents by chance; all of one document goes to one split.

    Documents are sorted by a hash of seed and id and cut at the fractions, so that the shares are
    exact (rounded) and the order of the documents does not matter. Of two or more, dev gets at
    least one, unless its fraction is 0. Eight bytes are held for each document.

    Raises ValueError unless the fractions are at least 0 and sum up to 1.
    """
    import numpy as np

    check_fractions(fractions)
    hashes = np.unique(np.frombuffer(array("Q", (hash_id(i, seed) for i in doc_ids)), "uint64"))
    first = round(fractions[0] * len(hashes))
    second = round((fractions[0] + fractions[1]) * len(hashes))
    if first == second and fractions[1] and len(hashes) > 1:  # no training without dev
        second = min(second + 1, len(hashes))
        first = second - 1
    in_train = int(hashes[first - 1]) if first else -1
    in_dev = int(hashes[second - 1]) if second else -1

    def split_of(doc_id: str) -> str:
        place = hash_id(doc_id, seed)
        return "train" if place <= in_train else "dev" if place <= in_dev else "test"

    return split_of


def check_fractions(fractions: Sequence[float]) -> None:
    """Raise ValueError unless these are three numbers of at least 0 that sum up to 1."""
    if len(fractions) != 3 or not (min(fractions) >= 0 and abs(sum(fractions) - 1) <= 1e-6):
        raise ValueError(wrong_fractions(",".join(map(str, fractions))))


def wrong_fractions(given: str) -> str:
    """What is wrong with what was given in place of fractions."""
    return (
        "Fractions of train, dev and test must be three numbers of at least 0 that sum to 1, "
        f"such as 0.8,0.1,0.1, not {given}."
    )


def hash_id(doc_id: str, seed: int = 0) -> int:
    """A number of 64 bits."""
    digest = blake2b(doc_id.encode("utf8"), digest_size=8, key=str(seed).encode("utf8"))
    return int.from_bytes(digest.digest(), "big")


def id_of(value: Any) -> Optional[str]:
    """An id as a string; None for none, and for NaN. Whole numbers of a column with gaps are
    floating-point ones."""
    if value is None or value != value:
        return None
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
    return str(int(value) if whole else value)
