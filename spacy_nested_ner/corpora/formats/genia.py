"""The GENIA term corpus 3.02 (Kim et al. 2003) in its original XML, `GENIAcorpus3.02.xml`.

Five classes, as in the papers on nested entities (Finkel and Manning 2009 and after). The rules
below with `tokens="published"` give the data set of the papers, token by token: 15023 / 1669 /
1854 sentences with 46142 / 4367 / 5506 entities.

1. Sentences: every `<sentence>` of a title or abstract, in the order of the file; the first 15023
   are training, the next 1669 development, the last 1854 test data. The cuts do not fall between
   articles.
2. Published tokens are cut at whitespace and at every tag inside the sentence. They give entity
   boundaries away: "CD28-mediated" is two tokens where CD28 is an entity, one elsewhere.
3. Entities: each `<cons>` whose own `sem` is of one of the five classes, at any depth.
   Coordinations (`sem="(AND G#... G#...)"`) and `<cons>` without `sem` give nothing themselves.
4. One label per span: of two labels on one span the alphabetically last stays.

In the merged release (terms and parts of speech) each `<w>` is a token.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Optional, Tuple

from spacy_nested_ner.corpora.parsing.settings import no_settings
from spacy_nested_ner.corpora.parsing.xml import XmlHandler, stream_xml
from spacy_nested_ner.corpora.records import ReadOptions, Record
from spacy_nested_ner.corpora.registry import readers
from spacy_nested_ner.corpora.sentences import joined
from spacy_nested_ner.corpora.spans import CharSpan, clean_spans, stripped

SPLIT_SIZES = {"train": 15023, "dev": 1669, "test": 1854}
EXPECTED = "GENIA XML: <set> with <article>s, their <bibliomisc>, and <sentence>s with <cons>"

_CLASS = re.compile(r"G#(DNA|RNA|protein|cell_line|cell_type)(?:_|$)")
_WORD = re.compile(r"\S+")
_logger = logging.getLogger("spacy_nested_ner")


@dataclass
class XmlSentence:
    """A sentence as the XML has it, offsets in characters of `text`.

    cuts: where a tag opens or closes. terms: `(start, end, sem)` of every `<cons>`.
    words: `(start, end)` of every `<w>`.
    """

    doc_id: str
    article: int
    text: str = ""
    cuts: List[int] = field(default_factory=list)
    terms: List[Tuple[int, int, Optional[str]]] = field(default_factory=list)
    words: List[Tuple[int, int]] = field(default_factory=list)


@readers.register("genia")
def read_genia(path: Path, options: ReadOptions) -> Iterator[Record]:
    """GENIA 3.02 in its original XML (terms, or terms and parts of speech)

    One record per sentence, or per article with `group="article"`.
    An article that the published split cuts in two becomes one record in each split.

    path: GENIAcorpus3.02.tgz as distributed, or the .xml or .xml.gz from it.

    Raises CorpusError, with file and line, if it is not such a file or is damaged.
    """
    no_settings(options.settings)
    make = _published_record if options.tokens in ("published", "cut") else _raw_record
    records = (
        (sentence.article, make(sentence, split, bool(options.all_labels)))
        for split, sentence in _with_split(read_sentences(Path(path)))
    )
    if options.group == "sentence":
        yield from (record for _, record in records)
        return
    for _, group in groupby(records, key=lambda pair: (pair[0], pair[1].split)):
        yield joined([record for _, record in group])


def read_sentences(path: Path) -> Iterator[XmlSentence]:
    """The sentences of the file in their order, with all terms of any class. Text outside a
    `<sentence>` is not read. Raises as `read_genia`."""
    return stream_xml(path, _GeniaHandler(), EXPECTED)


def _with_split(sentences: Iterable[XmlSentence]) -> Iterator[Tuple[str, XmlSentence]]:
    names = [name for name, size in SPLIT_SIZES.items() for _ in range(size)]
    count = 0
    for count, sentence in enumerate(sentences, start=1):
        yield names[count - 1] if count <= len(names) else "test", sentence
    if count != len(names):
        _logger.warning(
            "The published split of GENIA has %d sentences, but this file has %d: the first "
            "15023 are train, the next 1669 dev, and scores cannot be compared with published "
            "ones.",
            len(names),
            count,
        )


class _GeniaHandler(XmlHandler):
    """Collects sentences from the stream of tags and text."""

    def __init__(self) -> None:
        super().__init__()
        self._path: List[str] = []
        self._doc_id = ""
        self._articles = 0
        self._found = 0
        self._sentence: Optional[XmlSentence] = None
        self._pieces: List[str] = []
        self._length = 0
        self._open: List[Tuple[int, Optional[str]]] = []

    def start(self, tag: str, attrs: Dict[str, str]) -> None:
        if not self._path and tag != "set":
            raise ValueError(f"the root element is <{tag}>, not <set>.")
        self._path.append(tag)
        if self._sentence is not None:
            self._open_inside(tag, attrs)
        elif tag == "article":
            self._articles += 1
            self._doc_id = ""
        elif tag == "sentence":
            self._open_sentence()
        elif tag == "cons":
            raise ValueError("<cons> outside of a <sentence>.")

    def end(self, tag: str) -> None:
        self._path.pop()
        if self._sentence is None:
            self._doc_id = self._doc_id.strip()
        elif tag == "sentence":
            self._close_sentence(self._sentence)
        else:
            self._close_inside(self._sentence, tag)

    def text(self, data: str) -> None:
        if self._sentence is not None:
            self._pieces.append(data)
            self._length += len(data)
        elif self._path[-1] == "bibliomisc":
            self._doc_id += data

    def close(self) -> None:
        if not self._found:
            raise ValueError("the file has no <sentence> in a <title> or <abstract>.")

    def _open_sentence(self) -> None:
        if self._path[-2] not in ("title", "abstract"):
            raise ValueError(f"<sentence> inside <{self._path[-2]}>, not <title> or <abstract>.")
        doc_id = self._doc_id or f"article {self._articles}"  # the DTD lets <bibliomisc> be absent
        self._sentence = XmlSentence(doc_id, self._articles)
        self._pieces, self._length = [], 0

    def _close_sentence(self, sentence: XmlSentence) -> None:
        sentence.text = "".join(self._pieces)
        self.done.append(sentence)
        self._found += 1
        self._sentence = None

    def _open_inside(self, tag: str, attrs: Dict[str, str]) -> None:
        if tag not in ("cons", "w"):
            raise ValueError(f"<{tag}> inside <sentence>, not <cons> or <w>.")
        self._open.append((self._length, attrs.get("sem")))

    def _close_inside(self, sentence: XmlSentence, tag: str) -> None:
        start, sem = self._open.pop()
        sentence.cuts += [start, self._length]
        if tag == "w":
            sentence.words.append((start, self._length))
        else:
            sentence.terms.append((start, self._length, sem))


def _raw_record(sentence: XmlSentence, split: str, all_labels: bool) -> Record:
    """The text as it stands in the file, to be cut by spaCy's tokenizer."""
    spans, dropped = _entities(sentence, all_labels)
    return Record(sentence.doc_id, split, sentence.text, spans, dropped=dropped)


def _published_record(sentence: XmlSentence, split: str, all_labels: bool) -> Record:
    """The words of the published data set, in the text as it stands in the file."""
    record = _raw_record(sentence, split, all_labels)
    record.words = [sentence.text[start:end] for start, end in _published_words(sentence)]
    return record


def _published_words(sentence: XmlSentence) -> List[Tuple[int, int]]:
    """Cut at whitespace and at every tag; a `<w>` stays whole even with a space in it."""
    edges = sorted({0, *sentence.cuts, len(sentence.text)})
    whole = set(sentence.words)
    found: List[Tuple[int, int]] = []
    for start, end in pairwise(edges):
        if (start, end) in whole:
            place = stripped(sentence.text, start, end)
            found += [place] if place else []
        else:
            matches = _WORD.finditer(sentence.text, start, end)
            found += [match.span() for match in matches]
    return found


def _entities(sentence: XmlSentence, all_labels: bool) -> Tuple[List[CharSpan], Counter]:
    """Entities of the five classes, and why the other terms are none."""
    dropped: Counter = Counter()
    found: List[CharSpan] = []
    for start, end, sem in sentence.terms:
        label, reason = _classify(sem)
        if label is None:
            dropped[reason] += 1
        else:
            found.append((start, end, label))
    spans, cleaned = clean_spans(sentence.text, found, one_label=not all_labels)
    return spans, dropped + cleaned


def _classify(sem: Optional[str]) -> Tuple[Optional[str], Tuple[str, str]]:
    """The label of a term, or None and the reason and detail."""
    if sem is None:
        return None, ("term without a class", "")
    match = _CLASS.match(sem)
    if match:
        return match.group(1), ("", "")
    if sem.startswith("("):
        return None, ("coordination", sem[1:].split()[0] if sem[1:].split() else sem)
    return None, ("other class", sem)
