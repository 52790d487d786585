"""Records in the terms of the normalised corpora: words, and entities counted in words."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from spacy_nested_ner.corpora import ReadOptions, get_reader
from spacy_nested_ner.corpora.sentences import split_at_sentences, word_places
from spacy_nested_ner.corpora.statistics import nesting


def read(name, path, **options):
    """Sentences of all records of a file or folder."""
    records = get_reader(name)(path, ReadOptions(**options))
    return [part for record in records for part in split_at_sentences(record)]


def entities(record):
    """(text, label) of each entity."""
    return [(record.text[start:end], label) for start, end, label in record.spans]


def in_words(record):
    places = word_places(record.text, record.words)
    first = {start: i for i, (start, _) in enumerate(places)}
    last = {end: i + 1 for i, (_, end) in enumerate(places)}
    return record.words, sorted((first[a], last[b], label) for a, b, label in record.spans)


def normalised(path: Path):
    with path.open(encoding="utf8") as file:
        for line in file:
            row = json.loads(line)
            spans = sorted((e["start"], e["end"], e["label"]) for e in row["entities"])
            yield row["tokens"], spans


def table(records):
    """Sentences, those with nested entities, entities, nested ones, most in a sentence."""
    rows = [Counter((a, b) for a, b, _ in record.spans) for record in records]
    nested = []
    for row in rows:
        nested.append(sum(row[place] for place in nesting(row.elements()).nested))
    return (
        len(rows),
        sum(map(bool, nested)),
        sum(row.total() for row in rows),
        sum(nested),
        max(row.total() for row in rows),
    )
