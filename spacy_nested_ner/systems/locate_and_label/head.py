"""Locate and Label (Shen et al., 2021, "Locate and Label: A Two-stage Identifier for Nested Named
Entity Recognition"): seed spans are filtered, their boundaries regressed, what results is labelled.

Section and equation numbers are the paper's. Shapes: B batch, N words, S spans of all rows in one
flat list, G entities, C labels, h hidden width.
"""

from __future__ import annotations

from functools import partial
from typing import Dict, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spacy_nested_ner.layers.learned import learned
from spacy_nested_ner.layers.recurrent import BiRNN
from spacy_nested_ner.layers.span_grid import SpanGrid, ends_from_each_word, first_to_last
from spacy_nested_ner.systems.head import PRIOR, Batch, Gold, Head, Loss, Predictions
from spacy_nested_ner.systems.locate_and_label.settings import (
    LocateAndLabelOptions,
    LocateAndLabelSettings,
    seed_lengths,
)
from spacy_nested_ner.systems.locate_and_label.spans import (
    SpanMLP,
    Spans,
    WordStates,
    best_entity,
    soft_nms,
)

# Gamma of the focal loss (eq. 12).
GAMMA = 2.0
# alpha_2: smallest IoU of an adjusted span with an entity to have its label.
LABEL_IOU = 1.0
# Probability from which a seed may become a proposal, in training.
MAY_PASS = 0.2
# lambda_2 of eq. 17. The filter and the class loss have a weight of 1.
REGRESSOR_WEIGHT = 0.1


class LocateAndLabel(Head):
    """Span proposal filter, boundary regressor and entity classifier.

    width, n_labels: see `Head`. settings: see `LocateAndLabelSettings`.
    """

    seed_ends: Tensor

    def __init__(self, width: int, n_labels: int, settings: LocateAndLabelSettings) -> None:
        super().__init__()
        s, h = settings, settings.hidden_width
        self.lengths = sorted(set(s.lengths or seed_lengths()))
        self.register_buffer("seed_ends", first_to_last(self.lengths), persistent=False)
        self.regressor, self.classifier = s.regressor, s.classifier
        self.seed_iou, self.negatives = s.seed_iou, s.negatives
        self.soft_examples, self.rejected_share = s.soft_examples, s.rejected_share
        self.input_dropout = nn.Dropout(0.0)
        self.lstm = BiRNN(width, h, s.lstm_layers) if s.lstm_layers else None
        same = bool(s.lstm_layers) or width == h
        self.project = nn.Identity() if same else nn.Linear(width, h)
        self.grid = SpanGrid(h, s.grid_width, self.lengths) if s.grid_width else None
        self.filter = SpanMLP(h, 1, s.grid_width) if s.span_filter else None
        self.offsets = SpanMLP(h, 2) if s.regressor else None
        # What the regressor reads before the first and behind the last word.
        self.edges = learned(2, h) if s.regressor else None
        self.labels = SpanMLP(h, n_labels + (s.classifier == "softmax"), s.grid_width)
        self._initialise_outputs()

    def fit(self, settings: LocateAndLabelSettings) -> None:
        """Look at seeds of more lengths; no weight depends on them."""
        self.lengths = sorted(set(settings.lengths or seed_lengths()))
        self.seed_ends = first_to_last(self.lengths).to(self.seed_ends.device)
        if self.grid is not None:
            self.grid.set_lengths(self.lengths)

    def _initialise_outputs(self) -> None:
        """At first nearly no span is an entity and none moves. Random outputs would have to be
        unlearned by the first updates."""
        nn.init.constant_(self.labels.output.bias, PRIOR)
        if self.classifier == "softmax":
            nn.init.constant_(self.labels.output.bias[:1], 0.0)
        if self.filter is not None:
            nn.init.constant_(self.filter.output.bias, PRIOR)
        if self.offsets is not None:
            nn.init.zeros_(self.offsets.output.weight)
            nn.init.zeros_(self.offsets.output.bias)

    def encode(self, words: Tensor, mask: Tensor) -> WordStates:
        """`(B, N, width)` word vectors to what the three stages read."""
        if self.lstm is not None:
            words = self.lstm(self.input_dropout(words), mask)
        states = self.project(words)
        if self.grid is None:
            return WordStates(states, mask)
        return WordStates(states, mask, partial(self.grid.at, self.grid(states, mask)))

    # Spans

    def seeds(self, mask: Tensor) -> Spans:
        """Every seed span of every row (section 2.2)."""
        end, inside = ends_from_each_word(mask, self.seed_ends)
        row, start, length = torch.nonzero(inside, as_tuple=True)
        return Spans(row, start, end[start, length])

    def adjust(
        self, words: WordStates, spans: Spans, pooled: Tensor
    ) -> Tuple[Tensor, Spans, Tensor]:
        """Offsets `(S, 2)` of both boundaries (eq. 4-5), the adjusted spans (eq. 6-7), and which of
        them are spans at all, `(S,)` bool. pooled: `(S, h)`, the maximum over the words of each.
        """
        if self.offsets is None or self.edges is None:
            return words.states.new_zeros(len(spans.row), 2), spans, spans.row >= 0
        outside = words.outside(self.edges)
        offsets = self.offsets.at(outside, pooled, spans.row, spans.start, spans.end + 2)
        last = words.mask.sum(dim=1)[spans.row] - 1
        if self.regressor == "sigmoid":
            offsets = offsets.sigmoid() * (last + 1).unsqueeze(1)
        reach = words.mask.shape[1]
        move = (offsets.detach() + 0.5).floor().nan_to_num().clamp(-reach, reach).long()
        start = (spans.start + move[:, 0]).clamp(min=0)
        end = torch.minimum(spans.end + move[:, 1], last)
        legal = (start <= end) & (start <= last) & (end >= 0)
        return offsets, Spans(spans.row, start, end), legal

    # Training

    def losses(self, batch: Batch, gold: Gold) -> Dict[str, Loss]:
        """Filter loss (eq. 12), regression loss (eq. 13-15) and class loss (eq. 16), weighted."""
        mask = batch.mask
        words = self.encode(batch.words, mask)
        spans = self.seeds(mask).join(self.unreachable(gold))
        iou, paired = best_entity(spans, gold)
        positive = iou >= self.seed_iou
        chosen = self.sample(spans, positive, len(mask))
        spans, iou, paired = spans.pick(chosen), iou[chosen], paired[chosen]
        positive = positive[chosen]
        losses = {}
        pooled = words.range_max(*spans)
        if self.filter is not None:
            logits = self.filter.inside(words, spans, pooled).squeeze(-1)
            losses["filter"] = self.filter_loss(words, logits, iou, positive)
            shown = torch.nonzero(self.shown(logits, positive)).squeeze(1)
            spans, pooled = spans.pick(shown), pooled[shown]
            paired, positive = paired[shown], positive[shown]
        offsets, adjusted, legal = self.adjust(words, spans, pooled)
        if self.regressor is not None:
            losses.update(self.regression_losses(spans, offsets, gold, paired, positive))
        # Proposals that meet count once: their label depends on their place alone.
        proposals = adjusted.pick(legal).distinct(mask.shape[1])
        losses["label"] = self.label_loss(words, proposals, gold)
        return losses

    def unreachable(self, gold: Gold) -> Spans:
        """Entities of a length that no seed has: they are examples, too (the authors' code)."""
        length = gold.spans[..., 1] - gold.spans[..., 0] + 1
        seeded = torch.isin(length, torch.tensor(self.lengths, device=length.device))
        row, entity = torch.nonzero(gold.mask & ~seeded, as_tuple=True)
        return Spans(row, *gold.spans[row, entity].unbind(-1))

    def sample(self, spans: Spans, positive: Tensor, n_rows: int) -> Tensor:
        """Indices of all positive spans and, for each row, of `negatives` times as many others, and
        two (section 2.2 and the authors' code)."""
        if self.negatives is None:
            return torch.arange(len(positive), device=positive.device)
        n_positive = torch.zeros(n_rows, device=positive.device).index_add_(
            0, spans.row, positive.float()
        )
        wanted = (self.negatives * n_positive + 2)[spans.row]
        # In random order within each row, behind the row's positives; the first ones are taken.
        draw = torch.rand(len(positive), device=positive.device) - 2.0 * positive
        order = torch.argsort(spans.row * 4.0 + draw)
        sizes = torch.bincount(spans.row, minlength=n_rows)
        begins = (sizes.cumsum(0) - sizes)[spans.row[order]]
        rank = torch.arange(len(order), device=order.device) - begins
        taken = rank < n_positive[spans.row[order]] + wanted[order]
        return order[taken]

    def example_weights(self, iou: Tensor, positive: Tensor) -> Tensor:
        """`(S,)` weights of examples: those that match an entity in part count less (eq. 11)."""
        if not self.soft_examples:
            return torch.ones_like(iou)
        return torch.where(positive, iou, 1.0 - iou)

    def shown(self, logits: Tensor, positive: Tensor) -> Tensor:
        """Which seeds regressor and classifier learn from, `(S,)` bool: positive ones, those that
        the filter may let pass, and some that it does not. All where only the loss is wanted."""
        drawn = torch.rand_like(logits) < (self.rejected_share if self.training else 1.0)
        return positive | drawn | (logits.detach().sigmoid() >= MAY_PASS)

    def filter_loss(self, words: WordStates, logits: Tensor, iou: Tensor, positive: Tensor) -> Loss:
        """Eq. 12."""
        terms = focal_terms(logits, positive.to(logits.dtype))
        weights = self.example_weights(iou, positive)
        return Loss((weights * terms).sum(), _examples(words, positive))

    def regression_losses(
        self, spans: Spans, offsets: Tensor, gold: Gold, paired: Tensor, positive: Tensor
    ) -> Dict[str, Loss]:
        """Eq. 14 and 15, means over the positive spans."""
        index = torch.nonzero(positive).squeeze(1)
        weight, terms = REGRESSOR_WEIGHT, float(len(index))
        offsets, mine = offsets[index], spans.pick(index)
        if not len(offsets):
            return {name: Loss(offsets.sum() * 0.0, 0.0, weight) for name in ("offset", "overlap")}
        seed = torch.stack([mine.start, mine.end], dim=1)
        target = gold.spans[mine.row, paired[index]]
        distance = F.smooth_l1_loss(offsets, (target - seed).to(offsets.dtype), reduction="sum")
        start, end = (seed + offsets).unbind(-1)
        gold_start, gold_end = target.unbind(-1)
        # Ends are exclusive here: a word has length 1, not 0.
        shared = torch.minimum(end, gold_end) + 1 - torch.maximum(start, gold_start)
        joined = torch.maximum(end, gold_end) + 1 - torch.minimum(start, gold_start)
        overlap = (1 - shared / joined).sum()
        return {"offset": Loss(distance, terms, weight), "overlap": Loss(overlap, terms, weight)}

    def label_loss(self, words: WordStates, spans: Spans, gold: Gold) -> Loss:
        """Eq. 16 on the adjusted spans, which are paired anew."""
        logits = self.labels.inside(words, spans)
        iou, paired = best_entity(spans, gold)
        positive = iou >= LABEL_IOU
        weights = self.example_weights(iou, positive)
        if self.classifier == "softmax":
            terms = self._softmax_terms(logits, spans, gold, paired, positive)
        else:
            goal = self.label_goal(spans, gold, paired, positive).to(logits.dtype)
            terms = F.binary_cross_entropy_with_logits(logits, goal, reduction="none").sum(dim=-1)
        return Loss((weights * terms).sum(), _examples(words, positive))

    def _softmax_terms(
        self, logits: Tensor, spans: Spans, gold: Gold, paired: Tensor, positive: Tensor
    ) -> Tensor:
        """`(S,)` losses of the paired entity's label, or of None (index 0)."""
        label = torch.zeros_like(paired)
        if gold.labels.shape[1]:
            label = (gold.labels[spans.row, paired] + 1).masked_fill(~positive, 0)
        return F.cross_entropy(logits, label, reduction="none")

    def label_goal(self, spans: Spans, gold: Gold, paired: Tensor, positive: Tensor) -> Tensor:
        """`(S, C)` bool: the labels of all entities that stand where the paired one stands. For
        sigmoids, which have no None."""
        goal = positive.new_zeros((len(positive), self.labels.output.out_features))
        if not gold.labels.shape[1]:
            return goal
        mine = gold.spans[spans.row, paired].unsqueeze(1)
        same = (gold.spans[spans.row] == mine).all(-1) & gold.mask[spans.row]
        span, entity = torch.nonzero(same & positive.unsqueeze(1), as_tuple=True)
        goal[span, gold.labels[spans.row[span], entity]] = True
        return goal

    # Prediction

    def predict(self, batch: Batch, options: LocateAndLabelOptions) -> Predictions:
        """Filter, adjust, merge, label, soft-NMS (section 2.6).

        The score of a span is the probability of its label, decayed by soft-NMS. options:
        `threshold` on the score, `filter_threshold` on the probability of a proposal, `nms_iou` (k
        of eq. 18) and `nms_decay` (u; 1 for no soft-NMS).
        """
        mask = batch.mask
        words = self.encode(batch.words, mask)
        spans, pooled = self.proposals(words, options.filter_threshold)
        _, adjusted, legal = self.adjust(words, spans, pooled)
        spans = adjusted.pick(legal).distinct(mask.shape[1])
        scores = self.label_probability(self.labels.inside(words, spans))
        return self.decode(spans, scores, options)

    def proposals(self, words: WordStates, threshold: float) -> Tuple[Spans, Tensor]:
        """The seeds that the filter lets pass, and the maximum over the words of each, `(S, h)`."""
        spans = self.seeds(words.mask)
        pooled = words.range_max(*spans)
        if self.filter is None:
            return spans, pooled
        logits = self.filter.inside(words, spans, pooled).squeeze(-1)
        # NaN passes, so that the component can report a model that has diverged.
        passing = torch.nonzero((logits.sigmoid() >= threshold) | logits.isnan()).squeeze(1)
        return spans.pick(passing), pooled[passing]

    def label_probability(self, logits: Tensor) -> Tensor:
        """`(S, C)` probability of each label, without None; of a softmax only the best of all."""
        if self.classifier == "sigmoid":
            return logits.sigmoid()
        probability = logits.softmax(dim=-1)
        best = probability.max(dim=-1, keepdim=True).values
        return probability.masked_fill(probability < best, 0.0)[:, 1:]

    @staticmethod
    def decode(spans: Spans, scores: Tensor, options: LocateAndLabelOptions) -> Predictions:
        """Spans and `(S, C)` scores to predictions. Every label decays with its span."""
        threshold = options.threshold
        best = scores.max(dim=-1).values if scores.shape[0] else scores.sum(dim=-1)
        # Scores only fall: what is too low already neither stays nor touches what does.
        likely = torch.nonzero((best >= threshold) | best.isnan()).squeeze(1)
        spans, scores, best = spans.pick(likely), scores[likely], best[likely]
        iou, decay = options.nms_iou, options.nms_decay
        if decay < 1:
            scores = scores * soft_nms(spans, best, iou, decay).unsqueeze(1)
        # What None or another label beats has the score 0.
        keep = ((scores >= threshold) & (scores > 0)) | scores.isnan()
        span, label = torch.nonzero(keep, as_tuple=True)
        return Predictions(*spans.pick(span), label, scores[span, label])

    def add_labels(self, n_labels: int) -> None:
        """New rows of the class layer; the old ones, None first, stay as they are."""
        self.labels.grow(n_labels + (self.classifier == "softmax"))


def _examples(words: WordStates, positive: Tensor) -> Tensor:
    """What filter and class loss are divided by: the number of positive examples, as is usual with
    focal losses, and of sentences, so that it is never 0. In a mean over all spans, nearly all of
    them easy negatives, the regressor alone would shape the word states."""
    return positive.sum() + len(words.mask)


def focal_terms(logits: Tensor, goal: Tensor) -> Tensor:
    """Binary focal loss of each logit (eq. 12 without the weights)."""
    terms = F.binary_cross_entropy_with_logits(logits, goal, reduction="none")
    return terms * (1 - torch.exp(-terms)) ** GAMMA
