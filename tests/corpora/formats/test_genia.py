from __future__ import annotations

import gzip
import hashlib
import json
import tarfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest
import spacy
from spacy.training import Corpus

from spacy_nested_ner.corpora import CorpusError, ReadOptions, get_reader
from spacy_nested_ner.corpora.convert import convert_corpus
from spacy_nested_ner.corpora.docs import record_to_doc
from spacy_nested_ner.corpora.formats import genia
from spacy_nested_ner.corpora.formats.genia import SPLIT_SIZES, read_genia
from spacy_nested_ner.corpora.statistics import SplitStatistics

TABLE = {  # sentences, tokens, entities, nested, sentences with nested, deepest, most per sentence
    "train": (15023, 381974, 46142, 8265, 3197, 4, 25),
    "dev": (1669, 41111, 4367, 799, 325, 3, 18),
    "test": (1854, 48179, 5506, 1199, 446, 3, 14),
}
BY_LABEL = {
    "train": {"protein": 28840, "DNA": 7684, "cell_type": 5853, "cell_line": 3069, "RNA": 696},
    "dev": {"protein": 2316, "DNA": 1030, "cell_type": 558, "cell_line": 330, "RNA": 133},
    "test": {"protein": 3084, "DNA": 1262, "cell_type": 606, "cell_line": 445, "RNA": 109},
}
DIGESTS = {  # of a copy of the data set that was made without this package
    "train": "d0103913eba9a2833d4bee1a863af59b8e4321e91549ac5b3607d02c901fd6ec",
    "dev": "fc2fc608af86e2619cad2d97bc17cddf80cf896fb8aa967425c8a86415bc4112",
    "test": "bf2fa8fb8bb84c2b90dfb7420dbf5eae9e2f069e7fc2f5ce6500eef7ad73edfc",
}


@pytest.fixture(scope="session")
def whole(genia_archive):
    """Statistics per split, and every sentence as (doc id, words, entities in tokens)."""
    nlp = spacy.blank("en")
    statistics = {split: SplitStatistics() for split in SPLIT_SIZES}
    sentences = {split: [] for split in SPLIT_SIZES}
    for record in read_genia(genia_archive, ReadOptions()):
        doc, dropped = record_to_doc(record, nlp)
        statistics[record.split].add(doc, "sc", dropped)
        sentences[record.split].append(as_tokens(doc))
    return statistics, sentences


def as_tokens(doc):
    entities = sorted((span.start, span.end, span.label_) for span in doc.spans["sc"])
    return doc.user_data["doc_id"], [token.text for token in doc], entities


def from_json(line: str):
    row = json.loads(line)
    entities = sorted((e["start"], e["end"], e["label"]) for e in row["entities"])
    return row["doc_id"], row["tokens"], entities


@pytest.mark.parametrize("split", SPLIT_SIZES)
def test_whole_corpus_has_the_published_counts(whole, split):
    counts = whole[0][split]
    assert TABLE[split] == (
        counts.sentences,
        counts.tokens,
        counts.entities,
        counts.nested_entities,
        counts.nested_sentences,
        counts.max_depth,
        counts.most_in_sentence,
    )
    assert dict(counts.labels) == BY_LABEL[split]
    assert counts.crossing_pairs == 0
    assert not counts.same_span
    assert "misaligned" not in counts.dropped_by_reason()


def test_whole_corpus_second_labels(whole):
    second = {
        split: whole[0][split].dropped_by_reason()["second label on a span"] for split in TABLE
    }
    assert second["train"] + second["dev"] == 26
    assert second["test"] == 5


@pytest.mark.parametrize("split", SPLIT_SIZES)
def test_whole_corpus_equals_the_published_sentences(whole, split):
    """Every document, word and entity, by a digest of the published data set."""
    rows = (json.dumps(row).encode("utf8") for row in whole[1][split])
    assert hashlib.sha256(b"".join(rows)).hexdigest() == DIGESTS[split]


def test_sample_equals_the_published_sentences(genia_sample, genia_expected):
    nlp = spacy.blank("en")
    docs = [record_to_doc(record, nlp)[0] for record in read_genia(genia_sample, ReadOptions())]
    expected = [from_json(line) for line in genia_expected.read_text("utf8").splitlines()]
    assert [as_tokens(doc) for doc in docs] == expected
    assert len(docs) == 185
    assert sum(len(doc.spans["sc"]) for doc in docs) == 680


def test_partial_corpus_warns_that_the_split_is_not_the_published_one(genia_sample, caplog):
    list(read_genia(genia_sample, ReadOptions()))
    assert "18546 sentences, but this file has 185" in caplog.text


def test_spacy_tokens_keep_text_and_entities_of_the_xml(genia_sample):
    """The XML is read a second time, with another parser, to know what should come out."""
    nlp = spacy.blank("en")
    elements = list(ElementTree.parse(genia_sample).iter("sentence"))
    records = list(read_genia(genia_sample, ReadOptions(tokens="spacy", all_labels=True)))
    assert len(records) == len(elements)
    total = Counter()
    for element, record in zip(elements, records):
        doc, dropped = record_to_doc(record, nlp)
        assert doc.text == "".join(element.itertext())
        wanted = Counter(
            ("".join(cons.itertext()).strip(), label)
            for cons in element.iter("cons")
            for label in LABELS
            if (cons.get("sem") or "").removeprefix("G#").startswith(label)
        )
        found = Counter((span.text, span.label_) for span in doc.spans["sc"])
        assert not found - wanted
        lost = {key: n for key, n in dropped.items() if key[0] in LOSSES}
        assert found.total() + sum(lost.values()) == wanted.total()
        total.update(lost)
    assert total["misaligned", "protein"] > 0  # "CD28-mediated" is in the sample


LABELS = ("DNA", "RNA", "cell_line", "cell_type", "protein")
LOSSES = ("misaligned", "same label twice on one span")


@pytest.mark.parametrize("tokens", ["published", "spacy"])
def test_articles_hold_the_same_entities_as_their_sentences(genia_sample, tokens):
    nlp = spacy.blank("en")

    def convert(group):
        counts = SplitStatistics()
        texts = []
        for record in read_genia(genia_sample, ReadOptions(tokens=tokens, group=group)):
            doc, dropped = record_to_doc(record, nlp)
            counts.add(doc, "sc", dropped)
            texts += [("".join(span.text.split()), span.label_) for span in doc.spans["sc"]]
        return counts, texts

    by_sentence, texts = convert("sentence")
    by_article, article_texts = convert("article")
    assert by_article.documents == 18
    assert article_texts == texts
    by_article.documents = by_sentence.documents
    assert by_article == by_sentence


def test_an_article_across_splits_is_cut_at_the_split(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "spacy_nested_ner.corpora.formats.genia.SPLIT_SIZES", {"train": 1, "test": 1}
    )
    path = write(tmp_path, "<sentence>one two</sentence><sentence>three</sentence>")
    records = list(read_genia(path, ReadOptions(group="article")))
    assert [(r.split, r.text, r.doc_id) for r in records] == [
        ("train", "one two", "MEDLINE:1"),
        ("test", "three", "MEDLINE:1"),
    ]


def write(folder: Path, sentences: str, before: str = "", name: str = "genia.xml") -> Path:
    path = folder / name
    path.write_text(
        f'<?xml version="1.0" encoding="UTF-8"?>\n{before}<set>\n<article>\n'
        "<articleinfo><bibliomisc>MEDLINE:1</bibliomisc></articleinfo>\n"
        f"<title></title><abstract>\n{sentences}\n</abstract></article></set>\n",
        encoding="utf8",
    )
    return path


def only(path: Path, **options):
    (record,) = read_genia(path, ReadOptions(**options))
    return record


def entities(record):
    return [(record.text[start:end], label) for start, end, label in record.spans]


def test_words_of_the_merged_release_are_tokens(tmp_path):
    path = write(
        tmp_path,
        '<sentence><w c="DT">The</w> <cons sem="G#protein_complex"><cons sem="G#protein_molecule">'
        '<w c="*">CD28</w></cons><w c="JJ">-responsive</w> <w c="NN">com plex</w></cons>'
        '<w c=".">.</w></sentence>',
    )
    record = only(path)
    assert record.words == ["The", "CD28", "-responsive", "com plex", "."]
    assert entities(record) == [("CD28-responsive com plex", "protein"), ("CD28", "protein")]
    raw = only(path, tokens="spacy")
    assert (raw.text, raw.words) == ("The CD28-responsive com plex.", None)
    assert entities(raw) == [("CD28-responsive com plex", "protein"), ("CD28", "protein")]


def test_classes_coordinations_and_terms_without_a_class(tmp_path):
    path = write(
        tmp_path,
        '<sentence><cons sem="(AND G#protein_molecule G#protein_molecule)"><cons>alpha</cons> and '
        '<cons sem="G#cell_line">Jurkat </cons><cons sem="G#proteinaceous">x</cons></cons> '
        '<cons sem="G#RNA_family"></cons>end</sentence>',
    )
    record = only(path)
    assert entities(record) == [("Jurkat", "cell_line")]
    assert record.dropped == {
        ("coordination", "AND"): 1,
        ("term without a class", ""): 1,
        ("other class", "G#proteinaceous"): 1,
        ("no text", "RNA"): 1,
    }


TWO_LABELS = (
    '<sentence><cons sem="G#protein_molecule"><cons sem="G#DNA_domain"><cons sem="G#DNA_other">'
    "AP-1</cons></cons></cons> site</sentence>"
)


def test_one_label_per_span(tmp_path):
    record = only(write(tmp_path, TWO_LABELS))
    assert entities(record) == [("AP-1", "protein")]
    assert record.dropped == {
        ("same label twice on one span", "DNA"): 1,
        ("second label on a span", "DNA beside protein"): 1,
    }


def test_all_labels_of_a_span(tmp_path):
    record = only(write(tmp_path, TWO_LABELS), all_labels=True)
    assert entities(record) == [("AP-1", "DNA"), ("AP-1", "protein")]
    counts = SplitStatistics()
    counts.add(*with_key(record_to_doc(record, spacy.blank("en"))))
    assert counts.same_span == {"DNA + protein": 1}
    assert counts.nested_entities == 2


def with_key(converted):
    doc, dropped = converted
    return doc, "sc", dropped


@pytest.mark.parametrize("kind", ["xml", "xml.gz", "tar", "tgz"])
def test_plain_gzipped_and_archived_files_read_the_same(tmp_path, genia_sample, kind):
    path = tmp_path / f"genia.{kind}"
    if kind == "xml":
        path.write_bytes(genia_sample.read_bytes())
    elif kind == "xml.gz":
        path.write_bytes(gzip.compress(genia_sample.read_bytes()))
    else:
        with tarfile.open(path, "w:gz" if kind == "tgz" else "w") as archive:
            archive.add(genia_sample.parent / "LICENSE", "corpus/LICENSE")
            archive.add(genia_sample, "corpus/genia.xml")
    options = ReadOptions()
    assert list(read_genia(path, options)) == list(read_genia(genia_sample, options))


def test_sentences_come_while_the_file_is_read(tmp_path, genia_sample):
    """What stands before the damage is handed out: the file is not read as a whole first."""
    path = tmp_path / "cut.xml"
    path.write_bytes(genia_sample.read_bytes()[:80_000])
    records = read_genia(path, ReadOptions())
    assert next(records).doc_id == "MEDLINE:95369245"
    with pytest.raises(CorpusError):
        list(records)


def convert(path: Path, folder: Path):
    records = get_reader("genia")(path, ReadOptions())
    return convert_corpus(records, folder / "out", spacy.blank("en"))


def refused(path: Path, folder: Path) -> str:
    """The message of the refusal; nothing may be left on disk."""
    with pytest.raises(CorpusError) as info:
        convert(path, folder)
    assert not (folder / "out").exists()
    assert str(path) in str(info.value)
    return str(info.value)


def test_truncated_xml(tmp_path, genia_sample):
    text = genia_sample.read_text("utf8")
    path = tmp_path / "cut.xml"
    path.write_text(text[: len(text) // 2], encoding="utf8")
    last_line = text[: len(text) // 2].count("\n") + 1
    message = refused(path, tmp_path)
    assert f"line {last_line}" in message
    assert "ends too early" in message and "Expected GENIA XML" in message


def test_malformed_xml(tmp_path, genia_sample):
    lines = genia_sample.read_text("utf8").splitlines()
    number = next(i for i, line in enumerate(lines) if line.count("</cons>") > 3)
    lines[number] = lines[number].replace("</cons>", "", 1)
    path = tmp_path / "bad.xml"
    path.write_text("\n".join(lines), encoding="utf8")
    assert f"line {number + 1}: mismatched tag" in refused(path, tmp_path)


def archived(sample: Path, folder: Path) -> bytes:
    path = folder / "whole.tgz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(sample, "corpus/genia.xml")
    content = path.read_bytes()
    path.unlink()
    return content


@pytest.mark.parametrize("kind", ["tgz", "xml.gz"])
@pytest.mark.parametrize("share", [0.001, 0.5, 0.99])
def test_truncated_archive(tmp_path, genia_sample, kind, share):
    if kind == "tgz":
        content = archived(genia_sample, tmp_path)
    else:
        content = gzip.compress(genia_sample.read_bytes())
    path = tmp_path / f"cut.{kind}"
    path.write_bytes(content[: int(len(content) * share)])
    assert "damaged or cut off" in refused(path, tmp_path)


def test_damaged_archive(tmp_path, genia_sample):
    content = bytearray(archived(genia_sample, tmp_path))
    content[10_000:10_100] = bytes(100)
    path = tmp_path / "bad.tgz"
    path.write_bytes(content)
    refused(path, tmp_path)


def test_archive_without_xml(tmp_path, genia_sample):
    path = tmp_path / "other.tgz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(genia_sample.parent / "LICENSE", "LICENSE")
    assert "It holds: LICENSE" in refused(path, tmp_path)


def test_missing_file(tmp_path):
    assert "no such file" in refused(tmp_path / "none.tgz", tmp_path)
    assert "a folder. Expected a file with GENIA XML" in refused(tmp_path, tmp_path)


@pytest.mark.parametrize(
    "content, problem",
    [
        ("<html><body/></html>", "the root element is <html>, not <set>"),
        ("<set>\n</set>", "the file has no <sentence>"),
        ("<set>\n<sentence>a</sentence></set>", "line 2: <sentence> inside <set>"),
        ("", "ends too early"),
        ("not XML", "line 1: syntax error"),
    ],
)
def test_other_content(tmp_path, content, problem):
    path = tmp_path / "other.xml"
    path.write_text(content, encoding="utf8")
    assert problem in refused(path, tmp_path)


def test_unknown_element_in_a_sentence(tmp_path):
    path = write(tmp_path, "<sentence>a <b>c</b></sentence>")
    assert "line 6: <b> inside <sentence>" in refused(path, tmp_path)


def test_entity_declarations_are_refused(tmp_path):
    """ "Billion laughs": some hundred bytes that would expand to gigabytes."""
    levels = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">\n' for i in range(1, 10))
    before = f'<!DOCTYPE set [\n<!ENTITY l0 "laugh">\n{levels}]>\n'
    path = write(tmp_path, "<sentence>&l9;</sentence>", before)
    message = refused(path, tmp_path)
    assert "line 3: the file declares the XML entity 'l0'" in message


def test_external_entities_are_refused(tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("secret", encoding="utf8")
    before = f'<!DOCTYPE set [<!ENTITY x SYSTEM "{secret.as_uri()}">]>\n'
    path = write(tmp_path, "<sentence>&x;</sentence>", before)
    assert "declares the XML entity 'x'" in refused(path, tmp_path)


def test_entities_of_an_unread_dtd_are_refused(tmp_path):
    path = write(tmp_path, "<sentence>&alpha;</sentence>", '<!DOCTYPE set SYSTEM "gpml.dtd">\n')
    assert "'alpha' is not defined" in refused(path, tmp_path)


def test_predefined_and_numeric_entities_are_text(tmp_path):
    assert only(write(tmp_path, "<sentence>a &lt; &#946;</sentence>")).text == "a < β"


def test_published_tokens_survive_the_corpus_reader_of_training(tmp_path, genia_sample):
    """A doc of known spaces would be tokenised anew by `spacy train` and `spacy evaluate`."""
    convert(genia_sample, tmp_path)
    examples = list(Corpus(tmp_path / "out" / "train.spacy")(spacy.blank("en")))
    assert len(examples) == 185
    for example in examples:
        words = [token.text for token in example.reference]
        assert [token.text for token in example.predicted] == words
        assert example.reference.user_data["doc_id"].startswith("MEDLINE:")


def test_an_article_with_parts_of_speech(samples):
    """The words of the release with parts of speech; it has no terms."""
    path = samples / "genia" / "GENIAcorpus3.02.articleA.pos.xml"
    elements = list(ElementTree.parse(path).iter("sentence"))
    records = list(read_genia(path, ReadOptions()))
    assert [record.words for record in records] == [
        [word.text for word in element.iter("w")] for element in elements
    ]
    assert len(records) > 5 and not any(record.spans for record in records)
    assert {record.doc_id for record in records} == {"MEDLINE:95369245"}
    raw = list(read_genia(path, ReadOptions(tokens="spacy")))
    assert [r.text for r in raw] == ["".join(element.itertext()) for element in elements]


@pytest.mark.parametrize("encoding", ["x-none", "hex", "undefined", "utf-7", "shift_jis"])
def test_unknown_encodings(tmp_path, encoding):
    path = tmp_path / "a.xml"
    path.write_text(f'<?xml version="1.0" encoding="{encoding}"?>\n<set/>', encoding="utf8")
    problem = f"line 1: the file declares the encoding '{encoding}', which is not known"
    with pytest.raises(CorpusError, match=problem):
        list(get_reader("genia")(path, ReadOptions()))


def test_encodings_of_one_byte(tmp_path):
    text = (
        '<?xml version="1.0" encoding="cp1250"?><set><article><title><sentence>Łódź</sentence>'
        "</title></article></set>"
    )
    path = tmp_path / "a.xml"
    path.write_text(text, encoding="cp1250")
    (record,) = get_reader("genia")(path, ReadOptions())
    assert record.text == "Łódź"


def test_terms_outside_of_sentences_are_refused(tmp_path):
    path = write(tmp_path, '<sentence>a</sentence><cons sem="G#cell_type">T cell</cons>')
    assert "<cons> outside of a <sentence>" in refused(path, tmp_path)


def test_surplus_sentences_are_not_for_training(genia_sample, monkeypatch):
    monkeypatch.setattr(genia, "SPLIT_SIZES", {"train": 2, "dev": 1, "test": 1})
    splits = [record.split for record in read_genia(genia_sample, ReadOptions())]
    assert len(splits) > 4 and splits == ["train", "train", "dev"] + ["test"] * (len(splits) - 3)
