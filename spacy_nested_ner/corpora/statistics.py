"""Counts of nested entities, in a sentence and over a split.

Nested: an entity that contains another entity or is contained in one, the definition behind the
tables of the papers. Two entities of different labels on one and the same span contain one another
there (the counts of NNE in PIQN, table 6, come out only so); such pairs are also counted apart.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations, groupby
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Mapping, Optional, Set, Tuple

import numpy as np

from spacy_nested_ner.corpora.spans import Dropped
from spacy_nested_ner.corpora.splits import hash_id, id_of
from spacy_nested_ner.pipeline.sentences import set_sentences

if TYPE_CHECKING:
    from spacy.tokens import Doc, Span

Bounds = Tuple[int, int]

MOST_LABELS = 20
"""Of one span, whose pairs are listed by name."""
MISALIGNED = "misaligned"
"""Why a span that fits no token boundary was dropped, and where `user_data` of its doc says so."""
MISALIGNED_EXAMPLE = "misaligned_example"
"""Where `user_data` of a doc shows the first of them."""


@dataclass
class Nesting:
    """How spans lie in one another.

    nested: spans that contain another or are contained in one, or were given more than once.
    depth: for every span, how many spans lie around it in the longest chain, itself included:
        1 for an outermost span.
    crossing: pairs of spans that overlap while neither contains the other.
    """

    nested: Set[Bounds]
    depth: Dict[Bounds, int]
    crossing: int


def nesting(spans: Iterable[Bounds]) -> Nesting:
    """Nesting of spans `(start, end)`, end exclusive, one for each entity: a span with two labels
    is given twice.

    Containers come before what they contain in the order of starts (longer first). There a span
    is contained if one before it ends no earlier, contains one if one behind it ends no later, and
    lies as deep as the longest chain of ends that do not grow. Takes n log n steps.
    """
    counts = Counter(spans)
    ordered = sorted(counts, key=lambda span: (span[0], -span[1]))
    nested = {span for span, count in counts.items() if count > 1}
    depth: Dict[Bounds, int] = {}
    chains: List[int] = []  # by depth: the latest end of a chain that is so long, negative
    for span in ordered:
        place = bisect_right(chains, -span[1])
        chains[place : place + 1] = [-span[1]]
        depth[span] = place + 1
        if place:
            nested.add(span)
    earliest = float("inf")
    for span in reversed(ordered):
        if earliest <= span[1]:
            nested.add(span)
        earliest = min(earliest, span[1])
    return Nesting(nested, depth, _crossing(ordered))


def _crossing(ordered: List[Bounds]) -> int:
    """Pairs of which the second begins inside the first and ends behind it."""
    ends = sorted(end for _, end in ordered)
    before = [0] * (len(ends) + 1)  # Fenwick tree: how many spans so far have the end of a rank
    count = 0
    for start, end in ordered:
        rank = bisect_left(ends, end)
        count -= bisect_right(ends, start)  # of those that end earlier, these do not overlap
        i = rank
        while i:
            count += before[i]
            i &= i - 1
        i = rank + 1
        while i < len(before):
            before[i] += 1
            i += i & -i
    return count


def parents(spans: Iterable[Bounds]) -> Dict[Bounds, Bounds]:
    """For each span that lies in another one the smallest that contains it; of two as small the one
    that starts first. Spans as in `nesting`.

    Containers come before what they contain in the order of starts (longer first). On the way only
    those are kept that can still be the smallest around a later span: the later they end, the
    longer they are.
    """
    found: Dict[Bounds, Bounds] = {}
    kept: List[Bounds] = []  # by end, the latest first
    for span in sorted(set(spans), key=lambda span: (span[0], -span[1])):
        start, end = span
        while kept and kept[-1][1] < start:
            kept.pop()
        around = bisect_right(kept, -end, key=lambda other: -other[1])
        if around:
            found[span] = kept[around - 1]
        first = bisect_left(kept, -end, key=lambda other: -other[1])
        last = bisect_left(kept, start - end, first, key=lambda other: other[0] - other[1])
        kept[first:last] = [span]
    return found


def misaligned_labels(docs: Iterable[Doc]) -> Counter:
    """How many entities of each label `nested-ner convert` had to leave out of these docs, because
    they fit no token boundary."""
    labels: Counter = Counter()
    for doc in docs:
        found = doc.user_data.get(MISALIGNED)
        labels.update(found if isinstance(found, (list, tuple)) else ())
    return labels


@dataclass
class SplitStatistics:
    """What a split holds; every count is over all docs added.

    labels: entities by label. depths: entities by depth, 1 = outermost. lengths: entities by
    number of tokens. per_sentence: sentences by number of entities. same_span: pairs of labels on
    one span. dropped: by (reason, detail). misaligned_example: the first entity that fits no token
    boundary, and the id of its document. doc_ids: hashes of the ids of docs that have one.
    """

    documents: int = 0
    sentences: int = 0
    tokens: int = 0
    entities: int = 0
    nested_entities: int = 0
    nested_sentences: int = 0
    crossing_pairs: int = 0
    labels: Counter = field(default_factory=Counter)
    depths: Counter = field(default_factory=Counter)
    lengths: Counter = field(default_factory=Counter)
    per_sentence: Counter = field(default_factory=Counter)
    same_span: Counter = field(default_factory=Counter)
    dropped: Counter = field(default_factory=Counter)
    misaligned_example: str = ""
    doc_ids: array = field(default_factory=partial(array, "Q"), compare=False)

    def add(self, doc: Doc, spans_key: str, dropped: Dropped) -> None:
        """Count one doc. Entities are taken as lying within one sentence: the one they start in. A
        span that has a label twice counts once."""
        self.documents += 1
        self.tokens += len(doc)
        self.dropped.update(dropped)
        name = document_of(doc.user_data)
        if name is not None:
            self.doc_ids.append(hash_id(name))
        if not self.misaligned_example and MISALIGNED_EXAMPLE in doc.user_data:
            self.misaligned_example = f"{doc.user_data[MISALIGNED_EXAMPLE]} ({name})"
        by_sentence = _by_sentence(doc, spans_key)
        self.sentences += len(by_sentence)
        for entities in by_sentence:
            self._add_sentence(entities)

    def _add_sentence(self, entities: List[Tuple[int, int, str]]) -> None:
        found = nesting((start, end) for start, end, _ in entities)
        self.entities += len(entities)
        self.per_sentence[len(entities)] += 1
        self.nested_sentences += bool(found.nested)
        self.crossing_pairs += found.crossing
        for start, end, label in entities:
            self.nested_entities += (start, end) in found.nested
            self.labels[label] += 1
            self.depths[found.depth[start, end]] += 1
            self.lengths[end - start] += 1
        for _, group in groupby(sorted(entities), key=lambda entity: entity[:2]):
            labels = sorted(label for _, _, label in group)
            if len(labels) > MOST_LABELS:
                pairs = f"pairs of more than {MOST_LABELS} labels"
                self.same_span[pairs] += len(labels) * (len(labels) - 1) // 2
            else:
                self.same_span.update(" + ".join(pair) for pair in combinations(labels, 2))

    @property
    def nested_percent(self) -> float:
        """Nested entities in percent of all entities, 0 without entities."""
        return 100 * self.nested_entities / max(1, self.entities)

    @property
    def max_depth(self) -> int:
        """Deepest nesting, 1 where nothing is nested, 0 without entities."""
        return max(self.depths, default=0)

    @property
    def max_length(self) -> int:
        """Tokens of the longest entity."""
        return max(self.lengths, default=0)

    @property
    def most_in_sentence(self) -> int:
        """Entities of the fullest sentence."""
        return max(self.per_sentence, default=0)

    @property
    def texts(self) -> int:
        """How many different documents the docs are of. Those without an id stand alone."""
        return len(np.unique(self.doc_ids)) + self.documents - len(self.doc_ids)

    def dropped_by_reason(self) -> Counter:
        """How many annotations were left out, by reason."""
        reasons: Counter = Counter()
        for (reason, _), count in self.dropped.items():
            reasons[reason] += count
        return reasons

    def to_dict(self) -> Dict[str, Any]:
        """All counts, ready for JSON."""
        dropped: Dict[str, Dict[str, int]] = {}
        for (reason, detail), count in self.dropped.most_common():
            dropped.setdefault(reason, {})[detail] = count
        return {
            "documents": self.documents,
            "document_ids": self.texts,
            "sentences": self.sentences,
            "tokens": self.tokens,
            "entities": self.entities,
            "labels": dict(self.labels.most_common()),
            "nested_entities": self.nested_entities,
            "sentences_with_nested": self.nested_sentences,
            "max_depth": self.max_depth,
            "entities_by_depth": _by_number(self.depths),
            "max_length": self.max_length,
            "entities_by_length": _by_number(self.lengths),
            "max_entities_in_sentence": self.most_in_sentence,
            "sentences_by_entities": _by_number(self.per_sentence),
            "crossing_pairs": self.crossing_pairs,
            "same_span_labels": dict(self.same_span.most_common()),
            "dropped": dropped,
            "misaligned_example": self.misaligned_example or None,
        }


def document_of(user_data: Mapping[Any, Any]) -> Optional[str]:
    """The id of the document that a doc with these data is a part of, "doc_id"; None without."""
    return id_of(user_data.get("doc_id")) or None


def distinct_spans(doc: Doc, spans_key: str) -> List[Span]:
    """Those of a doc under a key, each with its label once."""
    group = doc.spans.get(spans_key, [])
    return list({(span.start, span.end, span.label): span for span in group}.values())


def _by_sentence(doc: Doc, spans_key: str) -> List[List[Tuple[int, int, str]]]:
    spans = [(span.start, span.end, span.label_) for span in distinct_spans(doc, spans_key)]
    starts = [start for start, _ in set_sentences(doc)]
    found: List[List[Tuple[int, int, str]]] = [[] for _ in starts]
    for span in spans:
        found[bisect_right(starts, span[0]) - 1].append(span)
    return found


def _by_number(counts: Counter) -> Dict[str, int]:
    return {str(number): counts[number] for number in sorted(counts)}
