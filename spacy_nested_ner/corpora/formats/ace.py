"""ACE 2004 and ACE 2005 (LDC2005T09, LDC2006T06): `DOCID.sgm` beside `DOCID.apf.xml`.

Entities are the extents of the mentions of `<entity>`, labelled with its TYPE; values, times,
relations and events are none. START and END count characters of the .sgm file without its tags, END
included, `&amp;` as five. The text of a document begins at its headline or text; `&amp;` becomes
`&` in it.
"""

from __future__ import annotations

import html
import io
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Tuple, Union

from spacy_nested_ner.corpora.errors import CorpusError, shortened
from spacy_nested_ner.corpora.parsing.edits import (
    Rewritten,
    reference_edits,
    tag_places,
    too_long,
)
from spacy_nested_ner.corpora.parsing.settings import with_settings
from spacy_nested_ner.corpora.parsing.text import BYTE_ORDER_MARK, read_lines, read_text
from spacy_nested_ner.corpora.parsing.xml import XmlHandler, stream_xml
from spacy_nested_ner.corpora.records import ReadOptions, Record, text_record, with_omissions
from spacy_nested_ner.corpora.registry import readers
from spacy_nested_ner.corpora.spans import CharSpan, Dropped
from spacy_nested_ner.corpora.splits import files_below

SUFFIX = ".apf.xml"
PREFERRED = ("timex2norm", "adj", "fp1", "fp2")
"""Folders of one document's versions in ACE 2005, the final one first."""

EXPECTED = "APF XML: <source_file> with <document>, <entity>, <entity_mention>, <extent>, <charseq>"


@dataclass(frozen=True)
class AceSettings:
    """splits: a folder with train.txt, dev.txt and test.txt, each with document ids on its lines
    (the last part of a path counts). Documents in none of them are left out."""

    splits: str = ""


class Mention(NamedTuple):
    """start, end: characters, end exclusive. text: what the annotation says stands there."""

    start: int
    end: int
    label: str
    text: str


@readers.register("ace")
def read_ace(path: Path, options: ReadOptions) -> Iterator[Record]:
    """ACE 2004 and 2005: a folder with .sgm and .apf.xml files (setting: splits)"""
    settings = with_settings(AceSettings(), options.settings)
    splits = read_split_lists(Path(settings.splits)) if settings.splits else {}
    yield from with_omissions(_read(Path(path), splits, options))


def _read(
    path: Path, splits: Dict[str, str], options: ReadOptions
) -> Iterator[Union[Record, Dropped]]:
    for doc_id, file, folder_split in _documents(path):
        if splits and doc_id not in splits:
            yield Dropped({("document in none of the lists", doc_id): 1})
            continue
        split = splits.get(doc_id, folder_split)
        record = options.problems.attempt(_record, doc_id, file, split, options)
        if record is not None:
            yield record


def read_split_lists(folder: Path) -> Dict[str, str]:
    """The split of each document id.

    Raises CorpusError if the folder lacks one of the three lists.
    """
    return {
        line.strip().rpartition("/")[2]: split
        for split in ("train", "dev", "test")
        for _, line in read_lines(folder / f"{split}.txt")
        if line.strip()
    }


def _documents(path: Path) -> Iterator[Tuple[str, Path, str]]:
    """Id, annotation and split of each document, in its best version."""
    files = sorted(files_below(path, SUFFIX), key=lambda pair: (pair[0].name, _rank(pair[0])))
    for name, versions in groupby(files, key=lambda pair: pair[0].name):
        file, split = next(versions)
        yield name.removesuffix(SUFFIX), file, split


def _rank(file: Path) -> int:
    folder = file.parent.name
    return PREFERRED.index(folder) if folder in PREFERRED else len(PREFERRED)


def _record(doc_id: str, file: Path, split: str, options: ReadOptions) -> Record:
    sgm = file.with_name(f"{doc_id}.sgm")
    whole, body = without_tags(read_text(sgm))
    first, last = max(body[0], whole.startswith(BYTE_ORDER_MARK)), body[1]
    references = reference_edits(whole, first, last)
    edits = chain([(0, first, "")], references, [(last, len(whole), "")])
    rewritten = Rewritten(whole, (edit for edit in edits if edit[0] < edit[1]))
    spans: List[CharSpan] = []
    dropped: Dropped = Dropped()
    for mention in stream_xml(file, _ApfHandler(), EXPECTED):
        found = options.problems.attempt(_located, mention, whole, file)
        place = rewritten.place(*found) if found else None
        if place:
            spans.append((*place, mention.label))
        elif found:
            dropped["outside of the text", mention.label] += 1
    return text_record(doc_id, split, rewritten.text, spans, options, dropped)


def without_tags(sgm: str) -> Tuple[str, Tuple[int, int]]:
    """The text that offsets count in, and the characters from the headline or text on to the end
    of the text (all, without such tags)."""
    pieces = io.StringIO()
    position = length = 0
    first, last = None, None
    for start, end in tag_places(sgm):
        length += pieces.write(sgm[position:start])
        position = end
        tag = sgm[start:end].strip("<>")
        name = tag.upper().split()[0] if tag.strip() else ""
        if first is None and name in ("HEADLINE", "TEXT"):
            first = length
        elif name == "/TEXT":
            last = length
    pieces.write(sgm[position:])
    text = pieces.getvalue()
    return text, (first or 0, len(text) if last is None else last)


def _located(mention: Mention, text: str, file: Path) -> Tuple[int, int]:
    """Where the mention stands: at its offset, which may not count a byte order mark. Raises
    CorpusError if the annotation and the text do not agree."""
    found = ""
    for shift in range(1 + text.startswith(BYTE_ORDER_MARK)):
        start, end = mention.start + shift, mention.end + shift
        possible = 0 <= start < end <= len(text) and not too_long(end - start, mention.text)
        found = html.unescape(text[start:end]) if possible else text[max(0, start) :][:200]
        if possible and _squeezed(found) == _squeezed(mention.text):
            return start, end
    raise CorpusError(
        f"a mention of {mention.label} at {mention.start} is {shortened(mention.text, 200)!r}, but "
        f"the text has {shortened(found, 200)!r} there. Use the .sgm file as it was "
        "distributed.",
        file,
    )


def _squeezed(text: str) -> str:
    return "".join(text.split()).lower()


class _ApfHandler(XmlHandler):
    """Collects the extents of entity mentions."""

    def __init__(self) -> None:
        super().__init__()
        self._path: List[str] = []
        self._label = ""
        self._place = (0, 0)
        self._text: List[str] = []
        self._found = False
        self._documents = 0

    def start(self, tag: str, attrs: Dict[str, str]) -> None:
        if not self._path and tag != "source_file":
            raise ValueError(f"the root element is <{tag}>, not <source_file>.")
        self._path.append(tag)
        self._documents += tag == "document"
        if tag == "entity":
            self._label = _attribute(tag, attrs, "TYPE")
        elif tag == "entity_mention":
            self._found = False
        elif self._in_extent():
            if self._found:
                raise ValueError("<entity_mention> with two extents.")
            numbers = [_attribute(tag, attrs, name) for name in ("START", "END")]
            self._place = (int(numbers[0]), int(numbers[1]) + 1)
            self._text = []

    def text(self, data: str) -> None:
        if self._in_extent():
            self._text.append(data)

    def end(self, tag: str) -> None:
        if self._in_extent():
            self.done.append(Mention(*self._place, self._label, "".join(self._text)))
            self._found = True
        elif tag == "entity_mention" and not self._found:
            raise ValueError("<entity_mention> without <extent> and <charseq>.")
        self._path.pop()

    def close(self) -> None:
        if not self._documents:
            raise ValueError("the file has no <document>.")

    def _in_extent(self) -> bool:
        return self._path[-3:] == ["entity_mention", "extent", "charseq"]


def _attribute(tag: str, attrs: Dict[str, str], name: str) -> str:
    if name not in attrs:
        raise ValueError(f"<{tag}> without {name}.")
    return attrs[name]
