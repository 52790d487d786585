"""Entity detection with proposer and regressor (Wen et al., 2023, "End-to-end Entity Detection with
Proposer and Regressor"): every word proposes a span and a label, a few layers refine both.

Section and equation numbers are the paper's. Shapes: B batch, N words, P proposals, C labels,
h hidden width, A attention heads. Class 0 is None. Locations are word positions within the
sentence, first and last word, as real numbers.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from spacy_nested_ner.layers.growing import grow_outputs
from spacy_nested_ner.layers.recurrent import BiGRU
from spacy_nested_ner.layers.rounds import word_rounds
from spacy_nested_ner.matching import assign_cheapest, assign_rows
from spacy_nested_ner.systems.head import Batch, Gold, Head, Loss, Predictions, pick_gold
from spacy_nested_ner.systems.proposer_regressor.settings import (
    ProposerRegressorOptions,
    ProposerRegressorSettings,
)

SYSTEM = "ProposerRegressor"
# Cells of the joint span distribution that are held at once, 1 MiB: more do not stay in the cache.
CHUNK_CELLS = 2**18
UNSEEN = -1e4  # a logit that no softmax sees

Factors = Tuple[Tensor, ...]
"""start, end, start_cross and end_cross of `SpanScores` for some proposals, `(rows, N)` each."""


@dataclass
class Proposals:
    """Proposals of a batch (section 3.2.3).

    query: `(B, P, h)`. location: `(B, P, 2)` float. labels: `(B, P, C + 1)` logits, None first.
    mask: `(B, P)` bool.
    """

    query: Tensor
    location: Tensor
    labels: Tensor
    mask: Tensor


class Level(NamedTuple):
    """One level of the pyramid: spans of `vision` words.

    features: `(B, N - vision + 1, h)`, position i for the words i to i + vision - 1.
    mask: `(B, N - vision + 1)` bool, True where all these words are real.
    """

    features: Tensor
    mask: Tensor
    vision: int


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
    mask: `(B, P)` bool, False for padding. final: what each proposal says in the end.
    """

    location: Tensor
    labels: Tensor
    mask: Tensor
    final: Decoded


class ProposerRegressor(Head):
    """Proposals from a feature pyramid, refined by spatially modulated attention.

    Each proposal has one span and one label. Its score is `p / (p + P(None))` with
    `p = P(span) * P(label)`: at least 0.5 where algorithm 2 accepts the proposal.

    P is N, or `min_proposals` in shorter sentences. Time grows with P * N^2, as the joint span
    distribution has a cell for every proposal, first and last word; a prediction leaves out the
    proposals that cannot reach the threshold. Memory does not: the cells are
    computed in chunks of `CHUNK_CELLS`, gradients along with them. What is left grows with A * P^2,
    the attention, in every layer. With the default settings a training step on one sentence of 32,
    128 and 512 words takes about 40, 40 and 220 MiB, a prediction 2, 7 and 70
    (`benchmarks/inference.py memory`).

    width, n_labels: see `Head`. settings: see `ProposerRegressorSettings`.
    """

    def __init__(self, width: int, n_labels: int, settings: ProposerRegressorSettings) -> None:
        super().__init__()
        s, h = settings, settings.hidden_width
        self.width, self.n_labels = width, n_labels
        self.none_weight = s.none_weight
        self.warned = False
        self.input_dropout = nn.Dropout(0.0)
        self.input = nn.Linear(width, h)
        self.input_norm = nn.LayerNorm(h)
        self.proposer = Proposer(
            h, s.pyramid_width or h, n_labels, s.kernel_sizes, s.backward_block, s.min_proposals
        )
        self.regressor = nn.ModuleList(
            RegressorLayer(
                h,
                n_labels,
                s.attention_heads,
                spatial_modulation=s.spatial_modulation,
                gated_update=s.gated_update,
                category_embedding=s.category_embedding,
                location_iteration=s.location_iteration,
                logits_iteration=s.logits_iteration,
            )
            for _ in range(s.regressor_layers)
        )
        self.labels = MLP(h, n_labels + 1)
        self.pointer = JointPointer(h)
        if s.dropout is not None:
            self.fix_dropout(s.dropout)

    def refine(self, words: Tensor, mask: Tensor) -> Tuple[Tensor, List[Proposals]]:
        """Words `(B, N, h)`, and the proposals of the proposer and of each regressor layer."""
        words = self.input_norm(self.input(self.input_dropout(words)))
        stages = [self.proposer(words, mask)]
        for layer in self.regressor:
            stages.append(layer(stages[-1]))
        return words, stages

    def answer(
        self, words: Tensor, mask: Tensor, proposals: Proposals
    ) -> Tuple[Tensor, SpanScores]:
        """Label logits `(B, P, C + 1)` (eq. 21) and span scores (eq. 22)."""
        logits = proposals.labels + self.labels(proposals.query)
        return logits, self.pointer(proposals, words, mask)

    def losses(self, batch: Batch, gold: Gold) -> Dict[str, Loss]:
        """Negative log-likelihood of the assigned targets (eq. 24), a mean over the proposals of
        the batch where the paper sums over those of a sentence (eq. 25): the size of a step does
        not hang on the lengths of the sentences."""
        words, mask, _ = batch
        words, stages = self.refine(words, mask)
        real = stages[-1].mask
        logits, spans = self.answer(words, mask, stages[-1])
        labels_p = logits.log_softmax(-1)
        spans_p = spans.at(gold.spans) - spans.log_partition().unsqueeze(-1)
        target = self.assign(labels_p, spans_p, gold, real)
        found = target >= 0
        label = pick_gold(gold.labels + 1, target).masked_fill(~found, 0)
        label_terms = -labels_p.gather(-1, label.unsqueeze(-1)).squeeze(-1)
        weights = torch.where(found, 1.0, self.none_weight) * real
        count = weights.sum()
        rows, chosen = torch.nonzero(found, as_tuple=True)
        span_loss = -spans_p[rows, chosen, target[rows, chosen]].sum()
        return {
            "label": Loss((weights * label_terms).sum(), count),
            "span": Loss(span_loss, count),
        }

    @torch.no_grad()
    def assign(self, labels_p: Tensor, spans_p: Tensor, gold: Gold, real: Tensor) -> Tensor:
        """Gold entity of each proposal (eq. 23-24, algorithm 1).

        labels_p: `(B, P, C + 1)` and spans_p: `(B, P, gold)` log-probabilities. real: `(B, P)`.
        Returns `(B, P)` long, -1 for None and for padding.
        """
        index = (gold.labels + 1).unsqueeze(1).expand(-1, real.shape[1], -1)
        cost = -(labels_p.gather(2, index) + spans_p)
        return assign_rows(self._assign, cost, real, gold.mask, -labels_p[..., 0])

    def _assign(self, cost: np.ndarray, none_cost: np.ndarray) -> np.ndarray:
        """`(P, G)` costs of one sentence to the entity of each proposal."""
        if cost.shape[1] > cost.shape[0]:
            self._warn_too_many(*cost.shape[::-1])
        return assign_cheapest(cost, none_cost)

    def _warn_too_many(self, n_gold: int, n_proposals: int) -> None:
        """Once per head: some gold entities have no proposal to learn from."""
        if not self.warned:
            self.warned = True
            warnings.warn(
                f"{SYSTEM}: a sentence has {n_gold} gold entities but only {n_proposals} "
                "proposals; the entities that fit worst are left out. Raise min_proposals. Further "
                "cases are not reported.",
                stacklevel=2,
            )

    def predict(self, batch: Batch, options: ProposerRegressorOptions) -> Predictions:
        """The span of each proposal whose score reaches `threshold` (algorithm 2 with 0.5)."""
        words, mask, _ = batch
        threshold = options.threshold
        words, stages = self.refine(words, mask)
        final = self.decode(words, mask, stages[-1], threshold)
        keep = final.score >= threshold
        # NaN passes, so that the component can report a model that has diverged.
        keep = (keep | final.score.isnan()) & stages[-1].mask
        segment, proposal = torch.nonzero(keep, as_tuple=True)
        return Predictions(segment, *(column[segment, proposal] for column in final))

    def decode(
        self, words: Tensor, mask: Tensor, proposals: Proposals, threshold: float = 0.0
    ) -> Decoded:
        """The best span and the best label of each proposal.

        No span is looked for where the label alone keeps the score below the threshold, that is
        for most proposals of a trained model, nor for padding: both have a score of 0.
        """
        logits, spans = self.answer(words, mask, proposals)
        labels_p = logits.softmax(-1)
        label_p, label = labels_p[..., 1:].max(dim=-1)
        none_p = labels_p[..., 0]
        # Not `>=`: NaN passes here, too.
        likely = ~(label_p / (label_p + none_p) < threshold) & proposals.mask
        span_p, start, end = spans.best(likely)
        product = span_p * label_p
        return Decoded(start, end, label, product / (product + none_p))

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
        """New outputs start low in the proposer, and change nothing in what refines them."""
        first = self.proposer.labels
        first.grow(n_labels + 1, first.output.bias.min().item() - 6.0)
        self.labels.grow(n_labels + 1, 0.0)
        for layer in self.regressor:
            assert isinstance(layer, RegressorLayer)
            layer.add_labels(n_labels)
        self.n_labels = n_labels


class MLP(nn.Module):
    """The paper's multi-layer perceptron: half the width, GELU."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        hidden = max(1, width // 2)
        self.hidden = nn.Linear(width, hidden)
        self.output = nn.Linear(hidden, outputs)

    def forward(self, states: Tensor) -> Tensor:
        """`(..., width)` to `(..., outputs)`."""
        return self.output(F.gelu(self.hidden(states)))

    def grow(self, outputs: int, bias: float) -> None:
        """New outputs say `bias` until they are trained."""
        self.output = grow_outputs(self.output, outputs, bias)


class Proposer(nn.Module):
    """Feature pyramid and proposal fusion (section 3.2)."""

    def __init__(
        self,
        width: int,
        pyramid_width: int,
        n_labels: int,
        kernel_sizes: Sequence[int],
        backward_block: bool,
        min_proposals: int,
    ) -> None:
        super().__init__()
        self.min_proposals = min_proposals
        own_width = pyramid_width != width
        self.narrow = nn.Linear(width, pyramid_width) if own_width else nn.Identity()
        self.pyramid = FeaturePyramid(pyramid_width, kernel_sizes, backward_block)
        self.widen = nn.Linear(pyramid_width, width) if own_width else nn.Identity()
        self.anchor = MLP(pyramid_width, 2)
        self.labels = MLP(width, n_labels + 1)
        rounds = max(min_proposals - 1, 0)
        self.kind = nn.Parameter(torch.randn(rounds, width) * 0.02) if rounds else None

    def forward(self, words: Tensor, mask: Tensor) -> Proposals:
        """`(B, N, h)` words to one proposal per word, and to more of them in short sentences."""
        levels = self.pyramid(self.narrow(words), mask)
        location = fuse_locations([self.anchor(level.features) for level in levels], levels)
        real, anchors, rounds = word_rounds(mask, 1, self.min_proposals)
        where = anchors.unsqueeze(-1)
        query = self.widen(levels[0].features)
        query = query.gather(1, where.expand(-1, -1, query.shape[-1]))
        if self.kind is not None:
            query = query + F.pad(self.kind, (0, 0, 1, 0))[rounds]
        location = location.gather(1, where.expand(-1, -1, 2))
        return Proposals(query, location, self.labels(query), real)


class FeaturePyramid(nn.Module):
    """Features of spans of growing length, bottom up and down again (eq. 5-7)."""

    def __init__(self, width: int, kernel_sizes: Sequence[int], backward_block: bool) -> None:
        super().__init__()
        self.visions = visions(kernel_sizes)
        self.rise = nn.ModuleList(RecurrentBlock(width) for _ in self.visions)
        self.aggregate = nn.ModuleList(nn.Conv1d(width, width, k) for k in kernel_sizes)
        self.fall: Optional[nn.ModuleList] = None
        if backward_block:
            self.fall = nn.ModuleList(BackwardBlock(width, vision) for vision in self.visions)
            self.spread = nn.ModuleList(nn.ConvTranspose1d(width, width, k) for k in kernel_sizes)

    def forward(self, words: Tensor, mask: Tensor) -> List[Level]:
        """`(B, N, h)` to the levels that the longest sentence of the batch reaches."""
        levels: List[Level] = []
        states = words
        for vision, block in zip(self.visions, self.rise):
            if vision > mask.shape[1]:
                break
            if levels:
                states = _along_words(self.aggregate[len(levels) - 1], states)
            level_mask = mask[:, vision - 1 :]
            states = block(states, level_mask)
            levels.append(Level(states, level_mask, vision))
        return levels if self.fall is None else self._descend(words, levels)

    def _descend(self, words: Tensor, levels: List[Level]) -> List[Level]:
        """Backward blocks from the top. A sentence's own top level hears itself from above, not
        the levels that only longer sentences of the batch have."""
        assert self.fall is not None
        done: List[Level] = []
        for i, level in reversed(list(enumerate(levels))):
            above = level.features
            if done:
                upper = done[-1]
                heard = _along_words(self.spread[i], upper.features * upper.mask.unsqueeze(-1))
                has_upper = upper.mask.any(dim=1)[:, None, None]
                above = torch.where(has_upper, heard, above)
            done.append(level._replace(features=self.fall[i](level, above, words)))
        return done[::-1]


class RecurrentBlock(nn.Module):
    """LayerNorm, BiGRU and a linear layer (eq. 6).

    Each direction has half of the width, so that both together are as wide as what they read; in
    the authors' code each has all of it, which makes 2.5 times as many weights.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(0.0)
        self.recurrent = BiGRU(width, width)
        self.output = nn.Linear(width, width)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """`(B, M, h)` and `(B, M)` to `(B, M, h)`."""
        states = self.recurrent(self.dropout(self.norm(states)), mask)
        return self.dropout(self.output(states))


class BackwardBlock(nn.Module):
    """Joins a level's forward features, what comes from above, and its words (eq. 7)."""

    def __init__(self, width: int, vision: int) -> None:
        super().__init__()
        self.vision = vision
        self.block = RecurrentBlock(width)
        self.join = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(0.0)
        self.norm = nn.LayerNorm(width)

    def forward(self, level: Level, above: Tensor, words: Tensor) -> Tensor:
        """above: like the level's features; words: `(B, N, h)`. Returns new features."""
        above = self.block(above, level.mask)
        joined = self.dropout(self.join(torch.cat([level.features, above], dim=-1)))
        pooled = F.avg_pool1d(words.transpose(1, 2), self.vision, stride=1).transpose(1, 2)
        return self.norm(pooled + joined)


class RegressorLayer(nn.Module):
    """Category embedding, spatially modulated attention, gated update, iterations (section 3.3)."""

    def __init__(
        self,
        width: int,
        n_labels: int,
        heads: int,
        *,
        spatial_modulation: bool = True,
        gated_update: bool = True,
        category_embedding: bool = True,
        location_iteration: bool = True,
        logits_iteration: bool = True,
    ) -> None:
        super().__init__()
        self.heads = heads
        head_width = width // heads
        self.category = (
            nn.Parameter(torch.randn(n_labels + 1, width)) if category_embedding else None
        )
        self.project = nn.Linear(width, 3 * width)
        # Without modulation the shape of the spatial weight has no use, without iteration the
        # location that is computed from the heads has none.
        self.locator: Optional[Locator] = None
        if spatial_modulation or location_iteration:
            self.locator = Locator(head_width, with_shape=spatial_modulation)
        self.vote = MLP(head_width, 2) if location_iteration else None
        self.output = nn.Linear(width, width)
        self.dropout = nn.Dropout(0.0)
        self.attention_norm = nn.LayerNorm(width)
        self.gate = nn.GRUCell(width, width) if gated_update else None
        self.gate_norm = nn.LayerNorm(width) if gated_update else None
        self.labels = MLP(width, n_labels + 1) if logits_iteration else None

    def forward(self, given: Proposals) -> Proposals:
        """Refined proposals of the same shapes."""
        state = given.query
        if self.category is not None:
            state = state + given.labels.softmax(-1) @ self.category  # eq. 11
        attended, location = self.attend(state, given.location, given.mask)
        joined = self.output(attended.transpose(1, 2).flatten(2))  # eq. 17
        query = self.attention_norm(state + self.dropout(joined))
        if self.gate is not None and self.gate_norm is not None:
            gated = self.gate(query.flatten(0, 1), state.flatten(0, 1)).view_as(state)  # eq. 18-19
            query = self.gate_norm(state + self.dropout(gated))
        labels = given.labels
        if self.labels is not None:
            labels = labels + self.labels(query)  # eq. 20
        return replace(given, query=query, location=location, labels=labels)

    def attend(self, state: Tensor, location: Tensor, mask: Tensor) -> Tuple[Tensor, Tensor]:
        """Spatially modulated attention (eq. 12-16): `(B, A, P, h / A)` and new locations."""
        query, key, value = (
            t.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for t in self.project(state).chunk(3, dim=-1)
        )
        seen = mask[:, None, None, :]
        centre = shape = None
        if self.locator is not None:
            centre, shape = self.locator(query, location.unsqueeze(1))
        if centre is not None and shape is not None:
            weight = spatial_weight(location, centre, shape)
            seen = weight.masked_fill(~seen, -torch.inf)
        attended = F.scaled_dot_product_attention(query, key, value, seen)
        if self.vote is not None and centre is not None:
            votes = self.vote(attended).softmax(dim=1)  # eq. 15, over the heads
            location = (votes * centre).sum(dim=1)  # eq. 16
        return attended, location

    def add_labels(self, n_labels: int) -> None:
        """Grow the category embedding and the logits."""
        if self.category is not None:
            new = n_labels + 1 - len(self.category)
            fresh = torch.randn(new, self.category.shape[1], device=self.category.device)
            self.category = nn.Parameter(torch.cat([self.category.detach(), fresh]))
        if self.labels is not None:
            self.labels.grow(n_labels + 1, 0.0)


class Locator(nn.Module):
    """Centre and shape of a Gaussian-like weight over locations (eq. 12-13).

    with_shape: False for the centre alone.
    """

    def __init__(self, width: int, with_shape: bool = True) -> None:
        super().__init__()
        self.mlp = MLP(width, 6 if with_shape else 2)

    def forward(self, query: Tensor, location: Tensor) -> Tuple[Tensor, Optional[Tensor]]:
        """query: `(..., width)`; location: `(..., 2)`, may broadcast.

        Returns the centre `(..., 2)` and the factor theta `(..., 2, 2)` of the precision matrix
        theta theta^T, which is positive semidefinite.
        """
        values = self.mlp(query)
        centre = location + values[..., :2]
        return centre, values[..., 2:].unflatten(-1, (2, 2)) if values.shape[-1] == 6 else None


class JointPointer(nn.Module):
    """Joint distribution over first and last word (eq. 22): two pointers and a spatial weight."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, 2 * width)
        self.word = nn.Linear(width, 2 * width)
        self.locator = Locator(width)
        self.scale = width**-0.5

    def forward(self, proposals: Proposals, words: Tensor, mask: Tensor) -> SpanScores:
        """words: `(B, N, h)`; mask: `(B, N)` bool."""
        asked = self.query(proposals.query).chunk(2, dim=-1)
        told = self.word(words).chunk(2, dim=-1)
        start, end = ((q @ w.transpose(1, 2)) * self.scale for q, w in zip(asked, told))
        centre, shape = self.locator(proposals.query, proposals.location)
        assert shape is not None
        precision = shape @ shape.transpose(-1, -2)
        position = torch.arange(mask.shape[1], device=mask.device)
        from_start, from_end = (position - c for c in centre.split(1, dim=-1))
        unseen = ~mask.unsqueeze(1)
        start = start - precision[..., 0, :1] * from_start.square()
        end = end - precision[..., 1, 1:] * from_end.square()
        return SpanScores(
            start=start.masked_fill(unseen, -torch.inf),
            end=end.masked_fill(unseen, -torch.inf),
            start_cross=-2 * precision[..., 0, 1:] * from_start,
            end_cross=from_end,
        )


@dataclass
class SpanScores:
    """Score r(s, e) of every span for every proposal (eq. 22), in factors.

    `r(s, e) = start[s] + end[e] + start_cross[s] * end_cross[e]` for s <= e: pointers and squares
    of the spatial weight concern one end, its mixed term is a product. All `(B, P, N)`; `start` and
    `end` are -inf at padding. A tensor of all spans, `(B, P, N, N)`, is never whole in memory.
    """

    start: Tensor
    end: Tensor
    start_cross: Tensor
    end_cross: Tensor

    def at(self, spans: Tensor) -> Tensor:
        """Scores of `(B, G, 2)` spans: `(B, P, G)`."""
        first, last = (
            spans[..., i].unsqueeze(1).expand(-1, self.start.shape[1], -1) for i in range(2)
        )
        cross = self.start_cross.gather(2, first) * self.end_cross.gather(2, last)
        return self.start.gather(2, first) + self.end.gather(2, last) + cross

    def log_partition(self) -> Tensor:
        """Logarithm of the sum of exp r(s, e) over all spans: `(B, P)`."""
        factors = self._factors()
        if torch.is_grad_enabled():
            flat = _LogPartition.apply(*factors)
        else:
            flat = torch.cat([_log_sum(_cells(*chunk))[0] for chunk in _chunks(*factors)])
        return flat.view(self.start.shape[:2])

    def best(self, wanted: Optional[Tensor] = None) -> Tuple[Tensor, Tensor, Tensor]:
        """Probability, first and last word of the most probable span: three `(B, P)`.

        wanted: `(B, P)` bool, None for all; zeros for the others, which cost nothing.
        """
        if wanted is None:
            wanted = torch.ones(self.start.shape[:2], dtype=torch.bool, device=self.start.device)
        probability = self.start.new_zeros(wanted.shape)
        index = torch.zeros_like(wanted, dtype=torch.long)
        parts = [_best_span(*chunk) for chunk in _chunks(*(f[wanted] for f in self._columns()))]
        probability[wanted], index[wanted] = (torch.cat(part) for part in zip(*parts))
        n_words = self.start.shape[2]
        return probability, index // n_words, index % n_words

    def _columns(self) -> Factors:
        return self.start, self.end, self.start_cross, self.end_cross

    def _factors(self) -> Factors:
        """The four tensors, `(B * P, N)` each."""
        return tuple(column.flatten(0, 1) for column in self._columns())


class _LogPartition(torch.autograd.Function):
    """Log of the sum over all spans, by rows; its gradients are expectations under their softmax.

    They are summed up along with the partition, so that backward neither keeps nor builds the
    cells again.
    """

    @staticmethod
    def forward(ctx: Any, *factors: Tensor) -> Tensor:
        """`(rows, N)` factors as in `_cells` to `(rows,)`."""
        result = factors[0].new_empty(len(factors[0]), 1)
        slopes = tuple(torch.empty_like(factor) for factor in factors)
        # Written in place: small results that outlive a chunk, one after each, would leave holes
        # in the memory that the next chunk does not fit into.
        for parts in _chunks(*factors, *slopes, result):
            chunk = parts[: len(factors)]
            log_sum, probability = _log_sum(_cells(*chunk))
            found = (*_expectations(probability, *chunk), log_sum.unsqueeze(1))
            for part, value in zip(parts[len(factors) :], found):
                part.copy_(value)
        ctx.save_for_backward(*slopes)
        return result.squeeze(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tuple[Tensor, ...]:
        return tuple(gradient.unsqueeze(1) * slope for slope in ctx.saved_tensors)


def _expectations(
    probability: Tensor, start: Tensor, end: Tensor, start_cross: Tensor, end_cross: Tensor
) -> Factors:
    """Derivatives of the log partition by each factor, given the `(rows, N * N)` probabilities."""
    cells = probability.unflatten(1, (start.shape[1], -1))
    return (
        cells.sum(dim=2),
        cells.sum(dim=1),
        (cells @ end_cross.unsqueeze(2)).squeeze(2),
        (start_cross.unsqueeze(1) @ cells).squeeze(1),
    )


def _chunks(*factors: Tensor) -> Iterator[Factors]:
    """So many rows of the factors at a time that their cells fit `CHUNK_CELLS`."""
    size = max(1, CHUNK_CELLS // factors[0].shape[1] ** 2)
    return zip(*(factor.split(size) for factor in factors))


def _cells(start: Tensor, end: Tensor, start_cross: Tensor, end_cross: Tensor) -> Tensor:
    """`(rows, N)` factors to `(rows, N * N)` scores, -inf where the end is before the start.

    All three terms of a score, and the -inf, in one matrix product: three passes less over the
    cells.
    """
    n_words = start.shape[1]
    backwards = start.new_full((n_words, n_words), -torch.inf).tril(-1)
    one = torch.ones_like(start)
    of_start = torch.stack([start, one, start_cross], dim=2)
    of_end = torch.stack([one, end, end_cross], dim=1)
    return torch.baddbmm(backwards, of_start, of_end).flatten(1)


def _best_span(
    start: Tensor, end: Tensor, start_cross: Tensor, end_cross: Tensor
) -> Tuple[Tensor, Tensor]:
    """Probability of the best span and its index, first word * N + last word."""
    scores = _cells(start, end, start_cross, end_cross)
    best, index = scores.max(dim=1)
    return _relative(scores, best).sum(dim=1).reciprocal(), index


def _log_sum(scores: Tensor) -> Tuple[Tensor, Tensor]:
    """Logarithm of the sum of exponentials, `(rows,)`, and their softmax, in the memory of the
    `(rows, cells)` scores."""
    best = scores.amax(dim=1)
    weights = _relative(scores, best)
    total = weights.sum(dim=1)
    return best + total.log(), weights.div_(total.unsqueeze(1))


def _relative(scores: Tensor, best: Tensor) -> Tensor:
    """exp(score - best) in the memory of the `(rows, cells)` scores.

    Not below exp(-80), which counts for nothing beside the best: on a CPU an exponential that
    underflows takes ten times as long.
    """
    return scores.sub_(best.unsqueeze(1)).clamp_(min=-80).exp_()


def visions(kernel_sizes: Sequence[int]) -> List[int]:
    """Words in a span of each level, from 1 for the words themselves (eq. 5)."""
    sizes = [1]
    for kernel in kernel_sizes:
        sizes.append(sizes[-1] + kernel - 1)
    return sizes


def fuse_locations(scores: List[Tensor], levels: List[Level]) -> Tensor:
    """First location of each word's proposal (eq. 8-9): `(B, N, 2)`.

    The ends of all spans of the pyramid that contain the word, averaged with the softmax of their
    scores, first and last word apart.

    scores: `(B, N - vision + 1, 2)` for each level, the levels from the bottom.
    """
    seen, offsets = [], []
    for score, (_, mask, vision) in zip(scores, levels):
        masked = score.masked_fill(~mask.unsqueeze(-1), UNSEEN)
        # Word j lies in the spans that begin at j - vision + 1 to j; UNSEEN beyond the sentence.
        padded = F.pad(masked, (0, 0, vision - 1, vision - 1), value=UNSEEN)
        seen.append(padded.unfold(1, vision, 1))
        last = torch.arange(vision, device=score.device)
        offsets.append(torch.stack([last - vision + 1, last]))
    weights = torch.cat(seen, dim=-1).softmax(dim=-1)
    offset = (weights * torch.cat(offsets, dim=-1)).sum(dim=-1)
    position = torch.arange(offset.shape[1], device=offset.device)
    return position.view(1, -1, 1) + offset


def spatial_weight(location: Tensor, centre: Tensor, shape: Tensor) -> Tensor:
    """Logarithm of eq. 12 with the minus sign that a decaying weight needs.

    location: `(B, P, 2)` of the proposals that are looked at. centre: `(B, A, P, 2)` and shape:
    `(B, A, P, 2, 2)` of those that look. Returns `(B, A, P, P)`, at most 0.
    """
    theta = shape.transpose(-1, -2)  # `(B, A, P, 2, 2)`, the factors before the coordinates
    at_centre = theta @ centre.unsqueeze(-1)
    # theta^T (x - centre) for all x in one product: `(B, A * P * 2, P)`.
    offsets = torch.baddbmm(
        -at_centre.reshape(len(theta), -1, 1),
        theta.reshape(len(theta), -1, 2),
        location.transpose(1, 2),
    ).unflatten(1, (*theta.shape[1:3], 2))
    first, second = offsets.unbind(3)
    return -torch.addcmul(first * first, second, second)


def _along_words(convolution: nn.Module, states: Tensor) -> Tensor:
    """A convolution over the second axis of `(B, M, h)`, and GELU."""
    return F.gelu(convolution(states.transpose(1, 2)).transpose(1, 2))


def _check_widths(
    hidden_width: int, pyramid_width: int, kernel_sizes: Sequence[int], attention_heads: int
) -> None:
    if hidden_width % attention_heads:
        raise ValueError(
            f"{SYSTEM}: hidden_width ({hidden_width}) must be a multiple of the "
            f"attention_heads ({attention_heads})."
        )
    if pyramid_width < 2 or pyramid_width % 2:
        raise ValueError(
            f"{SYSTEM}: the width of the pyramid ({pyramid_width}) must be even: each "
            "direction of its recurrent layers has half of it."
        )
    if any(kernel < 2 for kernel in kernel_sizes):
        raise ValueError(
            f"{SYSTEM}: kernel_sizes must be a list of numbers from 2, got {list(kernel_sizes)}."
        )
