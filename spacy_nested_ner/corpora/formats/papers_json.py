"""The JSON of PIQN, Locate and Label and DiffusionNER: spans count tokens, end exclusive."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, Optional, TextIO, Tuple

from spacy_nested_ner.corpora.errors import CorpusError, Place
from spacy_nested_ner.corpora.formats.json_documents import (
    Object,
    checked_span,
    document_id,
    outcomes_of_file,
)
from spacy_nested_ner.corpora.parsing.json import field, string_list, write_items
from spacy_nested_ner.corpora.parsing.settings import no_settings
from spacy_nested_ner.corpora.records import (
    Question,
    ReadOptions,
    Record,
    WordSentence,
    words_record,
)
from spacy_nested_ner.corpora.registry import readers, writers
from spacy_nested_ner.corpora.sentences import grouped
from spacy_nested_ner.corpora.splits import named_files


@readers.register("papers-json")
def read_papers_json(path: Path, options: ReadOptions) -> Iterator[Record]:
    """JSON of PIQN, Locate and Label and DiffusionNER: tokens, entities"""
    no_settings(options.settings)
    for file, split in named_files(Path(path)):
        records = outcomes_of_file(file, split, options, _record)
        yield from grouped(options.problems.stop(records), options.group)


def _record(item: Object, place: Place, name: str, split: str, options: ReadOptions) -> Record:
    words = string_list(item, "tokens", *place)
    spans = []
    for entity in field(item, "entities", list, *place):
        if not isinstance(entity, dict) or not {"start", "end", "type"} <= entity.keys():
            problem = f"expected an entity with 'start', 'end' and 'type', not {entity!r}."
            raise CorpusError(problem, *place)
        span = entity["start"], entity["end"], entity["type"]
        spans.append(checked_span(*span, len(words), place, f"entity {entity!r}: "))
    doc_id = document_id(item, otherwise=name, names=("org_id", "orig_id"))
    return words_record(doc_id, split, words, spans, options)


@writers.register("papers-json")
def write_papers_json(sentences: Iterable[WordSentence], file: TextIO, question: Question) -> None:
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

    write_items(items(), file)


def _with_neighbours(
    sentences: Iterable[WordSentence],
) -> Iterator[Tuple[Optional[WordSentence], WordSentence, Optional[WordSentence]]]:
    """Each sentence between those of its document."""
    before: Optional[WordSentence] = None
    current: Optional[WordSentence] = None
    for after in sentences:
        if current is not None:
            yield _same(before, current), current, _same(after, current)
        before, current = current, after
    if current is not None:
        yield _same(before, current), current, None


def _same(other: Optional[WordSentence], sentence: WordSentence) -> Optional[WordSentence]:
    """The other sentence if it is of the same, named document."""
    same = other is not None and other.doc_id == sentence.doc_id and bool(sentence.doc_id)
    return other if same else None
