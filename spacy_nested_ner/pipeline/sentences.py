"""What a pipe learned from, single sentences or longer texts, and sentences by rule."""

from __future__ import annotations

import math
from typing import Dict, Iterable, List, Optional, Tuple

import numpy as np
from spacy.pipeline import Sentencizer
from spacy.tokens import Doc

# Its signs are those of all scripts that have any, not of one language.
SENTENCIZER = Sentencizer()
# JSON, saved with the pipe. Texts: what training docs are cut into by sentence boundaries, whole
# docs where none are set. `single` of them are one sentence by rule.
NOTHING_SEEN = {"texts": 0, "single": 0, "words": 0, "squared_words": 0}


def set_sentences(doc: Doc) -> List[Tuple[int, int]]:
    """First and end token of each sentence where boundaries are set, of the whole doc elsewhere;
    none for an empty doc."""
    if not doc.has_annotation("SENT_START"):
        return [(0, len(doc))] if len(doc) else []
    starts = np.flatnonzero(doc.to_array("SENT_START").astype(np.int64) == 1)
    return _between(starts.tolist(), len(doc))


def rule_sentences(doc: Doc) -> List[Tuple[int, int]]:
    """First and end token of each sentence by the rule of spaCy's `sentencizer`, which sees no
    boundaries where there is no punctuation. The doc is not changed."""
    (is_start,) = SENTENCIZER.predict([doc])
    return _between([i for i, start in enumerate(is_start) if start], len(doc))


def _between(starts: List[int], end: int) -> List[Tuple[int, int]]:
    if not end:
        return []
    starts = sorted({0, *starts})
    return list(zip(starts, [*starts[1:], end]))


def remember(seen: Dict[str, int], docs: Iterable[Doc]) -> Dict[str, int]:
    """`seen`, which begins as `NOTHING_SEEN`, with the texts of these docs."""
    seen = dict(seen)
    for doc in docs:
        by_rule = {start for start, _ in rule_sentences(doc)}
        for start, end in set_sentences(doc):
            seen["texts"] += 1
            seen["single"] += by_rule.isdisjoint(range(start + 1, end))
            seen["words"] += end - start
            seen["squared_words"] += (end - start) ** 2
    return seen


def usual_length(seen: Dict[str, int]) -> Optional[int]:
    """Words of all but the longest of the sentences that a pipe learned from: the mean and two
    standard deviations. None if most of the texts were no single sentences."""
    n_texts = seen["texts"]
    if 2 * seen["single"] <= n_texts:
        return None
    mean = seen["words"] / n_texts
    variance = max(0.0, seen["squared_words"] / n_texts - mean**2)
    return math.ceil(mean + 2 * math.sqrt(variance))
