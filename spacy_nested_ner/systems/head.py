"""The contract of a head: padded word vectors in, losses or scored spans out.

A head is plain torch and knows nothing of spaCy or Thinc, so that it can be read beside its paper.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, NamedTuple, Optional

import numpy as np
import torch
from torch import Tensor, nn

from spacy_nested_ner.device import on_device
from spacy_nested_ner.systems.base import Options
from spacy_nested_ner.warn import warn

# Logit of a probability of 1 %, where a head begins that learns which of many things are entities:
# few are, and to learn this first would be a slow start.
PRIOR = -4.6


@dataclass(frozen=True)
class Gold:
    """Gold entities of a padded batch of segments.

    spans: `(batch, entities, 2)` long, first and last word of each entity, both inclusive.
    labels: `(batch, entities)` long, label index from 0.
    mask: `(batch, entities)` bool, True where an entity is, False where padding is.
    """

    spans: Tensor
    labels: Tensor
    mask: Tensor

    @classmethod
    def from_lists(
        cls,
        entities: List[List[tuple[int, int, int]]],
        device: Optional[torch.device | str] = None,
    ) -> Gold:
        """Pad one list of `(first word, last word, label index)` per segment.

        device: torch's default one if None.
        """
        size = max((len(group) for group in entities), default=0)
        rows = np.zeros((len(entities), size, 4), dtype=np.int64)
        for i, group in enumerate(entities):
            if group:
                rows[i, : len(group), :3] = group
                rows[i, : len(group), 3] = 1
        # One copy for all: each by itself would wait for a GPU.
        there = on_device(rows, device or torch.get_default_device())
        return cls(spans=there[..., :2], labels=there[..., 2], mask=there[..., 3].bool())

    def repeat(self, times: int) -> Gold:
        """The batch so many times in a row, for answers that are stacked before the batch."""
        return Gold(
            spans=self.spans.repeat(times, 1, 1),
            labels=self.labels.repeat(times, 1),
            mask=self.mask.repeat(times, 1),
        )


class Batch(NamedTuple):
    """A padded batch of segments as a head reads it.

    words: `(batch, words, width)` float. mask: `(batch, words)` bool, True for real words. queries:
    `(batch, queries, width)` float from an encoder that reads queries along with the words, None
    from every other encoder.
    """

    words: Tensor
    mask: Tensor
    queries: Optional[Tensor] = None


class Predictions(NamedTuple):
    """Scored spans of a padded batch, flat, in no particular order. All of length K.

    segment: row of the batch. start, end: first and last word, both inclusive.
    label: label index from 0. score: probability in [0, 1], float32.
    """

    segment: Tensor
    start: Tensor
    end: Tensor
    label: Tensor
    score: Tensor


class Loss(NamedTuple):
    """A mean in two halves, so that it stays the mean of a batch that is computed in parts.

    total: scalar, the sum over what the loss ranges over. terms: how many it ranges over, or the
    sum of their weights where it is a weighted sum. weight: of the mean among the other losses.
    smooth: added to the terms of all parts together, for quotients of sums like the dice loss.
    """

    total: Tensor
    terms: Tensor | float
    weight: float = 1.0
    smooth: float = 0.0


def mean_losses(parts: List[Dict[str, Loss]]) -> Dict[str, Tensor]:
    """Weighted means of losses whose terms are spread over `parts`; 0 where there are no terms."""
    means = {}
    for name in parts[0]:
        losses = [part[name] for part in parts]
        total = torch.stack([loss.total for loss in losses]).sum()
        count = sum(loss.terms for loss in losses) + losses[0].smooth
        count = count.to(total.dtype) if isinstance(count, Tensor) else total.new_full((), count)
        # Not clamped to 1: with weighted terms a count may be smaller than that.
        means[name] = (
            losses[0].weight * total / torch.where(count > 0, count, torch.ones_like(count))
        )
    return means


class Head(nn.Module):
    """Base class of the five systems.

    Subclasses take `width` (of the word vectors), `n_labels` and their own settings. What builds
    them sets their dropouts, which begin at 0.
    """

    warned = False

    def losses(self, batch: Batch, gold: Gold) -> Dict[str, Loss]:
        """Named losses, always the same names, each a mean over what it ranges over."""
        raise NotImplementedError

    def predict(self, batch: Batch, options: Any) -> Predictions:
        """Scored spans. options: the system's own, such as thresholds."""
        raise NotImplementedError

    def forward(
        self,
        words: Tensor,
        mask: Tensor,
        gold: Optional[Gold] = None,
        options: Optional[Options] = None,
        queries: Optional[Tensor] = None,
    ) -> Dict[str, Loss] | Predictions:
        """Losses where gold is given, scored spans where it is not; see `Batch`."""
        batch = Batch(words, mask, queries)
        return self.predict(batch, options) if gold is None else self.losses(batch, gold)

    def fit(self, settings: Any) -> None:
        """Take settings that were fitted to longer entities than those it was built for."""

    def add_labels(self, n_labels: int) -> None:
        """Grow the label outputs to `n_labels`, keeping what the present ones have learned."""
        raise NotImplementedError

    def warn_of_lost_entities(self, cost: np.ndarray, what: str, remedy: str) -> None:
        """Once per head: a sentence has more gold entities than queries, proposals or the like.

        cost: `(queries, gold)` of the sentence. what: the word for queries. remedy: a sentence
        without its stop.
        """
        n_queries, n_gold = cost.shape
        if n_gold > n_queries and not self.warned:
            warn(
                f"{type(self).__name__}: a sentence has {n_gold} gold entities but only "
                f"{n_queries} {what}; the entities that fit worst are left out. {remedy}. "
                "Further cases are not reported."
            )
            self.warned = True


def marked(words: Tensor, mask: Tensor, like: Tensor) -> Tensor:
    """`(P, N)` zeros with a one at each word that `(P, entities)` long names where its mask is."""
    # Padding marks a further column. Indices of the mask would have to be waited for on a GPU.
    n_words = like.shape[1]
    target = like.new_zeros((len(like), n_words + 1))
    place = words.masked_fill(~mask, n_words)
    return target.scatter_(1, place, 1.0)[:, :-1].contiguous()


def classes_of(gold: Gold, target: Tensor) -> Tensor:
    """`(B, K)` entities of answers, -1 for none: the class that each learns, 0 for None."""
    if not gold.labels.shape[1]:
        return torch.zeros_like(target)
    return (gold.labels + 1).gather(1, target.clamp(min=0)).masked_fill(target < 0, 0)
