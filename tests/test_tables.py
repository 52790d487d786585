from __future__ import annotations

import csv
import io
import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import spacy
import torch
from spacy.tokens import Doc, Span, SpanGroup

from spacy_nested_ner import to_dicts, to_frame
from spacy_nested_ner.tables import COLUMNS, dicts, rows_of

NA = None


def doc_of(text, spans, scores=None) -> Doc:
    """spans: start and end token, label."""
    doc = spacy.blank("en").make_doc(text)
    doc.spans["sc"] = [Span(doc, start, end, label) for start, end, label in spans]
    if scores is not None:
        doc.spans["sc"].attrs["scores"] = np.array(scores, dtype="float32")
    return doc


def found(doc) -> list:
    """Text, label, depth and parent of each span."""
    spans = to_dicts(doc)[0]["spans"]
    return [(each["text"], each["label"], each["depth"], each["parent"]) for each in spans]


def values(frame) -> list:
    return [
        tuple(None if pd.isna(value) else value for value in row)
        for row in frame.itertuples(index=False)
    ]


@pytest.mark.parametrize("shape", [(2,), (2, 1)])
def test_a_doc_as_json(shape):
    doc = doc_of("The IL-2 gene.", [(1, 2, "protein"), (1, 3, "DNA")])
    doc.spans["sc"].attrs["scores"] = np.array([0.97, 0.5], dtype="float32").reshape(shape)
    [given] = json.loads(json.dumps(to_dicts(doc)))
    outer = {"start": 4, "end": 13, "start_token": 1, "end_token": 3, "text": "IL-2 gene"}
    inner = {"start": 4, "end": 8, "start_token": 1, "end_token": 2, "text": "IL-2"}
    assert given == {
        "text": "The IL-2 gene.",
        "spans": [
            {**outer, "label": "DNA", "score": 0.5, "depth": 1, "parent": None},
            {**inner, "label": "protein", "score": 0.97, "depth": 2, "parent": 0},
        ],
    }


def test_rows_of_several_docs():
    docs = [
        doc_of("no 😀 entity", []),
        doc_of("😀 the US Supreme Court", [(2, 3, "GPE"), (1, 5, "ORG")], [0.5, 0.75]),
        doc_of("in the US", [(1, 3, "GPE"), (2, 3, "GPE")], [0.25, 1.0]),
    ]
    frame = to_frame(doc for doc in docs)
    assert [*frame.columns] == [*COLUMNS]
    assert values(frame) == [
        (1, 2, 22, 1, 5, "the US Supreme Court", "ORG", 0.75, 1, NA),
        (1, 6, 8, 2, 3, "US", "GPE", 0.5, 2, 0),
        (2, 3, 9, 1, 3, "the US", "GPE", 0.25, 1, NA),
        (2, 7, 9, 2, 3, "US", "GPE", 1.0, 2, 2),
    ]
    for row in frame.itertuples():  # code points: the emoji counts once
        assert docs[row.doc].text[row.start : row.end] == row.text
        assert docs[row.doc][row.start_token : row.end_token].text == row.text


def test_rows_have_the_id_of_their_text():
    found = [{"id": each["text"], **each} for each in dicts(doc_of("a b", [(0, 1, "A")]))]
    assert [row["id"] for row in rows_of(found)] == ["a b"]
    assert all("id" not in row for row in rows_of(dicts(doc_of("a b", [(0, 1, "A")]))))


def test_labels_on_one_span_do_not_lie_in_one_another():
    doc = doc_of("a b c", [(1, 2, "x"), (0, 2, "B"), (0, 2, "A"), (0, 3, "C")])
    assert found(doc) == [
        ("a b c", "C", 1, None),
        ("a b", "A", 2, 0),
        ("a b", "B", 2, 0),
        ("b", "x", 3, 1),
    ]


def test_crossing_spans():
    """The parent is the smallest span around; the longest chain leads around it."""
    doc = doc_of("a b c d e f", [(0, 5, "A"), (1, 5, "B"), (2, 4, "x"), (2, 5, "C"), (2, 6, "D")])
    assert found(doc) == [
        ("a b c d e", "A", 1, None),
        ("b c d e", "B", 2, 0),
        ("c d e f", "D", 1, None),
        ("c d e", "C", 3, 1),
        ("c d", "x", 4, 3),
    ]
    doc = doc_of("a b c d e f", [(0, 5, "A"), (1, 5, "B"), (3, 6, "C"), (3, 4, "x")])
    assert found(doc)[-1] == ("d", "x", 3, 2) and found(doc)[2] == ("d e f", "C", 1, None)


def test_of_two_parents_as_small_the_first():
    doc = doc_of("a b c d", [(0, 3, "A"), (1, 4, "B"), (1, 3, "x")])
    assert found(doc)[1:] == [("b c d", "B", 1, None), ("b c", "x", 2, 0)]


def test_scores_that_are_not_there():
    doc = doc_of("The IL-2 gene.", [(1, 3, "DNA"), (1, 2, "protein")])
    assert [each["score"] for each in to_dicts(doc)[0]["spans"]] == [None, None]
    assert to_frame(doc)["score"].isna().all() and to_frame(doc)["score"].dtype == "float64"


@pytest.mark.parametrize("scores", [torch.tensor([0.5, 0.25]), np.array([[0.5], [0.25]])])
def test_scores_of_other_libraries(scores):
    doc = doc_of("The IL-2 gene.", [(1, 3, "DNA"), (1, 2, "protein")], scores)
    assert [each["score"] for each in to_dicts(doc)[0]["spans"]] == [0.5, 0.25]


@pytest.mark.parametrize("scores", [[0.5], [], [0.5, 0.6, 0.7]])
def test_scores_of_other_spans_are_left_out_with_a_warning(scores):
    doc = doc_of("The IL-2 gene.", [(1, 3, "DNA"), (1, 2, "protein")], scores)
    with pytest.warns(UserWarning, match="more or fewer spans than scores.*span_ruler"):
        assert [each["score"] for each in to_dicts(doc)[0]["spans"]] == [None, None]
    with pytest.warns(UserWarning, match="more or fewer spans than scores"):
        frame = to_frame(doc)
    assert frame["score"].isna().all() and frame["score"].dtype == "float64"


def test_links_to_a_knowledge_base_are_kept():
    doc = doc_of("The IL-2 gene.", [(1, 3, "DNA")], [0.5])
    assert "kb_id" not in to_dicts(doc)[0]["spans"][0] and "kb_id" not in to_frame(doc)
    linked = Span(doc, 1, 2, "protein", kb_id="KB-2")
    doc.spans["sc"] = SpanGroup(doc, spans=[doc[1:3], linked])
    outer, inner = to_dicts(doc)[0]["spans"]
    assert "kb_id" not in outer and inner["kb_id"] == "KB-2"
    frame = to_frame([doc_of("a b", [(0, 1, "A")]), doc])
    assert [*frame] == [*COLUMNS, "kb_id"]
    assert frame["kb_id"].isna().tolist() == [True, True, False]
    assert frame["kb_id"][2] == "KB-2"


@pytest.mark.parametrize("number", [42, 3558])
def test_links_that_are_numbers(number):
    doc = doc_of("The IL-2 gene.", [])
    doc.spans["sc"] = [Span(doc, 1, 2, "protein", kb_id=number)]
    assert to_dicts(doc)[0]["spans"][0]["kb_id"] == number
    assert to_frame(doc)["kb_id"].tolist() == [number]


@pytest.mark.parametrize("function", [to_dicts, to_frame])
def test_spans_that_a_retokenizer_has_left_behind_are_told_of(function, recwarn):
    def merged(start: int, end: int) -> Doc:
        doc = doc_of("of the IL-2 gene in T cells now and then", [(2, 4, "DNA"), (5, 7, "cell")])
        with doc.retokenize() as retokenizer:
            retokenizer.merge(doc[start:end])
        return doc

    assert len(function(merged(7, 9))) and not recwarn
    with pytest.warns(UserWarning, match="different places. Tokens were merged or split"):
        function(merged(0, 2))
    doc = doc_of("in T cells", [(1, 3, "cell")])
    with doc.retokenize() as retokenizer:
        retokenizer.merge(doc[0:2])
    with pytest.raises(ValueError, match=r"Doc 0: .*behind its last token. Tokens were merged"):
        function(doc)


def test_a_score_that_is_no_number_is_none():
    doc = doc_of("a b", [(0, 1, "A"), (1, 2, "B")], [np.nan, 0.5])
    assert [each["score"] for each in to_dicts(doc)[0]["spans"]] == [None, 0.5]
    doc.spans["sc"].attrs["scores"] = [None, 1]
    assert [each["score"] for each in to_dicts(doc)[0]["spans"]] == [None, 1.0]


def test_scores_are_short_and_exact():
    scores = np.random.default_rng(0).random(50).astype("float32")
    doc = doc_of("a " * 50, [(i, i + 1, "A") for i in range(50)], scores)
    given = [each["score"] for each in to_dicts(doc)[0]["spans"]]
    assert (np.array(given, dtype="float32") == scores).all()
    assert max(len(str(score)) for score in given) < 14


@pytest.mark.parametrize("docs", [[], [("", [])], [("a b", [])]])
def test_without_spans_the_table_has_its_columns_and_types(docs):
    frame = to_frame(doc_of(text, spans) for text, spans in docs)
    other = to_frame(doc_of("a b", [(0, 2, "A"), (0, 1, "B")], [0.5, 0.5]))
    assert frame.empty and (frame.dtypes == other.dtypes).all()
    given = to_dicts(doc_of(text, spans) for text, spans in docs)
    assert given == [{"text": text, "spans": []} for text, _ in docs]


def test_other_key():
    doc = doc_of("a b", [(0, 1, "A")])
    doc.spans["nest"] = [Span(doc, 1, 2, "B")]
    assert to_frame(doc, "nest")["label"].tolist() == ["B"]


@pytest.mark.parametrize("function", [to_dicts, to_frame])
def test_what_cannot_be_used_is_named(function):
    docs = [doc_of("a", []), doc_of("a", [])]
    del docs[1].spans["sc"]
    docs[1].spans["nest"] = []
    with pytest.raises(ValueError, match=r"Doc 1: .*no spans under 'sc'\. Its spans keys: 'nest'"):
        function(docs)
    for wrong, kind in (("a text", "str"), (docs[0][:], "Token"), ([None], "NoneType")):
        with pytest.raises(TypeError, match=f"Expected docs, not {kind}"):
            function(wrong)


def test_a_table_without_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pip install 'spacy_nested_ner\[pandas\]'"):
        to_frame([])


def test_importing_the_package_is_cheap():
    code = (
        "import sys; from spacy_nested_ner import render, to_dicts, to_frame; "
        "print({'torch', 'pandas', 'numpy', 'spacy', 'IPython'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


HOSTILE = ['"quoted", and', "=SUM(A1)", "NA", "two\nlines", "a\r\nb", "+1", "é😀", "null", "\u2028"]


def test_csv_and_pandas_read_what_was_written():
    docs = []
    for text in HOSTILE:
        doc = Doc(spacy.blank("en").vocab, words=[text, "end"])
        doc.spans["sc"] = [Span(doc, 0, 1, "NA"), Span(doc, 0, 2, 'l"a,b')]
        docs.append(doc)
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, [*COLUMNS])
    writer.writeheader()
    writer.writerows(rows_of(dicts(docs)))
    read = list(csv.DictReader(io.StringIO(file.getvalue(), newline="")))
    frame = to_frame(docs)
    assert [row["text"] for row in read] == frame["text"].tolist()
    assert [row["label"] for row in read[:2]] == ['l"a,b', "NA"]
    missing = {"score": [""], "parent": [""]}
    again = pd.read_csv(
        io.StringIO(file.getvalue(), newline=""),
        keep_default_na=False,
        na_values=missing,
        dtype=COLUMNS,
    )
    pd.testing.assert_frame_equal(again, frame)
