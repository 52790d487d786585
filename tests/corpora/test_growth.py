"""Inputs that took over a minute when a step looked through all before it again and again."""

from __future__ import annotations

import json
import time

import pytest
import spacy

from spacy_nested_ner.corpora.convert import convert_corpus
from spacy_nested_ner.corpora.read import Source, read_corpus

N = 60_000
APF = (
    '<source_file><document DOCID="a"><entity ID="1" TYPE="X"><entity_mention ID="1"><extent>'
    '<charseq START="0" END="0">b</charseq></extent></entity_mention></entity></document>'
    "</source_file>"
)
ERE = (
    '<deft_ere doc_id="a"><entities><entity id="1" type="X"><entity_mention id="1" offset="0" '
    'length="1"><mention_text>b</mention_text></entity_mention></entity></entities></deft_ere>'
)
NESTED = "|".join(f"0,{i} X" for i in range(1, N))
POSITIONS = list(range(N - 1))
MRC = {
    "context": "b " * N,
    "entity_label": "X",
    "start_position": POSITIONS,
    "end_position": [i + 1 for i in POSITIONS],
}
REGIONS = [  # counted in units of UTF-16, in which the emoji are two
    {"value": {"start": 3 + 2 * i, "end": 4 + 2 * i, "text": "b", "labels": ["X"]}}
    for i in range(N)
]
BLANKS = {"text": " " * N + "b", "label": [[i, N + 1, "X"] for i in range(2000)]}
TASK = {"data": {"text": "🙂 " + "b " * N}, "annotations": [{"result": REGIONS}]}


@pytest.mark.parametrize(
    "name, files, count",
    [
        ("ace", {"a.sgm": "b" + "<" * N, "a.apf.xml": APF}, 1),
        ("rich-ere", {"a.txt": "b" + "<" * N, "a.rich_ere.xml": ERE}, 1),
        ("rich-ere", {"a.txt": "b" + "<quote>" * N, "a.rich_ere.xml": ERE}, 1),
        ("brat", {"a.txt": "b" + "<" * N, "a.ann": "T1\tX 0 1\tb\n"}, 1),
        ("brat", {"a.txt": "b" + "🙂" * N, "a.ann": "T1\tX 0 1\tb\n"}, 1),
        ("litbank", {"a.txt": "b " * N, "a.ann": "T1\tX 0 1\tb\n"}, 1),
        ("nne", {"a.mrg": f"{'b ' * N}\n{'T ' * N}\n0,0 X\n\n"}, 1),
        ("lu-roth", {"train.txt": f"{'b ' * N}\n{'T ' * N}\n{NESTED}\n\n"}, N - 1),
        ("mrc-json", {"train.json": json.dumps([MRC])}, N - 1),
        ("label-studio", {"train.json": json.dumps([TASK])}, N),
        ("columns", {"train.txt": "b B-X\n" * N}, N),
        ("germeval2014", {"train.tsv": f"# newdoc id ={' ' * N}\n1\tb\tB-PER\tO\n"}, 1),
        ("doccano", {"train.jsonl": json.dumps(BLANKS)}, 1),
    ],
)
def test_time_grows_with_the_input(tmp_path, name, files, count):
    nlp = spacy.blank("en")
    for file, text in files.items():
        (tmp_path / file).write_text(text, encoding="utf8")
    begin = time.process_time()
    statistics = convert_corpus(read_corpus(name, [Source(tmp_path)]), tmp_path / "out", nlp)
    assert sum(counts.entities for counts in statistics.values()) == count
    assert time.process_time() - begin < 30


def test_a_row_of_many_columns_is_refused(tmp_path):
    """It would take as many levels for each row."""
    path = tmp_path / "train.txt"
    path.write_text("b B-X\n" * 1000 + "b" + " O" * 20_000, encoding="utf8")
    with pytest.raises(ValueError, match=r"train\.txt, line 1001: a line of 20001 columns"):
        list(read_corpus("columns", [Source(path)]))
