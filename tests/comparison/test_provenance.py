"""Where a result comes from."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from pathlib import Path

import pytest

from spacy_nested_ner.comparison import provenance


def test_a_processor_has_its_family_and_model(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(provenance, "CPUINFO", tmp_path / "cpuinfo")

    def processor() -> str:
        before = f"{platform.system()}, {platform.machine()}, "
        found, _ = (
            provenance.provenance()["machine"]
            .removeprefix(before)
            .rsplit(f", {os.cpu_count()} cores")
        )
        return found

    assert processor() == platform.processor()
    one = "processor\t: 0\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC: 2\nflags\t:"
    for text, name in (
        (f"{one}\n\n{one.replace('25', '26')}\n", "AMD EPYC: 2 family 25 model 17"),
        ("processor\t: 0\nmodel name\t: ARMv8\n", "ARMv8"),
        ("processor\t: 0\nBogoMIPS\t: 50\n", platform.processor()),
        ("", platform.processor()),
    ):
        provenance.CPUINFO.write_text(text, encoding="utf8")
        assert processor() == name


def test_code_of_a_clone_has_its_commit(tmp_path, monkeypatch) -> None:
    """And installed code has none, not even inside the clone of something else."""

    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *arguments]
        done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(file: Path) -> str:
        monkeypatch.setattr(provenance, "__file__", str(file))
        return provenance.provenance().get("commit", "none")

    own, installed = tmp_path / "own.py", tmp_path / "site-packages" / "other.py"
    installed.parent.mkdir()
    for file in (own, installed):
        file.write_text("")
    assert commit(own) == "none"
    git("init", "-q")
    git("add", "own.py")
    git("commit", "-q", "-m", "first")
    git("tag", "v1")
    first = git("rev-parse", "--short=12", "HEAD")
    assert commit(own) == first
    assert commit(installed) == "none"
    own.write_text("changed")
    assert commit(own) == f"{first}-dirty"
    monkeypatch.setenv("PATH", str(tmp_path))  # a machine without git
    assert commit(own) == "none"


def test_a_result_has_its_day() -> None:
    today = datetime.datetime.now(datetime.timezone.utc).date()
    found = datetime.date.fromisoformat(provenance.provenance()["date"])
    assert today - found <= datetime.timedelta(days=1)


@pytest.mark.parametrize("parts", [[b"a", b"b"], [b"ab"]])
def test_a_digest_is_that_of_the_bytes(parts) -> None:
    assert provenance.digest(parts) == provenance.digest([b"ab"]) != provenance.digest([b"ba"])
