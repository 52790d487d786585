"""From the records of a reader to spaCy `Doc`s."""

from __future__ import annotations

from typing import Iterator, List, Set, Tuple

from spacy.language import Language
from spacy.pipeline import Sentencizer
from spacy.tokens import Doc, Span

from spacy_nested_ner.corpora.records import ReadOptions, Record
from spacy_nested_ner.corpora.sentences import (
    line_starts,
    split_at_sentences,
    unbridged_starts,
    word_places,
)
from spacy_nested_ner.corpora.spans import Dropped


def record_to_docs(
    record: Record, nlp: Language, spans_key: str, options: ReadOptions
) -> Iterator[Tuple[Doc, Dropped]]:
    """The docs of a record, with what each had to leave out: one, or one per sentence."""
    if not record.sentence_starts and options.sentences != "corpus":
        record.sentence_starts = _find_sentences(record.text, nlp, options.sentences)
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

    tokens: see `ReadOptions`.

    Dropped are the reader's omissions and the spans that fit no token boundary ("misaligned").
    """
    dropped = Dropped(record.dropped)
    doc, places = _tokenize(record, nlp, tokens)
    starts = {start: i for i, (start, _) in enumerate(places)}
    ends = {end: i + 1 for i, (_, end) in enumerate(places)}
    spans = []
    for start, end, label in record.spans:
        if start in starts and end in ends:
            spans.append(Span(doc, starts[start], ends[end], label=label))
        else:
            dropped["misaligned", label] += 1
    doc.spans[spans_key] = spans
    if record.sentence_starts:
        _mark_sentences(doc, places, record.sentence_starts)
    doc.user_data["doc_id"] = record.doc_id
    if doc.has_unknown_spaces and record.has_text:
        doc.user_data["text"] = record.text
    return doc, dropped


def _tokenize(record: Record, nlp: Language, tokens: str) -> Tuple[Doc, List[Tuple[int, int]]]:
    """A doc and the characters of its tokens in the text of the record."""
    text, words = record.text, record.words
    if tokens == "character":
        words = [character for character in text if not character.isspace()]
    if words is None or tokens == "spacy":
        doc = nlp.make_doc(text)
        places = [(token.idx, token.idx + len(token)) for token in doc]
    else:
        places = word_places(text, words)
        doc = _doc_of_words(text, words, nlp)
    if tokens == "cut":
        edges = {edge for start, end, _ in record.spans for edge in (start, end)}
        cut = [piece for place in places for piece in _pieces(place, edges)]
        if cut != places:
            return Doc(nlp.vocab, words=[text[start:end] for start, end in cut]), cut
    return doc, places


def _doc_of_words(text: str, words: List[str], nlp: Language) -> Doc:
    """With the true text where the tokenizer agrees, as it does on Chinese characters with the
    language zh; with unknown spaces otherwise."""
    if text != " ".join(words):
        doc = nlp.make_doc(text)
        if [token.text for token in doc] == words:
            return doc
    return Doc(nlp.vocab, words=words)


def _pieces(place: Tuple[int, int], edges: Set[int]) -> List[Tuple[int, int]]:
    """A token cut at the edges that lie inside it."""
    start, end = place
    inside = [i for i in range(start + 1, end) if i in edges]
    return list(zip([start, *inside], [*inside, end]))


def _find_sentences(text: str, nlp: Language, how: str) -> List[int]:
    if how == "lines":
        return line_starts(text)
    doc = Sentencizer()(nlp.make_doc(text))
    return [token.idx for token in doc if token.is_sent_start]


def _mark_sentences(doc: Doc, places: List[Tuple[int, int]], starts: List[int]) -> None:
    """A sentence starts at the first token that ends after its first character."""
    pending = sorted(starts, reverse=True)
    for token, (_, end) in zip(doc, places):
        token.is_sent_start = token.i == 0
        while pending and pending[-1] < end:
            pending.pop()
            token.is_sent_start = True
