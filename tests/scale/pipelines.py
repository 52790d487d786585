"""Pipelines on disk, tables of texts, and what the annotator has to find in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Optional

import spacy
from spacy.language import Language

from tests.conftest import SENTENCES, make_pipeline, train

TEXTS = [text for text, _ in SENTENCES]


def save_pipeline(path: Path, updates: int = 60) -> Path:
    """A pipeline that finds nested entities in the ten sentences."""
    train(make_pipeline("locate_and_label_ner"), updates).to_disk(path)
    return path


def expected(nlp: Language, text: str) -> List[Dict[str, Any]]:
    """The spans of a text in the order and form of the output."""
    doc = nlp(text)
    spans = zip(doc.spans["sc"], doc.spans["sc"].attrs["scores"].tolist())
    found = [
        {"start": s.start_char, "end": s.end_char, "label": s.label_, "score": score}
        for s, score in spans
    ]
    return sorted(found, key=lambda span: (span["start"], -span["end"], span["label"]))


def assert_annotated(rows: List[Dict[str, Any]], model: Path, texts: List[Optional[str]]) -> None:
    """Rows are those of the texts in their order: with their entities, with an error where there is
    no text. The entities are many, and some of them nest."""
    nlp, number = spacy.load(model), 0
    assert len(rows) == len(texts)
    for row, text in zip(rows, texts):
        if text is None:
            assert row["spans"] is None and row["n_tokens"] is None and "null" in row["error"]
            continue
        wanted = expected(nlp, text)
        assert row["error"] is None and row["n_tokens"] == len(nlp.make_doc(text))
        assert len(row["spans"]) == len(wanted)
        for span, other in zip(row["spans"], wanted):
            assert abs(span.pop("score") - other.pop("score")) < 1e-4
            assert span == other
        number += len(wanted)
    assert number > len(texts)
