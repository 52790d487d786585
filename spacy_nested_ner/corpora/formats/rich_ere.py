"""Rich ERE, as in TAC KBP 2017: `source/DOCID.xml` and `ere/DOCID.rich_ere.xml`.

Offsets count characters of the source file as it stands, tags included. The text of a record is
that file without tags and without `<quote>`s, which are not annotated; mentions in markup (authors
of posts) are dropped and counted.
"""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from spacy_nested_ner.corpora.errors import CorpusError, shortened
from spacy_nested_ner.corpora.parsing.edits import (
    Edit,
    Rewritten,
    reference_edits,
    tag_places,
    too_long,
)
from spacy_nested_ner.corpora.parsing.paths import check_input, walk
from spacy_nested_ner.corpora.parsing.settings import no_settings
from spacy_nested_ner.corpora.parsing.text import BYTE_ORDER_MARK, read_text
from spacy_nested_ner.corpora.parsing.xml import XmlHandler, stream_xml
from spacy_nested_ner.corpora.records import ReadOptions, Record, text_record
from spacy_nested_ner.corpora.registry import readers
from spacy_nested_ner.corpora.spans import CharSpan, Dropped
from spacy_nested_ner.corpora.splits import files_below

SUFFIX = ".rich_ere.xml"
SOURCES = (".xml", ".cmp.txt", ".mpdf.xml", ".txt")
EXPECTED = "Rich ERE XML: <deft_ere doc_id=...> with <entity>, <entity_mention>, <mention_text>"

_QUOTE = re.compile(r"<quote\b[^>]*(?<!/)>", re.IGNORECASE)
_QUOTE_END = re.compile(r"</quote>", re.IGNORECASE)


class EreMention(NamedTuple):
    """offset, length: characters of the source. text: what stands there."""

    offset: int
    length: int
    label: str
    text: str


@readers.register("rich-ere")
def read_rich_ere(path: Path, options: ReadOptions) -> Iterator[Record]:
    """Rich ERE (TAC KBP 2017): a folder with source and .rich_ere.xml files"""
    no_settings(options.settings)
    root = Path(path)
    check_input(root)
    if root.is_file():
        raise CorpusError("expected the folder that holds source and annotation files.", path)
    sources = {file.name: file for file in walk(root) if file.is_file()}
    files = [
        (_document_id(file, sources), file, split) for file, split in files_below(root, SUFFIX)
    ]
    for doc_id, group in groupby(sorted(files), key=lambda row: row[0]):
        _, annotations, splits = zip(*group)
        record = options.problems.attempt(_record, doc_id, annotations, splits[0], sources, options)
        if record is not None:
            yield record


def _document_id(file: Path, sources: Dict[str, Path]) -> str:
    """The source whose id the name begins with: long documents have several annotation files."""
    name = file.name.removesuffix(SUFFIX)
    while not _source(name, sources) and "_" in name:
        name = name.rpartition("_")[0]
    return name if _source(name, sources) else file.name.removesuffix(SUFFIX)


def _source(doc_id: str, sources: Dict[str, Path]) -> Optional[Path]:
    names = (f"{doc_id}{suffix}" for suffix in SOURCES)
    return next((sources[name] for name in names if name in sources), None)


def _record(
    doc_id: str,
    annotations: Sequence[Path],
    split: str,
    sources: Dict[str, Path],
    options: ReadOptions,
) -> Record:
    source = _source(doc_id, sources)
    if source is None:
        names = ", ".join(f"{doc_id}{suffix}" for suffix in SOURCES)
        raise CorpusError(f"no source file for it, expected one of {names}.", annotations[0])
    raw = read_text(source)
    rewritten = Rewritten(raw, _markup_edits(raw))
    spans: List[CharSpan] = []
    dropped: Dropped = Dropped()
    for file in annotations:
        for mention in stream_xml(file, _EreHandler(), EXPECTED):
            found = options.problems.attempt(_located, mention, raw, file)
            place = rewritten.place(*found) if found else None
            if place:
                spans.append((*place, mention.label))
            elif found:
                dropped["in markup or a quote", mention.label] += 1
    return text_record(doc_id, split, rewritten.text, spans, options, dropped)


def _markup_edits(raw: str) -> Iterator[Edit]:
    position = int(raw.startswith(BYTE_ORDER_MARK))
    if position:
        yield 0, 1, ""
    for start, end in _markup_places(raw):
        yield from reference_edits(raw, position, start)
        yield start, end, ""
        position = end
    yield from reference_edits(raw, position)


def _markup_places(raw: str) -> Iterator[Tuple[int, int]]:
    """Characters of tags, and of `<quote>`s as a whole."""
    ends = (match.end() for match in _QUOTE_END.finditer(raw))
    quote_end: Optional[int] = 0
    position = 0
    for start, end in tag_places(raw):
        if start < position:  # inside of a quote
            continue
        position = end
        if _QUOTE.fullmatch(raw, start, end):
            while quote_end is not None and quote_end <= end:
                quote_end = next(ends, None)
            position = quote_end or end
        yield start, position


def _located(mention: EreMention, raw: str, file: Path) -> Tuple[int, int]:
    """Where the mention stands: at its offset, or one beside it, as some annotations have it."""
    wanted = "".join(mention.text.split())
    for shift in (0, -1, 1):
        start = mention.offset + shift
        end = start + mention.length
        if not 0 <= start < end <= len(raw) or too_long(mention.length, mention.text):
            continue
        found = raw[start:end]
        if wanted in ("".join(found.split()), "".join(_decoded(found).split())):
            return start, end
    found = raw[max(0, mention.offset) :][: max(0, min(200, mention.length))]
    raise CorpusError(
        f"a mention of {mention.label} at {mention.offset} is {shortened(mention.text, 200)!r}, "
        f"but the source has {found!r} there.",
        file,
    )


def _decoded(text: str) -> str:
    return Rewritten(text, reference_edits(text)).text


class _EreHandler(XmlHandler):
    """Collects entity mentions; fillers, relations and events are passed over."""

    def __init__(self) -> None:
        super().__init__()
        self._path: List[str] = []
        self._label = ""
        self._mention: Dict[str, str] = {}
        self._text: List[str] = []

    def start(self, tag: str, attrs: Dict[str, str]) -> None:
        if not self._path and tag != "deft_ere":
            raise ValueError(f"the root element is <{tag}>, not <deft_ere>.")
        self._path.append(tag)
        if tag == "entity":
            self._label = attrs.get("type", "")
        elif tag == "entity_mention":
            missing = [name for name in ("offset", "length") if name not in attrs]
            if missing or not self._label:
                raise ValueError(f"<entity_mention> without {', '.join(missing) or 'a type'}.")
            self._mention, self._text = attrs, []

    def text(self, data: str) -> None:
        if self._path[-2:] == ["entity_mention", "mention_text"]:
            self._text.append(data)

    def end(self, tag: str) -> None:
        self._path.pop()
        if tag == "entity_mention":
            offset, length = int(self._mention["offset"]), int(self._mention["length"])
            self.done.append(EreMention(offset, length, self._label, "".join(self._text)))
