"""Splits by name and by chance."""

from __future__ import annotations

import unicodedata
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spacy_nested_ner.corpora.splits import files_below, named_files, random_split, split_of_name


@pytest.mark.parametrize(
    "name, split",
    [
        ("train.txt", "train"),
        ("NER-de-dev.tsv", "dev"),
        ("eng.testb", "test"),
        ("val-inter-new.txt.gz", "dev"),
        ("mrc-ner.test", "test"),
        ("genia_test_context.json", "test"),
        ("Validation2.json", "dev"),
        ("genia_train_dev_context.json", ""),
        ("latest.txt", ""),
        ("develop.txt", ""),
    ],
)
def test_splits_by_name(name, split):
    assert split_of_name(name) == split


@pytest.mark.parametrize("name", ["数据test.jsonl", "test集.txt", "\u043e\u043atest.txt"])
def test_letters_of_other_scripts_stand_beside_a_split(name):
    assert split_of_name(name) == "test"


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize(
    "name", ["Prätest.jsonl", "détest.txt", "th\u1eedtest.txt", "übertraining"]
)
def test_a_split_is_a_word_of_its_own(name, form):
    assert split_of_name(unicodedata.normalize(form, name)) == ""


@given(st.sets(st.text(), max_size=60), st.integers(0, 5))
def test_random_split(doc_ids, seed):
    fractions = (0.7, 0.2, 0.1)
    split_of = random_split(sorted(doc_ids), fractions, seed)
    counts = Counter(map(split_of, doc_ids))
    n = len(doc_ids)
    assert counts["train"] == round(0.7 * n)
    if n != 5:  # four and a half are rounded to four, which would leave dev empty
        assert counts["train"] + counts["dev"] == round((0.7 + 0.2) * n)
    assert counts["dev"] or n < 2
    twice = [*sorted(doc_ids, reverse=True), *doc_ids]
    again = random_split(twice, fractions, seed)
    assert [again(doc_id) for doc_id in doc_ids] == [split_of(doc_id) for doc_id in doc_ids]


def test_random_split_by_seed():
    names = [f"doc {i}" for i in range(200)]
    parts = [list(map(random_split(names, seed=seed), names)) for seed in (0, 1)]
    assert Counter(parts[0]) == Counter(parts[1]) == {"train": 160, "dev": 20, "test": 20}
    assert parts[0] != parts[1]


def test_dev_gets_one_of_few_documents():
    counts = []
    for n in range(1, 12):
        names = [f"doc {i}" for i in range(n)]
        found = Counter(map(random_split(names), names))
        counts.append((found["train"], found["dev"], found["test"]))
    assert counts == [
        (1, 0, 0),
        (1, 1, 0),
        (2, 1, 0),
        (3, 1, 0),
        (4, 1, 0),
        (5, 1, 0),
        (6, 1, 0),
        (6, 1, 1),
        (7, 1, 1),
        (8, 1, 1),
        (9, 1, 1),
    ]
    few = Counter(map(random_split(["a", "b"], (0.0, 0.1, 0.9)), ["a", "b"]))
    assert few == {"dev": 1, "test": 1}


@pytest.mark.parametrize("fractions", [(1.0, 0.0, 0.0), (0.0, 0.0, 1.0), (0.0, 1.0, 0.0)])
def test_everything_in_one_split(fractions):
    names = [str(i) for i in range(9)]
    only = ("train", "dev", "test")[fractions.index(1.0)]
    assert set(map(random_split(names, fractions), names)) == {only}


@pytest.mark.parametrize(
    "fractions", [(0.5, 0.5, 0.5), (1.5, -0.5, 0.0), (1.0,), (0.5, float("nan"), 0.5)]
)
def test_wrong_fractions(fractions):
    with pytest.raises(ValueError, match="three numbers of at least 0 that sum to 1"):
        random_split([], fractions)


def test_what_macos_adds_to_an_archive_is_not_read(tmp_path):
    names = ["train.ann", "._train.ann", "__MACOSX/._train.ann", ".git/test.ann", "dev.ann"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    train, dev = tmp_path / "train.ann", tmp_path / "dev.ann"
    assert named_files(tmp_path) == [(train, "train"), (dev, "dev")]
    assert [file for file, _ in files_below(tmp_path, ".ann")] == [dev, train]


def test_what_was_converted_into_the_folder_is_no_input(tmp_path):
    for name in ("train.txt", "train.spacy", "dev.spacy"):
        (tmp_path / name).touch()
    assert named_files(tmp_path) == [(tmp_path / "train.txt", "train")]


def test_files_that_are_not_read_are_named(tmp_path, caplog):
    for name in ("train.txt", "extra.txt", "README.md", "sub/a.ann", "sub/b.ANN"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert named_files(tmp_path) == [(tmp_path / "train.txt", "train")]
    (told,) = caplog.messages
    assert "are not read: extra.txt. To read one" in told
    caplog.clear()
    assert files_below(tmp_path, ".ann") == [(tmp_path / "sub" / "a.ann", "")]
    (told,) = caplog.messages
    assert told.startswith("1 file(s) below") and "in capitals: b.ANN" in told
