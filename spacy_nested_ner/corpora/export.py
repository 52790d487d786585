"""Docs with gold entities to the files that other systems read, sentence by sentence; docs with
predicted ones to annotation tools."""

from __future__ import annotations

from collections import Counter, deque
from pathlib import Path
from typing import Iterable, Iterator, List, Tuple

from spacy.tokens import Doc

from spacy_nested_ner.corpora.records import Question, ScoredSpan, Task, WordSentence
from spacy_nested_ner.corpora.registry import get_task_writer, get_writer
from spacy_nested_ner.corpora.spans import Dropped
from spacy_nested_ner.corpora.statistics import document_of
from spacy_nested_ner.files import written_together
from spacy_nested_ner.pipeline.sentences import set_sentences
from spacy_nested_ner.pipeline.tokens import is_space


def export_docs(
    docs: Iterable[Doc],
    corpus_format: str,
    path: Path,
    spans_key: str,
    question: Question = str,
) -> Tuple[int, Dropped]:
    """Write docs as a file of another format; nothing is written if that fails.

    Sentences that an entity bridges stay together; words of whitespace only are left out.

    question: makes the question for a label, for formats that hold questions.

    Returns the number of sentences and what was dropped.

    Raises ValueError if there is no such format, or if it cannot hold what a doc has.
    """
    write = get_writer(corpus_format)
    dropped: Dropped = Counter()
    count = 0

    def counted() -> Iterator[WordSentence]:
        nonlocal count
        for doc in docs:
            for sentence in sentences_of(doc, spans_key, dropped):
                count += 1
                yield sentence

    with written_together([path]) as drafts, drafts[path].open("w", encoding="utf8") as file:
        write(counted(), file, question)
    return count, dropped


def sentences_of(doc: Doc, spans_key: str, dropped: Dropped) -> Iterator[WordSentence]:
    """The sentences of a doc, the whole doc if it has no boundaries."""
    spans = deque(
        sorted((span.start, span.end, span.label_) for span in doc.spans.get(spans_key, []))
    )
    doc_id = document_of(doc.user_data) or ""
    spaces = is_space(doc)
    bridged = {i for start, end, _ in spans for i in range(start + 1, end)}
    starts = [start for start, _ in set_sentences(doc) if start not in bridged]
    for first, last in zip(starts, [*starts[1:], len(doc)]):
        kept = [i for i in range(first, last) if not spaces[i]]
        places = {i: place for place, i in enumerate(kept)}
        inside = []
        while spans and spans[0][0] < last:
            start, end, label = spans.popleft()
            words = [places[i] for i in range(start, end) if i in places]
            if words:
                inside.append((words[0], words[-1] + 1, label))
            else:
                dropped["no text", label] += 1
        if kept:
            inside = list(dict.fromkeys(inside))
            yield WordSentence(doc_id, [doc[i].text for i in kept], inside)


def task_of(text_id: str, doc: Doc, spans: List[ScoredSpan]) -> Task:
    """A doc as a task for an annotation tool. spans: what the tool shows of it at first."""
    places = [(token.idx, token.idx + len(token)) for token in doc]
    return Task(text_id, doc.text, places, spans)


def export_tasks(tasks: Iterable[Task], tool: str, path: Path) -> None:
    """Write tasks as the import file of an annotation tool; nothing is written if that fails."""
    write = get_task_writer(tool)
    with written_together([path]) as drafts, drafts[path].open("w", encoding="utf8") as file:
        write(tasks, file)
