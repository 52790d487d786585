"""Gold entities of training examples, in tokens of the predicted doc and in segments."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise, permutations
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

import numpy as np
from spacy.strings import get_string_id
from spacy.tokens import Doc, Span, SpanGroup
from spacy.training import Example

from spacy_nested_ner.model.types import GoldEntity
from spacy_nested_ner.pipeline.tokens import is_space

WEIGHTS = "weights"
"""Attribute of a span group, as `nested-ner teach` writes it: of each span, from 0 to 1, the share
of the training steps in which it is an entity. On average this is learning from soft labels,
whatever the loss of a system."""

TAUGHT = "taught"
"""What `nested-ner teach` gives each span as `kb_id_`. It is kept where the weights are not:
spaCy's augmenters drop the attributes of a group."""
TAUGHT_ID = get_string_id(TAUGHT)  # other ids may be numbers, which have no string

LOST_REMEDY = {
    "empty": "they contain no word; check the annotation",
    "no label": "give each span a label",
    "misaligned": "their boundaries fall inside tokens; check the language of the pipeline, "
    "its tokenizer and the annotation",
    "unknown label": "check their spelling, or add the labels at initialize or with add_label; a "
    "sourced component is not initialized: call add_label and save its pipeline before training",
    "across segments": "they fit in no sentence or window; check the sentence boundaries. Where "
    "none are set, entities of more than window - stride words (64 by default) need a larger "
    "window of the component, and a stride of the window minus the longest entity",
}

# Characters of a text or a span in a message.
SHOWN = 40

DROPPED = (
    "If they come from a .spacy file: spaCy's corpus reader drops all spans of docs that it "
    "splits; set its max_length to 0 and gold_preproc to false"
)


SURE = 0.5
"""Of taught spans, those with this weight or more are found at the threshold of the teacher."""


def is_taught(group: Iterable[Span]) -> bool:
    """Whether spans are those of `nested-ner teach`, with their weights or without."""
    return WEIGHTS in getattr(group, "attrs", {}) or any(span.kb_id == TAUGHT_ID for span in group)


def keep_sure(doc: Doc, spans_key: str) -> None:
    """Of taught spans under a key keep those that the teacher finds at its own threshold."""
    group = doc.spans.get(spans_key, [])
    weights = weights_of(doc, spans_key)
    if weights is not None:
        sure = weights >= SURE
        spans = [span for span, is_sure in zip(group, sure) if is_sure]
        attrs = {**group.attrs, WEIGHTS: weights[sure].tolist()}
        doc.spans[spans_key] = SpanGroup(doc, name=spans_key, attrs=attrs, spans=spans)


def one_sided_labels(docs: Iterable[Doc], spans_key: str) -> List[str]:
    """What to say of labels that gold docs have and docs of `nested-ner teach` have not, or the
    other way round, where both are in the training data."""
    labels: Dict[str, Set[str]] = {}
    for doc in docs:
        if group := doc.spans.get(spans_key):
            kind = "docs of 'nested-ner teach'" if is_taught(group) else "annotated docs"
            labels.setdefault(kind, set()).update(span.label_ for span in group)
    problems = []
    for have, lack in permutations(labels, 2):
        if missing := labels[have] - labels[lack]:
            names = ", ".join(map(repr, sorted(missing)))
            problems.append(
                f"the {have} have labels that the {lack} lack: {names}. The {lack} are used as "
                "texts without such entities, which is right only if they contain none: the "
                "teacher has to know the labels of the gold data, and no others"
            )
    return problems


class GoldKeys(NamedTuple):
    """What the references of some examples hold.

    labels: under one key of `doc.spans`, in the order of their appearance. docs: how many have
    spans, by key. total: how many hold words. only_ents: how many have `doc.ents` and no group
    under that key.
    """

    labels: List[str]
    docs: Dict[str, int]
    total: int
    only_ents: int

    def problem(self, spans_key: str) -> str:
        """Why there is nothing to learn under a key, and what to do about it."""
        if spans_key in self.docs:
            return f"the training docs have no entity under spans_key '{spans_key}'"
        put = f"set doc.spans['{spans_key}'] ="
        if not self.docs and self.only_ents:
            ents = f"{put} list(doc.ents) in the docs"
            return f"no training doc has spans, but there are doc.ents: {ents}"
        if not self.docs:
            give = "Give examples that have them: nlp.initialize(lambda: examples)"
            return f"no training doc has spans. {give}. {DROPPED}"
        have = ", ".join(f"'{key}'" for key in sorted(self.docs))
        return (
            f"no training doc has spans under spans_key '{spans_key}'; the docs have {have}. Set "
            "spans_key to the key of your annotation. If another component writes to that key, "
            f"{put} list(doc.spans[...]) in the docs instead"
        )

    def without_key(self, spans_key: str) -> str:
        """What to say of docs without a group of spans under a key that others have; empty if there
        are none."""
        count = self.total - self.docs.get(spans_key, 0)
        if spans_key not in self.docs or not count:
            return ""
        put = f"set doc.spans['{spans_key}'] = list(doc.ents)"
        ents = f"{self.only_ents} of them have doc.ents: {put}. " if self.only_ents else ""
        return (
            f"{count} of {self.total} training docs have no doc.spans['{spans_key}']. These "
            f"docs are used as texts without entities. {ents}If that is right, give them an empty "
            f"group; leave out docs that are not annotated. {DROPPED}"
        )


def gold_keys(examples: Iterable[Example], spans_key: str) -> GoldKeys:
    """Read the labels under a key, and which keys there are."""
    labels: Dict[str, None] = {}
    docs: Dict[str, int] = {}
    total = only_ents = 0
    for example in examples:
        spans = example.reference.spans
        only_ents += bool(example.reference.ents) and spans_key not in spans
        total += bool(len(example.reference) or spans)
        for key, group in spans.items():
            docs[key] = docs.get(key, 0) + 1
            if key == spans_key:
                labels.update(dict.fromkeys(span.label_ for span in group if span.label))
    return GoldKeys(list(labels), docs, total, only_ents)


def gold_elsewhere(examples: Iterable[Example], spans_key: str) -> str:
    """What to say of references that are all annotated in other places alone; empty if they are
    not."""
    places: Dict[str, None] = {}
    for example in examples:
        if spans_key in example.reference.spans:
            return ""
        places.update(dict.fromkeys(f"doc.spans['{key}']" for key in example.reference.spans))
        if example.reference.ents:
            places["doc.ents"] = None
    if not places:
        return ""
    return (
        f"no doc of a batch has doc.spans['{spans_key}'], but there is {' and '.join(places)}. "
        "These docs are used as texts without entities. Put the entities under that key, or set "
        "spans_key to the key of your annotation (for a sourced component, set it in "
        "nlp.get_pipe(name).cfg before saving its pipeline: a config cannot change it)"
    )


class GoldSegments(NamedTuple):
    """Entities per segment, and what could not be learned from, counted by reason.

    first: of each reason that occurs, the first such span in words.
    """

    entities: List[List[GoldEntity]]
    lost: Dict[str, int]
    first: Dict[str, str]

    def problems(self, where: str) -> Dict[str, str]:
        """What to say of those that cannot be learned from, by reason."""
        return {
            reason: f"{self.lost[reason]} gold span(s) of {where} cannot be used for training "
            f"({reason}; the first: {first}): {LOST_REMEDY[reason]}. Further cases are not reported"
            for reason, first in self.first.items()
        }


def gold_segments(
    examples: Sequence[Example],
    rows: np.ndarray,
    spans_key: str,
    label_index: Mapping[str, int],
    draw: bool = False,
) -> GoldSegments:
    """Place every gold entity in each segment that holds it.

    rows: see `Segments`; those of one doc in the order of the text, none inside another, as
    `cut_segments` gives them. Whitespace at the ends of an entity is left out, as it is in
    predictions. draw: of spans with `WEIGHTS` some are drawn at random; else all are taken.
    Lost, with the reason: "empty" (no word in it), "no label", "misaligned" (no token boundary of
    the predicted doc fits), "unknown label" and "across segments" (no sentence or window holds it).
    """
    lost = dict.fromkeys(LOST_REMEDY, 0)
    first: Dict[str, str] = {}

    def lose(reason: str, doc: Doc, span: Span, label: str) -> None:
        lost[reason] += 1
        if reason not in first:
            text, around = span.text[:SHOWN], doc.text.strip()[:SHOWN]
            first[reason] = f"{text!r} as {label!r} in {around!r}"

    entities: List[List[GoldEntity]] = [[] for _ in rows]
    begins = np.searchsorted(rows[:, 0], np.arange(len(examples) + 1)).tolist()
    for example, (begin, stop) in zip(examples, pairwise(begins)):
        spans, misaligned = aligned_gold(example, spans_key, draw)
        for span in misaligned:
            lose("misaligned", example.predicted, span, span.label_)
        starts, ends = rows[begin:stop, 1].tolist(), rows[begin:stop, 2].tolist()
        spaces = is_space(example.predicted)
        for begins_at, ends_at, label in spans:
            start, end = without_space_around(spaces, begins_at, ends_at)
            holders = range(bisect_left(ends, end), bisect_right(starts, start))
            if start >= end:
                reason = "empty"
            elif label not in label_index:
                reason = "unknown label" if label else "no label"
            elif not holders:
                reason = "across segments"
            else:
                for i in holders:
                    entity = (start - starts[i], end - starts[i] - 1, label_index[label])
                    entities[begin + i].append(entity)
                continue
            lose(reason, example.predicted, example.predicted[begins_at:ends_at], label)
    return GoldSegments([sorted(set(group)) for group in entities], lost, first)


def aligned_gold(
    example: Example, spans_key: str, draw: bool = False
) -> Tuple[List[Tuple[int, int, str]], List[Span]]:
    """Gold spans as `(start, end, label)` in tokens of the predicted doc, and those that start or
    end inside a predicted token. draw: see `gold_segments`."""
    reference, predicted = example.reference, example.predicted
    gold = drawn(reference, spans_key) if draw else list(reference.spans.get(spans_key, []))
    if same_tokens(reference, predicted):
        return [(span.start, span.end, span.label_) for span in gold], []
    if reference.text == predicted.text:
        fitted = [predicted.char_span(span.start_char, span.end_char) for span in gold]
    else:  # other whitespace: spaCy's alignment knows how the tokens belong together
        alignment = example.alignment.y2x
        fitted = [_fitted(predicted, span, alignment[span.start : span.end]) for span in gold]
    # Labels as text: a reference that was read with another vocab may have ones of its own.
    labelled = zip(fitted, [span.label_ for span in gold])
    found = [(span.start, span.end, label) for span, label in labelled if span is not None]
    return found, [span for span, fit in zip(gold, fitted) if fit is None]


def _fitted(predicted: Doc, span: Span, tokens: np.ndarray) -> Optional[Span]:
    """A gold span over these tokens of the predicted doc, `(tokens,)` int; None if they hold more.

    As in spaCy's `Example.get_aligned_spans_y2x`, which looks for a line break inside a span, too:
    here no whitespace counts, as in the scores. A span without any word stays empty.
    """
    first, end = (int(tokens[0]), int(tokens[-1]) + 1) if len(tokens) else (0, 0)
    fitted = Span(predicted, first, end)
    return fitted if _solid(fitted) == _solid(span) else None


def _solid(span: Span) -> str:
    """The text without whitespace; spaCy's alignment takes capitals for small letters."""
    return "".join(span.text.lower().split())


def drawn(reference: Doc, spans_key: str) -> List[Span]:
    """The spans under a key; of those with weights each with its weight as probability. Raises
    ValueError as `weights_of`."""
    group = reference.spans.get(spans_key, [])
    weights = weights_of(reference, spans_key)
    if weights is None:
        return list(group)
    chosen = np.random.random_sample(len(group)) < weights
    return [span for span, taken in zip(group, chosen) if taken]


def weights_of(reference: Doc, spans_key: str) -> Optional[np.ndarray]:
    """Those of the spans under a key, `(spans,)` float64, or None.

    Raises ValueError if there are not as many weights as spans, if one is not from 0 to 1, or if
    they are lost.
    """
    group = reference.spans.get(spans_key, [])
    weights = getattr(group, "attrs", {}).get(WEIGHTS)
    if weights is None:
        if any(span.kb_id == TAUGHT_ID for span in group):
            raise ValueError(
                f"doc.spans['{spans_key}'] of '{reference.text[:40]}', made by 'nested-ner teach', "
                f"has lost its {WEIGHTS}. spaCy's augmenters, Doc.from_docs, to_json and a new "
                "list of spans drop them: set the augmenter of the corpus reader to null, or make "
                "the spans anew, without kb_id, as in 'A large pipeline teaches a small one' of "
                "docs/guide/training.md."
            )
        return None
    try:
        wanted = np.asarray([float(weight) for weight in weights])
    except (TypeError, ValueError) as err:
        raise ValueError(
            f"doc.spans['{spans_key}'] of '{reference.text[:40]}' has {WEIGHTS} that are no list "
            f"of numbers: {weights!r}. Give every span a number from 0 to 1, or none of them."
        ) from err
    if len(wanted) != len(group):
        raise ValueError(
            f"doc.spans['{spans_key}'] of '{reference.text[:40]}' has {len(group)} spans and "
            f"{len(wanted)} {WEIGHTS}. Give every span a weight, or none of them."
        )
    if not ((wanted >= 0) & (wanted <= 1)).all():  # NaN is neither
        raise ValueError(
            f"doc.spans['{spans_key}'] of '{reference.text[:40]}' has {WEIGHTS} that are not from "
            "0 to 1. A weight is the share of the training steps that learn from the span. Remove "
            f"attrs['{WEIGHTS}'] if it is for something else."
        )
    return wanted


def without_space_around(spaces: np.ndarray, start: int, end: int) -> Tuple[int, int]:
    """Bounds of a span without whitespace at its ends; start equals end if none is left.

    spaces: which tokens of the doc are whitespace, `(tokens,)` bool.
    """
    words = np.flatnonzero(~spaces[start:end])
    return (start + int(words[0]), start + int(words[-1]) + 1) if len(words) else (start, start)


def same_tokens(a: Doc, b: Doc) -> bool:
    """Whether two docs have the same tokens, whatever stands between them."""
    return len(a) == len(b) and np.array_equal(a.to_array("ORTH"), b.to_array("ORTH"))
