"""What can be annotated: files and folders, cut into fragments that are read by themselves."""

from __future__ import annotations

import csv
import json
import os
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, pairwise
from pathlib import Path
from typing import (
    IO,
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Optional,
    Sequence,
    Set,
    Tuple,
    TypeVar,
    Union,
)

import srsly

from spacy_nested_ner.corpora.parsing.archives import unpacked
from spacy_nested_ner.corpora.splits import id_of
from spacy_nested_ner.corpora.statistics import document_of
from spacy_nested_ner.files import as_written
from spacy_nested_ner.scale.rows import (
    Text,
    Unusable,
    ids_of,
    import_arrow,
    is_text,
    texts_of,
)

FRAGMENT_ROWS = 5_000
"""Most rows of a fragment of a file that has no parts of its own."""
FRAGMENT_BYTES = 3_000_000
"""After so many it ends, too: six novels, for example; 5,000 sentences have fewer."""
WORD_BYTES = 5
"""Of a word in a `.spacy` file, about: its texts are packed."""
BATCH_CHARACTERS = 1_000_000
"""Most characters of a batch of several texts: their docs are in memory together."""
PARQUET_ROWS = 64
"""Rows of a Parquet file that are unpacked at once: a repeated text takes no place in it."""
LONGEST_FIELD = 1 << 27
"""Characters of the longest field of a CSV file."""
BOM = b"\xef\xbb\xbf"
PACKED = (".gz", ".bz2", ".xz")
PACKABLE = (".jsonl", ".csv", ".txt")
REMEDY = "save the file in UTF-8"
NUL = Unusable(f"the text holds a NUL character; remove it, or {REMEDY}")

Pair = Tuple[Optional[str], Text]
"""Id of a row, None if it has none, and its text."""
Named = TypeVar("Named", bound=Pair)


@dataclass(frozen=True)
class Columns:
    """Names of the columns that are read, and what ids are.

    id: None takes "id" where there is one. of_documents: sentences of one document in a `.spacy`
    file have its id; otherwise each has its number behind that.
    """

    text: str = "text"
    id: Optional[str] = None
    of_documents: bool = False


@dataclass(frozen=True)
class Fragment:
    """Rows of a file that are read and written together.

    file: path below the input, for ids. place: row group of a Parquet file, else the byte where the
    rows start. first: how many rows of the file lie before. rows: how many there are.
    """

    number: int
    path: str
    file: str
    place: int
    first: int
    rows: int

    @property
    def output(self) -> str:
        """Name of the file that its rows are written to."""
        return f"fragment-{self.number:07d}.parquet"

    def __str__(self) -> str:
        return f"{self.file}, rows {self.first + 1} to {self.first + self.rows}"


class InputError(ValueError):
    """Input that cannot be read. Says which file, what is wrong and what helps."""


def input_files(
    path: Path, output: Optional[Path] = None
) -> Tuple[List[Tuple[str, Path]], List[str]]:
    """The files to read with their names below the input, and the names of those left out.

    output: file or folder that is to be written; in a folder that is read it is no input.

    Files and folders whose names start with "." or "_" are not read, as elsewhere in the world of
    tables. The latter are among those left out if they look like texts. A folder that a link leads
    to is read, once.

    Raises InputError if there is nothing to read.
    """
    packed = f"{', '.join(PACKABLE)} also packed ({', '.join(PACKED)})"
    known = f"Expected {', '.join(KINDS)}, or a folder of them; {packed}."
    if path.is_file():
        if kind_of(path) not in KINDS:
            raise InputError(f"{path} has an unknown file type. {known}")
        return [(as_written(path.name), path)], []
    if not path.is_dir():
        raise InputError(f"{path}: no such file or folder. {known}")
    files, others = [], []
    written = "" if output is None else os.path.realpath(output)
    root = Path(os.path.realpath(path))
    # A link to the folder itself or to one around it would have no end.
    seen = {str(each) for each in (root, *root.parents)}
    for name, each, is_read in _below(path, "", written, f"{root}{os.sep}", seen):
        if is_read:
            files.append((as_written(name), each))
        else:
            others.append(as_written(name))
    if not files:
        left_out = f" Left out: {', '.join(others)}." if others else ""
        raise InputError(f"{path} holds nothing to read.{left_out} {known}")
    return files, others


def _below(
    folder: Path, start: str, written: str, root: str, seen: Set[str]
) -> Iterator[Tuple[str, Path, bool]]:
    """What lies in a folder at any depth, and whether it is to be read, in the order of the names.
    start: of the names. written: is passed over. root: what lies below it is read in its own place.
    seen: folders that are not read again."""
    try:
        inside = sorted(folder.iterdir())
    except OSError:
        if not start:
            raise
        yield start, folder, False
        return
    for each in inside:
        name, real = f"{start}{each.name}", os.path.realpath(each)
        if each.name.startswith(".") or real == written:
            continue
        if each.name.startswith("_"):
            # What a link leads to may be endless; it is only named.
            if each.is_symlink() or any(kind_of(p) in KINDS for p in (each, *each.rglob("*"))):
                yield name, each, False
        elif not each.is_dir():
            yield name, each, each.is_file() and kind_of(each) in KINDS
        elif real in seen or (each.is_symlink() and real.startswith(root)):
            yield name, each, False
        else:
            seen.add(real)
            yield from _below(each, f"{name}/", written, root, seen)


def kind_of(path: Path) -> str:
    """How the name of a file ends, in small letters, without what a packed text has at its end: one
    of `KINDS` if it can be read."""
    kind, inner = path.suffix.lower(), Path(path.stem).suffix.lower()
    return inner if kind in PACKED and inner in PACKABLE else kind


def cut(files: Sequence[Tuple[str, Path]], columns: Columns, limit: int = 0) -> Iterator[Fragment]:
    """The fragments of files, the first `limit` rows of them all (0: all rows).

    Raises InputError for a file that is damaged or lacks a column.
    """
    number = rows = 0
    for name, path in files:
        first = 0
        with _reading(name):
            for place, count in KINDS[kind_of(path)].cut(path, columns):
                if limit:
                    count = min(count, limit - rows)
                if count:
                    yield Fragment(number, str(path), name, place, first, count)
                    number, first, rows = number + 1, first + count, rows + count
                if limit and rows == limit:
                    return


def bytes_that_cut(fragments: Sequence[Fragment]) -> Optional[int]:
    """`FRAGMENT_BYTES` if they end any of the fragments of a run, None if rows alone do."""
    is_cut = any(
        fragment.file == then.file
        and fragment.rows < FRAGMENT_ROWS
        and kind_of(Path(fragment.path)) != ".parquet"
        for fragment, then in pairwise(fragments)
    )
    return FRAGMENT_BYTES if is_cut else None


def read(fragment: Fragment, columns: Columns, size: int) -> Iterator[Tuple[List[str], List[Text]]]:
    """The ids and texts of a fragment, `batched`; the texts are to be `checked`. A row without an
    id is called by its file and number, the first one 1.

    Raises InputError if the file is not what it was when it was cut.
    """
    path, done = Path(fragment.path), 0
    with _reading(fragment.file):
        pairs = KINDS[kind_of(path)].read(path, fragment.place, columns)
        for batch in batched(islice(pairs, fragment.rows), size):
            start = fragment.first + done + 1
            ids = [
                f"{fragment.file}:{start + i}" if not name else as_written(name)
                for i, (name, _) in enumerate(batch)
            ]
            done += len(batch)
            yield ids, [text for _, text in batch]
    if done < fragment.rows:
        raise InputError(f"{fragment}: only {done} were found. Was the file changed? Start again")


def batched(pairs: Iterable[Named], size: int) -> Iterator[List[Named]]:
    """Batches of `size` texts, of fewer where these have more than `BATCH_CHARACTERS`."""
    batch: List[Named] = []
    characters = 0
    for pair in pairs:
        length = len(pair[1]) if isinstance(pair[1], str) else 0
        if batch and (len(batch) == size or characters + length > BATCH_CHARACTERS):
            yield batch
            batch, characters = [], 0
        batch.append(pair)
        characters += length
    if batch:
        yield batch


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Raises InputError, with the file, where what reads it fails."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # of whatever reads this kind of file
        raise InputError(f"{name} cannot be read: {error}") from error


def checked(text: Text) -> Text:
    """Unusable if it holds what is no character (bytes that are not UTF-8, half a pair) or NUL, as
    UTF-16 does, else as it is."""
    if not isinstance(text, str):
        return text
    if "\0" in text:
        return NUL
    if not text.isascii():
        try:
            text.encode("utf8")
        except UnicodeEncodeError as error:
            byte = ord(text[error.start]) - 0xDC00  # where `surrogateescape` puts it
            if 0x80 <= byte <= 0xFF:
                return _not_utf8(byte)
            return Unusable(f"the text is not UTF-8: {error}")
    return text


def problem_of(text: Text, longest: Optional[int]) -> Optional[str]:
    """Why a `checked` text cannot be used, None if it can. longest: characters, None for any
    number."""
    if not isinstance(text, str):
        return text.problem
    if longest is not None and len(text) > longest:
        return f"{len(text)} characters, but the pipeline takes at most {longest}. Split the text"
    return None


def _not_utf8(byte: int) -> Unusable:
    return Unusable(f"the text is not UTF-8: byte 0x{byte:02X}; {REMEDY}")


def _missing(file: object, what: str, has: Sequence[str], option: str) -> InputError:
    columns = ", ".join(map(repr, has)) or "none"
    remedy = f"Name the right one with --{option}"
    if any("\0" in name for name in has):
        remedy = f"They hold NUL characters; {REMEDY}"
    elif len(has) == 1 and (sign := next((each for each in ";\t" if each in has[0]), "")):
        remedy = f"They are separated by {sign!r}, where commas are expected: save it with commas"
    return InputError(f"{file} has no column {what!r}. Its columns: {columns}. {remedy}")


def _id_column(file: object, columns: Columns, has: Sequence[str]) -> Optional[str]:
    """Check the columns; RETURNS that of the ids, if there is one."""
    if columns.text not in has:
        raise _missing(file, columns.text, has, "text")
    if columns.id is not None and columns.id not in has:
        raise _missing(file, columns.id, has, "id")
    return columns.id or ("id" if "id" in has else None)


# Parquet


def _cut_parquet(path: Path, columns: Columns) -> Iterator[Tuple[int, int]]:
    pa = import_arrow()
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        has = file.schema_arrow.names
        name = _id_column(path, columns, has)
        if name is not None:  # now, not in a worker
            ids_of(pa.array([], file.schema_arrow.types[has.index(name)]))
        kind = file.schema_arrow.types[has.index(columns.text)]
        if not is_text(kind):
            raise InputError(
                f"{path}: its column {columns.text!r} is {kind}, not text. Save it as strings, or "
                "name another column with --text"
            )
        counts = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    yield from enumerate(counts)


def _read_parquet(path: Path, group: int, columns: Columns) -> Iterator[Pair]:
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        name = _id_column(path, columns, file.schema_arrow.names)
        wanted = [columns.text] if name is None else [columns.text, name]
        for batch in file.iter_batches(PARQUET_ROWS, row_groups=[group], columns=wanted):
            texts = texts_of(batch.column(columns.text), columns.text)
            ids = [None] * len(texts) if name is None else ids_of(batch.column(name))
            yield from zip(ids, texts)


# Lines of text, and of JSON


def _cut_lines(path: Path, is_row: Callable[[bytes], Any]) -> Iterator[Tuple[int, int]]:
    """Places and sizes of the blocks of a file with a row on each line."""
    place = rows = end = 0
    with unpacked(path) as file:
        has_parts = file.seekable()  # what is packed cannot be begun in the middle
        for line in file:
            end += len(line)
            rows += bool(is_row(line))
            if has_parts and _is_full(rows, end - place):
                yield place, rows
                place, rows = end, 0
    yield place, rows


def _is_full(rows: int, size: int) -> bool:
    """Whether a fragment of so many rows and bytes takes no more."""
    return rows >= FRAGMENT_ROWS or size >= FRAGMENT_BYTES


def text_lines(file: IO[bytes]) -> Iterator[Text]:
    """The texts of a stream, a line each."""
    return (checked(_decoded(line)) for line in _without_ends(file, is_start=True))


def _lines(path: Path, place: int) -> Iterator[bytes]:
    with unpacked(path) as file:
        if place:
            file.seek(place)
        yield from _without_ends(file, is_start=not place)


def _without_ends(file: IO[bytes], is_start: bool) -> Iterator[bytes]:
    """Lines without their ends and without the mark that some files begin with."""
    for i, line in enumerate(file):
        if is_start and not i:
            line = line.removeprefix(BOM)
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def _decoded(line: bytes) -> str:
    return line.decode("utf8", "surrogateescape")


def _cut_text(path: Path, columns: Columns) -> Iterator[Tuple[int, int]]:
    return _cut_lines(path, lambda line: True)


def _read_text(path: Path, place: int, columns: Columns) -> Iterator[Pair]:
    for line in _lines(path, place):
        yield None, _decoded(line)


def _cut_json(path: Path, columns: Columns) -> Iterator[Tuple[int, int]]:
    for line in _lines(path, 0):
        row = _json_row(line)
        if isinstance(row, dict):
            _id_column(path, columns, list(row))
            break
    return _cut_lines(path, _has_row)


def _read_json(path: Path, place: int, columns: Columns) -> Iterator[Pair]:
    for line in filter(_has_row, _lines(path, place)):
        row = _json_row(line)
        if isinstance(row, Unusable):
            yield None, row
            continue
        name = row.get("id" if columns.id is None else columns.id)
        yield id_of(name), _json_text(row, columns.text)


def _has_row(line: bytes) -> bytes:
    """Files that were joined have marks inside."""
    return line.removeprefix(BOM).strip()


def _json_row(line: bytes) -> Union[Dict[str, Any], Unusable]:
    if b"\0" in line:  # json would guess at UTF-16, line by line
        return NUL
    try:
        row = json.loads(line)
    except UnicodeDecodeError as error:
        return _not_utf8(line[error.start])
    except (ValueError, RecursionError) as error:  # the second for lists deep in one another
        return Unusable(f"the line is not JSON: {error}")
    return row if isinstance(row, dict) else Unusable("the line is JSON, but not an object")


def _json_text(row: Dict[str, Any], name: str) -> Text:
    text = row.get(name)
    if isinstance(text, str):
        return text
    problem = "it is null" if name in row else f"the row has no {name!r}"
    if text is not None:
        return Unusable(f"{name!r} is {type(text).__name__}, not text")
    return Unusable(f"there is no text: {problem}")


# CSV


def _csv_reader(file: IO[bytes], read: List[int]) -> Iterator[List[str]]:
    """Rows that are not empty. read: its first item counts the bytes of the rows so far.

    Raises csv.Error for text behind a quotation mark that closes a field, and for one that is not
    closed: rows in between would become one.
    """

    def lines() -> Iterator[str]:
        for line in file:
            start = len(BOM) if not read[0] and line.startswith(BOM) else 0
            read[0] += len(line)
            yield _decoded(line[start:])

    csv.field_size_limit(LONGEST_FIELD)
    rows, line = csv.reader(lines(), strict=True), 1
    try:
        for row in rows:
            line = rows.line_num + 1
            if row:
                yield row
    except csv.Error as error:
        place = f"in the row that begins in line {line}"
        hint = "Perhaps a quotation mark there is not closed, or not doubled"
        if "NUL" in str(error):  # up to Python 3.10
            hint = f"It holds NUL characters; {REMEDY}"
        raise csv.Error(f"{error}, {place}. {hint}") from error


def _csv_columns(path: Path, columns: Columns) -> Tuple[int, Optional[int], int]:
    """Number of the column of texts, of that of ids if there is one, and how many there are."""
    with unpacked(path) as file:
        names = next(_csv_reader(file, [0]), [])
    name = _id_column(path, columns, names)
    return names.index(columns.text), None if name is None else names.index(name), len(names)


def _cut_csv(path: Path, columns: Columns) -> Iterator[Tuple[int, int]]:
    read, rows = [0], 0
    with unpacked(path) as file:
        has_parts = file.seekable()
        found = _csv_reader(file, read)
        names = next(found, None)
        if names is None:
            return
        _id_column(path, columns, names)
        place = read[0]
        for _ in found:
            rows += 1
            if has_parts and _is_full(rows, read[0] - place):
                yield place, rows
                place, rows = read[0], 0
    yield place, rows


def _read_csv(path: Path, place: int, columns: Columns) -> Iterator[Pair]:
    text, name, n_columns = _csv_columns(path, columns)
    with unpacked(path) as file:
        if file.seekable():
            file.seek(place)
        else:
            file.read(place)  # the header
        for row in _csv_reader(file, [place]):
            found: Text
            if any(row[n_columns:]):
                found = Unusable(
                    f"the row has {len(row)} cells, the header {n_columns}: put a text with commas "
                    "in quotation marks"
                )
            elif text < len(row):
                found = row[text]
            else:
                found = Unusable("there is no text: the row is too short")
            yield None if name is None or name >= len(row) else row[name], found


# .spacy


def _doc_bin(path: Path) -> Any:
    """A copy that may be cut. The file is read whole for each of its fragments, so the last one is
    kept; its docs are packed still."""
    from spacy.tokens import DocBin

    docs = DocBin()
    # copy() would pack it into bytes and back.
    vars(docs).update(vars(_loaded_doc_bin(path, *_changes(path))))
    return docs


def _changes(path: Path) -> Tuple[int, int]:
    """What tells a file that was changed."""
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size


@lru_cache(maxsize=1)
def _loaded_doc_bin(path: Path, *_: int) -> Any:
    from spacy.tokens import DocBin

    from spacy_nested_ner.msgpack import ask_packages_once

    ask_packages_once()
    return DocBin().from_disk(path)


def _cut_docs(path: Path, columns: Columns) -> Iterator[Tuple[int, int]]:
    place = rows = words = 0
    for each in _doc_bin(path).tokens:
        rows += 1
        words += len(each)
        if _is_full(rows, words * WORD_BYTES):
            yield place, rows
            place, rows, words = place + rows, 0, 0
    yield place, rows


def _read_docs(path: Path, place: int, columns: Columns) -> Iterator[Pair]:
    import spacy

    from spacy_nested_ner.evaluation.scores.raw_text import raw_text

    docs = _doc_bin(path)
    ids = _doc_ids(path, columns.of_documents, *_changes(path))[place:]
    for part in ("tokens", "spaces", "flags", "cats", "span_groups", "user_data"):
        setattr(docs, part, getattr(docs, part)[place : place + FRAGMENT_ROWS])
    for name, doc in zip(ids, docs.get_docs(spacy.blank("xx").vocab)):
        yield name, raw_text(doc) or doc.text


@lru_cache(maxsize=1)
def _doc_ids(path: Path, of_documents: bool, *changes: int) -> List[Optional[str]]:
    """Of each doc of a file; see `Columns`."""
    packed = _loaded_doc_bin(path, *changes).user_data
    data = ({} if each is None else srsly.msgpack_loads(each, use_list=False) for each in packed)
    ids = [document_of(each) for each in data]
    if of_documents:
        return ids
    count = Counter(ids)
    seen: Counter[Optional[str]] = Counter()
    found: List[Optional[str]] = []
    for name in ids:
        own = name
        while name and count[name] > 1 and own in count:
            seen[name] += 1
            own = f"{name}:{seen[name]}"
        found.append(own)
    return found


@dataclass(frozen=True)
class _Kind:
    cut: Callable[[Path, Columns], Iterator[Tuple[int, int]]]
    read: Callable[[Path, int, Columns], Iterator[Pair]]


KINDS: Dict[str, _Kind] = {
    ".parquet": _Kind(_cut_parquet, _read_parquet),
    ".jsonl": _Kind(_cut_json, _read_json),
    ".csv": _Kind(_cut_csv, _read_csv),
    ".txt": _Kind(_cut_text, _read_text),
    ".spacy": _Kind(_cut_docs, _read_docs),
}
