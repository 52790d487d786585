"""From the records of a reader to spaCy `Doc`s."""

from __future__ import annotations

from typing import List, Tuple

from spacy.language import Language
from spacy.tokens import Doc, Span

from spacy_nested_ner.corpora.records import Dropped, Record


def record_to_doc(record: Record, nlp: Language, spans_key: str = "sc") -> Tuple[Doc, Dropped]:
    """One doc with its gold entities in `doc.spans[spans_key]`, and what was dropped.

    Given words make a doc of unknown spaces, which spaCy's training and evaluation leave as it
    is; a doc with known spaces they would tokenise anew. `doc.user_data["doc_id"]` is the id.

    Dropped are the reader's omissions and the spans that fit no token boundary ("misaligned").
    """
    words = record.words
    doc = nlp.make_doc(record.text) if words is None else Doc(nlp.vocab, words=words)
    dropped = Dropped(record.dropped)
    doc.spans[spans_key] = _aligned(doc, record, dropped)
    _mark_sentences(doc, record.sentence_starts)
    doc.user_data["doc_id"] = record.doc_id
    return doc, dropped


def _aligned(doc: Doc, record: Record, dropped: Dropped) -> List[Span]:
    spans = []
    for start, end, label in record.spans:
        span = doc.char_span(start, end, label=label)
        if span is None:
            dropped["misaligned", label] += 1
        else:
            spans.append(span)
    return spans


def _mark_sentences(doc: Doc, starts: List[int]) -> None:
    """A sentence starts at the first token that ends after its first character."""
    pending = sorted(starts, reverse=True)
    for token in doc:
        token.is_sent_start = token.i == 0
        while pending and pending[-1] < token.idx + len(token):
            pending.pop()
            token.is_sent_start = True
