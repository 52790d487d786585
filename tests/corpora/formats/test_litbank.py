from __future__ import annotations

from spacy_nested_ner.corpora import ReadOptions, get_reader
from tests.corpora.comparing import entities, expected, in_words, read


def test_books_in_order_become_splits_and_entities_whole_words(samples):
    found = read("litbank", samples / "litbank" / "brat")
    assert [in_words(record) for record in found] == expected(
        samples / "litbank" / "expected.jsonl"
    )
    by_split = {split: {r.doc_id for r in found if r.split == split} for split in ("dev", "test")}
    assert by_split == {"dev": {"78_tarzan_of_the_apes"}, "test": {"805_this_side_of_paradise"}}


def test_an_entity_that_ends_inside_a_word_grows_with_published_tokens_only(samples):
    published, plain = (
        {
            text
            for r in read("litbank", samples / "litbank" / "brat", tokens=tokens)
            for text in texts(r)
        }
        for tokens in ("published", "spacy")
    )
    assert published - plain == {"a parish surgeon who did such matters by contract"}
    assert plain - published == {"a parish surgeon who did such matters by contrac"}


def test_texts_without_annotations_are_counted(samples, tmp_path):
    for file in (samples / "litbank" / "brat").glob("74_*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "alone.txt").write_text("Nobody looked.", encoding="utf8")
    (record,) = get_reader("litbank")(tmp_path, ReadOptions())
    assert record.dropped == {(".txt without .ann", ""): 1}


def test_a_byte_order_mark_is_no_word(samples, tmp_path):
    for file in (samples / "litbank" / "brat").glob("74_*"):
        mark = b"\xef\xbb\xbf" if file.suffix == ".txt" else b""
        (tmp_path / file.name).write_bytes(mark + file.read_bytes())
    (plain,) = (
        record
        for record in get_reader("litbank")(samples / "litbank" / "brat", ReadOptions())
        if record.doc_id.startswith("74_")
    )
    (record,) = get_reader("litbank")(tmp_path, ReadOptions())
    assert (record.text, record.words, record.spans) == (plain.text, plain.words, plain.spans)
    assert record.sentence_starts == plain.sentence_starts


def texts(record):
    return [text for text, _ in entities(record)]


def test_the_tsv_files_are_a_column_format(samples):
    (path,) = (samples / "litbank" / "tsv").iterdir()
    brat = samples / "litbank" / "brat" / path.with_suffix(".ann").name
    words = [(r.words, sorted(r.spans)) for r in read("litbank", brat)]
    assert [(r.words, sorted(r.spans)) for r in read("columns", path)] == words
