"""LitBank (Bamman et al. 2019): its entities in BRAT standoff, `entities/brat` of the distribution.

Lines are sentences, blanks part tokens.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import Iterator, List, Union

from spacy_nested_ner.corpora.formats.brat import TEXT_ALONE, annotation_files, read_document
from spacy_nested_ner.corpora.parsing.settings import no_settings
from spacy_nested_ner.corpora.records import DocumentIds, ReadOptions, Record, with_omissions
from spacy_nested_ner.corpora.registry import readers
from spacy_nested_ner.corpora.sentences import line_starts, word_places
from spacy_nested_ner.corpora.spans import CharSpan, Dropped, span_order


@readers.register("litbank")
def read_litbank(path: Path, options: ReadOptions) -> Iterator[Record]:
    """LitBank's entities/brat: of every ten books, sorted by name, the 9th is dev, the 10th test"""
    no_settings(options.settings)
    yield from with_omissions(_books(Path(path), options))


def _books(path: Path, options: ReadOptions) -> Iterator[Union[Record, Dropped]]:
    files, alone = annotation_files(path)
    if alone:
        yield Dropped({TEXT_ALONE: alone})
    ids = DocumentIds()
    for i, (ann, _) in enumerate(files):
        split = {8: "dev", 9: "test"}.get(i % 10, "train")
        record = options.problems.attempt(read_document, ann, split, options, ids)
        if record is not None:
            record.doc_id = record.doc_id.removesuffix("_brat")
            record.words = record.text.split()
            record.sentence_starts = line_starts(record.text)
            if options.tokens == "published":
                record.spans = _widened(record.text, record.words, record.spans)
            yield record


def _widened(text: str, words: List[str], spans: List[CharSpan]) -> List[CharSpan]:
    """Spans grown to whole words, as in the published `tsv` files: 21 begin or end inside one."""
    places = word_places(text, words)
    starts, ends = [start for start, _ in places], [end for _, end in places]
    grown = [
        (starts[bisect_right(starts, start) - 1], ends[bisect_left(ends, end)], label)
        for start, end, label in spans
    ]
    return sorted(grown, key=span_order)
