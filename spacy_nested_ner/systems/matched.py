"""What two heads share whose queries, or noisy spans, answer with two boundary pointers and a
classifier, and are matched with the gold entities: the answers, their costs and their losses.

Shapes: B batch, N words, K answers, G gold entities, C labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from spacy_nested_ner.layers.pointer import word_probability
from spacy_nested_ner.systems.head import Gold, Head, Loss, classes_of


@dataclass
class Answers:
    """Boundary and class logits of K answers; several layers are stacked before the batch.

    left, right: `(B, K, N)` boundary logits. labels: `(B, K, C + 1)` class logits, None first.
    """

    left: Tensor
    right: Tensor
    labels: Tensor


class MatchedHead(Head):
    """Base of `PIQN` and `Diffusion`.

    boundary: "sigmoid", each word by itself, or "softmax", one choice among the words.
    none_weight: class weight of None; None gives entities and None the same total.
    """

    def __init__(self, *, boundary: str, none_weight: Optional[float]) -> None:
        super().__init__()
        self.boundary, self.none_weight = boundary, none_weight

    def probability(self, boundary_logits: Tensor) -> Tensor:
        """Boundary probabilities of each word, in the shape of the logits."""
        return word_probability(boundary_logits, self.boundary)

    def matching_cost(self, answers: Answers, gold: Gold) -> Tensor:
        """Negative probabilities of each entity's label and boundaries, summed, `(B, K, G)`."""
        starts, ends = gold.spans.unbind(-1)
        cost = -_at(answers.labels.softmax(-1), gold.labels + 1)
        cost -= _at(self.probability(answers.left), starts)
        return cost - _at(self.probability(answers.right), ends)

    def boundary_loss(self, answers: Answers, gold: Gold, target: Tensor) -> Loss:
        """-log P of both boundaries, over the answers that have an entity; for words that are
        decided each by itself the binary cross-entropy of all of them. Padding adds nothing: its
        logits are very low.

        target: `(B, K)` long, the entity of each answer, -1 for None.
        """
        rows, chosen = torch.nonzero(target >= 0, as_tuple=True)
        if not len(rows):
            return Loss((answers.left.sum() + answers.right.sum()) * 0.0, 0.0)
        spans = gold.spans[rows, target[rows, chosen]]
        loss = answers.left.new_zeros(())
        for all_logits, word in ((answers.left, spans[:, 0]), (answers.right, spans[:, 1])):
            logits = all_logits[rows, chosen]
            if self.boundary == "softmax":
                loss = loss + F.cross_entropy(logits, word, reduction="sum")
            else:
                goal = F.one_hot(word, logits.shape[-1]).to(logits.dtype)
                loss = loss + F.binary_cross_entropy_with_logits(logits, goal, reduction="sum")
        return Loss(loss, float(len(rows)))

    def label_losses(
        self, answers: Answers, gold: Gold, target: Tensor, real: Tensor
    ) -> Dict[str, Loss]:
        """-log P of the label over all real answers, None (index 0) for those without an entity.

        Answers with and without an entity make one weighted mean, or, without a `none_weight`, one
        mean each.
        target: as in `boundary_loss`. real: `(B, K)` bool.
        """
        label = classes_of(gold, target)
        # Masks as indices: a mask makes the host wait for a GPU wherever it is used.
        places = torch.nonzero(real, as_tuple=True)
        logits, label = answers.labels[places], label[places]
        terms = F.cross_entropy(logits, label, reduction="none")
        none = label == 0
        entities, others = (torch.nonzero(which).squeeze(1) for which in (~none, none))
        entity_loss, none_loss = terms[entities].sum(), terms[others].sum()
        n_entity, n_none = (~none).sum(), none.sum()
        weight = self.none_weight
        if weight is None:
            return {"label": Loss(entity_loss, n_entity, 0.5), "none": Loss(none_loss, n_none, 0.5)}
        return {"label": Loss(entity_loss + weight * none_loss, n_entity + weight * n_none)}


def within_reach(target: Tensor, distance: Tensor, reach: int) -> Tensor:
    """Targets without those that are too far: a query, or span, loses its entity where it is
    further away than `reach` and another one with that entity is nearer.

    target: `(B, K)` long, -1 for None. distance: `(B, K, G)` float.
    """
    if not distance.shape[2]:
        return target
    entity = target.clamp(min=0)
    mine = distance.gather(2, entity.unsqueeze(-1)).squeeze(-1)
    owned = F.one_hot(entity, distance.shape[2]).bool() & (target >= 0).unsqueeze(-1)
    nearest = distance.masked_fill(~owned, float("inf")).min(dim=1).values.gather(1, entity)
    return target.masked_fill((mine > reach) & (mine > nearest), -1)


def _at(probability: Tensor, index: Tensor) -> Tensor:
    """`(B, K, N)` probabilities at `(B, G)` indices: `(B, K, G)`."""
    return probability.gather(2, index.unsqueeze(1).expand(-1, probability.shape[1], -1))
