"""The output of one machine: a folder of Parquet fragments with a manifest that says of what."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from spacy_nested_ner.files import read_object, settle, write_json, written_together
from spacy_nested_ner.scale.annotator import Annotator
from spacy_nested_ner.scale.inputs import Columns, Fragment, bytes_that_cut, read

# Readers of folders of Parquet pass over names that begin with "_" or ".".
MANIFEST = "_manifest.json"
PACKAGES = ("spacy_nested_ner", "spacy", "torch", "pyarrow")


def manifest_of(
    annotator: Annotator,
    columns: Columns,
    limit: int,
    fragments: Sequence[Fragment],
    code: Optional[Path] = None,
) -> Dict[str, Any]:
    """What the output depends on; also the sizes and times of the files, and the versions. code: a
    Python file that the pipeline needs."""
    own = {} if code is None else {"code": hashlib.sha256(code.read_bytes()).hexdigest()}
    files: Dict[str, Dict[str, Any]] = {}
    for each in fragments:
        stat = Path(each.path).stat()
        start = {"bytes": stat.st_size, "modified": stat.st_mtime_ns, "rows": 0, "fragments": 0}
        known = files.setdefault(each.file, start)
        known["rows"] += each.rows
        known["fragments"] += 1
    return {
        "model": {"name": annotator.name, "hash": annotator.hash},
        "settings": {
            "text": columns.text,
            "id": columns.id,
            "limit": limit,
            "spans_key": annotator.spans_key,
            "details": annotator.details,
            "batch_size": annotator.batch_size,
            "device": "CPU" if annotator.gpu_id < 0 else "GPU",
            **own,
        },
        "input": files,
        "fragments": len(fragments),
        "fragment_bytes": bytes_that_cut(fragments),
        "rows": sum(each.rows for each in fragments),
        "versions": {name: version(name) for name in PACKAGES},
    }


def begin(folder: Path, manifest: Dict[str, Any], resume: bool) -> None:
    """Make the folder with its manifest, or go on with the one that is there. Drafts that a killed
    run has left go.

    Raises ValueError if the folder holds anything and is not to be resumed, or if it was begun with
    another model, setting or input.
    """
    path = folder / MANIFEST
    settle(folder)
    if path.is_file():
        if not resume:
            raise ValueError(
                f"{folder} already contains a run. Continue it (--resume), or give another folder"
            )
        try:
            changes = _changes(read_object(path), manifest)
        except (AttributeError, KeyError, TypeError) as err:
            raise ValueError(f"{path} is damaged ({err!r}). Give another folder") from err
        if changes:
            raise ValueError(
                f"The run in {folder} was started differently: {'; '.join(changes)}. Use the same "
                "model, settings and input again, or give another folder"
            )
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} already exists and has no {MANIFEST}. Give another folder")
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, manifest)


def withdraw(folder: Path) -> bool:
    """Remove what `begin` made; RETURNS False if rows have come to it, which stay."""
    if [each.name for each in folder.iterdir()] != [MANIFEST]:
        return False
    (folder / MANIFEST).unlink()
    with suppress(OSError):  # a mounted volume stays
        folder.rmdir()
    return True


def _changes(old: Dict[str, Any], new: Dict[str, Any]) -> List[str]:
    """What differs between two manifests, in words."""
    if old["model"] != new["model"]:
        return [f"with the model {old['model']['name']}, not {new['model']['name']}"]
    before, now = old["settings"], new["settings"]
    found = [
        f"with {name} {before.get(name)!r}, not {now.get(name)!r}"
        for name in dict.fromkeys([*now, *before])
        if before.get(name) != now.get(name)
    ]
    for name in sorted({*old["input"], *new["input"]}):
        if name not in new["input"]:
            found.append(f"{name} is no longer in the input")
        elif name not in old["input"]:
            found.append(f"{name} is new in the input")
        elif _content(old["input"][name]) != _content(new["input"][name]):
            found.append(f"{name} has changed since")
    if not found and _cut(old) != _cut(new):
        found.append("with another version of spacy_nested_ner, which cut long texts otherwise")
    return found


def _content(file: Dict[str, Any]) -> Dict[str, Any]:
    return {key: value for key, value in file.items() if key != "fragments"}


def _cut(manifest: Dict[str, Any]) -> Tuple[Any, ...]:
    """What tells how files are cut: fragments that are written must be those of the same rows."""
    counts = {name: file["fragments"] for name, file in manifest["input"].items()}
    return manifest.get("fragment_bytes"), counts


def is_whole(folder: Path, fragment: Fragment) -> bool:
    """Whether the rows of a fragment have been written, all of them."""
    import pyarrow as pa
    from pyarrow.parquet import read_metadata

    try:
        return read_metadata(folder / fragment.output).num_rows == fragment.rows
    except (OSError, pa.ArrowInvalid):  # none there, or cut off when the machine went down
        return False


def failed_in(folder: Path, fragment: Fragment) -> int:
    """How many texts of a fragment that is whole have an error."""
    from pyarrow.parquet import ParquetFile

    with ParquetFile(folder / fragment.output) as file:
        errors = file.read(["error"])["error"]
    return len(errors) - errors.null_count


def first_error(folder: Path, fragment: Fragment) -> str:
    """The error of the first text of a fragment, with its id."""
    from pyarrow.parquet import ParquetFile

    with ParquetFile(folder / fragment.output) as file:
        [row] = file.read(["id", "error"]).slice(0, 1).to_pylist()
    return f"The text with the id {row['id']!r}: {row['error']}"


def write(
    annotator: Annotator, columns: Columns, fragment: Fragment, folder: Path
) -> Iterator[Tuple[int, int, int]]:
    """Annotate a fragment and write it, whole or not at all; gives of each batch the numbers of
    texts, tokens and texts that failed.

    Raises InputError if it cannot be read.
    """
    import pyarrow.compute as pc
    from pyarrow.parquet import ParquetWriter

    path = folder / fragment.output
    with (
        written_together([path]) as drafts,
        ParquetWriter(drafts[path], annotator.schema, compression="zstd") as writer,
    ):
        for ids, texts in read(fragment, columns, annotator.batch_size):
            batch = annotator.annotate(list(ids), texts)
            writer.write_batch(batch)
            n_tokens: Optional[int] = pc.sum(batch["n_tokens"]).as_py()
            yield len(ids), n_tokens or 0, batch.num_rows - batch["error"].null_count
