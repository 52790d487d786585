"""Files and folders that appear whole or not at all, several of them together.

What is written lies in a hidden draft folder beside its target until all of it is complete. Then
the old files but one move away, one new file takes the place of the last old one, and the others
follow. So whoever looks finds files of the old set or of the new one, never of both.

- An error, a full disk, Ctrl-C and SIGTERM leave the old set or the new one, and no draft.
- SIGKILL leaves the old set, the new one, or, within the few renames at the end, a part of one.
  `settle` completes the new one then, and removes drafts whose process is gone: those of the same
  user and of the owner of the folder. All commands call it for the folders that they read from or
  write to; other programs find files missing until then.
- One file alone is replaced in one step: there is no moment without it.

Two processes that write the same set at once are not kept apart.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import stat
import threading
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Dict, Iterable, Iterator, List

try:
    import fcntl
except ImportError:  # Windows: drafts of a killed process stay there
    fcntl = None  # type: ignore[assignment]

DRAFT = ".spacy_nested_ner-"
"""How the names of draft folders begin. In one there are `lock`, held while its process lives;
`new`, what is written; and, only once all of that is complete, `old`, what it replaces."""

PACKAGE = Path(__file__).parent


def shipped(path: str, in_clone: str) -> Path:
    """A file or folder that comes with the package. path: in an installed package. in_clone: from
    the root of the repository, in a clone of it.

    Raises ValueError if it is missing.
    """
    for found in (PACKAGE / path, PACKAGE.parent / in_clone):
        if found.exists():
            return found
    raise ValueError(f"{PACKAGE} has no {path}. Install the package again.")


@contextmanager
def written_together(paths: Iterable[Path]) -> Iterator[Dict[Path, Path]]:
    """For each path the path of a draft, to be written in the `with` block. All are in one folder,
    which is made if there is none. A link is replaced, not what it points to.

    When the block ends, all take the names of their paths. When it raises, all vanish and the
    files that had these names before stay as they were.

    Raises OSError if a path is there and no file, before the block; or if a file cannot be written
    or replaced.
    """
    targets = list(paths)
    (folder,) = {target.parent for target in targets}
    for target in targets:
        check_file(target)
    with _draft(folder) as new:
        yield {target: new / target.name for target in targets}
        for target in targets:
            check_file(target)


@contextmanager
def written_folder(path: Path, marker: str) -> Iterator[Path]:
    """A draft of a folder, to be filled in the `with` block.

    When the block ends, it takes the path's name; a folder that had it before vanishes. When it
    raises, the draft vanishes and all else stays as it was.

    marker, errors: see `check_folder`.
    """
    check_folder(path, marker)
    path = path.resolve()
    with _draft(path.parent) as new:
        (new / path.name).mkdir()
        yield new / path.name
        check_folder(path, marker)  # somebody may have put it there meanwhile


def check_folder(path: Path, marker: str) -> None:
    """Raises ValueError if something is there that must not be replaced: a file, or a folder with
    other contents, or the folder that the process works in, or a mounted volume.

    marker: file that a folder which may be replaced holds.
    """
    is_new = not path.exists() or (path.is_dir() and not any(path.iterdir()))
    if not is_new and not (path / marker).is_file():
        raise ValueError(f"{path} already exists and has no {marker}. Give another folder.")
    path = path.resolve()
    if Path.cwd().is_relative_to(path):
        raise ValueError(
            f"{path} is the current folder, which cannot be replaced. Give another folder."
        )
    if os.path.ismount(path):
        raise ValueError(
            f"{path} is a mounted volume, which cannot be replaced. Give a folder in it."
        )


def write_json(path: Path, content: Any) -> None:
    """JSON that is there whole or not at all."""
    import srsly  # takes numpy along, which who reads a corpus may not need

    with written_together([path]) as drafts:
        text = srsly.json_dumps(writable(content), indent=2)
        drafts[path].write_text(text + "\n", encoding="utf8")


def read_object(path: Path) -> Dict[str, Any]:
    """The JSON object in a file.

    Raises ValueError, with the path, if there is none.
    """
    import srsly

    if not path.is_file():
        raise ValueError(f"{path}: no such file.")
    try:
        found = srsly.json_loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as err:
        raise ValueError(f"{path} is not JSON: {err}") from err
    if not isinstance(found, dict):
        raise ValueError(f"{path} does not contain a JSON object.")
    return found


def writable(content: Any) -> Any:
    """What is to be JSON, its strings `as_written`."""
    if isinstance(content, str):
        return as_written(content)
    if isinstance(content, dict):
        return {writable(key): writable(value) for key, value in content.items()}
    return [*map(writable, content)] if isinstance(content, (list, tuple)) else content


def as_written(name: str) -> str:
    """A name that can be written: bytes of a file's name that are not UTF-8, and half a surrogate
    pair, cannot."""
    return name if name.isascii() else name.encode("utf8", "backslashreplace").decode("utf8")


def settle(folder: Path) -> None:
    """Complete what a killed process was about to replace in a folder, and remove its drafts. Those
    of a process that lives are left alone, and those of another user, but for the folder's owner.

    Raises OSError if a set cannot be completed.
    """
    for draft in folder.glob(f"{DRAFT}*") if folder.is_dir() else ():
        if not _is_ours(draft):
            continue
        try:
            lock = (draft / "lock").open("rb+")
        except OSError:
            with suppress(OSError):
                draft.rmdir()  # killed before it wrote anything
            continue
        with lock:
            if _take(lock, if_unknown=False):
                if (draft / "old").is_dir():
                    _replace(draft)
                _remove(draft)


def _is_ours(draft: Path) -> bool:
    """Whether this user made a draft, or who owns the folder. In a folder where everybody may write
    one of somebody else could hold anything, and would take the place of this user's files."""
    if not hasattr(os, "geteuid"):
        return True
    with suppress(OSError):  # its process ends just now
        return draft.lstat().st_uid in (os.geteuid(), draft.parent.stat().st_uid)
    return False


def check_file(path: Path) -> None:
    """Raises OSError if a path is there that no file can take the place of."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, but a file is to be written there.")
    if path.exists() and not path.is_file():
        raise FileExistsError(
            f"{path} already exists and is not a regular file. Give another path."
        )


@contextmanager
def _draft(folder: Path) -> Iterator[Path]:
    """A folder to write in; what is in it goes to the folder around it when the block ends.

    A draft has `lock` and `new` while the block writes: killed then, the old set stays. Once all of
    it is on disk, `old` is made: from here on the new set counts, and `settle` completes it. Files
    of the old set move into `old`, those of `new` into their places. Then the draft goes.
    """
    settle(folder)
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    draft = folder / f"{DRAFT}{secrets.token_hex(8)}"
    with ended_tidily(), ExitStack() as lock:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock.enter_context(_make(draft))
            (draft / "new").mkdir()
            yield draft / "new"
            _to_disk(draft / "new")
            _replace_or_put_back(draft)
            lock.close()
            _remove(draft)
        except BaseException:
            lock.close()
            _remove(draft)
            for made in missing:
                with suppress(OSError):
                    made.rmdir()
            raise


def _make(draft: Path) -> IO[bytes]:
    """Make a draft folder. Returns its lock: it is held until it is closed, at the latest when the
    process ends."""
    while True:
        draft.mkdir(exist_ok=True)
        with suppress(FileNotFoundError):  # another process sweeps just now
            lock = (draft / "lock").open("ab")
            if _take(lock, if_unknown=True) and (draft / "lock").exists():
                return lock
            lock.close()


def _take(lock: IO[bytes], if_unknown: bool) -> bool:
    """Whether the lock could be had. if_unknown: the answer where the system knows no locks, and
    nobody can tell whether the process of a draft lives."""
    if fcntl is None:
        return if_unknown
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return if_unknown
    return True


def _remove(draft: Path) -> None:
    """Remove a draft, unless it waits for somebody who can complete it."""
    if not (draft / "old").is_dir() or not _names(draft / "new"):
        for part in (draft / "new", draft / "old", draft):  # the lock last
            shutil.rmtree(part, ignore_errors=True)


def _to_disk(folder: Path) -> None:
    """Nothing is replaced by a file that only the system's memory holds."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            # Windows wants to write what it brings to disk; elsewhere read-only files can be, too.
            with path.open("rb" if os.name == "posix" else "rb+") as file:
                os.fsync(file.fileno())


def _replace_or_put_back(draft: Path) -> None:
    """Raises what stopped it; the old set stands then, or the new one."""
    count = len(_names(draft / "new"))
    try:
        _replace(draft)
    except BaseException:
        if len(_names(draft / "new")) < count:
            _replace(draft)
        else:
            for name in _names(draft / "old"):
                os.replace(draft / "old" / name, draft.parent / name)
            with suppress(FileNotFoundError):
                (draft / "old").rmdir()
        raise


def _replace(draft: Path) -> None:
    """Put what is new in its place. It may have been begun before, by a process that is gone."""
    new, old, folder = draft / "new", draft / "old", draft.parent
    old.mkdir(exist_ok=True)
    names = _names(new)
    there = [name for name in names if os.path.lexists(folder / name)]
    for name in there:
        _keep_modes(folder / name, new / name)
    in_one_step = [name for name in there[:1] if not (folder / name).is_dir()]
    for name in there:
        if name not in in_one_step:
            os.replace(folder / name, old / name)
    for name in [*in_one_step, *(name for name in names if name not in in_one_step)]:
        os.replace(new / name, folder / name)


def _keep_modes(old: Path, new: Path) -> None:
    """What is new is as private as what it replaces, as if that were written to. The files of
    another user are left out, who could no longer read them."""
    if os.name != "posix":  # where modes tell nothing of who may read
        return
    for path in (new, *new.rglob("*")):
        with suppress(OSError):
            there = os.stat(old / path.relative_to(new))
            if there.st_uid == os.geteuid():
                path.chmod(stat.S_IMODE(there.st_mode))


def _names(folder: Path) -> List[str]:
    return sorted(os.listdir(folder)) if folder.is_dir() else []


@contextmanager
def ended_tidily() -> Iterator[None]:
    """In the block SIGTERM and SIGHUP raise SystemExit, where they would end the process at once
    and leave its drafts behind."""
    numbers = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    in_main = threading.current_thread() is threading.main_thread()
    ours = [each for each in numbers if in_main and signal.getsignal(each) is signal.SIG_DFL]
    for each in ours:
        signal.signal(each, _exit)
    try:
        yield
    finally:
        for each in ours:
            signal.signal(each, signal.SIG_DFL)


def _exit(number: int, frame: Any) -> None:
    raise SystemExit(128 + number)
