"""Files that appear whole or not at all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spacy_nested_ner.files import (
    ended_tidily,
    settle,
    write_json,
    written_folder,
    written_together,
)

WRITE = """
import os, signal, sys
from pathlib import Path
from spacy_nested_ner.files import written_folder, written_together

folder, step = Path(sys.argv[1]), int(sys.argv[2])
replace, count = os.replace, 0

def replace_or_die(*args):
    global count
    count += 1
    if count == step + 1:
        os.kill(os.getpid(), {signal})
    replace(*args)

os.replace = replace_or_die
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
{write}
"""
FILES = """
with written_together([folder / name for name in "abc"]) as drafts:
    for path, draft in drafts.items():
        draft.write_text("new")
"""
FOLDER = """
with written_folder(folder / "model", "meta.json") as draft:
    (draft / "meta.json").write_text("new")
"""


def write_set(folder, names, text):
    with written_together([folder / name for name in names]) as drafts:
        for draft in drafts.values():
            draft.write_text(text, encoding="utf8")


def texts(folder) -> dict:
    """What all files hold, hidden ones too."""
    return {
        str(path.relative_to(folder)): path.read_text("utf8")
        for path in folder.rglob("*")
        if path.is_file()
    }


def killed(write, folder, step, number) -> int:
    code = WRITE.format(signal=int(number), write=write)
    return subprocess.run([sys.executable, "-c", code, str(folder), str(step)]).returncode


def test_an_error_while_writing_leaves_nothing(tmp_path):
    with (
        pytest.raises(RuntimeError),
        written_together([tmp_path / "new" / "a", tmp_path / "new" / "b"]) as drafts,
    ):
        drafts[tmp_path / "new" / "a"].write_text("half", encoding="utf8")
        raise RuntimeError("stop")
    assert not list(tmp_path.iterdir())


def test_files_appear_together_and_can_be_read_by_others(tmp_path):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "a").write_text("old", encoding="utf8")
    with written_together([tmp_path / "new" / "a", tmp_path / "new" / "b"]) as drafts:
        for path, draft in drafts.items():
            draft.write_text(f"new {path.name}", encoding="utf8")
        assert (tmp_path / "new" / "a").read_text("utf8") == "old"
    assert texts(tmp_path / "new") == {"a": "new a", "b": "new b"}
    mask = os.umask(0)
    os.umask(mask)
    assert (tmp_path / "new" / "a").stat().st_mode & 0o777 == 0o666 & ~mask


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such modes")
def test_what_is_replaced_stays_as_private_as_it_was(tmp_path):
    (tmp_path / "a").write_text("old", encoding="utf8")
    (tmp_path / "a").chmod(0o600)
    with written_together([tmp_path / "a", tmp_path / "b"]) as drafts:
        for path, draft in drafts.items():
            draft.write_text(f"new {path.name}", encoding="utf8")
    assert texts(tmp_path) == {"a": "new a", "b": "new b"}
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600
    for text in ("old", "new"):
        with written_folder(tmp_path / "model", marker="meta.json") as draft:
            (draft / "vocab").mkdir()
            for path in (draft / "meta.json", draft / "vocab" / "strings.json"):
                path.write_text(text, encoding="utf8")
        strings = tmp_path / "model" / "vocab" / "strings.json"
        if text == "old":
            strings.chmod(0o600)
    assert strings.read_text("utf8") == "new" and strings.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", "abc")
def test_where_one_cannot_be_replaced_none_is(tmp_path, name):
    write_set(tmp_path, "abc", "old")
    (tmp_path / name).unlink()
    (tmp_path / name / "inside").mkdir(parents=True)
    with pytest.raises(IsADirectoryError, match=f"{name} is a folder"):
        write_set(tmp_path, "abc", "new")
    assert texts(tmp_path) == {other: "old" for other in "abc" if other != name}


@pytest.mark.parametrize("step", range(5))
def test_an_error_while_replacing_leaves_the_old_set_or_the_new_one(tmp_path, monkeypatch, step):
    """Three files: two old ones move away, one is replaced, two new ones follow."""
    write_set(tmp_path, "abc", "old")
    replace, calls = os.replace, []

    def fail_once(*args):
        calls.append(args)
        if len(calls) == step + 1:
            raise PermissionError("not this one")
        replace(*args)

    monkeypatch.setattr(os, "replace", fail_once)
    with pytest.raises(PermissionError):
        write_set(tmp_path, "abc", "new")
    assert texts(tmp_path) == dict.fromkeys("abc", "old" if step < 3 else "new")


@pytest.mark.parametrize("step", range(5))
def test_a_killed_process_never_leaves_files_of_both_sets(tmp_path, step):
    write_set(tmp_path, "abc", "old")
    assert killed(FILES, tmp_path, step, signal.SIGKILL) == -signal.SIGKILL
    left = {(tmp_path / name).read_text() for name in "abc" if (tmp_path / name).exists()}
    assert left == {"old" if step < 3 else "new"}
    settle(tmp_path)
    assert texts(tmp_path) == dict.fromkeys("abc", "new")
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("write, steps", [(FILES, 5), (FOLDER, 2)])
def test_a_process_that_is_asked_to_end_leaves_one_set_and_no_draft(tmp_path, number, write, steps):
    for step in range(steps):
        write_set(tmp_path, "abc", "old")
        with written_folder(tmp_path / "model", "meta.json") as draft:
            (draft / "meta.json").write_text("old", encoding="utf8")
        before = texts(tmp_path)
        assert killed(write, tmp_path, step, number) != 0
        found = texts(tmp_path)
        changed = {"model/meta.json"} if write == FOLDER else set("abc")
        assert found in (before, {**before, **dict.fromkeys(changed, "new")})


def test_the_next_writer_sweeps_the_draft_of_a_killed_one(tmp_path):
    write = "with written_together([folder / 'a']):\n    os.kill(os.getpid(), signal.SIGKILL)"
    assert killed(f"import signal\n{write}", tmp_path, 9, 0) == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 1
    write_set(tmp_path, "b", "new")
    assert os.listdir(tmp_path) == ["b"]


def test_the_draft_of_another_user_is_left_alone(tmp_path, monkeypatch):
    """Where everybody may write it could hold anything, to be put in the place of one's files."""
    write_set(tmp_path, "a", "mine")
    draft = tmp_path / ".spacy_nested_ner-0"
    for folder in ("new", "old"):
        (draft / folder).mkdir(parents=True)
    for file in ("lock", "new/a"):
        (draft / file).write_text("theirs", encoding="utf8")
    real = Path.lstat

    def of_another_user(path):
        found = real(path)
        return os.stat_result((*found[:4], found.st_uid + (path == draft), *found[5:10]))

    monkeypatch.setattr(Path, "lstat", of_another_user)
    write_set(tmp_path, "b", "mine")
    assert (tmp_path / "a").read_text(encoding="utf8") == "mine" and draft.is_dir()
    monkeypatch.undo()
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    settle(tmp_path)  # one of the folder's owner, who may replace its files anyway
    assert texts(tmp_path) == {"a": "theirs", "b": "mine"}


def test_what_may_not_be_written_to_is_copied(tmp_path):
    """A copy of a folder keeps the modes of its files. (Root may write to all.)"""
    with written_folder(tmp_path / "model", marker="meta.json") as draft:
        (draft / "meta.json").write_text("{}", encoding="utf8")
        (draft / "meta.json").chmod(0o444)
    assert texts(tmp_path) == {"model/meta.json": "{}"}


def test_the_draft_of_a_process_that_lives_stays(tmp_path):
    with written_together([tmp_path / "a"]) as drafts:
        drafts[tmp_path / "a"].write_text("new", encoding="utf8")
        write_set(tmp_path, "b", "new")
        code = f"from spacy_nested_ner.files import *; settle(Path({str(tmp_path)!r}))"
        subprocess.run([sys.executable, "-c", code], check=True)
    assert texts(tmp_path) == {"a": "new", "b": "new"}


def test_a_device_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileExistsError, match="not a regular file"):
        write_set(tmp_path, ["pipe"], "new")
    assert os.listdir(tmp_path) == ["pipe"]


def test_the_folder_that_one_works_in_is_not_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="is the current folder"):
        written_folder(tmp_path, "meta.json").__enter__()


def test_a_volume_is_not_replaced(tmp_path, monkeypatch):
    """It could not be moved away, which would be known only at the end."""
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) == tmp_path / "out")
    (tmp_path / "out").mkdir()
    with (
        pytest.raises(ValueError, match="is a mounted volume"),
        written_folder(tmp_path / "out", "marker"),
    ):
        raise AssertionError
    with written_folder(tmp_path / "out" / "in_it", "marker") as folder:
        (folder / "marker").write_text("")
    assert (tmp_path / "out" / "in_it" / "marker").is_file()


def test_a_folder_that_appears_meanwhile_is_not_lost(tmp_path):
    with (
        pytest.raises(ValueError, match=r"has no meta\.json"),
        written_folder(tmp_path / "out", "meta.json") as draft,
    ):
        (draft / "meta.json").write_text("{}")
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "letter").write_text("kept")
    assert texts(tmp_path) == {str(Path("out", "letter")): "kept"}


def test_a_folder_that_appears_in_the_place_of_a_file_stays(tmp_path):
    with pytest.raises(IsADirectoryError), written_together([tmp_path / "a"]) as drafts:
        drafts[tmp_path / "a"].write_text("new")
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "inside").write_text("kept")
    assert texts(tmp_path) == {str(Path("a", "inside")): "kept"}


def test_without_locks_a_draft_stays(tmp_path, monkeypatch):
    monkeypatch.setattr("spacy_nested_ner.files.fcntl", None)
    with written_together([tmp_path / "a"]) as drafts:
        drafts[tmp_path / "a"].write_text("new")
        write_set(tmp_path, "b", "new")
    assert texts(tmp_path) == {"a": "new", "b": "new"}


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="Windows has none")
@pytest.mark.parametrize("before", [signal.SIG_DFL, signal.SIG_IGN])
def test_a_signal_that_is_ignored_stays_so(before):
    old = signal.signal(signal.SIGHUP, before)
    try:
        with ended_tidily():
            assert callable(signal.getsignal(signal.SIGTERM))
            inside = signal.getsignal(signal.SIGHUP)
        assert (inside == signal.SIG_IGN) == (before == signal.SIG_IGN)
        assert inside != signal.SIG_DFL and signal.getsignal(signal.SIGHUP) == before
    finally:
        signal.signal(signal.SIGHUP, old)


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such modes")
def test_the_mode_of_another_users_file_is_not_kept(tmp_path, monkeypatch):
    write_set(tmp_path, "a", "theirs")
    (tmp_path / "a").chmod(0o600)
    owner = (tmp_path / "a").stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    write_set(tmp_path, "a", "new")
    mask = os.umask(0)
    os.umask(mask)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o666 & ~mask


def test_json_of_names_that_are_not_utf8(tmp_path):
    """srsly ends the process at such a key."""
    write_json(tmp_path / "a", {"b\udcff": [1, ("c\udcff", None)]})
    assert json.loads((tmp_path / "a").read_text("utf8")) == {r"b\udcff": [1, [r"c\udcff", None]]}
