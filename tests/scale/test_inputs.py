from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import spacy
from spacy.tokens import DocBin, Token

from spacy_nested_ner.scale import inputs
from spacy_nested_ner.scale.inputs import Columns, InputError, checked, cut, input_files, read
from spacy_nested_ner.scale.rows import Unusable, ids_of
from tests.conftest import ODD_NAMES


@pytest.fixture(autouse=True)
def small_fragments(monkeypatch):
    monkeypatch.setattr(inputs, "FRAGMENT_ROWS", 3)


def everything(path: Path, columns=None, limit=0, size=2):
    """Rows of all fragments, and their numbers of rows."""
    columns = columns or Columns()
    files, _ = input_files(path)
    fragments = list(cut(files, columns, limit))
    assert [each.number for each in fragments] == list(range(len(fragments)))
    rows = []
    for each in fragments:
        for ids, texts in read(each, columns, size):
            assert 0 < len(ids) == len(texts) <= size
            rows += zip(ids, map(checked, texts))
    return rows, [each.rows for each in fragments]


def test_a_line_of_a_text_file_is_a_text(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\n\ntwo \xc3\xa4\nthree\r\nfour")
    rows, sizes = everything(path)
    assert [text for _, text in rows] == ["one", "", "two ä", "three", "four"]
    assert [name for name, _ in rows] == [f"a.txt:{i}" for i in range(1, 6)]
    assert sizes == [3, 2]


def test_bytes_that_are_no_text_cost_their_row_alone(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\n\xff\xfe\ntwo\n")
    (_, one), (_, broken), (_, two) = everything(path)[0]
    assert (one, two) == ("one", "two")
    assert isinstance(broken, Unusable)
    assert broken.problem == "the text is not UTF-8: byte 0xFF; save the file in UTF-8"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf16_is_no_text(tmp_path, encoding):
    (tmp_path / "a.txt").write_bytes("IL-2\np53\n".encode(encoding))
    (tmp_path / "b.jsonl").write_bytes('{"text": "IL-2"}\n{"text": "p53"}\n'.encode(encoding))
    problems = [text.problem for _, text in everything(tmp_path)[0]]
    assert len(problems) >= 4 and set(problems) == {
        "the text holds a NUL character; remove it, or save the file in UTF-8"
    }
    (tmp_path / "c.csv").write_bytes("id,text\n1,IL-2\n".encode(encoding))
    with pytest.raises(InputError, match="NUL characters; save the file in UTF-8"):
        everything(tmp_path / "c.csv")


def test_bytes_that_are_no_text_in_json_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes('{"text": "one"}\n{"text": "\xe9"}\n'.encode("latin1"))
    (_, one), (_, broken) = everything(path)[0]
    assert one == "one" and "not UTF-8: byte 0xE9; save" in broken.problem


def test_a_deeply_nested_line_costs_its_row_alone(tmp_path):
    deep = "[" * 100_000 + "]" * 100_000
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"text": "one"}}\n{{"text": {deep}}}\n{{"text": "two"}}\n', "utf8")
    (_, one), (_, broken), (_, two) = everything(path)[0]
    assert (one, two) == ("one", "two")
    assert isinstance(broken, Unusable) and "not JSON" in broken.problem


def test_json_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    lines = [
        {"id": 7, "text": "one", "more": [1]},
        {"id": None, "text": "two"},
        {"text": None},
        {"id": "x", "text": 3},
        {"id": "y"},
        {"id": "\ud800", "text": "half a pair: \ud800"},
    ]
    path.write_text("\n\n".join(map(json.dumps, lines)) + '\n{"id": 1, "te\n[1]\n', "utf8")
    rows, sizes = everything(path)
    assert sizes == [3, 3, 2]
    names = ["7", "a.jsonl:2", "a.jsonl:3", "x", "y", "\\ud800", "a.jsonl:7", "a.jsonl:8"]
    assert [name for name, _ in rows] == names
    assert [text for _, text in rows[:2]] == ["one", "two"]
    problems = [text.problem for _, text in rows[2:]]
    for problem, words in zip(
        problems, ["null", "int, not text", "no 'text'", "not UTF-8", "not JSON", "not an object"]
    ):
        assert words in problem


def test_csv_with_line_breaks_and_quotes(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(
        b'\xef\xbb\xbfbody,id\r\n"one, and\r\n""two""",a\r\n\r\nthree,b\r\nfour,c\r\n'
        b'five\r\n"six\nand\n\nmore",d\r\n,e\r\n\xff,f\n'
    )
    rows, sizes = everything(path, Columns(text="body"))
    assert sizes == [3, 3, 1]
    assert rows[:-1] == [
        ("a", 'one, and\r\n"two"'),
        ("b", "three"),
        ("c", "four"),
        ("a.csv:4", "five"),
        ("d", "six\nand\n\nmore"),
        ("e", ""),
    ]
    assert rows[-1][0] == "f" and "not UTF-8" in rows[-1][1].problem


def test_a_csv_file_without_a_header_has_no_rows(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"")
    (tmp_path / "b.csv").write_bytes(b"\xef\xbb\xbf\r\n")
    (tmp_path / "c.csv.gz").write_bytes(gzip.compress(b""))
    (tmp_path / "d.csv.bz2").write_bytes(b"")
    (tmp_path / "e.csv").write_bytes(b"text\none\n")
    assert everything(tmp_path) == ([("e.csv:1", "one")], [1])


def test_csv_fields_longer_than_the_module_takes_by_itself(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    path.write_text(f"text\n{'x' * 200_000}\nend\n")
    assert [len(text) for _, text in everything(path)[0]] == [200_000, 3]
    monkeypatch.setattr(inputs, "LONGEST_FIELD", 1000)
    path.write_text('text\none\n"' + "never closed\n" * 1000)
    with pytest.raises(InputError, match=r"a\.csv cannot be read: field larger"):
        everything(path)


def test_parquet_by_row_groups(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"id": range(5), "text": ["a", None, "c", "d", "e"], "other": [1] * 5})
    pq.write_table(table, path, row_group_size=2)
    rows, sizes = everything(path)
    assert sizes == [2, 2, 1] and [name for name, _ in rows] == ["0", "1", "2", "3", "4"]
    assert rows[0][1] == "a" and "null" in rows[1][1].problem
    rows, _ = everything(path, Columns(id="other"))
    assert [name for name, _ in rows] == ["1"] * 5


def test_an_id_in_parquet_that_is_not_utf8_is_written_otherwise(tmp_path):
    ids = pa.array([b"a", b"b\xff", None])
    for name, column in {"a": ids, "b": ids.view(pa.string())}.items():
        pq.write_table(
            pa.table({"id": column, "text": ["x", "y", "z"]}), tmp_path / f"{name}.parquet"
        )
        rows, _ = everything(tmp_path / f"{name}.parquet")
        assert rows == [("a", "x"), (r"b\xff", "y"), (f"{name}.parquet:3", "z")]


@pytest.mark.parametrize("kind", [pa.binary(), pa.int64(), pa.dictionary(pa.int32(), pa.binary())])
def test_a_parquet_column_of_another_type_is_no_text(tmp_path, kind):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": ["1"], "text": pa.nulls(1, kind)}), path)
    with pytest.raises(InputError) as error:
        everything(path)
    assert str(error.value) == (
        f"{path}: its column 'text' is {kind}, not text. Save it as strings, or name another "
        "column with --text"
    )
    assert everything(path, Columns(text="id"))[0] == [("1", "1")]


def test_a_parquet_column_of_lists_is_no_id(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [["1"]], "text": ["a"], "number": [1]}), path)
    with pytest.raises(InputError, match="cannot be read: Ids must be strings or numbers"):
        list(cut([("a.parquet", path)], Columns()))
    assert everything(path, Columns(id="number"))[0] == [("1", "a")]


def test_docs_of_a_spacy_file(tmp_path):
    nlp = spacy.blank("en")
    docs = [nlp.make_doc(f"text {i}.") for i in range(4)]
    docs[1].user_data["doc_id"] = "PMID1"
    words = spacy.tokens.Doc(nlp.vocab, words=["the", "text", "."])
    words.user_data["text"] = "the text."
    # What is no text, or that of something else.
    docs[2].user_data["text"], docs[3].user_data["text"] = ["text"], "other"
    DocBin(docs=[*docs, words], store_user_data=True).to_disk(tmp_path / "a.spacy")
    rows, sizes = everything(tmp_path / "a.spacy")
    assert sizes == [3, 2]
    assert rows[2][1] == "text 2."
    assert rows[1] == ("PMID1", "text 1.") and rows[3] == ("a.spacy:4", "text 3.")
    assert rows[4][1] == "the text."


@pytest.mark.parametrize(
    "ids, own",
    [
        (["A", "B", "A", "A", None], ["A:1", "B", "A:2", "A:3", "a.spacy:5"]),
        (["A", 7, 7, "", ""], ["A", "7:1", "7:2", "a.spacy:4", "a.spacy:5"]),
        (["A", "A:1", "A", "B", "B"], ["A:2", "A:1", "A:3", "B:1", "B:2"]),
    ],
)
def test_sentences_of_a_document_have_ids_of_their_own(tmp_path, ids, own):
    nlp = spacy.blank("en")
    docs = [nlp.make_doc(f"text {i}.") for i in range(len(ids))]
    Token.set_extension("tests_inputs", default=None, force=True)
    for doc, name in zip(docs, ids):
        doc.user_data["doc_id"] = name
        doc[0]._.tests_inputs = 1  # has a tuple as its key
    DocBin(docs=docs, store_user_data=True).to_disk(tmp_path / "a.spacy")
    assert [name for name, _ in everything(tmp_path / "a.spacy")[0]] == own
    found = [name for name, _ in everything(tmp_path / "a.spacy", Columns(of_documents=True))[0]]
    assert found == [str(name or f"a.spacy:{i}") for i, name in enumerate(ids, start=1)]


def test_a_folder_of_all_kinds(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "1.txt").write_text("one\n")
    (tmp_path / "a.jsonl").write_text('{"text": "two"}\n')
    pq.write_table(pa.table({"text": ["three"]}), tmp_path / "c.parquet")
    for name in ("_SUCCESS", ".hidden.txt", "read.me"):
        (tmp_path / name).write_text("not read")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "_part.csv").write_text("text\nfour\n")
    for folder in ("_old", "_log"):
        (tmp_path / folder).mkdir()
    (tmp_path / "_old" / "a.txt").write_text("five\n")
    (tmp_path / "_log" / "0.json").write_text("{}")
    _, others = input_files(tmp_path)
    assert others == ["_old", "_part.csv", "read.me"]
    rows, _ = everything(tmp_path)
    assert rows == [("a.jsonl:1", "two"), ("b/1.txt:1", "one"), ("c.parquet:1", "three")]
    for name in ("a.jsonl", "b/1.txt", "c.parquet", "empty.txt"):
        (tmp_path / name).unlink()
    with pytest.raises(InputError, match=r"nothing to read\. Left out: _old, _part\.csv, read\.me"):
        input_files(tmp_path)


def test_folders_that_links_lead_to_are_read_once(tmp_path):
    for folder in ("in/b", "other"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "1.txt").write_text(f"{folder}\n")
    (tmp_path / "other" / "back").symlink_to(tmp_path / "in")
    for name, target in {
        "link": tmp_path / "other",
        "twice": tmp_path / "other",
        "b/up": tmp_path / "in",
        "above": tmp_path,
        "gone.txt": tmp_path / "none",
        "loop": tmp_path / "in" / "loop",
    }.items():
        (tmp_path / "in" / name).symlink_to(target)
    files, others = input_files(tmp_path / "in")
    assert [name for name, _ in files] == ["b/1.txt", "link/1.txt"]
    assert others == ["above", "b/up", "gone.txt", "link/back", "loop", "twice"]
    files, others = input_files(tmp_path / "in", tmp_path / "other")
    assert [name for name, _ in files] == ["b/1.txt"] and "link" not in others


def test_endings_in_capitals(tmp_path):
    (tmp_path / "A.TXT").write_text("one\n")
    (tmp_path / "B.Csv").write_text("text\ntwo\n")
    assert everything(tmp_path)[0] == [("A.TXT:1", "one"), ("B.Csv:1", "two")]


@pytest.mark.parametrize("package, suffix", [(gzip, "gz"), (bz2, "bz2"), (lzma, "xz")])
def test_packed_texts_are_one_fragment_each(tmp_path, package, suffix):
    texts = [f"text {i}" for i in range(7)]
    for name, lines in {
        "a.txt": texts,
        "b.jsonl": [json.dumps({"text": text}) for text in texts],
        "c.csv": ["text", *texts],
    }.items():
        with package.open(tmp_path / f"{name}.{suffix}", "wt") as file:
            file.write("\n".join(lines))
    rows, sizes = everything(tmp_path)
    assert [text for _, text in rows] == texts * 3 and sizes == [7, 7, 7]
    assert rows[-1][0] == f"c.csv.{suffix}:7"
    assert everything(tmp_path, limit=9)[1] == [7, 2]
    whole = (tmp_path / f"a.txt.{suffix}").read_bytes()
    (tmp_path / f"a.txt.{suffix}").write_bytes(whole[:-12])
    with pytest.raises(InputError, match="damaged or cut off"):
        everything(tmp_path)


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv", "a.spacy"])
def test_long_texts_are_in_fragments_of_fewer_rows(tmp_path, monkeypatch, name):
    """A fragment ends with the text that makes it full, in bytes and not in characters."""
    monkeypatch.setattr(inputs, "FRAGMENT_ROWS", 5)
    monkeypatch.setattr(inputs, "FRAGMENT_BYTES", 1000)
    long, path = "\xe4 " * 200, tmp_path / name  # 600 bytes, in a `.spacy` file 1,000
    short = [f"{i}" for i in range(7)]
    texts = [*short, long, long, "8", long, "9", long, "10"]
    if name == "a.txt":
        path.write_text("\n".join(texts), "utf8")
    elif name == "a.jsonl":
        lines = (json.dumps({"text": text}, ensure_ascii=False) for text in texts)
        path.write_text("\n\n".join(lines), "utf8")
    elif name == "a.csv":
        path.write_text("\n".join(["text,id", *(f"{text}," for text in texts)]), "utf8")
    else:
        nlp = spacy.blank("en")
        DocBin(docs=[nlp.make_doc(text) for text in texts]).to_disk(path)
    rows, sizes = everything(path)
    assert [text for _, text in rows] == texts
    assert [name for name, _ in rows] == [f"{path.name}:{i}" for i in range(1, len(texts) + 1)]
    assert sizes == ([5, 3, 1, 2, 2, 1] if name == "a.spacy" else [5, 4, 4, 1])
    assert everything(path)[1] == sizes
    assert everything(path, limit=8)[1] == [5, 3]


def test_packed_long_texts_are_one_fragment(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "FRAGMENT_BYTES", 10)
    for name, start in {"a.txt.gz": "", "b.csv.gz": "text\n"}.items():
        (tmp_path / name).write_bytes(gzip.compress(f"{start}{'x' * 20}\n".encode() * 2))
    rows, sizes = everything(tmp_path)
    assert sizes == [2, 3] and len(rows) == 5


def test_it_is_known_whether_rows_alone_cut(tmp_path, monkeypatch):
    lines, long = tmp_path / "a.txt", "x" * 20
    table = pa.table({"text": ["a", "b", "c"]})
    pq.write_table(table, tmp_path / "b.parquet", row_group_size=1)

    def found(*texts: str):
        lines.write_text("\n".join(texts))
        return inputs.bytes_that_cut(list(cut(input_files(tmp_path)[0], Columns())))

    assert found("1", "2", "3", "4") is None
    monkeypatch.setattr(inputs, "FRAGMENT_BYTES", 20)
    assert found("1", "2", "3", "4") is None
    assert found("1", "2", long, "4") is None
    assert found("1", "2", "3", "4", long) is None  # there is nothing behind it
    assert found("1", long, "3") == 20


def test_batches_end_before_they_have_too_many_characters(monkeypatch):
    monkeypatch.setattr(inputs, "BATCH_CHARACTERS", 10)

    def sizes(*texts: object):
        found = list(inputs.batched(((None, text) for text in texts), 3))
        assert [text for batch in found for _, text in batch] == list(texts)
        return [len(batch) for batch in found]

    assert sizes() == [] and sizes("a") == [1]
    assert sizes(*"abcdefg") == [3, 3, 1] and sizes(*"abcdef") == [3, 3]
    assert sizes("x" * 5, "x" * 5, "a", "b", "c") == [2, 3]
    assert sizes("x" * 99, "a", "x" * 10, "", "x" * 11) == [1, 1, 2, 1]
    assert sizes(*[Unusable("of many words")] * 3, "a") == [3, 1]


def test_short_texts_are_cut_by_rows_alone():
    texts = [(None, "x" * 130)] * 1000
    assert [len(each) for each in inputs.batched(texts, 250)] == [250] * 4
    assert inputs.FRAGMENT_BYTES > 5_000 * 4 * 130  # of any script


@pytest.mark.parametrize("limit, sizes", [(1, [1]), (3, [3]), (4, [3, 1]), (9, [3, 1, 3, 1])])
def test_the_first_rows_alone(tmp_path, limit, sizes):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("1\n2\n3\n4\n")
    assert everything(tmp_path, limit=limit)[1] == sizes


@pytest.mark.parametrize(
    "name, content, says",
    [
        ("a.jsonl", '{"id": 1, "body": "x"}', "no column 'text'. Its columns: 'id', 'body'"),
        (
            "a.csv",
            "body,id\nx,1\n",
            "no column 'text'. Its columns: 'body', 'id'. Name the right one with --text",
        ),
        ("a.csv", "id;text\n1;x\n", "'id;text'. They are separated by ';', where commas are"),
        ("a.csv", "id\ttext\n1\tx\n", r"separated by '\t', where commas are expected"),
        ("a.parquet.gz", "", "has an unknown file type"),
        ("a.parquet", "no Parquet", "a.parquet cannot be read"),
        ("a.spacy", "no docs", "a.spacy cannot be read"),
        ("a.pdf", "", "an unknown file type. Expected .parquet, .jsonl, .csv, .txt, .spacy"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, name, content, says):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError) as error:
        everything(tmp_path / name)
    assert says in str(error.value)


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match="no such file or folder"):
        input_files(tmp_path / "none")
    with pytest.raises(InputError, match="holds nothing to read"):
        input_files(tmp_path)
    (tmp_path / "a.csv").write_text("text\nx\n")
    with pytest.raises(InputError, match=r"no column 'number'.*one with --id"):
        everything(tmp_path / "a.csv", Columns(id="number"))


def test_a_file_that_became_shorter_is_noticed(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("1\n2\n3\n")
    files, _ = input_files(path)
    [fragment] = cut(files, Columns())
    path.write_text("1\n2\n")
    with pytest.raises(InputError, match=r"a\.txt, rows 1 to 3: only 2 were found"):
        list(read(fragment, Columns(), 10))


@pytest.mark.parametrize("suffix", [".txt", ".jsonl", ".csv"])
def test_a_file_is_never_held_as_a_whole(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(inputs, "FRAGMENT_ROWS", 1000)
    path, line = tmp_path / f"a{suffix}", "x" * 500
    row = json.dumps({"text": line}) if suffix == ".jsonl" else line
    with path.open("w") as file:
        file.write("text\n" if suffix == ".csv" else "")
        file.writelines(f"{row}\n" for _ in range(20_000))
    files, _ = input_files(path)
    tracemalloc.start()
    try:
        for fragment in cut(files, Columns()):
            assert sum(len(ids) for ids, _ in read(fragment, Columns(), 50)) == 1000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20 < path.stat().st_size


def test_what_is_to_be_written_is_no_input(tmp_path):
    (tmp_path / "out").mkdir()
    for name in ("a.txt", "found.csv", "out/fragment.txt"):
        (tmp_path / name).write_text("text\nIL-2\n")
    for output in ("out", "found.csv"):
        files, others = input_files(tmp_path, tmp_path / output)
        names = [name for name, _ in files]
        assert "a.txt" in names and len(names) == 2 and not others
        assert not any(name.startswith(output) for name in names)
    for output in (tmp_path, tmp_path.parent):
        assert len(input_files(tmp_path, output)[0]) == 3


def test_a_quotation_mark_that_is_not_closed_is_an_error(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('text,id\nx,1\n"y,2\nz,3\n')
    with pytest.raises(InputError, match=r"a\.csv cannot be read: .* line 3\. .* is not closed"):
        everything(path)
    path.write_text('text,id\n\nx,1\n"y z,2\nv,3\n"w" is,4\nu,5\n')
    with pytest.raises(InputError, match=r"begins in line 4\. Perhaps a quotation mark there is"):
        everything(path)
    path.write_text('text,"id\nfoo,1\n')
    with pytest.raises(InputError, match="is not closed"):
        everything(path)
    path.write_text('text,id\r\n"x",1\r\n', newline="")
    assert everything(path)[0] == [("1", "x")]
    path.write_text('text,id\nx,1\n"y\nz",2\na "b" c,3')
    assert everything(path)[0] == [("1", "x"), ("2", "y\nz"), ("3", 'a "b" c')]


def test_an_empty_id_is_none(tmp_path):
    (tmp_path / "a.csv").write_text("text,id\nIL-2,\nT cells,7\n")
    (tmp_path / "b.jsonl").write_text('{"text": "IL-2", "id": ""}\n')
    rows, _ = everything(tmp_path)
    assert [name for name, _ in rows] == ["a.csv:1", "7", "b.jsonl:1"]


@ODD_NAMES
def test_the_name_of_a_file_that_is_not_utf8_can_be_written(tmp_path):
    path = tmp_path / os.fsdecode(b"a\xff.txt")
    path.write_text("one\n")
    assert everything(tmp_path)[0] == everything(path)[0] == [(r"a\udcff.txt:1", "one")]


def test_a_mark_before_a_blank_line_is_no_row(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\xef\xbb\xbf\n" + b"".join(b'{"text": "%d"}\n' % i for i in range(4)))
    rows, sizes = everything(path)
    assert [text for _, text in rows] == ["0", "1", "2", "3"] and sizes == [3, 1]
    joined = b'{"text": "0"}\n' + path.read_bytes()
    path.write_bytes(joined)
    rows, sizes = everything(path)
    assert [text for _, text in rows] == ["0", "0", "1", "2", "3"] and sizes == [3, 2]


def test_ids_of_a_named_column(tmp_path):
    (tmp_path / "a.csv").write_text("id,key,text\n1,x,one\n")
    (tmp_path / "b.jsonl").write_text('{"id": 1, "key": "y", "text": "two"}\n')
    assert everything(tmp_path, Columns(id="key"))[0] == [("x", "one"), ("y", "two")]


def test_ids_of_a_column_with_gaps_are_whole_numbers(tmp_path):
    numbers = [30112233445.0, 1.5, float("nan"), None, 1e20]
    expected = ["30112233445", "1.5", None, None, "1e+20"]
    assert ids_of(pa.array(numbers)) == expected
    lines = [json.dumps({"id": number, "text": "a"}) for number in numbers]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    found = [name for name, _ in everything(tmp_path)[0]]
    assert [name for name, given in zip(found, expected) if given] == [e for e in expected if e]
    assert "nan" not in found and "None" not in found


def test_a_row_that_is_too_short_costs_itself_alone(tmp_path):
    (tmp_path / "a.csv").write_text("id,text\n1\n2,two\n")
    (short, two) = everything(tmp_path)[0]
    assert short[0] == "1" and "the row is too short" in short[1].problem and two == ("2", "two")


def test_a_row_that_is_too_long_is_no_text(tmp_path):
    """An unquoted comma would cut it."""
    (tmp_path / "a.csv").write_text('id,text\n1,In May, Ann left.\n2,two,\n3,"a, b"\n')
    long, *others = everything(tmp_path)[0]
    assert long[0] == "1" and "the row has 3 cells, the header 2" in long[1].problem
    assert others == [("2", "two"), ("3", "a, b")]


@pytest.mark.parametrize("name", [None, "", float("nan")])
def test_a_doc_without_an_id_is_called_by_its_number(tmp_path, name):
    doc = spacy.blank("en")("one")
    doc.user_data["doc_id"] = name
    DocBin(docs=[doc], store_user_data=True).to_disk(tmp_path / "a.spacy")
    assert everything(tmp_path)[0] == [("a.spacy:1", "one")]
