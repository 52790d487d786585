"""Several inputs, splits, errors to skip."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
import spacy

from spacy_nested_ner.corpora import CorpusError, Problems, ReadOptions, Record
from spacy_nested_ner.corpora.convert import convert_corpus
from spacy_nested_ner.corpora.read import Source, SplitOptions, read_corpus
from spacy_nested_ner.corpora.records import with_omissions


def columns(path, *words):
    path.write_text("\n\n".join(f"{word} B-X" for word in words) + "\n", encoding="utf8")
    return path


def read(sources, options=None, split=None, progress=None):
    parsed = [Source.parse(str(source)) for source in sources]
    more = {} if progress is None else {"progress": progress}
    return [(r.split, r.text) for r in read_corpus("columns", parsed, options, split, **more)]


def test_several_inputs_with_named_splits(tmp_path):
    train = columns(tmp_path / "train.txt", "a", "b")
    other = columns(tmp_path / "other.txt", "c")
    assert read([train, f"test={other}"]) == [("train", "a"), ("train", "b"), ("test", "c")]
    assert read([f"dev={train}"]) == [("dev", "a"), ("dev", "b")]
    columns(tmp_path / "test.txt", "d")
    assert read([tmp_path]) == [("train", "a"), ("train", "b"), ("test", "d")]


@pytest.mark.parametrize("text", ["train=", ""])
def test_an_input_without_a_path_is_not_the_current_folder(text):
    with pytest.raises(ValueError, match="without a path"):
        Source.parse(text)
    assert Source.parse("train") == Source(Path("train"))  # a folder of that name


def test_inputs_with_and_without_a_split(tmp_path):
    train, other = columns(tmp_path / "train.txt", "a"), columns(tmp_path / "other.txt", "c")
    for sources in ([train, other], [other, train]):
        with pytest.raises(CorpusError, match="write train=PATH"):
            read(sources)


def test_a_split_by_chance_reads_twice_and_keeps_documents_whole(tmp_path):
    words = [f"w{i}" for i in range(50)]
    path = columns(tmp_path / "all.txt", *words)
    shown = []
    progress = lambda records, what: shown.append(what) or records  # noqa: E731
    found = read([path], split=SplitOptions((0.6, 0.2, 0.2), 3), progress=progress)
    assert Counter(split for split, _ in found) == {"train": 30, "dev": 10, "test": 10}
    assert [word for _, word in found] == words
    assert shown == ["Dividing into train, dev and test", "Converting"]
    again = read([path], split=SplitOptions((0.6, 0.2, 0.2), 3))
    assert again == found != read([path], split=SplitOptions((0.6, 0.2, 0.2), 4))


def test_resplit(tmp_path):
    path = columns(tmp_path / "train.txt", *map(str, range(20)))
    assert {split for split, _ in read([path])} == {"train"}
    again = Counter(split for split, _ in read([path], split=SplitOptions(redo=True)))
    assert again == {"train": 16, "dev": 2, "test": 2}


def test_skipped_errors_are_counted_once_and_reported(tmp_path):
    path = columns(tmp_path / "all.txt", *map(str, range(20)))
    path.write_text(path.read_text("utf8") + "\nbad B-X\nbad I-Y\n", encoding="utf8")
    problems = Problems(skip=True)
    options = ReadOptions(settings={"scheme": "BIO"}, problems=problems)
    records = read_corpus("columns", [Source(path), Source(tmp_path)], options)
    convert_corpus(records, tmp_path / "out", spacy.blank("en"), options=options)
    report = json.loads((tmp_path / "out" / "report.json").read_text("utf8"))
    assert report["skipped_errors"] == 2 == problems.count
    assert "all.txt, line 42: I-Y after B-X" in report["first_skipped_errors"][0]
    assert "no file in this folder" in report["first_skipped_errors"][1]
    assert sum(split["documents"] for split in report["splits"].values()) == 20


def test_missing_input(tmp_path):
    with pytest.raises(CorpusError, match="no such file or folder"):
        read([tmp_path / "none"])


def test_input_without_documents(tmp_path):
    empty = columns(tmp_path / "train.txt", "")
    empty.write_text("", encoding="utf8")
    with pytest.raises(CorpusError, match=r"train\.txt: no documents in the format 'columns'"):
        read([empty])
    problems = Problems(skip=True, quiet=True)
    empty.write_text("a I-X\n", encoding="utf8")
    options = ReadOptions(settings={"scheme": "BIO"}, problems=problems)
    with pytest.raises(CorpusError, match=r"nothing is left after 1 errors\. The first: .* line 1"):
        read([empty], options)


def test_counts_of_items_without_a_record():
    drop = Counter({("why", "x"): 1})
    first, second = Record("1", "", "a", []), Record("2", "", "b", [])
    found = list(with_omissions([drop, first, second, drop, drop]))
    assert [sum(record.dropped.values()) for record in found] == [1, 2]


def test_inputs_of_which_some_have_a_split_are_named(tmp_path):
    for name in ("train", "more"):
        (tmp_path / f"{name}.jsonl").write_text('{"text": "Rome", "label": []}\n', "utf8")
    paths = [tmp_path / "train.jsonl", tmp_path / "more.jsonl"]
    for order in (paths, paths[::-1]):
        named = re.escape(", ".join(map(str, order)))
        with pytest.raises(CorpusError, match=f"^{named}: some inputs belong to train, dev or"):
            list(read_corpus("doccano", [Source(path) for path in order]))
