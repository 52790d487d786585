from __future__ import annotations

from spacy_nested_ner.corpora.parsing.edits import Rewritten


def test_rewritten_text():
    new = Rewritten("ab<x>c&amp;d", [(2, 5, ""), (6, 11, "&")])
    assert new.text == "abc&d"
    assert new.place(0, 2) == (0, 2) and new.place(5, 12) == (2, 5)
    assert new.place(6, 11) == (3, 4) and new.place(1, 6) == (1, 3)
    assert new.place(3, 6) is None and new.place(0, 8) is None
