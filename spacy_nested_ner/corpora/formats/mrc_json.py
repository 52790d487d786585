"""The JSON of BERT-MRC: an item for each sentence and label; spans count words, end inclusive."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, TextIO, Tuple

from spacy_nested_ner.corpora.errors import CorpusError
from spacy_nested_ner.corpora.parsing.json import (
    Item,
    field,
    read_items,
    string_list,
    write_items,
)
from spacy_nested_ner.corpora.parsing.settings import no_settings
from spacy_nested_ner.corpora.records import (
    Question,
    ReadOptions,
    Record,
    WordSentence,
    words_record,
)
from spacy_nested_ner.corpora.registry import readers, writers
from spacy_nested_ner.corpora.spans import WordSpan, check_span
from spacy_nested_ner.corpora.splits import named_files

_POSITION = re.compile(r"\s*(\d{1,9})\s*[;,]\s*(\d{1,9})\s*")


@readers.register("mrc-json")
def read_mrc_json(path: Path, options: ReadOptions) -> Iterator[Record]:
    """JSON of BERT-MRC: one item per sentence and label; those of a sentence are joined"""
    no_settings(options.settings)
    if options.group == "article":
        raise CorpusError("this format has no documents. Use --group sentence.", path)
    for file, split in named_files(Path(path)):
        items = options.problems.stop(read_items(file, options.problems))
        for _, group in groupby(items, key=lambda item: _sentence_of(item)):
            record = options.problems.attempt(_mrc_record, file, split, list(group), options)
            if record is not None:
                yield record


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


def _mrc_spans(path: Path, item: Item, length: int) -> List[WordSpan]:
    """Entities of one item; their ends are inclusive in the file."""
    line, values = item
    label = field(values, "entity_label", str, path, line)
    spans = []
    for pair in _pairs(path, item):
        try:
            start, last = pair
            check_span(start, last + 1, label, length)
        except (TypeError, ValueError) as err:
            raise CorpusError(f"entity {pair!r} of {label}: {err!s}", path, line) from err
        spans.append((start, last + 1, label))
    return spans


def _pairs(path: Path, item: Item) -> List[Tuple[Any, ...]]:
    """First and last word of each entity, as `span_position` has them or the two lists."""
    line, values = item
    lists = [name for name in ("start_position", "end_position") if name in values]
    if "span_position" not in values:
        lists = ["start_position", "end_position"]
    numbers = [field(values, name, list, path, line) for name in lists]
    if "span_position" in values:
        texts = string_list(values, "span_position", path, line)
        matches = [(_POSITION.fullmatch(text), text) for text in texts]
        pairs = [tuple(map(int, match.groups())) if match else (text,) for match, text in matches]
    else:
        pairs = list(zip(*numbers))
    if any(len(pairs) != len(given) for given in numbers):
        counts = ", ".join(
            f"{len(values[name])} in {name!r}"
            for name in ("start_position", "end_position", "span_position")
            if name in values
        )
        raise CorpusError(f"the lists of positions differ in length: {counts}.", path, line)
    return pairs


@writers.register("mrc-json")
def write_mrc_json(sentences: Iterable[WordSentence], file: TextIO, question: Question) -> None:
    """JSON of BERT-MRC: an item for each sentence and label, with the label's question"""
    listed = list(sentences)
    labels = sorted({label for sentence in listed for _, _, label in sentence.spans})
    if not labels:
        raise ValueError("there are no entities, so there is no label that BERT-MRC could ask for.")
    write_items(
        (
            _mrc_item(sentence, f"{i}.{j}", label, question(label))
            for i, sentence in enumerate(listed)
            for j, label in enumerate(labels)
        ),
        file,
    )


def _mrc_item(sentence: WordSentence, item_id: str, label: str, question: str) -> Dict[str, Any]:
    blank = next((word for word in sentence.words if len(word.split()) != 1), None)
    if blank is not None:
        raise ValueError(
            f"{sentence.doc_id}: the token {blank!r} contains whitespace. BERT-MRC's JSON "
            "joins words with spaces and cannot represent it. Use another tokenization."
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
