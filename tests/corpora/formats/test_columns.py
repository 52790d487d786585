"""Column formats."""

from __future__ import annotations

import gzip
import json

import pytest

from spacy_nested_ner.corpora import CorpusError, Problems, ReadOptions, get_reader
from tests.corpora.comparing import SPANS, TAGS, entities, expected, in_words, read


def write(tmp_path, *rows, name="data.txt"):
    path = tmp_path / name
    path.write_text("\n".join(rows) + "\n", encoding="utf8")
    return path


def rows_of(scheme, tags):
    return [f"w{i} {tag}" for i, tag in enumerate(tags.split())]


@pytest.mark.parametrize("scheme", TAGS)
def test_the_scheme_is_found(tmp_path, scheme):
    path = write(tmp_path, "a O", "", *rows_of(scheme, TAGS[scheme]))
    assert in_words(read("columns", path)[1])[2] == SPANS


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
        (("a",), {}, "line 1: a line with nothing after the token"),
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
        ({"token": "-1"}, "--set tags=NUMBERS is needed, too"),
        ({"token": "x"}, "Setting token must be a whole number"),
        ({"tags": "1;2"}, "Setting tags must be whole numbers such as 1,2"),
        ({"first_character": "yes"}, "must be true or false"),
        ({"scheme": "BIOX"}, "scheme must be auto or one of BIO"),
    ],
)
def test_wrong_settings(tmp_path, settings, problem):
    with pytest.raises(ValueError, match=problem):
        read("columns", write(tmp_path, "a O"), settings=settings)


@pytest.mark.parametrize(
    "folder, name", [("germeval2014", "germeval2014"), ("few_nerd", "few-nerd")]
)
def test_published_files(samples, folder, name):
    found = read(name, samples / folder)
    assert [in_words(record) for record in found] == expected(samples / folder / "expected.jsonl")


def test_the_scheme_of_germeval_is_found(samples):
    settings = {"token": "1", "tags": "2,3", "comment": "#"}
    path = samples / "germeval2014" / "NER-de-dev.tsv"
    found = read("columns", path, settings=settings)
    assert [in_words(r) for r in found] == expected(path.with_name("expected.jsonl"))
    rows = map(json.loads, path.with_name("expected.jsonl").read_text("utf8").splitlines())
    assert [record.doc_id for record in found] == [row["doc_id"] for row in rows]


CONLLU = """# newdoc id = news 1
# sent_id = news-1-1
# text = Bonn it is
Bonn\tB-LOC
it\tO

#sent_id = news-1-2
Rome\tB-LOC

# newdoc
# sent_id = other
Paris\tB-LOC

#\thttp://source\t[2010-07-04]
Kiel\tB-LOC"""


def test_comments_of_conllu(tmp_path):
    path = write(tmp_path, CONLLU)
    found = read("columns", path, settings={"comment": "#"})
    assert [record.words for record in found] == [["Bonn", "it"], ["Rome"], ["Paris"], ["Kiel"]]
    names = ["news 1", "news 1", f"{path.name}#2", "http://source"]
    assert [record.doc_id for record in found] == names


def test_a_token_may_begin_like_a_comment(tmp_path):
    path = write(tmp_path, "in\tO", "#London\tB-LOC", "now\tO")
    (record,) = read("columns", path, settings={"comment": "#"})
    assert record.words == ["in", "#London", "now"]


def test_comments_that_begin_no_document(tmp_path):
    path = write(tmp_path, "# sent_id = a-1", "Bonn B-LOC", "", "# sent_id = a-2", "Rome B-LOC")
    found = read("columns", path, settings={"comment": "#"})
    assert [record.doc_id for record in found] == [f"{path.name}:2", f"{path.name}:5"]


@pytest.mark.parametrize(
    "rows, line",
    [
        (["# sent_id = 1", "The O", "US LOC", "", "# sent_id = 2", "Rome LOC"], 1),
        (["The O", "US LOC", "", "#sent_id = 2", "Rome LOC"], 4),
        (["The O", "US LOC", "", "# newdoc", "Rome LOC"], 4),
        (["# text = The US", "The\tO", "US\tB-LOC"], 1),
    ],
)
@pytest.mark.parametrize("name", ["columns", "conll"])
def test_comments_are_no_tokens(tmp_path, name, rows, line):
    path = write(tmp_path, *rows)
    with pytest.raises(CorpusError, match=f"line {line}: the line is a comment.*--set comment=#"):
        read(name, path)
    records = read(name, path, settings={"comment": "#"})
    assert [label for record in records for *_, label in record.spans] == ["LOC"] * (len(records))


def test_tags_that_fit_no_scheme_may_be_those_of_a_comment(tmp_path):
    path = write(tmp_path, "a B-X", "# said", "b O")
    for settings in ({}, {"scheme": "BIO"}):
        with pytest.raises(CorpusError, match=r"comments .*--set comment=#"):
            read("columns", path, settings=settings)
    (record,) = read("columns", path, settings={"comment": "#"})[:1]
    assert record.words == ["a"]


def test_a_token_that_is_the_sign_of_comments(tmp_path):
    (record,) = read("columns", write(tmp_path, "No B-X", "# I-X", "1 I-X", "= O"))
    assert record.words == ["No", "#", "1", "="]


def test_a_file_without_blank_lines_is_no_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr("spacy_nested_ner.corpora.formats.columns.MOST_ROWS", 3)
    path = write(tmp_path, "a B-A", "", *["b B-A"] * 4)
    with pytest.raises(CorpusError, match=r"line 3: a sentence of more than 3 lines"):
        read("columns", path)


def test_only_blanks_and_tabs_part_columns(tmp_path):
    (record,) = read("columns", write(tmp_path, "10\u00a0000  B-NUM", "a\x0cb O"))
    assert record.words == ["10\u00a0000", "a\x0cb"] and entities(record) == [
        ("10\u00a0000", "NUM")
    ]


@pytest.mark.parametrize("row", ["\u3000ab\tB-A", "ab\u00a0\tB-A", "ab\u00a0 B-A"])
def test_whitespace_at_the_ends_of_a_token_is_left_out(tmp_path, row):
    (record,) = read("columns", write(tmp_path, row))
    assert record.words == ["ab"] and entities(record) == [("ab", "A")]


@pytest.mark.parametrize("row", ["\u3000 O", "\u3000\tO", "\u2028 O"])
def test_a_token_of_whitespace_is_an_error(tmp_path, row):
    with pytest.raises(CorpusError, match="line 2: a row without a token"):
        read("columns", write(tmp_path, "a O", row))
    problems = Problems(skip=True)
    assert read("columns", write(tmp_path, row, "", "a O"), problems=problems)[0].words == ["a"]
    settings = {"first_character": "true"}
    with pytest.raises(CorpusError, match="line 2: a row without a token"):
        read("columns", write(tmp_path, "a0\tO", "\u30000\tO"), settings=settings)


@pytest.mark.parametrize("tags", ["b-PER i-PER o", "b-PER i-PER O", "PER o o"])
def test_tags_in_small_letters_are_no_labels(tmp_path, tags):
    path = tmp_path / "train.txt"
    path.write_text("".join(f"word {tag}\n" for tag in tags.split()), encoding="utf8")
    with pytest.raises(CorpusError, match=r"scheme of the tags is not clear: .* need capitals"):
        list(get_reader("columns")(path, ReadOptions()))
    (record,) = get_reader("columns")(path, ReadOptions(settings={"scheme": "IO"}))
    assert {label for _, _, label in record.spans} == set(tags.split()) - {"O"}


def test_bio_is_no_io(tmp_path):
    path = tmp_path / "train.txt"
    path.write_text("New B-GPE\nYork I-GPE\n", encoding="utf8")
    with pytest.raises(CorpusError, match="line 1: B-GPE beside I- does not fit IO"):
        list(get_reader("few-nerd")(path, ReadOptions()))
