"""Files that appear whole or not at all."""

from __future__ import annotations

import pytest

from spacy_nested_ner.corpora.files import written_together


def test_an_error_while_writing_leaves_nothing(tmp_path):
    with (
        pytest.raises(RuntimeError),
        written_together([tmp_path / "a", tmp_path / "b"]) as drafts,
    ):
        drafts[tmp_path / "a"].write_text("half", encoding="utf8")
        raise RuntimeError("stop")
    assert not list(tmp_path.iterdir())


def test_files_appear_together_and_can_be_read_by_others(tmp_path):
    (tmp_path / "a").write_text("old", encoding="utf8")
    with written_together([tmp_path / "a", tmp_path / "new" / "b"]) as drafts:
        for path, draft in drafts.items():
            draft.write_text(f"new {path.name}", encoding="utf8")
        assert (tmp_path / "a").read_text("utf8") == "old"
    assert (tmp_path / "a").read_text("utf8") == "new a"
    assert (tmp_path / "new" / "b").read_text("utf8") == "new b"
    assert (tmp_path / "a").stat().st_mode & 0o400 and len(list(tmp_path.iterdir())) == 2
