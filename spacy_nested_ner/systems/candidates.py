"""Candidates: spans with certain boundaries, from which a classifier learns labels and None,
whatever the pointers find. Not from a paper.

Shapes: B batch, K spans, N words, G gold entities.
"""

from __future__ import annotations

from typing import Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from spacy_nested_ner.systems.head import Gold, Loss, classes_of

# Words by which each boundary of a candidate may differ from a span that it is made from.
CANDIDATE_SHIFT = 2
# Of the candidates for the classifier: the share that are entities, and that are beside one.
CANDIDATE_ENTITIES, CANDIDATE_NEIGHBOURS = 0.3, 0.2
# Of the spans that are pointed at: the share whose boundaries move.
CANDIDATE_MOVED = 0.5


def pointed_spans(left: Tensor, right: Tensor) -> Tuple[Tensor, Tensor]:
    """Spans from the likeliest first to the likeliest last word, `(B, K, 2)`, and whether they are
    legal, `(B, K)` bool.

    A last word before the first is not, and counts as the first. left, right: `(B, K, N)` logits.
    """
    first, last = left.argmax(dim=-1), right.argmax(dim=-1)
    return torch.stack([first, torch.maximum(first, last)], dim=-1), first <= last


def has_words_of(spans: Tensor, gold: Gold) -> Tensor:
    """`(B, K, 2)` long spans: `(B, K, G)` bool, which have the words of which entities."""
    return (spans.unsqueeze(2) == gold.spans.unsqueeze(1)).all(-1) & gold.mask.unsqueeze(1)


def entity_of(spans: Tensor, gold: Gold, preferred: Tensor) -> Tensor:
    """The entity with the words of each span, `(B, K)` long, -1 for none.

    preferred: `(B, K)` long, of several with the same words this one; -1 for any of them.
    """
    if not gold.mask.shape[1]:
        return torch.full_like(preferred, -1)
    hit = has_words_of(spans, gold)
    wanted = F.one_hot(preferred.clamp(min=0), hit.shape[2]) * (preferred >= 0).unsqueeze(-1)
    # Whole numbers decide; the rest draws one of those that are left.
    rank = 2.0 * hit + wanted + torch.rand(hit.shape, device=hit.device)
    entity = rank.argmax(dim=-1)
    return entity.masked_fill(~hit.any(dim=-1), -1)


def draw_candidates(
    pointed: Tensor, gold: Gold, target: Tensor, lengths: Tensor
) -> Tuple[Tensor, Tensor]:
    """Spans for a classifier to learn from, `(B, K, 2)`, and their labels, `(B, K)` long, 0 for
    None: spans that are pointed at, spans near these, entities and spans beside them.

    pointed: `(B, K, 2)` long. target: `(B, K)` long, the entity of each, -1 for none. lengths: as
    in `nearby_spans`.
    """
    moved = torch.rand(target.shape, device=target.device) < CANDIDATE_MOVED
    spans = torch.where(moved.unsqueeze(-1), nearby_spans(pointed, lengths), pointed)
    spans = with_entities(spans, gold, target, lengths)
    return spans, classes_of(gold, entity_of(spans, gold, target))


def candidate_loss(logits: Tensor, label: Tensor, real: Tensor) -> Loss:
    """-log P of the labels of candidates.

    logits: `(B, K, C + 1)`, None first. label: `(B, K)` long. real: `(B, K)` bool.
    """
    # Not by index: that makes the host wait for a GPU.
    terms = F.cross_entropy(logits.transpose(1, 2), label, reduction="none")
    return Loss((terms * real).sum(), real.sum())


def nearby_spans(spans: Tensor, lengths: Tensor) -> Tensor:
    """Random spans near `(B, K, 2)` ones: each boundary moves by up to `CANDIDATE_SHIFT` words.

    lengths: `(B, 1)` long, words of each sentence.
    """
    shift = torch.randint(-CANDIDATE_SHIFT, CANDIDATE_SHIFT + 1, spans.shape, device=spans.device)
    moved = torch.minimum((spans + shift).clamp(min=0), (lengths - 1).unsqueeze(-1))
    return moved.sort(dim=-1).values


def with_entities(spans: Tensor, gold: Gold, entity: Tensor, lengths: Tensor) -> Tensor:
    """`(B, K, 2)` spans, some replaced by entities and by spans beside them.

    A classifier that saw what the pointers find and no more would learn no label before they hit.
    entity: `(B, K)` long, of each span the entity that may take its place, -1 for none. lengths: as
    in `nearby_spans`.
    """
    if not gold.mask.shape[1]:
        return spans
    entities = gold.spans.gather(1, entity.clamp(min=0).unsqueeze(-1).expand(-1, -1, 2))
    draw = torch.rand(entity.shape, device=spans.device)
    is_entity = (draw < CANDIDATE_ENTITIES).unsqueeze(-1)
    chosen = torch.where(is_entity, entities, nearby_spans(entities, lengths))
    replaced = (draw < CANDIDATE_ENTITIES + CANDIDATE_NEIGHBOURS) & (entity >= 0)
    return torch.where(replaced.unsqueeze(-1), chosen, spans)
