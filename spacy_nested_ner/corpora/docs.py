"""From the records of a reader to spaCy `Doc`s."""

from __future__ import annotations

from typing import Any, Iterator, List, Set, Tuple

import numpy as np
from spacy.attrs import SENT_START
from spacy.language import Language
from spacy.pipeline import Sentencizer
from spacy.tokens import Doc, Span

from spacy_nested_ner.corpora.errors import CorpusError, shortened
from spacy_nested_ner.corpora.records import ReadOptions, Record
from spacy_nested_ner.corpora.sentences import (
    line_starts,
    outside_words,
    split_at_sentences,
    unbridged_starts,
    word_places,
)
from spacy_nested_ner.corpora.spans import Dropped
from spacy_nested_ner.corpora.statistics import MISALIGNED, MISALIGNED_EXAMPLE
from spacy_nested_ner.pipeline.tokens import make_doc

SHOWN = 80
"""Characters of a span that an example shows."""


def record_to_docs(
    record: Record, nlp: Language, spans_key: str, options: ReadOptions
) -> Iterator[Tuple[Doc, Dropped]]:
    """The docs of a record, with what each had to leave out: one, or one per sentence."""
    if not record.sentence_starts and options.sentences != "corpus":
        record.sentence_starts = _find_sentences(record, nlp, options.sentences)
        record.sentence_starts = unbridged_starts(record)
    parts = split_at_sentences(record) if options.group == "sentence" else iter([record])
    for part in parts:
        yield record_to_doc(part, nlp, spans_key, options.tokens)


def record_to_doc(
    record: Record, nlp: Language, spans_key: str = "sc", tokens: str = "published"
) -> Tuple[Doc, Dropped]:
    """One doc with its gold entities in `doc.spans[spans_key]`, and what was dropped.

    Words of the corpus, or cut otherwise than by the tokenizer of `nlp`, make a doc of unknown
    spaces, which spaCy's training and evaluation leave as it is; a doc with known spaces they
    would tokenise anew. `doc.user_data["doc_id"]` is the id, `doc.user_data["text"]` the text of a
    doc of unknown spaces, where the corpus has one: the pipeline is scored on it.
    `doc.user_data["misaligned"]` are the labels of the spans that fit no token boundary, if any,
    and `doc.user_data["misaligned_example"]` shows the first.

    tokens: see `ReadOptions`.

    Dropped are the reader's omissions and the spans that fit no token boundary ("misaligned").
    """
    dropped = Dropped(record.dropped)
    doc, places = _tokenize(record, nlp, tokens)
    wanted = {edge for start, end, _ in record.spans for edge in (start, end)}
    starts = {start: i for i, (start, _) in enumerate(places) if start in wanted}
    ends = {end: i + 1 for i, (_, end) in enumerate(places) if end in wanted}
    spans, misaligned = [], []
    for start, end, label in record.spans:
        if start in starts and end in ends:
            spans.append(Span(doc, starts[start], ends[end], label=label))
        else:
            misaligned.append((start, end, label))
    dropped.update((MISALIGNED, label) for _, _, label in misaligned)
    doc.spans[spans_key] = spans
    if record.sentence_starts:
        _mark_sentences(doc, places, record.sentence_starts)
    doc.user_data["doc_id"] = record.doc_id
    if misaligned:
        doc.user_data[MISALIGNED] = [label for _, _, label in misaligned]
        doc.user_data[MISALIGNED_EXAMPLE] = _in_its_tokens(record.text, places, *misaligned[0])
    if doc.has_unknown_spaces and record.has_text:
        doc.user_data["text"] = record.text
    return doc, dropped


def _in_its_tokens(
    text: str, places: List[Tuple[int, int]], start: int, end: int, label: str
) -> str:
    """A span, and the tokens that it touches."""
    touched = [place for place in places if place[0] < end and place[1] > start]
    around = text[min(start, touched[0][0]) : max(end, touched[-1][1])] if touched else ""
    span = shortened(text[start:end], SHOWN)
    return f"{label} {span!r} in {shortened(around, SHOWN)!r}"


def _tokenize(record: Record, nlp: Language, tokens: str) -> Tuple[Doc, List[Tuple[int, int]]]:
    """A doc and the characters of its tokens in the text of the record."""
    text, words = record.text, record.words
    if tokens == "character":
        words = [character for character in text if not character.isspace()]
    if words is None or tokens == "spacy":
        doc = _made_doc(text, nlp, record.doc_id)
        places = [(token.idx, token.idx + len(token)) for token in doc]
    else:
        try:
            places = word_places(text, words)
        except ValueError as err:  # a sentence that begins inside a word
            raise CorpusError(str(err), record.doc_id) from err
        doc = _doc_of_words(text, words, nlp, record.doc_id)
    if tokens == "cut":
        edges = {edge for start, end, _ in record.spans for edge in (start, end)}
        cut = [piece for place in places for piece in _pieces(place, edges)]
        if cut != places:
            return Doc(nlp.vocab, words=[text[start:end] for start, end in cut]), cut
    return doc, places


def _doc_of_words(text: str, words: List[str], nlp: Language, doc_id: str) -> Doc:
    """With the true text where the tokenizer agrees, as it does on Chinese characters with the
    language zh; with unknown spaces otherwise."""
    if text != " ".join(words):
        doc = _made_doc(text, nlp, doc_id)
        if [token.text for token in doc] == words:
            return doc
    return Doc(nlp.vocab, words=words)


def _pieces(place: Tuple[int, int], edges: Set[int]) -> List[Tuple[int, int]]:
    """A token cut at the edges that lie inside it."""
    start, end = place
    inside = [i for i in range(start + 1, end) if i in edges]
    return list(zip([start, *inside], [*inside, end]))


def _made_doc(text: str, nlp: Language, doc_id: str) -> Doc:
    """See `make_doc`.

    Raises CorpusError if the text is longer than `nlp.max_length`.
    """
    if len(text) > nlp.max_length:
        problem = (
            f"a text of {len(text):,} characters, but spaCy takes {nlp.max_length:,}. Cut it into "
            "several, for example with --sentences lines."
        )
        raise CorpusError(problem, doc_id)
    return make_doc(nlp, text)


def _find_sentences(record: Record, nlp: Language, how: str) -> List[int]:
    if how == "lines":
        return line_starts(record.text)
    doc = Sentencizer()(_made_doc(record.text, nlp, record.doc_id))
    starts = [token.idx for token in doc if token.is_sent_start]
    # A word of the corpus can be several tokens of spaCy's.
    return outside_words(starts, record.text, record.words or [])


def _mark_sentences(doc: Doc, places: List[Tuple[int, int]], starts: List[int]) -> None:
    """A sentence starts at the first token that ends after its first character."""
    pending = sorted(starts, reverse=True)
    marks: List[int] = []
    for _, end in places:
        begins = not marks
        while pending and pending[-1] < end:
            pending.pop()
            begins = True
        marks.append(1 if begins else -1)
    # All at once: spaCy looks through the whole doc whenever one token is set.
    array: Any = np.asarray(marks, dtype="int64").astype("uint64")
    doc.from_array([SENT_START], array)
