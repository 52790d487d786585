"""Entity detection with proposer and regressor (Wen et al., 2023, "End-to-end Entity Detection with
Proposer and Regressor"): every word proposes a span and a label, a few layers refine both.

Section and equation numbers are the paper's. Shapes: B batch, N words, P proposals, C labels,
h hidden width, A attention heads. Class 0 is None. Locations are word positions within the
sentence, first and last word, as real numbers.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Tuple

import numpy as np
import torch
from torch import Tensor, nn

from spacy_nested_ner.layers.growing import lowest_bias
from spacy_nested_ner.layers.span_classifier import SpanClassifier
from spacy_nested_ner.matching import assign_cheapest, assign_rows
from spacy_nested_ner.systems.candidates import candidate_loss, draw_candidates, pointed_spans
from spacy_nested_ner.systems.head import Batch, Gold, Head, Loss, Predictions, classes_of
from spacy_nested_ner.systems.proposer_regressor.proposer import MLP, Proposals, Proposer
from spacy_nested_ner.systems.proposer_regressor.regressor import RegressorLayer
from spacy_nested_ner.systems.proposer_regressor.settings import (
    ProposerRegressorOptions,
    ProposerRegressorSettings,
)
from spacy_nested_ner.systems.proposer_regressor.span_distribution import (
    JointPointer,
    SpanDistribution,
)

# Smallest P(label) / (P(label) + P(None)), by its own label, of a proposal that gets a span.
LEAST_PROPOSED = 0.02


class Decoded(NamedTuple):
    """The best span and label of each proposal (algorithm 2). All `(B, P)`.

    start, end: first and last word, inclusive. label: from 0. score: see `ProposerRegressor`.
    """

    start: Tensor
    end: Tensor
    label: Tensor
    score: Tensor


class Trace(NamedTuple):
    """How proposals change (table 8); stages are the proposer, then each regressor layer.

    location: `(stages, B, P, 2)` float. labels: `(stages, B, P, C + 1)` probabilities, None first.
    mask: `(B, P)` bool, False for padding. final: the answer of each proposal.
    """

    location: Tensor
    labels: Tensor
    mask: Tensor
    final: Decoded


class ProposerRegressor(Head):
    """Proposals from words, or from a feature pyramid, refined by spatially modulated attention.

    Each proposal has one span and one label. Its score is the geometric mean of the probabilities
    of the span and of the label, given the words of the span. With `classifier = "proposal"` it is
    `p / (p + P(None))` with `p = P(span) * P(label)`: at least 0.5 where algorithm 2 accepts the
    proposal.

    P is N, or `min_proposals` in shorter sentences. Time grows with P * N^2, as the joint span
    distribution has a cell for every proposal, first and last word; a prediction leaves out the
    proposals that are unlikely by their own labels. The memory for these cells does not grow: they
    are computed in chunks, see `SpanDistribution`. That for the attention of each layer grows with
    A * P^2. `python -m benchmarks.inference memory` measures it.

    width, n_labels: see `Head`. settings: see `ProposerRegressorSettings`.
    """

    def __init__(self, width: int, n_labels: int, settings: ProposerRegressorSettings) -> None:
        super().__init__()
        s, h = settings, settings.hidden_width
        self.input_dropout = nn.Dropout(0.0)
        self.input = nn.Linear(width, h)
        self.input_norm = nn.LayerNorm(h)
        self.proposer = Proposer(h, n_labels, s.kernel_sizes, s.min_proposals, s.without)
        self.regressor = nn.ModuleList(
            RegressorLayer(h, n_labels, s.attention_heads, s.without)
            for _ in range(s.regressor_layers)
        )
        self.labels = MLP(h, n_labels + 1)
        self.pointer = JointPointer(h)
        self.classifier: Optional[SpanClassifier] = None
        if s.classifier == "span":
            self.classifier = SpanClassifier(h, h, n_labels, answer_pooling=True)

    def refine(self, words: Tensor, mask: Tensor) -> Tuple[Tensor, List[Proposals]]:
        """Words `(B, N, h)`, and the proposals of the proposer and of each regressor layer."""
        words = self.input_norm(self.input(self.input_dropout(words)))
        stages = [self.proposer(words, mask)]
        for layer in self.regressor:
            stages.append(layer(stages[-1]))
        return words, stages

    def answer(
        self, words: Tensor, mask: Tensor, proposals: Proposals
    ) -> Tuple[Tensor, SpanDistribution]:
        """Label logits `(B, P, C + 1)` (eq. 21) and span scores (eq. 22)."""
        logits = proposals.labels + self.labels(proposals.query)
        return logits, self.pointer(proposals, words, mask)

    def losses(self, batch: Batch, gold: Gold) -> Dict[str, Loss]:
        """Negative log-likelihood of the assigned targets (eq. 24), a mean over the proposals of
        the batch. The paper sums over those of a sentence (eq. 25); with a mean the size of a step
        does not depend on the lengths of the sentences. A span classifier learns from candidates,
        too."""
        words, mask, _ = batch
        words, stages = self.refine(words, mask)
        real = stages[-1].mask
        logits, spans = self.answer(words, mask, stages[-1])
        label_log_p = logits.log_softmax(-1)
        span_log_p = spans.at(gold.spans) - spans.log_partition().unsqueeze(-1)
        target = self.assign(label_log_p, span_log_p, gold, real)
        found = target >= 0
        label = classes_of(gold, target)
        label_terms = -label_log_p.gather(-1, label.unsqueeze(-1)).squeeze(-1)
        rows, chosen = torch.nonzero(found, as_tuple=True)
        span_loss = -span_log_p[rows, chosen, target[rows, chosen]].sum()
        count = real.sum()
        losses = {
            "label": Loss((label_terms * real).sum(), count),
            "span": Loss(span_loss, count),
        }
        if self.classifier is not None:
            lengths = mask.sum(dim=1, keepdim=True)
            # Each boundary by itself: the best pair would take another pass over all cells.
            pointed, _ = pointed_spans(spans.start, spans.end)
            candidates, label = draw_candidates(pointed, gold, target, lengths)
            read = self.classifier.read(words)
            logits = self.classifier.at(stages[-1].query, read, candidates)
            losses["candidate"] = candidate_loss(logits, label, real)
        return losses

    @torch.no_grad()
    def assign(self, label_log_p: Tensor, span_log_p: Tensor, gold: Gold, real: Tensor) -> Tensor:
        """Gold entity of each proposal (eq. 23-24, algorithm 1).

        label_log_p: `(B, P, C + 1)` and span_log_p: `(B, P, gold)`, log-probabilities.
        real: `(B, P)` bool.
        Returns `(B, P)` long, -1 for None and for padding.
        """
        index = (gold.labels + 1).unsqueeze(1).expand(-1, real.shape[1], -1)
        cost = -(label_log_p.gather(2, index) + span_log_p)
        return assign_rows(self._assign_row, cost, real, gold.mask, -label_log_p[..., 0])

    def _assign_row(self, cost: np.ndarray, none_cost: np.ndarray) -> np.ndarray:
        """`(P, G)` costs and `(P,)` of None of one row to the entity of each proposal."""
        self.warn_of_lost_entities(cost, "proposals", "Raise min_proposals")
        return assign_cheapest(cost, none_cost)

    def predict(self, batch: Batch, options: ProposerRegressorOptions) -> Predictions:
        """The span of each proposal whose score reaches `threshold` (algorithm 2 with 0.5)."""
        words, mask, _ = batch
        threshold = options.threshold
        words, stages = self.refine(words, mask)
        final = self.decode(words, mask, stages[-1], threshold)
        # One without a span has the score 0.
        keep = (final.score >= threshold) & (final.score > 0)
        # NaN passes, so that the component can report a model that has diverged.
        keep = (keep | final.score.isnan()) & stages[-1].mask
        segment, proposal = torch.nonzero(keep, as_tuple=True)
        return Predictions(segment, *(column[segment, proposal] for column in final))

    def decode(
        self, words: Tensor, mask: Tensor, proposals: Proposals, threshold: float = 0.0
    ) -> Decoded:
        """The best span of each proposal and its best label.

        Padding has no span, and neither has a proposal whose own label is too unlikely: without a
        span classifier where it alone keeps the score below the threshold, as of most proposals of
        a trained model. Their score is 0.
        """
        logits, spans = self.answer(words, mask, proposals)
        labels_p = logits.softmax(-1)
        label_p, label = labels_p[..., 1:].max(dim=-1)
        none_p = labels_p[..., 0]
        least = threshold if self.classifier is None else LEAST_PROPOSED
        # Not `>=`: NaN passes here, too.
        likely = ~(label_p / (label_p + none_p) < least) & proposals.mask
        span_p, start, end = spans.best(likely)
        if self.classifier is None:
            product = span_p * label_p
            return Decoded(start, end, label, product / (product + none_p))
        found = torch.stack([start, end], dim=-1)
        read = self.classifier.read(words)
        labels_p = self.classifier.at(proposals.query, read, found).softmax(-1)
        label_p, label = labels_p[..., 1:].max(dim=-1)
        return Decoded(start, end, label, (label_p * span_p).sqrt())

    @torch.no_grad()
    def trace(self, words: Tensor, mask: Tensor) -> Trace:
        """Location and label of each proposal after the proposer and after each layer.

        words: `(B, N, width)` float; mask: `(B, N)` bool. The head must be in evaluation mode.
        """
        words, stages = self.refine(words, mask)
        return Trace(
            location=torch.stack([stage.location for stage in stages]),
            labels=torch.stack([stage.labels.softmax(-1) for stage in stages]),
            mask=stages[-1].mask,
            final=self.decode(words, mask, stages[-1]),
        )

    def add_labels(self, n_labels: int) -> None:
        """New outputs start low in the proposer; what refines them leaves them there at first."""
        proposed = self.proposer.labels
        proposed.grow(n_labels + 1, lowest_bias(proposed.output) - 6.0)
        self.labels.grow(n_labels + 1, 0.0)
        if self.classifier is not None:
            self.classifier.grow(n_labels)
        for layer in self.regressor:
            assert isinstance(layer, RegressorLayer)
            layer.add_labels(n_labels)
