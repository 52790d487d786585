"""Column formats and their tags."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spacy_nested_ner.corpora import CorpusError, Problems
from spacy_nested_ner.corpora.tags import TagError, decode_tags
from tests.corpora.comparing import entities, in_words, normalised, read, table

# Two neighbours of one label, an entity of one word, one of three, and one at the end.
SPANS = [(0, 2, "A"), (2, 3, "A"), (4, 7, "B-x"), (8, 9, "C")]
TAGS = {
    "BIO": "B-A I-A B-A O B-B-x I-B-x I-B-x O B-C",
    "IOB1": "I-A I-A B-A O I-B-x I-B-x I-B-x O I-C",
    "BIOES": "B-A E-A S-A O B-B-x I-B-x E-B-x O S-C",
    "BMES": "B-A E-A S-A O B-B-x M-B-x E-B-x O S-C",
}


@pytest.mark.parametrize("scheme", TAGS)
def test_schemes(scheme):
    assert decode_tags(TAGS[scheme].split(), scheme) == SPANS


def test_bilou_is_read_as_bioes():
    tags = TAGS["BIOES"].replace("E-", "L-").replace("S-", "U-")
    assert decode_tags(tags.split(), "BIOES") == SPANS


@pytest.mark.parametrize("prefix", ["", "I-"])
def test_io_joins_neighbours(prefix):
    labels = ["A", "A", "", "B-x", "B-x", "C"]
    tags = [f"{prefix}{label}" if label else "O" for label in labels]
    assert decode_tags(tags, "IO") == [(0, 2, "A"), (3, 5, "B-x"), (5, 6, "C")]


@pytest.mark.parametrize(
    "tags, scheme, index",
    [
        ("O I-A", "BIO", 1),
        ("B-A I-B", "BIO", 1),
        ("B-A E-A", "BIO", 1),
        ("A", "BIO", 0),
        ("B-", "BIO", 0),
        ("B-A O", "BIOES", 0),
        ("B-A I-A", "BIOES", 1),
        ("B-A S-A", "BMES", 0),
        ("O E-A", "BMES", 1),
        ("B-A I-A E-A", "BMES", 1),
    ],
)
def test_tags_that_do_not_fit(tags, scheme, index):
    with pytest.raises(TagError) as err:
        decode_tags(tags.split(), scheme)
    assert err.value.index == index


FLAT = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), st.sampled_from("XY")), max_size=6)


@given(FLAT)
def test_every_flat_annotation_survives_every_scheme(parts):
    """Each part: words outside before the entity, its words, its label."""
    spans, position = [], 0
    for before, length, label in parts:
        spans.append((position + before, position + before + length, label))
        position += before + length
    for scheme in TAGS:
        assert decode_tags(encoded(spans, position + 1, scheme), scheme) == spans


def encoded(spans, length, scheme):
    tags = ["O"] * length
    for i, (start, end, label) in enumerate(spans):
        touching = i > 0 and spans[i - 1][1] == start and spans[i - 1][2] == label
        middle = "M" if scheme == "BMES" else "I"
        letters = ["B" if scheme != "IOB1" or touching else "I"] + [middle] * (end - start - 1)
        if scheme in ("BIOES", "BMES"):
            letters[-1] = "E" if len(letters) > 1 else "S"
        tags[start:end] = [f"{letter}-{label}" for letter in letters]
    return tags


def write(tmp_path, *rows, name="data.txt"):
    path = tmp_path / name
    path.write_text("\n".join(rows) + "\n", encoding="utf8")
    return path


def rows_of(scheme, tags):
    return [f"w{i} {tag}" for i, tag in enumerate(tags.split())]


@pytest.mark.parametrize("scheme", TAGS)
def test_the_scheme_is_found(tmp_path, scheme):
    path = write(tmp_path, "a O", "", *rows_of(scheme, TAGS[scheme]))
    assert in_words(read("columns", path)[1])[1] == SPANS


def test_bare_labels_are_io(tmp_path):
    (record,) = read("columns", write(tmp_path, "New GPE", "York GPE", "is O"))
    assert entities(record) == [("New York", "GPE")]


def test_tags_of_two_schemes_are_ambiguous(tmp_path):
    path = write(tmp_path, "a B-A", "b I-A", "", "c O", "d I-A")
    with pytest.raises(CorpusError, match=r"line 5: the scheme .* is not clear") as err:
        read("columns", path)
    assert "line 1" in str(err.value) and "--set scheme=" in str(err.value)
    assert entities(read("columns", path, settings={"scheme": "IOB1"})[1]) == [("d", "A")]


def test_a_column_that_holds_no_tags(tmp_path):
    path = write(tmp_path, "EU NNP I-NP B-ORG", "rejects VBZ I-VP O")
    with pytest.raises(CorpusError, match="say which columns hold tags with --set tags="):
        read("columns", path)
    assert entities(read("columns", path, settings={"tags": "3"})[0]) == [("EU", "ORG")]
    assert entities(read("conll", path)[0]) == [("EU", "ORG")]


def test_levels_and_missing_inner_tags(tmp_path):
    rows = ("The\tO\tO\t", "IL-2\tB-DNA\tB-protein\tO", "gene\tI-DNA", ".\tO\tO")
    (record,) = read("columns", write(tmp_path, *rows))
    assert entities(record) == [("IL-2 gene", "DNA"), ("IL-2", "protein")]


def test_documents_of_conll(tmp_path):
    rows = ("-DOCSTART- -X- O O", "", "a O", "", "b B-X", "", "-DOCSTART- -X- O O", "", "c O")
    path = write(tmp_path, *rows, name="eng.testa")
    records = read("conll", path, group="article")
    assert [record.text for record in records] == ["a", "b", "c"]
    assert [record.doc_id for record in records] == ["eng.testa#1"] * 2 + ["eng.testa#2"]
    assert {record.split for record in records} == {"dev"}


def test_articles_need_documents(tmp_path):
    with pytest.raises(CorpusError, match="Use --group sentence"):
        read("columns", write(tmp_path, "a O"), group="article")


def test_weibo_characters(tmp_path):
    rows = ("科0\tB-PER.NAM", "技1\tI-PER.NAM", "好0\tO")
    (record,) = read("weibo", write(tmp_path, *rows), tokens="character")
    assert record.text == "科技好" and entities(record) == [("科技", "PER.NAM")]


def test_words_of_latin_letters_stay_apart_among_characters(tmp_path):
    rows = ("中国\tB-GPE", "ABC\tB-ORG", "News\tI-ORG", "好\tO")
    (record,) = read("columns", write(tmp_path, *rows), tokens="character")
    assert record.text == "中国ABC News好"
    assert entities(record) == [("中国", "GPE"), ("ABC News", "ORG")]


@pytest.mark.parametrize(
    "rows, settings, problem",
    [
        (("a B-X", "b I-Y"), {"scheme": "BIO"}, "line 2: I-Y after B-X does not fit BIO"),
        (("a",), {}, "line 1: a line with nothing behind the token"),
        (("a O", "b"), {"tags": "1"}, "line 2: expected a tag in column 1"),
        (("a O", "\tO"), {}, "line 2: a row without a token"),
    ],
)
def test_malformed_lines_can_be_skipped(tmp_path, rows, settings, problem):
    path = write(tmp_path, *rows, "", "ok B-X")
    with pytest.raises(CorpusError, match=problem):
        read("columns", path, settings=settings)
    if "scheme" in settings or "tags" in settings:
        problems = Problems(skip=True, quiet=True)
        (record,) = read("columns", path, settings=settings, problems=problems)
        assert record.text == "ok" and problems.count == 1
        assert problem in problems.messages[0]


def test_bad_bytes_name_their_line(tmp_path):
    path = tmp_path / "latin.txt"
    path.write_bytes(b"a O\nb O\nM\xfcller B-PER\n")
    with pytest.raises(CorpusError, match="line 3: not UTF-8"):
        read("conll", path)


def test_a_cut_archive(tmp_path):
    path = tmp_path / "train.txt.gz"
    path.write_bytes(gzip.compress(b"a O\n" * 1000)[:30])
    with pytest.raises(CorpusError, match="damaged or cut off"):
        read("columns", path)


@pytest.mark.parametrize(
    "settings, problem",
    [
        ({"level": "1"}, "No setting 'level' for this format. It has: token, tags"),
        ({"token": "-1"}, "--set tags=NUMBERS has to be given too"),
        ({"token": "x"}, "Setting token must be a whole number"),
        ({"tags": "1;2"}, "Setting tags must be whole numbers such as 1,2"),
        ({"first_character": "yes"}, "must be true or false"),
        ({"scheme": "BIOX"}, "scheme must be auto or one of BIO"),
    ],
)
def test_wrong_settings(tmp_path, settings, problem):
    with pytest.raises(ValueError, match=problem):
        read("columns", write(tmp_path, "a O"), settings=settings)


def test_germeval(shared):
    found = read("germeval2014", shared / "germeval2014" / "raw")
    assert {record.split for record in found} == {"dev"}
    assert table(found) == (2200, 172, 2886, 407, 11)
    expected = list(normalised(shared / "germeval2014" / "normalized" / "dev.jsonl"))
    assert [in_words(record) for record in found] == expected


def test_germeval_scheme_is_found(shared):
    settings = {"token": "1", "tags": "2,3", "comment": "#"}
    found = read("columns", shared / "germeval2014" / "raw", settings=settings)
    assert table(found) == (2200, 172, 2886, 407, 11)


@pytest.mark.parametrize(
    "split, file, sentences, count, types",
    [("dev", "val-inter-new", 18817, 34830, 13), ("test", "test-inter", 14007, 28342, 17)],
)
def test_few_nerd(shared, split, file, sentences, count, types):
    found = read("few-nerd", shared / "few_nerd_inter" / "raw" / f"{file}.txt.gz")
    assert {record.split for record in found} == {split}
    assert (len(found), sum(len(record.spans) for record in found)) == (sentences, count)
    assert len({label for record in found for _, _, label in record.spans}) == types
    expected = normalised(shared / "few_nerd_inter" / "normalized" / f"{split}.jsonl")
    assert [in_words(record) for record in found] == list(expected)
