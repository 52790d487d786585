"""Which texts are worth annotating: those with many uncertain spans for the work that they make.

With the score `p` of a span and the threshold `t` of the component that gave it

- `q = p / 2t` below the threshold, `1 - (1 - p) / 2(1 - t)` from it on: the score, stretched so
    that 1/2 is where the component decides. A threshold other than 1/2 was chosen because the
    scores are too high or too low to decide at 1/2.
- `u = min(q, 1 - q)`: the uncertainty of the span.
- The form of a span is its label and its text in lower case. In a text each form counts once, with
    its highest `u`, and half as much for each text with that form that was picked before.
- The gain of a text is the sum of these over its forms, divided by `1 + sum(q)`: the text has to be
    read, and so many entities will probably have to be marked in it.

Picked is the text with the highest gain, then the one with the highest gain after that, and so on.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, Mapping, Tuple

Form = Tuple[str, str]
"""Label of a span and its text in lower case."""

REPEATED = 0.5
"""What a form is worth after each picked text that has it."""

SHORTLIST = 50
"""Candidates that are kept for each text to pick: of very many, the best by themselves."""


@dataclass(frozen=True)
class Candidate:
    """A text that may be picked.

    uncertain: the highest uncertainty of each of its forms. cost: 1 and the expected number of its
    entities. item: whatever belongs to it.
    """

    text: str
    uncertain: Mapping[Form, float]
    cost: float
    item: Any = None

    def gain(self, picked: Mapping[Form, int]) -> float:
        """What the text is worth when so many texts with each form are picked."""
        known = (u * REPEATED ** picked.get(form, 0) for form, u in self.uncertain.items())
        return sum(known) / self.cost


def candidate(
    text: str, spans: Iterable[Tuple[str, str, float]], threshold: float, item: Any = None
) -> Candidate:
    """A candidate from label, text and score of each span that was found in its text, however low
    the score. threshold: of the component that gave the scores."""
    uncertain: Dict[Form, float] = {}
    cost = 1.0
    for label, words, score in spans:
        form, q = (label, words.lower()), stretched(score, threshold)
        uncertain[form] = max(min(q, 1 - q), uncertain.get(form, 0.0))
        cost += q
    return Candidate(text, uncertain, cost, item)


def stretched(score: float, threshold: float) -> float:
    """The score on a scale, 0 to 1, on which the threshold is 1/2."""
    if score < threshold:
        return score / (2 * threshold)
    return 1 - (1 - score) / (2 * (1 - threshold)) if threshold < 1 else 0.5


def pick(candidates: Iterable[Candidate], n: int) -> List[Candidate]:
    """The `n` texts to annotate, the most worthwhile first; all, where there are no more. Of equal
    ones the earlier is picked, and a text that comes twice is picked once. Holds at most
    `SHORTLIST * n` candidates and one more."""
    return greedy(shortlist(candidates, SHORTLIST * n), n)


def shortlist(candidates: Iterable[Candidate], most: int) -> List[Candidate]:
    """The best by the gain that each has by itself, in their order, each text once."""
    heap: List[Tuple[float, int, Candidate]] = []
    texts = set()
    for number, each in enumerate(candidates):
        entry = (each.gain({}), -number, each)
        if each.text in texts or (len(heap) == most and entry < heap[0]):
            continue
        texts.add(each.text)
        heapq.heappush(heap, entry)
        if len(heap) > most:
            texts.remove(heapq.heappop(heap)[2].text)
    return [each for _, _, each in sorted(heap, key=lambda entry: -entry[1])]


def greedy(candidates: List[Candidate], n: int) -> List[Candidate]:
    """Pick the highest gain `n` times. Gains only fall while others are picked, so that one which
    was computed earlier is a bound: only what could be the best is computed anew."""
    heap = [(-each.gain({}), number) for number, each in enumerate(candidates)]
    heapq.heapify(heap)
    seen: Counter[Form] = Counter()
    chosen: List[Candidate] = []
    while heap and len(chosen) < n:
        _, number = heapq.heappop(heap)
        entry = (-candidates[number].gain(seen), number)
        if heap and entry > heap[0]:
            heapq.heappush(heap, entry)
        else:
            chosen.append(candidates[number])
            seen.update(candidates[number].uncertain.keys())
    return chosen
