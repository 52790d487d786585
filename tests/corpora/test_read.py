"""Several inputs, splits, errors to skip, and files written doc by doc."""

from __future__ import annotations

import json
import zlib
from collections import Counter

import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st
from spacy.tokens import Doc, DocBin, Span

from spacy_nested_ner.corpora import CorpusError, Problems, ReadOptions, Record
from spacy_nested_ner.corpora.convert import convert_corpus
from spacy_nested_ner.corpora.docbin import DocBinWriter
from spacy_nested_ner.corpora.docs import record_to_doc, record_to_docs
from spacy_nested_ner.corpora.read import Source, SplitOptions, read_corpus
from spacy_nested_ner.corpora.records import with_omissions
from spacy_nested_ner.corpora.sentences import grouped, split_at_sentences
from spacy_nested_ner.corpora.splits import random_split, split_of_name
from spacy_nested_ner.corpora.words import words_record


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


@given(st.sets(st.text(), max_size=60), st.integers(0, 5))
def test_random_split(doc_ids, seed):
    fractions = (0.7, 0.2, 0.1)
    split_of = random_split(sorted(doc_ids), fractions, seed)
    counts = Counter(map(split_of, doc_ids))
    n = len(doc_ids)
    assert counts["train"] == round(0.7 * n)
    assert counts["train"] + counts["dev"] == round((0.7 + 0.2) * n)
    twice = [*sorted(doc_ids, reverse=True), *doc_ids]
    again = random_split(twice, fractions, seed)
    assert [again(doc_id) for doc_id in doc_ids] == [split_of(doc_id) for doc_id in doc_ids]


def test_random_split_by_seed():
    names = [f"doc {i}" for i in range(200)]
    parts = [list(map(random_split(names, seed=seed), names)) for seed in (0, 1)]
    assert Counter(parts[0]) == Counter(parts[1]) == {"train": 160, "dev": 20, "test": 20}
    assert parts[0] != parts[1]


@pytest.mark.parametrize("fractions", [(1.0, 0.0, 0.0), (0.0, 0.0, 1.0), (0.0, 1.0, 0.0)])
def test_everything_in_one_split(fractions):
    names = [str(i) for i in range(9)]
    only = ("train", "dev", "test")[fractions.index(1.0)]
    assert set(map(random_split(names, fractions), names)) == {only}


@pytest.mark.parametrize(
    "fractions", [(0.5, 0.5, 0.5), (1.5, -0.5, 0.0), (1.0,), (0.5, float("nan"), 0.5)]
)
def test_wrong_fractions(fractions):
    with pytest.raises(ValueError, match="three numbers of at least 0 with sum 1"):
        random_split([], fractions)


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
    with pytest.raises(CorpusError, match=r"train\.txt: no documents of the format 'columns'"):
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


@pytest.fixture
def nlp():
    return spacy.blank("en")


def test_character_tokens(nlp):
    record = Record("d", "dev", "我在 ABC。", [(3, 6, "ORG"), (0, 1, "PER")])
    doc, dropped = record_to_doc(record, nlp, tokens="character")
    assert [token.text for token in doc] == list("我在ABC。") and not dropped
    assert [span.text for span in doc.spans["sc"]] == ["A B C", "我"]  # spaces unknown
    doc, _ = record_to_doc(record, spacy.blank("zh"), tokens="character")
    assert doc.text == record.text and not doc.has_unknown_spaces
    assert [span.text for span in doc.spans["sc"]] == ["ABC", "我"]


def test_tokens_cut_at_entities(nlp):
    record = Record("d", "dev", "antiCD28s cells.", [(0, 15, "X"), (4, 8, "P")])
    doc, dropped = record_to_doc(record, nlp)
    assert dropped == {("misaligned", "P"): 1} and not doc.has_unknown_spaces
    doc, dropped = record_to_doc(record, nlp, tokens="cut")
    assert not dropped and doc.spans["sc"][1].text == "CD28"
    assert [token.text for token in doc] == ["anti", "CD28", "s", "cells", "."]
    assert doc.has_unknown_spaces and doc.user_data["text"] == "antiCD28s cells."


def test_words_without_a_text_of_their_own_have_none(nlp):
    words = ["B", "cells", "."]
    joined = words_record("d", "dev", words, [(0, 2, "X")], ReadOptions())
    doc, _ = record_to_doc(joined, nlp)
    assert doc.has_unknown_spaces and "text" not in doc.user_data
    for record in (Record("d", "dev", "B cells.", [], ["B", "cells."]), joined):
        part = next(split_at_sentences(record))
        assert part.has_text == record.has_text


def test_spacy_tokens_of_a_tokenised_corpus(nlp):
    record = Record("d", "dev", "can't go .", [(0, 5, "X")], ["can't", "go", "."])
    doc, _ = record_to_doc(record, nlp, tokens="spacy")
    assert [token.text for token in doc] == ["ca", "n't", "go", "."]


@pytest.mark.parametrize("how, count", [("corpus", 1), ("lines", 2), ("rules", 2)])
def test_sentences_of_plain_text(nlp, how, count):
    record = Record("d", "dev", "One is. Two\nis too.\n", [(8, 14, "X")], sentence_starts=[])
    record.dropped["why", "x"] += 1
    options = ReadOptions(sentences=how)
    docs = list(record_to_docs(record, nlp, "sc", options))
    # The entity bridges the line end, so by lines only what is before it would be cut off.
    assert len(docs) == (1 if how == "lines" else count)
    assert sum(len(doc.spans["sc"]) for doc, _ in docs) == 1
    assert sum(dropped["why", "x"] for _, dropped in docs) == 1
    assert docs[0][0].has_annotation("SENT_START") == (how != "corpus")


def test_articles_keep_their_sentences(nlp):
    record = Record("d", "dev", "One. Two.", [], sentence_starts=[0, 5])
    ((doc, _),) = record_to_docs(record, nlp, "sc", ReadOptions(group="article"))
    assert [sentence.text for sentence in doc.sents] == ["One.", "Two."]


def test_found_sentences_of_an_article_do_not_cut_entities(nlp):
    record = Record("d", "dev", "Mr. X. Dole\nis. He.", [(0, 14, "X")], sentence_starts=[])
    options = ReadOptions(group="article", sentences="lines")
    ((doc, _),) = record_to_docs(record, nlp, "sc", options)
    assert len(list(doc.sents)) == 1 and doc.has_annotation("SENT_START")


TEXTS = st.lists(st.lists(st.sampled_from(["a", "bc", "d"]), min_size=1, max_size=4), min_size=1)


@given(TEXTS)
def test_sentences_to_an_article_and_back(sentences):
    records = [
        Record("d", "dev", " ".join(words), [(0, len(words[0]), f"L{i}")], words)
        for i, words in enumerate(sentences)
    ]
    (article,) = grouped(records, "article")
    back = list(split_at_sentences(article))
    assert [(r.text, r.words, r.spans) for r in back] == [
        (r.text, r.words, r.spans) for r in records
    ]


def docs_for(nlp, count):
    for i in range(count):
        doc = nlp.make_doc(f"Doc {i} is in Tromsø . " * (i % 4))
        if i % 3 == 0:
            doc = Doc(nlp.vocab, words=["New", f"w{i}"])
            doc[0].is_sent_start = True
        doc.spans["sc"] = [Span(doc, 0, 2, label=f"L{i % 5}")] if len(doc) else []
        doc.user_data["doc_id"] = f"d{i}"
        yield doc


@pytest.mark.parametrize("count", [0, 1, 15, 16, 70])
def test_files_written_doc_by_doc_are_those_of_a_docbin(nlp, tmp_path, count):
    doc_bin = DocBin(attrs=["SENT_START"], store_user_data=True)
    with DocBinWriter() as writer:
        for doc in docs_for(nlp, count):
            doc_bin.add(doc)
            writer.add(doc)
        writer.write(tmp_path / "a.spacy")
        writer.write(tmp_path / "b.spacy")
    expected = zlib.decompress(doc_bin.to_bytes())
    assert zlib.decompress((tmp_path / "a.spacy").read_bytes()) == expected
    assert (tmp_path / "a.spacy").read_bytes() == (tmp_path / "b.spacy").read_bytes()
    docs = list(DocBin().from_disk(tmp_path / "a.spacy").get_docs(nlp.vocab))
    assert [doc.user_data["doc_id"] for doc in docs] == [f"d{i}" for i in range(count)]


def test_parts_that_outgrow_memory_go_to_disk(nlp, tmp_path, monkeypatch):
    monkeypatch.setattr("spacy_nested_ner.corpora.docbin.KEPT_IN_MEMORY", 100)
    doc_bin = DocBin(attrs=["SENT_START"], docs=docs_for(nlp, 70), store_user_data=True)
    with DocBinWriter() as writer:
        for doc in docs_for(nlp, 70):
            writer.add(doc)
        assert writer._parts["tokens"]._rolled  # type: ignore[attr-defined]
        writer.write(tmp_path / "a.spacy")
    raw = zlib.decompress((tmp_path / "a.spacy").read_bytes())
    assert raw == zlib.decompress(doc_bin.to_bytes())
