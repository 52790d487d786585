"""Locate and Label (Shen et al., 2021, "Locate and Label: A Two-stage Identifier for Nested Named
Entity Recognition"): seed spans are filtered, their boundaries regressed, what results is labelled.

Section and equation numbers are the paper's. Shapes: B batch, N words, S spans of all rows in one
flat list, G entities, C labels, h hidden width.
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spacy_nested_ner.layers.growing import grow_outputs
from spacy_nested_ner.layers.pooling import RangeMax
from spacy_nested_ner.layers.recurrent import BiLSTM
from spacy_nested_ner.systems.head import Batch, Gold, Head, Loss, Predictions
from spacy_nested_ner.systems.locate_and_label.settings import (
    LocateAndLabelOptions,
    LocateAndLabelSettings,
)

SYSTEM = "Locate and Label"
# Logit of a probability of 1 %, the usual start of detectors that are trained with a focal loss.
PRIOR = -4.6


class Spans(NamedTuple):
    """Spans of a batch, flat: row of the batch, first and last word, `(S,)` long."""

    row: Tensor
    start: Tensor
    end: Tensor

    def pick(self, index: Tensor) -> Spans:
        """The spans at a `(K,)` index or bool mask."""
        return Spans(*(column[index] for column in self))


class LocateAndLabel(Head):
    """Span proposal filter, boundary regressor and entity classifier.

    width, n_labels: see `Head`. settings: see `LocateAndLabelSettings`.
    """

    def __init__(self, width: int, n_labels: int, settings: LocateAndLabelSettings) -> None:
        super().__init__()
        s, h = settings, settings.hidden_width
        self.width, self.n_labels = width, n_labels
        self.lengths = sorted(set(s.lengths))
        self.regressor, self.classifier = s.regressor, s.classifier
        self.label_loss, self.focal = s.label_loss, s.focal
        self.seed_iou, self.label_iou = s.seed_iou, s.label_iou
        self.soft_examples, self.negatives = s.soft_examples, s.negatives
        self.loss_weights = (s.filter_weight, s.regressor_weight, s.label_weight)
        self.input_dropout = nn.Dropout(0.0)
        self.lstm = BiLSTM(width, h, s.lstm_layers) if s.lstm_layers else None
        same = bool(s.lstm_layers) or width == h
        self.project = nn.Identity() if same else nn.Linear(width, h)
        self.filter = SpanMLP(h, 1) if s.span_filter else None
        self.offsets = SpanMLP(h, 2) if s.regressor else None
        # What stands before the first and behind the last word, seen by the regressor.
        self.edges = nn.Parameter(torch.randn(2, h) * 0.02) if s.regressor else None
        self.labels = SpanMLP(h, n_labels + (s.classifier == "softmax"))
        self._start_modest()
        if s.dropout is not None:
            self.fix_dropout(s.dropout)

    def _start_modest(self) -> None:
        """Nearly no span is an entity, and none moves, until there is a reason: without that the
        first updates go into unlearning what chance has drawn."""
        nn.init.constant_(self.labels.output.bias, PRIOR)
        if self.classifier == "softmax":
            nn.init.constant_(self.labels.output.bias[:1], 0.0)
        if self.filter is not None:
            nn.init.constant_(self.filter.output.bias, PRIOR)
        if self.offsets is not None:
            nn.init.zeros_(self.offsets.output.weight)
            nn.init.zeros_(self.offsets.output.bias)

    def encode(self, words: Tensor, mask: Tensor) -> Words:
        """`(B, N, width)` word vectors to what the three stages read."""
        if self.lstm is not None:
            words = self.lstm(self.input_dropout(words), mask)
        return Words(self.project(words), mask)

    # Spans

    def seeds(self, mask: Tensor) -> Spans:
        """Every seed span of every row (section 2.2)."""
        lengths = torch.tensor(self.lengths, device=mask.device)
        start = torch.arange(mask.shape[1], device=mask.device)
        end = start.unsqueeze(1) + lengths - 1
        inside = end < mask.sum(dim=1)[:, None, None]
        row, start, length = torch.nonzero(inside, as_tuple=True)
        return Spans(row, start, end[start, length])

    def adjust(self, words: Words, spans: Spans, pooled: Tensor) -> Tuple[Tensor, Spans, Tensor]:
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

    @staticmethod
    def merge(spans: Spans, n_words: int) -> Spans:
        """Proposals that met, once each: what is said of them depends on their place alone."""
        key = torch.unique((spans.row * n_words + spans.start) * n_words + spans.end)
        return Spans(key // n_words**2, key // n_words % n_words, key % n_words)

    # Training

    def losses(self, batch: Batch, gold: Gold) -> Dict[str, Loss]:
        """Filter loss (eq. 12), regression loss (eq. 13-15) and class loss (eq. 16), weighted."""
        words, mask, _ = batch
        read = self.encode(words, mask)
        spans = _join(self.seeds(mask), self.unreachable(gold))
        iou, paired = best_entity(spans, gold)
        positive = iou >= self.seed_iou
        chosen = self.sample(spans, positive, len(mask))
        spans, iou, paired = spans.pick(chosen), iou[chosen], paired[chosen]
        positive = positive[chosen]
        losses = {}
        pooled = read.range_max(*spans)
        if self.filter is not None:
            losses["filter"] = self._filter_loss(read, spans, pooled, iou, positive)
        offsets, adjusted, legal = self.adjust(read, spans, pooled)
        if self.regressor is not None:
            losses.update(self._regression_losses(spans, offsets, gold, paired, positive))
        proposals = self.merge(adjusted.pick(legal), mask.shape[1])
        losses["label"] = self._label_loss(read, proposals, gold)
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

    def _weights(self, iou: Tensor, positive: Tensor) -> Tensor:
        """Eq. 11: examples that match in part count less."""
        return torch.where(positive, iou, 1.0 - iou) ** self.soft_examples

    def _filter_loss(
        self, words: Words, spans: Spans, pooled: Tensor, iou: Tensor, positive: Tensor
    ) -> Loss:
        """Eq. 12."""
        assert self.filter is not None
        logits = self.filter.at(words.states, pooled, *spans).squeeze(-1)
        terms = focal_terms(logits, positive.to(logits.dtype), self.focal)
        weights = self._weights(iou, positive)
        return Loss((weights * terms).sum(), _examples(words, positive), self.loss_weights[0])

    def _regression_losses(
        self, spans: Spans, offsets: Tensor, gold: Gold, paired: Tensor, positive: Tensor
    ) -> Dict[str, Loss]:
        """Eq. 14 and 15, means over the positive spans."""
        weight, terms = self.loss_weights[1], float(positive.sum())
        offsets, mine = offsets[positive], spans.pick(positive)
        if not len(offsets):
            return {name: Loss(offsets.sum() * 0.0, 0.0, weight) for name in ("offset", "overlap")}
        seed = torch.stack([mine.start, mine.end], dim=1)
        target = gold.spans[mine.row, paired[positive]]
        distance = F.smooth_l1_loss(offsets, (target - seed).to(offsets.dtype), reduction="sum")
        start, end = (seed + offsets).unbind(-1)
        gold_start, gold_end = target.unbind(-1)
        # Ends are exclusive here: a word has length 1, not 0.
        shared = torch.minimum(end, gold_end) + 1 - torch.maximum(start, gold_start)
        joined = torch.maximum(end, gold_end) + 1 - torch.minimum(start, gold_start)
        overlap = (1 - shared / joined).sum()
        return {"offset": Loss(distance, terms, weight), "overlap": Loss(overlap, terms, weight)}

    def _label_loss(self, words: Words, spans: Spans, gold: Gold) -> Loss:
        """Eq. 16 on the adjusted spans, which are paired anew."""
        logits = self.labels.inside(words, spans)
        iou, paired = best_entity(spans, gold)
        positive = iou >= self.label_iou
        weights = self._weights(iou, positive)
        if self.classifier == "softmax":
            terms = self._softmax_terms(logits, spans, gold, paired, positive)
        else:
            goal = self._label_goal(spans, gold, paired, positive).to(logits.dtype)
            gamma = self.focal if self.label_loss == "focal" else 0.0
            terms = focal_terms(logits, goal, gamma).sum(dim=-1)
        return Loss((weights * terms).sum(), _examples(words, positive), self.loss_weights[2])

    def _softmax_terms(
        self, logits: Tensor, spans: Spans, gold: Gold, paired: Tensor, positive: Tensor
    ) -> Tensor:
        """`(S,)` losses of the paired entity's label, or of None (index 0)."""
        label = torch.zeros_like(paired)
        if gold.labels.shape[1]:
            label = (gold.labels[spans.row, paired] + 1).masked_fill(~positive, 0)
        terms = F.cross_entropy(logits, label, reduction="none")
        if self.label_loss == "focal":
            terms = terms * (1 - torch.exp(-terms)) ** self.focal
        return terms

    def _label_goal(self, spans: Spans, gold: Gold, paired: Tensor, positive: Tensor) -> Tensor:
        """`(S, C)` bool: the labels of all entities that stand where the paired one stands."""
        goal = positive.new_zeros((len(positive), self.n_labels))
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
        words, mask, _ = batch
        read = self.encode(words, mask)
        spans, pooled = self.proposals(read, options.filter_threshold)
        _, adjusted, legal = self.adjust(read, spans, pooled)
        spans = self.merge(adjusted.pick(legal), mask.shape[1])
        scores = self.label_probability(self.labels.inside(read, spans))
        return self.decode(spans, scores, options)

    def proposals(self, words: Words, threshold: float) -> Tuple[Spans, Tensor]:
        """The seeds that the filter lets pass, and the maximum over the words of each, `(S, h)`."""
        spans = self.seeds(words.mask)
        pooled = words.range_max(*spans)
        if self.filter is None:
            return spans, pooled
        logits = self.filter.at(words.states, pooled, *spans).squeeze(-1)
        # NaN passes, so that the component can report a model that has diverged.
        passing = (logits.sigmoid() >= threshold) | logits.isnan()
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
        likely = (best >= threshold) | best.isnan()
        spans, scores, best = spans.pick(likely), scores[likely], best[likely]
        iou, decay = options.nms_iou, options.nms_decay
        if decay < 1:
            scores = scores * soft_nms(spans, best, iou, decay).unsqueeze(1)
        span, label = torch.nonzero((scores >= threshold) | scores.isnan(), as_tuple=True)
        return Predictions(*spans.pick(span), label, scores[span, label])

    def add_labels(self, n_labels: int) -> None:
        """New rows of the class layer; the old ones, None first, stay as they are."""
        self.labels.grow(n_labels + (self.classifier == "softmax"))
        self.n_labels = n_labels


class Words:
    """Word states of a batch and what the stages need of them, made once.

    states: `(B, N, h)`. mask: `(B, N)` bool.
    """

    def __init__(self, states: Tensor, mask: Tensor) -> None:
        self.states, self.mask = states, mask
        self.range_max = RangeMax(states)

    def outside(self, edges: Tensor) -> Tensor:
        """`(B, N + 2, h)`: the words between the two `(2, h)` edges."""
        left, right = edges
        words = torch.where(self.mask.unsqueeze(-1), self.states, right)
        n_rows = len(words)
        return torch.cat([left.expand(n_rows, 1, -1), words, right.expand(n_rows, 1, -1)], dim=1)


class SpanMLP(nn.Module):
    """Two linear layers with GELU on [pooled; left word; right word] of a span (eq. 3, 5, 10).

    The first layer is applied to words before they are gathered into spans: a word that bounds
    many spans is multiplied once.
    """

    def __init__(self, width: int, n_outputs: int) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.0)
        self.pooled = nn.Linear(width, width)
        self.bounds = nn.Linear(width, 2 * width, bias=False)
        self.output = nn.Linear(width, n_outputs)

    def inside(self, words: Words, spans: Spans) -> Tensor:
        """With the first and the last word of each span: `(S, outputs)`."""
        return self.at(words.states, words.range_max(*spans), *spans)

    def at(self, words: Tensor, pooled: Tensor, row: Tensor, left: Tensor, right: Tensor) -> Tensor:
        """words: `(B, N, h)`; pooled: `(S, h)`; row, left, right: `(S,)` place of both words."""
        before, after = self.bounds(self.dropout(words)).chunk(2, dim=-1)
        hidden = self.pooled(self.dropout(pooled)) + before[row, left] + after[row, right]
        return self.output(F.gelu(hidden))

    def grow(self, n_outputs: int) -> None:
        """Rows for new outputs; they start low, so that what was found before still is."""
        self.output = grow_outputs(self.output, n_outputs)


def _examples(words: Words, positive: Tensor) -> Tensor:
    """What filter and class loss are divided by: positive examples, as is usual with focal losses,
    and sentences, so that there is something to divide by where no entity is. A mean over all
    spans, nearly all of them easy negatives, would leave the word states to the regressor."""
    return positive.sum() + len(words.mask)


def best_entity(spans: Spans, gold: Gold) -> Tuple[Tensor, Tensor]:
    """IoU with the entity that overlaps most, `(S,)` float, 0 where there is none, and its index
    (section 2.2)."""
    if not gold.mask.shape[1]:
        return torch.zeros(len(spans.row), device=spans.row.device), torch.zeros_like(spans.row)
    start, end = (column[spans.row] for column in gold.spans.unbind(-1))
    value = iou(spans.start.unsqueeze(1), spans.end.unsqueeze(1), start, end)
    best = value.masked_fill(~gold.mask[spans.row], 0.0).max(dim=1)
    return best.values, best.indices


def iou(start: Tensor, end: Tensor, other_start: Tensor, other_end: Tensor) -> Tensor:
    """Intersection over union of spans of words, both bounds inclusive; tensors broadcast."""
    shared = torch.minimum(end, other_end) + 1 - torch.maximum(start, other_start)
    union = (end + 1 - start) + (other_end + 1 - other_start) - shared.clamp(min=0)
    return shared.clamp(min=0) / union


def focal_terms(logits: Tensor, goal: Tensor, gamma: float) -> Tensor:
    """Binary focal loss of each logit (eq. 12 without the weights); gamma 0: cross-entropy."""
    terms = F.binary_cross_entropy_with_logits(logits, goal, reduction="none")
    if not gamma:
        return terms
    return terms * (1 - torch.exp(-terms)) ** gamma


@torch.no_grad()
def soft_nms(spans: Spans, score: Tensor, threshold: float, decay: float) -> Tensor:
    """Factor of each span's score, `(S,)` (algorithm 1, eq. 18).

    The highest score that is left is taken, and every span behind it that overlaps it by an IoU of
    at least `threshold` falls by `decay`; then the order is looked at again. All rows at once.
    """
    factor = torch.ones_like(score)
    if not len(score):
        return factor
    order = torch.argsort(spans.row, stable=True)
    row = spans.row[order]
    _, row, sizes = torch.unique_consecutive(row, return_inverse=True, return_counts=True)
    place = torch.arange(len(row), device=row.device) - (sizes.cumsum(0) - sizes)[row]
    shape = len(sizes), int(sizes.max())

    def padded(values: Tensor, fill: float) -> Tensor:
        table = values.new_full(shape, fill)
        table[row, place] = values[order]
        return table

    start, end, left = padded(spans.start, -1), padded(spans.end, -1), padded(score, -1.0)
    result, rows = torch.ones_like(left), torch.arange(shape[0], device=row.device)
    for _ in range(shape[1] - 1):
        top = left.argmax(dim=1)
        left[rows, top] = -1.0
        near = iou(start, end, start[rows, top, None], end[rows, top, None]) >= threshold
        fall = torch.where(near & (left > 0), decay, 1.0)
        left, result = left * fall, result * fall
    factor[order] = result[row, place]
    return factor


def _join(first: Spans, second: Spans) -> Spans:
    return Spans(*(torch.cat(pair) for pair in zip(first, second)))
