"""BRAT standoff."""

from __future__ import annotations

import pytest

from spacy_nested_ner.corpora import CorpusError, Problems, ReadOptions, get_reader
from tests.corpora.comparing import entities, expected

TEXT = "Mr. Dole left\nParis in the U.N. car."


def brat(tmp_path, *lines, text=TEXT, name="doc"):
    (tmp_path / f"{name}.txt").write_text(text, encoding="utf8")
    (tmp_path / f"{name}.ann").write_text("".join(f"{line}\n" for line in lines), encoding="utf8")
    return tmp_path


def test_brat_entities(tmp_path):
    folder = brat(
        tmp_path,
        "T1\tPER 0 8\tMr. Dole",
        "T2\tPER 4 8\tDole",
        "#1\tAnnotatorNotes T2\tno entity",
        "R1\tpart Arg1:T1 Arg2:T2",
        "T3\tGPE 14 19\tParis",
        "A1\tKnown T3",
    )
    (record,) = get_reader("brat")(folder, ReadOptions())
    assert record.text == TEXT and record.doc_id == "doc" and record.words is None
    assert entities(record) == [("Mr. Dole", "PER"), ("Dole", "PER"), ("Paris", "GPE")]


def test_discontinuous_annotations_are_counted(tmp_path):
    folder = brat(
        tmp_path,
        "T1\tVEH 23 26;32 35\tthe car",
        "T2\tEVT 9 13;14 19\tleft Paris",  # cut at the end of the line only
    )
    (record,) = get_reader("brat")(folder, ReadOptions())
    assert entities(record) == [("left\nParis", "EVT")]
    assert record.dropped == {("discontinuous", "VEH"): 1}


MARK = "\ufeff"


@pytest.mark.parametrize("counted", [0, 1])
def test_a_byte_order_mark_may_count_as_a_character(tmp_path, counted):
    places = [[(0, 3)], [(4, 8)], [(9, 13), (14, 19)], [(23, 26), (32, 35)]]
    covered = ["Mr.", "Dole", "left Paris", "the car"]
    lines = [
        f"T{i}\tX {';'.join(f'{a + counted} {b + counted}' for a, b in pairs)}\t{text}"
        for i, (pairs, text) in enumerate(zip(places, covered))
    ]
    (record,) = get_reader("brat")(brat(tmp_path, *lines, text=MARK + TEXT), ReadOptions())
    assert record.text == TEXT
    assert entities(record) == [("Mr.", "X"), ("Dole", "X"), ("left\nParis", "X")]
    assert record.dropped == {("discontinuous", "X"): 1}


def test_an_annotation_of_the_byte_order_mark(tmp_path):
    lines = (f"T1\tPER 0 9\t{MARK}Mr. Dole", "T2\tGPE 15 20")
    (record,) = get_reader("brat")(brat(tmp_path, *lines, text=MARK + TEXT), ReadOptions())
    assert entities(record) == [("Mr. Dole", "PER"), ("Paris", "GPE")]
    mark_alone = brat(tmp_path, f"T1\tPER 0 1\t{MARK}", "T2\tGPE 15 20", text=MARK + TEXT)
    (record,) = get_reader("brat")(mark_alone, ReadOptions())
    assert entities(record) == [("Paris", "GPE")] and record.dropped == {("no text", "PER"): 1}
    brat(tmp_path, "T1\tPER 9 13\tDole", text=MARK + TEXT)
    with pytest.raises(CorpusError, match=r"says 'Dole', but the \.txt has ' lef' there"):
        list(get_reader("brat")(tmp_path, ReadOptions()))


@pytest.mark.parametrize(
    "line, problem",
    [
        ("T1 PER 0 8 Mr. Dole", "expected ID<tab>LABEL START END<tab>TEXT"),
        ("T1\tPER 0 8\tMr. Dale", "says 'Mr. Dale', but the .txt has 'Mr. Dole'"),
        ("T1\tPER 30 90\tcar", "is not in the text of 36 characters"),
        ("T1\tPER 8 8\t", "is not in the text"),
        ("1\tPER 0 8\tMr. Dole", "expected an annotation (T1, R1, E1 ...), not '1"),
    ],
)
def test_malformed_annotations_can_be_skipped(tmp_path, line, problem):
    folder = brat(tmp_path, "T2\tGPE 14 19\tParis", line)
    with pytest.raises(CorpusError, match=r"doc\.ann, line 2: ") as err:
        list(get_reader("brat")(folder, ReadOptions()))
    assert problem in str(err.value)
    problems = Problems(skip=True, quiet=True)
    (record,) = get_reader("brat")(folder, ReadOptions(problems=problems))
    assert entities(record) == [("Paris", "GPE")] and problems.count == 1


def test_line_ends_that_a_tool_has_changed_are_thought_of(tmp_path):
    folder = brat(tmp_path, "T1\tGPE 14 19\tParis")
    (folder / "doc.txt").write_bytes(TEXT.replace("\n", "\r\n").encode())
    with pytest.raises(CorpusError, match=r"has '\\nPari' there\. Were its line ends changed\?"):
        list(get_reader("brat")(folder, ReadOptions()))


def test_brat_folders_and_lone_files(tmp_path, caplog):
    for split in ("train", "dev"):
        (tmp_path / split).mkdir()
        brat(tmp_path / split, name=split)
    (tmp_path / "train" / "unread.txt").write_text("no annotation", encoding="utf8")
    records = list(get_reader("brat")(tmp_path, ReadOptions()))
    assert [(r.doc_id, r.split) for r in records] == [("dev", "dev"), ("train", "train")]
    assert "1 .txt files without .ann" in caplog.text
    assert records[0].dropped == {(".txt without .ann", ""): 1}
    (tmp_path / "dev" / "dev.txt").unlink()
    with pytest.raises(CorpusError, match=r"dev\.txt: no such file"):
        list(get_reader("brat")(tmp_path, ReadOptions()))


def test_nothing_below_a_folder(tmp_path):
    with pytest.raises(CorpusError, match=r"no file that ends in \.ann below"):
        list(get_reader("brat")(tmp_path, ReadOptions()))


def test_other_files_are_told_what_brat_is(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text('{"text": "a"}\n', encoding="utf8")
    for name in ("brat", "litbank"):
        with pytest.raises(CorpusError) as err:
            list(get_reader(name)(path, ReadOptions()))
        assert str(err.value) == (
            f"{path}: not BRAT standoff. Expected a text (DOC.txt) with its annotations beside it "
            "(DOC.ann), or a folder of such pairs."
        )


@pytest.mark.parametrize("given", ["doc.txt", "doc.ann"])
def test_one_file_of_a_pair(tmp_path, given):
    brat(tmp_path, "T1\tGPE 14 19\tParis")
    (record,) = get_reader("brat")(tmp_path / given, ReadOptions())
    assert record.text == TEXT and entities(record) == [("Paris", "GPE")]
    (tmp_path / "doc.ann").unlink()
    with pytest.raises(CorpusError, match=r"doc\.ann: no such file\. .* its annotations beside it"):
        list(get_reader("brat")(tmp_path / "doc.txt", ReadOptions()))


def test_litbank_as_plain_brat(samples):
    """Texts that nobody has cut into words: one record per book, entities as they stand."""
    records = list(get_reader("brat")(samples / "litbank" / "brat", ReadOptions()))
    sentences = expected(samples / "litbank" / "expected.jsonl")
    assert len(records) == 10 and not any(record.words for record in records)
    assert sum(len(r.spans) for r in records) == sum(len(spans) for _, _, spans in sentences)


def test_texts_of_one_name_are_documents_of_their_own(tmp_path):
    """Unless they are the same text, which several annotators have."""
    for folder, text in [("a", "Rome won."), ("b", "Rome lost."), ("c", "Rome won.")]:
        (tmp_path / folder).mkdir()
        brat(tmp_path / folder, "T1\tGPE 0 4\tRome", text=text, name="note")
    ids = [record.doc_id for record in get_reader("brat")(tmp_path, ReadOptions())]
    assert ids == ["note", "note#2", "note"]
