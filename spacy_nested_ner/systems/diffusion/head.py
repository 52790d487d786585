"""DiffusionNER (Shen et al., 2023, "DiffusionNER: Boundary Diffusion for Named Entity
Recognition"): noisy spans are denoised, step by step, into the entities of a sentence.

Here: training (algorithm 1). Section and equation numbers are the paper's. Shapes: B batch,
N words, K noisy spans, G gold entities, C labels, h hidden width.
"""

from __future__ import annotations

from typing import Dict, List, Tuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from spacy_nested_ner.matching import assign_cheapest, assign_dynamic, assign_rows
from spacy_nested_ner.systems.candidates import (
    candidate_loss,
    entity_of,
    has_words_of,
    pointed_spans,
    with_entities,
)
from spacy_nested_ner.systems.diffusion.decoding import Denoised, find_entities, reverse_process
from spacy_nested_ner.systems.diffusion.network import (
    DenoisingNetwork,
    NoisySpans,
    ReadWords,
)
from spacy_nested_ner.systems.diffusion.process import SpanDiffusion, first_of, span_counts
from spacy_nested_ner.systems.diffusion.settings import DiffusionOptions, DiffusionSettings
from spacy_nested_ner.systems.head import Batch, Gold, Loss, Predictions, marked
from spacy_nested_ner.systems.matched import Answers, MatchedHead, within_reach


class Diffusion(MatchedHead):
    """Boundary-denoising diffusion.

    width, n_labels: see `Head`. settings: see `DiffusionSettings`.
    """

    def __init__(self, width: int, n_labels: int, settings: DiffusionSettings) -> None:
        form = settings.form
        super().__init__(boundary=form.boundary, none_weight=form.none_weight)
        self.settings, self.form = settings, form
        self.process = SpanDiffusion(settings)
        self.network = DenoisingNetwork(width, n_labels, settings)

    def losses(self, batch: Batch, gold: Gold) -> Dict[str, Loss]:
        """Algorithm 1 at one random timestep per sentence."""
        encoded = self.network.encode(batch.words, batch.mask)
        noisy, timestep = self.start(encoded, gold)
        answers, states = self.network(encoded, noisy, timestep, self.form.auxiliary)
        further = {}
        if self.settings.with_candidates:
            entity = any_entity(noisy.kinds, gold)
            spans = with_entities(noisy.spans, gold, entity, encoded.lengths)
            loss = self.classifier_loss(encoded, states, noisy, spans, gold)
            further["candidate"] = loss._replace(weight=self.settings.candidate_weight)
        if encoded.boundaries is not None:
            further["word"] = self.word_loss(encoded.boundaries, gold, batch.mask)
        return {**self.matched_losses(answers, noisy, gold), **further}

    def start(self, encoded: ReadWords, gold: Gold) -> Tuple[NoisySpans, Tensor]:
        """Noisy spans and the random timestep `(B,)` of each sentence."""
        lengths = encoded.lengths
        counts = span_counts(lengths[:, 0], self.settings.n_spans, self.settings.spans_per_word)
        real = first_of(torch.maximum(counts, gold.mask.sum(dim=1)))
        clean = self.expand(gold, lengths, real)
        # At random: in turn, a kind would tell which entity a span is a copy of.
        kinds = torch.randint(self.network.n_kinds, real.shape, device=real.device)
        timestep = torch.randint(self.process.timesteps, (len(real),), device=real.device)
        state = self.process.add_noise(clean, timestep, torch.randn_like(clean))
        return NoisySpans(self.process.to_spans(state, lengths), kinds, real), timestep

    def expand(self, gold: Gold, lengths: Tensor, real: Tensor) -> Tensor:
        """Clean states of K spans: copies of the gold entities in turn, then random spans.

        Section 4.1: `repetition` of the spans are copies, each entity at least once.
        """
        place = torch.arange(real.shape[1], device=real.device).expand_as(real)
        n_gold = gold.mask.sum(dim=1, keepdim=True)
        n_copies = share_of(self.settings.repetition, real.sum(dim=1, keepdim=True), n_gold)
        random = self.process.random_states(lengths, real)
        if not gold.mask.shape[1]:
            return random
        chosen = (place % n_gold.clamp(min=1)).unsqueeze(-1).expand(-1, -1, 2)
        copies = self.process.to_state(gold.spans.gather(1, chosen), lengths)
        return torch.where((place < n_copies).unsqueeze(-1), copies, random)

    # Matching -----------------------------------------------------------------------------------

    def matched_losses(
        self, answers: List[Answers], noisy: NoisySpans, gold: Gold
    ) -> Dict[str, Loss]:
        """Means over the answers of all layers, each matched with the gold entities on its own."""
        times = len(answers)
        joined = Answers(
            left=torch.cat([a.left for a in answers]),
            right=torch.cat([a.right for a in answers]),
            labels=torch.cat([a.labels for a in answers]),
        )
        spans = noisy.spans.repeat(times, 1, 1)
        kinds, real = (t.repeat(times, 1) for t in (noisy.kinds, noisy.real))
        gold = gold.repeat(times)
        target = self.match(joined, NoisySpans(spans, kinds, real), gold)
        return {
            "boundary": self.boundary_loss(joined, gold, target),
            **self.label_losses(joined, gold, self.label_target(joined, gold, target), real),
        }

    @torch.no_grad()
    def match(self, answers: Answers, noisy: NoisySpans, gold: Gold) -> Tensor:
        """Gold entity of each span by the Hungarian algorithm (appendix A), `(B, K)` long, -1 for
        None."""
        distance = self.distances(noisy, gold)
        cost = self.matching_cost(answers, gold) + self.form.match_distance * distance
        target = assign_rows(self._assign, cost, noisy.real, gold.mask)
        reach = self.form.match_reach
        return target if reach is None else within_reach(target, distance, reach)

    def _assign(self, cost: np.ndarray) -> np.ndarray:
        """`(K, G)` costs of one sentence to the entity of each span."""
        if self.form.assignment == "nearest":
            return assign_cheapest(cost, np.full(len(cost), np.inf))
        return assign_dynamic(cost, len(cost) if self.form.assignment == "balanced" else 0)

    def distances(self, noisy: NoisySpans, gold: Gold) -> Tensor:
        """Words between the boundaries of noisy spans and entities, `(B, K, G)` float.

        No distance tells entities with the same words apart: those that do not fit the kind of the
        noisy span count as one word further away.
        """
        distance = (noisy.spans.unsqueeze(2) - gold.spans.unsqueeze(1)).abs().sum(-1)
        return (distance + ~fits_kind(noisy.kinds, gold)).float()

    @torch.no_grad()
    def label_target(self, answers: Answers, gold: Gold, target: Tensor) -> Tensor:
        """The entity whose label each span learns, `(B, K)` long, -1 for None.

        Where None is for those that "missed", that is the entity that the pointers find; of several
        with the same words the one that the span is matched with.
        """
        if self.form.none == "unmatched":
            return target
        pointed, _ = pointed_spans(answers.left, answers.right)
        return entity_of(pointed, gold, target)

    # Further losses -----------------------------------------------------------------------------

    def classifier_loss(
        self,
        encoded: ReadWords,
        states: Tensor,
        noisy: NoisySpans,
        candidates: Tensor,
        gold: Gold,
    ) -> Loss:
        """-log P of the labels of spans as if the pointers had found them, None for no entity.

        states: `(B, K, h)`. candidates: `(B, K, 2)` long. Of several labels of the same words the
        one that fits the kind of the noisy span.
        """
        logits = self.network.classify_spans(encoded, states, candidates)
        hit = has_words_of(candidates, gold) & fits_kind(noisy.kinds, gold)
        label = (hit * (gold.labels + 1).unsqueeze(1)).sum(-1)
        return candidate_loss(logits, label, noisy.real)

    def word_loss(self, logits: Tensor, gold: Gold, mask: Tensor) -> Loss:
        """-log P, for each word, of being the first and of being the last of an entity, or not.

        logits: `(B, N, 2)`. mask: `(B, N)` bool.
        """
        sides = zip(gold.spans.unbind(-1), logits.unbind(-1))
        goal = torch.stack([marked(words, gold.mask, side) for words, side in sides], dim=-1)
        terms = F.binary_cross_entropy_with_logits(logits, goal, reduction="none")
        return Loss((terms * mask.unsqueeze(-1)).sum(), mask.sum(), self.settings.word_weight)

    # Inference ----------------------------------------------------------------------------------

    def predict(self, batch: Batch, options: DiffusionOptions) -> Predictions:
        """The distinct spans whose score reaches the threshold.

        options: `threshold` and `score`, see `find_entities`; `found_in`: spans of "every_step"
        count, or of the "last_step" alone, which is algorithm 2; the others, see `trajectory`.
        """
        steps = reverse_process(self.network, self.process, batch.words, batch.mask, options)
        return self.entities(list(steps), options)

    def entities(self, steps: List[Denoised], options: DiffusionOptions) -> Predictions:
        """The entities among the spans of some steps, see `find_entities`."""
        return find_entities(steps, options, self.network.n_kinds)

    @torch.no_grad()
    def trajectory(self, words: Tensor, mask: Tensor, options: DiffusionOptions) -> List[Denoised]:
        """The spans before and after every denoising step, noisiest first.

        words: `(B, N, width)`; mask: `(B, N)` bool. options: `steps` of the reverse process;
        `n_spans` and `spans_per_word`, see `span_counts`; `eta`, see `SpanDiffusion.reverse_step`;
        `seed` of the noise; `score`. None of them depends on what was trained with.
        """
        return list(
            reverse_process(self.network, self.process, words, mask, options, in_place=True)
        )

    def add_labels(self, n_labels: int) -> None:
        """New rows of the class layer; the old ones, None first, stay as they are."""
        self.network.classifier.grow(n_labels)


def any_entity(like: Tensor, gold: Gold) -> Tensor:
    """A random entity of the sentence for each of `(B, K)` spans, long, -1 where there is none."""
    n_gold = gold.mask.sum(dim=1, keepdim=True)
    drawn = (torch.rand(like.shape, device=like.device) * n_gold).long()
    return drawn.masked_fill(n_gold == 0, -1)


def share_of(share: float, n_spans: Tensor, n_gold: Tensor) -> Tensor:
    """So many of the spans, but at least one for each entity and none where there is none."""
    number = torch.maximum(n_gold, (share * n_spans).round().long())
    return torch.where(n_gold > 0, number, torch.zeros_like(number))


def fits_kind(kinds: Tensor, gold: Gold) -> Tensor:
    """`(B, K)` long kinds: `(B, K, G)` bool, which noisy spans are meant for which entities.

    Entities with the same words share the kinds: the first of n has the kinds 0, n, 2 n and so on.
    """
    n_labels, rank = label_ranks(gold)
    return kinds.unsqueeze(2) % n_labels.unsqueeze(1) == rank.unsqueeze(1)


def label_ranks(gold: Gold) -> Tuple[Tensor, Tensor]:
    """How many entities have the words of each, itself included, and the rank of its label among
    theirs, from 0. Both `(B, G)` long."""
    same = has_words_of(gold.spans, gold)
    earlier = gold.labels.unsqueeze(1) < gold.labels.unsqueeze(2)
    return same.sum(-1).clamp(min=1), (same & earlier).sum(-1)
