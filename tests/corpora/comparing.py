"""Records in the terms of the samples: words, and entities counted in words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spacy_nested_ner.corpora import CorpusError, Problems, ReadOptions, get_reader
from spacy_nested_ner.corpora.sentences import split_at_sentences, word_places


def read(name, path, **options):
    """Sentences of all records of a file or folder."""
    records = get_reader(name)(path, ReadOptions(**options))
    return [part for record in records for part in split_at_sentences(record)]


def check_malformed(name, path, place, problem, kept):
    """Reading ends with this problem at that place or, with errors skipped, goes on behind it:
    `kept` are the texts that are left."""
    with pytest.raises(CorpusError, match=f"{place}: .*{problem}"):
        read(name, path)
    problems = Problems(skip=True, quiet=True)
    records = read(name, path, problems=problems)
    assert [record.text for record in records] == kept and problems.count == 1


def entities(record):
    """(text, label) of each entity."""
    return [(record.text[start:end], label) for start, end, label in record.spans]


def in_words(record):
    """Split, words, and entities as `(first, after the last, label)` in words."""
    places = word_places(record.text, record.words)
    first = {start: i for i, (start, _) in enumerate(places)}
    last = {end: i + 1 for i, (_, end) in enumerate(places)}
    spans = sorted((first[a], last[b], label) for a, b, label in record.spans)
    return record.split, record.words, spans


def expected(path: Path):
    """What an `expected.jsonl` says, as `in_words` does."""
    rows = map(json.loads, path.read_text("utf8").splitlines())
    return [(r["split"], r["tokens"], [tuple(span) for span in r["entities"]]) for r in rows]


def mentions(samples: Path, doc_id: str):
    """What a document in one of the formats of ACE holds."""
    lines = (samples / "ace" / "expected.jsonl").read_text("utf8").splitlines()
    return next(doc for doc in map(json.loads, lines) if doc["doc_id"] == doc_id)["mentions"]


# Two neighbours of one label, an entity of one word, one of three, and one at the end.
SPANS = [(0, 2, "A"), (2, 3, "A"), (4, 7, "B-x"), (8, 9, "C")]
TAGS = {
    "BIO": "B-A I-A B-A O B-B-x I-B-x I-B-x O B-C",
    "IOB1": "I-A I-A B-A O I-B-x I-B-x I-B-x O I-C",
    "BIOES": "B-A E-A S-A O B-B-x I-B-x E-B-x O S-C",
    "BMES": "B-A E-A S-A O B-B-x M-B-x E-B-x O S-C",
}
