"""Docs with gold entities to the files that other systems read, sentence by sentence.

@writers.register("my_format")
def write_my_format(sentences: Iterable[Sentence], file: TextIO, ask: Ask) -> None: ...
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, TextIO, Tuple

import catalogue
from spacy.tokens import Doc

from spacy_nested_ner.corpora.files import written_together

writers = catalogue.create("spacy_nested_ner", "writers", entry_points=True)

Ask = Callable[[str], str]
"""The question that asks for a label."""


@dataclass
class Sentence:
    """doc_id: its document. spans: `(first, after the last, label)` in words."""

    doc_id: str
    words: List[str]
    spans: List[Tuple[int, int, str]]


def export_docs(
    docs: Iterable[Doc], corpus_format: str, path: Path, spans_key: str, ask: Ask = str
) -> Tuple[int, Counter]:
    """Write docs as a file of another format; nothing is written if that fails.

    Sentences that an entity bridges stay together; words of whitespace only are left out.

    ask: makes the question for a label, for formats that hold questions.

    Returns the number of sentences and what was dropped.

    Raises ValueError if there is no such format, or if it cannot hold what a doc has.
    """
    if corpus_format not in writers:
        known = ", ".join(sorted(writers.get_all()))
        raise ValueError(f"No writer for format {corpus_format!r}. Known formats: {known}.")
    dropped: Counter = Counter()
    count = 0

    def counted() -> Iterator[Sentence]:
        nonlocal count
        for doc in docs:
            for sentence in sentences_of(doc, spans_key, dropped):
                count += 1
                yield sentence

    with written_together([path]) as drafts, drafts[path].open("w", encoding="utf8") as file:
        writers.get(corpus_format)(counted(), file, ask)
    return count, dropped


def sentences_of(doc: Doc, spans_key: str, dropped: Counter) -> Iterator[Sentence]:
    """The sentences of a doc, the whole doc if it has no boundaries."""
    spans = sorted((span.start, span.end, span.label_) for span in doc.spans.get(spans_key, []))
    doc_id = str(doc.user_data.get("doc_id", ""))
    starts = [0]
    if doc.has_annotation("SENT_START"):
        bridged = {i for start, end, _ in spans for i in range(start + 1, end)}
        inner = (token.i for token in doc if token.is_sent_start and token.i)
        starts += [i for i in inner if i not in bridged]
    for first, last in zip(starts, [*starts[1:], len(doc)]):
        kept = [i for i in range(first, last) if not doc[i].is_space]
        places = {i: place for place, i in enumerate(kept)}
        inside = []
        for start, end, label in spans:
            if first <= start < last:
                words = [places[i] for i in range(start, end) if i in places]
                if words:
                    inside.append((words[0], words[-1] + 1, label))
                else:
                    dropped["no text", label] += 1
        if kept:
            yield Sentence(doc_id, [doc[i].text for i in kept], inside)


@writers.register("papers-json")
def write_papers_json(sentences: Iterable[Sentence], file: TextIO, ask: Ask) -> None:
    """JSON of PIQN, Locate and Label and DiffusionNER, with neighbouring sentences as context"""

    def items() -> Iterator[Dict[str, Any]]:
        for before, sentence, after in _with_neighbours(sentences):
            yield {
                "tokens": sentence.words,
                "entities": [
                    {"type": label, "start": start, "end": end}
                    for start, end, label in sentence.spans
                ],
                "relations": [],
                "org_id": sentence.doc_id,
                "ltokens": before.words if before else [],
                "rtokens": after.words if after else [],
            }

    _write_list(items(), file)


@writers.register("mrc-json")
def write_mrc_json(sentences: Iterable[Sentence], file: TextIO, ask: Ask) -> None:
    """JSON of BERT-MRC: an item for each sentence and label, with the label's question"""
    listed = list(sentences)
    labels = sorted({label for sentence in listed for _, _, label in sentence.spans})
    if not labels:
        raise ValueError("there are no entities, so there is no label that BERT-MRC could ask for.")
    _write_list(
        (
            _mrc_item(sentence, f"{i}.{j}", label, ask(label))
            for i, sentence in enumerate(listed)
            for j, label in enumerate(labels)
        ),
        file,
    )


def _mrc_item(sentence: Sentence, item_id: str, label: str, question: str) -> Dict[str, Any]:
    blank = next((word for word in sentence.words if len(word.split()) != 1), None)
    if blank is not None:
        raise ValueError(
            f"{sentence.doc_id}: the token {blank!r} holds whitespace, which BERT-MRC's JSON, "
            "whose words are joined by blanks, cannot say. Tokenize the corpus otherwise."
        )
    spans = [(start, end - 1) for start, end, name in sentence.spans if name == label]
    return {
        "context": " ".join(sentence.words),
        "query": question,
        "entity_label": label,
        "impossible": not spans,
        "start_position": [start for start, _ in spans],
        "end_position": [end for _, end in spans],
        "span_position": [f"{start};{end}" for start, end in spans],
        "qas_id": item_id,
    }


def _with_neighbours(
    sentences: Iterable[Sentence],
) -> Iterator[Tuple[Optional[Sentence], Sentence, Optional[Sentence]]]:
    """Each sentence between those of its document."""
    before: Optional[Sentence] = None
    current: Optional[Sentence] = None
    for after in sentences:
        if current is not None:
            yield _same(before, current), current, _same(after, current)
        before, current = current, after
    if current is not None:
        yield _same(before, current), current, None


def _same(other: Optional[Sentence], sentence: Sentence) -> Optional[Sentence]:
    """The other sentence if it is of the same, named document."""
    same = other is not None and other.doc_id == sentence.doc_id and bool(sentence.doc_id)
    return other if same else None


def _write_list(items: Iterable[Any], file: TextIO) -> None:
    """A JSON list with one item on a line."""
    separator = "["
    for item in items:
        file.write(f"{separator}\n{json.dumps(item, ensure_ascii=False)}")
        separator = ","
    file.write("[]\n" if separator == "[" else "\n]\n")
