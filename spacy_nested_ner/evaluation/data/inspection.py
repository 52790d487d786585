"""What there is to know of the data before training: `nested-ner inspect`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import (
    Any,
    Dict,
    FrozenSet,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Set,
    Tuple,
)

import numpy as np
from spacy.tokens import Span
from spacy.training import Example

from spacy_nested_ner.corpora.statistics import (
    MISALIGNED,
    SplitStatistics,
    distinct_spans,
    misaligned_labels,
)
from spacy_nested_ner.evaluation.data.limits import Component, Limit, limits
from spacy_nested_ner.evaluation.scores.remarks import of_all, some
from spacy_nested_ner.pipeline.gold import LOST_REMEDY, gold_segments
from spacy_nested_ner.pipeline.segments import cut_segments
from spacy_nested_ner.pipeline.sentences import set_sentences

FEW = 5
"""So many rare labels or more are one warning."""
SHARED = 0.05
"""Share of the documents of dev that may be in train, too: where a corpus was cut."""
SHOWN = 200
"""Characters of an example of a sentence: it may be a whole doc."""
PERCENTILES = (50, 90, 95, 99, 100)


@dataclass
class SplitInspection:
    """One data set.

    counts: see `SplitStatistics`. lengths: entity lengths in words, by label. sentences: their
    texts. mentions: entities by text and label. repeated: spans that are there already with the
    same label; they count once, as in the scores. contradicting: docs whose text is there already
    with other entities. unannotated: docs without the spans key. lost: entities that a pipe cannot
    learn from, by reason, see `gold_segments`. tokens: see `compare_tokens`.
    """

    counts: SplitStatistics = field(default_factory=SplitStatistics)
    lengths: Dict[str, List[int]] = field(default_factory=dict)
    sentences: Counter = field(default_factory=Counter)
    mentions: Counter = field(default_factory=Counter)
    repeated: int = 0
    contradicting: int = 0
    unannotated: int = 0
    lost: Counter = field(default_factory=Counter)
    tokens: Dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> Dict[str, Any]:
        """Ready for JSON."""
        per_label = {
            label: {
                "mean": float(np.mean(lengths)),
                **{f"{p}%": int(np.percentile(lengths, p, method="higher")) for p in PERCENTILES},
            }
            for label, lengths in sorted(self.lengths.items())
        }
        return {
            **self.counts.to_dict(),
            "length_by_label": per_label,
            "repeated_entities": self.repeated,
            "contradicting_documents": self.contradicting,
            "documents_without_annotation": self.unannotated,
            "lost": {reason: count for reason, count in self.lost.items() if count},
            "other_tokens": self.tokens,
        }


def inspect_split(examples: Iterable[Example], spans_key: str) -> SplitInspection:
    """Count everything in one data set.

    examples: the predicted docs hold the tokens that a pipeline would see.
    """
    found = SplitInspection()
    annotated: Dict[str, FrozenSet[Tuple[int, int, str]]] = {}
    for example in examples:
        doc = example.reference
        if spans_key not in doc.spans:
            found.unannotated += 1
            continue
        left_out = misaligned_labels([doc]).items()
        dropped = Counter({(MISALIGNED, label): count for label, count in left_out})
        found.counts.add(doc, spans_key, dropped)
        entities = distinct_spans(doc, spans_key)
        found.repeated += len(doc.spans[spans_key]) - len(entities)
        for span in entities:
            found.lengths.setdefault(span.label_, []).append(len(span))
            found.mentions[_plain(span), span.label_] += 1
        sentences = (_plain(doc[start:end]) for start, end in set_sentences(doc))
        found.sentences.update(filter(None, sentences))
        places = frozenset((span.start_char, span.end_char, span.label_) for span in entities)
        if doc.text.strip() and annotated.setdefault(doc.text, places) != places:
            found.contradicting += 1
    return found


def _plain(span: Span) -> str:
    return " ".join(span.text.split())


# Train beside dev


def overlap(train: SplitInspection, dev: SplitInspection) -> Dict[str, Any]:
    """How much of dev is in train: sentences by their text, documents by their ids, entities by
    text and label."""
    common = [text for text in dev.sentences if text in train.sentences]
    repeated = sum(dev.sentences[text] for text in common)
    longest = sorted(common, key=len, reverse=True)[:3]
    seen = sum(count for mention, count in dev.mentions.items() if mention in train.mentions)
    total = sum(dev.mentions.values())
    return {
        "sentences": repeated,
        "sentences_percent": 100 * repeated / max(1, dev.sentences.total()),
        "document_ids": len(np.intersect1d(dev.counts.doc_ids, train.counts.doc_ids)),
        "document_ids_of_dev": len(np.unique(dev.counts.doc_ids)),
        "examples": [_shortened(each) for each in longest],
        "entities_seen": seen,
        "entities_seen_percent": 100 * seen / total if total else 0.0,
        "labels_not_in_train": sorted(set(dev.counts.labels) - set(train.counts.labels)),
        "labels_not_in_dev": sorted(set(train.counts.labels) - set(dev.counts.labels)),
    }


def _shortened(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 4]} ..."


# Limits of the systems


def inspect_limits(
    examples: Sequence[Example], components: Sequence[Component], spans_key: str
) -> Tuple[List[Dict[str, Any]], Counter]:
    """The data against what each component can hold, segment by segment as it would see them.

    examples: the predicted docs hold the tokens that a pipeline would see.
    RETURNS: one dict per component and limit; and the entities lost before any system sees them, by
        reason (see `gold_segments`), where windows differ the largest number.
    """
    annotated = [eg for eg in examples if spans_key in eg.reference.spans]
    lengths = Counter(len(s) for eg in annotated for s in distinct_spans(eg.reference, spans_key))
    labels = {span.label_ for eg in annotated for span in eg.reference.spans[spans_key]}
    seen: Dict[Tuple[int, int], _Segments] = {}
    rows: List[Dict[str, Any]] = []
    lost: Counter = Counter()
    for component in components:
        window = (component.settings.get("window", 0), component.settings.get("stride", 0))
        if window not in seen:
            seen[window] = _Segments.of(annotated, spans_key, labels, *window)
            lost |= seen[window].lost
        named = {"component": component.name, "factory": component.factory}
        found = limits(component)
        rows += [{**named, **_against(limit, seen[window], lengths)} for limit in found]
        if not found:
            rows.append({**named, "limit": None})
    return rows, lost


@dataclass
class _Segments:
    """Words, entities and text of every segment, and what no segment holds."""

    words: List[int] = field(default_factory=list)
    entities: List[int] = field(default_factory=list)
    texts: List[str] = field(default_factory=list)
    lost: Counter = field(default_factory=Counter)

    @classmethod
    def of(
        cls, examples: Iterable[Example], spans_key: str, labels: Set[str], window: int, stride: int
    ) -> _Segments:
        """window: 0 for a component that sees whole docs."""
        index = {label: i for i, label in enumerate(sorted(labels))}
        found = cls()
        for example in examples:
            doc = example.predicted
            size = window or max(1, len(doc))
            rows = cut_segments([doc], size, stride or size).rows
            placed = gold_segments([example], rows, spans_key, index)
            found.lost.update(placed.lost)
            found.words += (rows[:, 2] - rows[:, 1]).tolist()
            found.entities += [len(group) for group in placed.entities]
            found.texts += [doc[first:last].text for _, first, last in rows.tolist()]
        return found


def _against(limit: Limit, segments: _Segments, lengths: Counter) -> Dict[str, Any]:
    result: Dict[str, Any] = {"limit": limit.what, "settings": limit.settings, "entities_over": 0}
    if limit.entities is not None:
        room = [limit.entities(words) for words in segments.words]
        over = [max(0, n - most) for n, most in zip(segments.entities, room)]
        worst = int(np.argmax(over)) if any(over) else None
        shares = [n / most for n, most in zip(segments.entities, room) if most]
        result["sentences_over"] = sum(each > 0 for each in over)
        result["entities_over"] = sum(over)
        result["fullest_percent"] = 100 * max(shares, default=0.0)
        if worst is not None:
            result["worst"] = {
                "text": _shortened(segments.texts[worst]),
                "entities": segments.entities[worst],
                "room": room[worst],
            }
    if limit.lengths is not None:
        unlisted = {n: count for n, count in lengths.items() if not limit.lengths(n)}
        result["entities_of_other_length"] = sum(unlisted.values())
        result["other_lengths"] = {str(n): unlisted[n] for n in sorted(unlisted)}
    if limit.reach is not None:
        result["reach"] = limit.reach
        result["entities_over"] = sum(c for n, c in lengths.items() if n > limit.reach)
    if result["entities_over"] or result.get("entities_of_other_length"):
        result["remedy"] = limit.remedy
    return result


# Everything


def inspection(
    train: SplitInspection,
    dev: Optional[SplitInspection],
    limit_rows: Sequence[Mapping[str, Any]],
    rare: int,
) -> Dict[str, Any]:
    """The whole report, ready for JSON, with what deserves attention in "warnings".

    rare: fewer entities make a label rare.
    """
    report = {
        "train": train.to_dict(),
        "dev": dev.to_dict() if dev is not None else None,
        "rare_labels": {
            label: count
            for label, count in sorted(train.counts.labels.items(), key=lambda item: item[1])
            if count < rare
        },
        "overlap": overlap(train, dev) if dev is not None else None,
        "limits": list(limit_rows),
    }
    return {**report, "warnings": list(_warnings(report, rare))}


def _warnings(report: Mapping[str, Any], rare: int) -> Iterator[str]:
    rare_labels = report["rare_labels"]
    if len(rare_labels) < FEW:
        for label, count in rare_labels.items():
            yield f"Label {label!r} has {count} entities in train, fewer than {rare}."
    else:
        found = [f"{label!r} ({count})" for label, count in rare_labels.items()]
        yield f"{len(found)} labels have fewer than {rare} entities in train: {some(found)}."
    if report["dev"] and not report["dev"]["entities"]:
        yield "dev has no entities, but training is scored on it."
    for split in ("train", "dev"):
        yield from _split_warnings(split, report[split] or {})
    common = report["overlap"]
    if common:
        if common["labels_not_in_train"]:
            yield f"Labels in dev but not in train: {some(common['labels_not_in_train'])}."
        if common["labels_not_in_dev"] and report["dev"]["entities"]:
            yield (
                f"Labels in train but not in dev: {some(common['labels_not_in_dev'])}. If dev has "
                "such entities, but they are not annotated, each that is found counts as wrong."
            )
        if common["sentences"]:
            yield (
                f"{common['sentences']} sentences of dev ({common['sentences_percent']:.1f} %) are "
                "also in train, word for word."
            )
        if common["document_ids"] > SHARED * common["document_ids_of_dev"]:
            yield (
                f"{common['document_ids']} of {common['document_ids_of_dev']} documents of dev "
                "(doc_id) are in train, too. What is alike within a document, or an author, makes "
                "the scores on dev too high. (If the ids only count the texts of each file, all is "
                "well.)"
            )
    for row in report["limits"]:
        yield from _limit_warnings(row)


def _split_warnings(split: str, found: Mapping[str, Any]) -> Iterator[str]:
    if found.get("documents_without_annotation"):
        yield f"{found['documents_without_annotation']} docs of {split} have no annotation."
    tokens = found.get("other_tokens") or {}
    if tokens.get("differing"):
        yield (
            f"In {tokens['differing_percent']:.1f} % of the sentences of {split} the tokens differ "
            "from those that the pipeline makes of raw text, so it will be worse on raw text. "
            "Is the language that of the texts? If so, convert with --tokens spacy."
        )
    if left_out := found.get("dropped", {}).get(MISALIGNED):
        yield (
            f"{sum(left_out.values())} entities of {split} are not in it, because they begin or "
            f"end inside a token and convert left them out: {of_all(left_out, found['labels'])}. "
            "Their words count as words without an entity."
        )
    for reason, count in found.get("lost", {}).items():
        remedy = LOST_REMEDY[reason]
        yield f"{count} entities of {split} cannot be used for training ({reason}): {remedy}."
    if found.get("repeated_entities"):
        yield (
            f"{found['repeated_entities']} entities of {split} are repeated, with the same span "
            "and label; they count once."
        )
    if found.get("contradicting_documents"):
        yield (
            f"{found['contradicting_documents']} docs of {split} have the text of another with "
            "other entities. Was a text annotated twice, are two exports of one project in it, or "
            "did `nested-ner teach` read annotated texts (see its --without)?"
        )
    if found.get("crossing_pairs"):
        yield (
            f"{found['crossing_pairs']} pairs of spans in {split} cross; overlap = 'no_crossing' "
            "would lose one of each pair."
        )
    if found.get("same_span_labels"):
        pairs = sum(found["same_span_labels"].values())
        yield f"{pairs} pairs of labels in {split} share a span; leave labels_per_span at null."


def _limit_warnings(row: Mapping[str, Any]) -> Iterator[str]:
    if row["limit"] is None:
        return
    name = row["component"] + ("" if row["component"] == row["factory"] else f" ({row['factory']})")
    settings = ", ".join(f"{key} = {value}" for key, value in row["settings"].items())
    if row.get("sentences_over"):
        yield (
            f"{name}: {row['sentences_over']} sentences hold more entities than {row['limit']} "
            f"({settings}), {row['entities_over']} entities too many; {row['remedy']}."
        )
    if row.get("entities_of_other_length"):
        beyond = ""
        if "reach" in row:
            reach = f"({row['reach']:.1f} words)"
            beyond = f", {row['entities_over']} of them longer than it can reach {reach}"
        yield (
            f"{name}: {row['entities_of_other_length']} entities are of a length that is not among "
            f"the {row['limit']} ({settings}){beyond}; {row['remedy']}."
        )
