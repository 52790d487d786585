"""Strict micro F1 of what a component predicts, at any threshold."""

from functools import partial
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set, Tuple

from spacy.language import Language
from spacy.tokens import Doc

from spacy_nested_ner.comparison.trainings import bare
from spacy_nested_ner.evaluation.scores.metrics import PRF
from spacy_nested_ner.evaluation.scores.own_thresholds import LOWEST, changed, is_searchable

Entity = Tuple[int, int, str]
Found = List[List[Tuple[Entity, float]]]
# Entities of so many words, the first inclusive, the last exclusive.
LENGTHS = {"1-4 words": (1, 5), "5-9": (5, 10), "10 and more": (10, 10**6)}


class Scored(NamedTuple):
    """The entities of docs that a component finds at a low threshold, with their scores, and the
    gold ones.

    again: finds them at another threshold, where fewer of the same are not what is found there.
    """

    found: Found
    gold: List[Set[Entity]]
    again: Optional[Callable[[float], Found]] = None

    def at(self, threshold: float) -> List[Set[Entity]]:
        """What reaches the threshold."""
        found = self.found if self.again is None else self.again(threshold)
        return [{entity for entity, score in each if score >= threshold} for each in found]


def found_by(nlp: Language, gold: List[Doc], name: str = "ner") -> Scored:
    """Entities that a component predicts in each doc with their scores, and the gold ones."""
    pipe: Any = nlp.get_pipe(name)
    found_at = partial(_found_at, nlp, gold, pipe)
    lowest = min(LOWEST, pipe.cfg["threshold"])
    with changed(pipe, threshold=lowest):  # that of the pipeline may be none that it takes
        searchable = is_searchable(nlp, name)
    found, expected = found_at(lowest), [entities_of(doc, pipe.key) for doc in gold]
    return Scored(found, expected, None if searchable else found_at)


def _found_at(nlp: Language, gold: List[Doc], pipe: Any, threshold: float) -> Found:
    found = []
    with changed(pipe, threshold=threshold):
        for doc in nlp.pipe((bare(nlp, doc) for doc in gold), batch_size=64):
            spans = doc.spans[pipe.key]
            entities = [(span.start, span.end, span.label_) for span in spans]
            found.append(list(zip(entities, map(float, spans.attrs["scores"]))))
    return found


def entities_of(doc: Doc, key: str) -> Set[Entity]:
    """All of a doc."""
    return {(span.start, span.end, span.label_) for span in doc.spans.get(key, [])}


def f1_at(scores: Scored, threshold: float) -> float:
    """Strict micro F1 of what reaches the threshold."""
    return micro_at(scores, threshold).f or 0.0


def micro_at(scores: Scored, threshold: float) -> PRF:
    """Strict micro scores of what reaches the threshold."""
    return micro(scores.at(threshold), scores.gold)


def best_threshold(scores: Scored, parts: int = 20) -> Tuple[float, float]:
    """The highest strict micro F1 at a multiple of `1 / parts`, and that threshold."""
    return max((f1_at(scores, i / parts), i / parts) for i in range(1, parts))


def at_best_threshold(scores: Scored) -> Dict[str, float]:
    """The best threshold, the strict micro F1 that it gives, and F1 by length there."""
    f1, threshold = best_threshold(scores)
    best, expected = scores.at(threshold), scores.gold
    by_length = {
        name: micro_f1(*(_of_length(spans, *bounds) for spans in (best, expected)))
        for name, bounds in LENGTHS.items()
    }
    return {"f1": f1, "threshold": threshold, **by_length}


def _of_length(spans: List[Set[Entity]], least: int, below: int) -> List[Set[Entity]]:
    return [{span for span in group if least <= span[1] - span[0] < below} for group in spans]


def micro_f1(found: List[Set[Entity]], expected: List[Set[Entity]]) -> float:
    """Strict F1 over all docs; 0 where there is nothing."""
    return micro(found, expected).f or 0.0


def micro(found: List[Set[Entity]], expected: List[Set[Entity]]) -> PRF:
    """Strict scores over all docs."""
    right = sum(len(a & b) for a, b in zip(found, expected))
    return PRF(right, sum(map(len, found)), sum(map(len, expected)))
