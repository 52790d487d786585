"""The JSON of the papers: PIQN, Locate and Label, DiffusionNER; and of BERT-MRC.

Both are written by `export` as well.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

from spacy_nested_ner.corpora.json_items import Item, field, read_items, string_list
from spacy_nested_ner.corpora.records import CorpusError, ReadOptions, Record
from spacy_nested_ner.corpora.registry import readers
from spacy_nested_ner.corpora.sentences import grouped
from spacy_nested_ner.corpora.settings import no_settings
from spacy_nested_ner.corpora.text import named_files
from spacy_nested_ner.corpora.words import check_span, words_record


@readers.register("papers-json")
def read_papers_json(path: Path, options: ReadOptions) -> Iterator[Record]:
    """JSON of PIQN, Locate and Label and DiffusionNER: tokens, entities"""
    no_settings(options.settings)
    for file, split in named_files(Path(path)):
        records = _papers_records(file, split, options)
        yield from grouped(options.problems.stop(records), options.group)


@readers.register("mrc-json")
def read_mrc_json(path: Path, options: ReadOptions) -> Iterator[Record]:
    """JSON of BERT-MRC: one item per sentence and label, joined again"""
    no_settings(options.settings)
    if options.group == "article":
        raise CorpusError("this format has no documents. Use --group sentence.", path)
    for file, split in named_files(Path(path)):
        items = options.problems.stop(read_items(file, options.problems))
        for _, group in groupby(items, key=lambda item: _sentence_of(item)):
            record = options.problems.attempt(_mrc_record, file, split, list(group), options)
            if record is not None:
                yield record


def _papers_records(path: Path, split: str, options: ReadOptions) -> Iterator[Record]:
    for line, item in read_items(path, options.problems):
        record = options.problems.attempt(_papers_record, path, split, line, item, options)
        if record is not None:
            yield record


def _papers_record(
    path: Path, split: str, line: int, item: Dict[str, Any], options: ReadOptions
) -> Record:
    words = string_list(item, "tokens", path, line)
    spans = []
    for entity in field(item, "entities", list, path, line):
        try:
            span = entity["start"], entity["end"], entity["type"]
            check_span(*span, len(words))
        except (KeyError, TypeError, ValueError) as err:
            raise CorpusError(f"entity {entity!r}: {err!s}", path, line) from err
        spans.append(span)
    doc_id = item.get("org_id") or item.get("orig_id") or f"{path.name}:{line}"
    return words_record(str(doc_id), split, words, spans, options)


def _sentence_of(item: Item) -> Tuple[str, str]:
    """What the items of one sentence have in common: the id before its last point, and the text."""
    values = item[1]
    return str(values.get("qas_id", "")).rpartition(".")[0], str(values.get("context"))


def _mrc_record(path: Path, split: str, items: List[Item], options: ReadOptions) -> Record:
    line, first = items[0]
    words = field(first, "context", str, path, line).split()
    spans = [span for item in items for span in _mrc_spans(path, item, len(words))]
    doc_id = f"{path.name}#{_sentence_of(items[0])[0] or line}"
    return words_record(doc_id, split, words, spans, options)


def _mrc_spans(path: Path, item: Item, length: int) -> List[Tuple[int, int, str]]:
    """Entities of one item; their ends are inclusive in the file."""
    line, values = item
    label = field(values, "entity_label", str, path, line)
    if "span_position" in values:
        texts = string_list(values, "span_position", path, line)
        pairs: List[Tuple[Any, ...]] = [tuple(text.replace(",", ";").split(";")) for text in texts]
    else:
        starts = field(values, "start_position", list, path, line)
        ends = field(values, "end_position", list, path, line)
        if len(starts) != len(ends):
            problem = f"{len(starts)} numbers in 'start_position', {len(ends)} in 'end_position'."
            raise CorpusError(problem, path, line)
        pairs = list(zip(starts, ends, strict=True))
    spans = []
    for pair in pairs:
        try:
            start, last = (int(number) for number in pair)
            check_span(start, last + 1, label, length)
        except (TypeError, ValueError) as err:
            raise CorpusError(f"entity {pair!r} of {label}: {err!s}", path, line) from err
        spans.append((start, last + 1, label))
    return spans
