"""Parallel Instance Query Network (Shen et al., 2022, "Parallel Instance Query Network for Named
Entity Recognition"): a set of queries reads the sentence, each may answer with one entity.

Section and equation numbers are the paper's. Shapes: B batch, N words, M queries, G gold entities,
C labels, h hidden width, L blocks.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Tuple

import numpy as np
import torch
from torch import Tensor, nn

from spacy_nested_ner.layers.attention import join_heads, make_feedforward, split_heads, split_parts
from spacy_nested_ner.layers.growing import grow_outputs
from spacy_nested_ner.layers.one_way import one_way_attention
from spacy_nested_ner.layers.pointer import OffsetBias, make_pointer, mask_words
from spacy_nested_ner.layers.pooling import mean_inside, soft_inside, weighted_mean, words_at
from spacy_nested_ner.layers.word_layer import WordLayer
from spacy_nested_ner.matching import ASSIGNMENTS, assign_rows
from spacy_nested_ner.systems.candidates import candidate_loss, draw_candidates, pointed_spans
from spacy_nested_ner.systems.head import Batch, Gold, Loss, Predictions
from spacy_nested_ner.systems.matched import Answers, MatchedHead, within_reach
from spacy_nested_ner.systems.piqn.queries import Queries, make_queries
from spacy_nested_ner.systems.piqn.settings import PIQNOptions, PIQNSettings

REMEDY = "Raise n_queries (learned queries) or queries_per_word (queries from words)"


class States(NamedTuple):
    """What pointers and classifier read after a block.

    words: for the pointers, `(B, N, h)`. classified: for the classifier, those or the words that
    enter the first block. queries: `(B, M, h)`.
    """

    words: Tensor
    classified: Tensor
    queries: Tensor


class PIQN(MatchedHead):
    """Instance queries with one-way attention, an entity pointer and an entity classifier.

    width, n_labels: see `Head`. settings: see `PIQNSettings`.
    """

    def __init__(self, width: int, n_labels: int, settings: PIQNSettings) -> None:
        s, form, h = settings, settings.form, settings.hidden_width
        super().__init__(boundary=form.boundary, none_weight=form.none_weight)
        self.assignment, self.quantity = s.assignment, s.quantity
        self.match_anchor, self.match_reach = s.match_anchor, form.match_reach
        self.candidates, self.early_words = form.candidates, form.early_words
        self.words = WordLayer(width, h, s.lstm_layers, form.lstm_dropout)
        self.query_input = make_queries(width, s)
        self.blocks = nn.ModuleList(
            OneWayBlock(
                h, s.attention_heads, form.feedforward, s.query_interaction, form.query_attention
            )
            for _ in range(s.depth)
        )
        self.left, self.right = make_pointer(form.pointer, h), make_pointer(form.pointer, h)
        with_offsets = s.query_source == "words" and form.offset_reach > 0
        self.left_offset = OffsetBias(form.offset_reach) if with_offsets else None
        self.right_offset = OffsetBias(form.offset_reach) if with_offsets else None
        self.classifier = QueryClassifier(
            h, n_labels, form.label_attention, form.span_pooling, s.attention_heads
        )

    def encode(
        self, words: Tensor, mask: Tensor, encoded: Optional[Tensor] = None
    ) -> Tuple[List[States], Queries]:
        """States after each block, and the queries that the first block reads.

        words: `(B, N, width)`. encoded: `(B, M, width)` queries of the encoder.
        """
        early = words = self.words(words, mask)
        queries = self.query_input(words, mask, encoded)
        content, states = queries.content, []
        for block in self.blocks:
            words, content = block(words, content, queries.position, mask, queries.mask)
            states.append(States(words, early if self.early_words else words, content))
        return states, queries

    def answer(self, states: States, mask: Tensor, queries: Queries) -> Answers:
        """Pointer (eq. 4-5) and classifier (eq. 6-7) on states of one or of stacked blocks."""
        words, classified, query_states = states
        left, right = self.left(query_states, words), self.right(query_states, words)
        if self.left_offset is not None and self.right_offset is not None:
            assert queries.anchors is not None
            n_blocks, n_words = len(words) // len(queries.anchors), words.shape[1]
            anchors = queries.anchors.repeat(n_blocks, 1)
            left = left + self.left_offset(anchors, n_words)
            right = right + self.right_offset(anchors, n_words)
        left, right = mask_words(left, mask), mask_words(right, mask)
        labels = self.classifier(
            classified, query_states, mask, self.probability(left), self.probability(right)
        )
        return Answers(left, right, labels)

    def losses(self, batch: Batch, gold: Gold) -> Dict[str, Loss]:
        """Boundary loss (eq. 11) of queries with an entity, class loss (eq. 12) of all; means over
        blocks (eq. 13). In the last block the classifier learns from candidates, too."""
        states, queries = self.encode(*batch)
        n_blocks = len(states)
        mask = batch.mask.repeat(n_blocks, 1)
        answers = self.answer(States(*map(torch.cat, zip(*states))), mask, queries)
        real, stacked = queries.real.repeat(n_blocks, 1), gold.repeat(n_blocks)
        target = self.assign(answers, stacked, real, queries.anchors)
        losses = {
            "boundary": self.boundary_loss(answers, stacked, target),
            **self.label_losses(answers, stacked, target, real),
        }
        if self.candidates:
            last = slice(-len(batch.mask), None)
            pointed, _ = pointed_spans(answers.left[last], answers.right[last])
            losses["candidate"] = self.classifier_loss(
                states[-1], batch.mask, pointed, gold, target[last], queries.real
            )
        return losses

    def classifier_loss(
        self,
        states: States,
        mask: Tensor,
        pointed: Tensor,
        gold: Gold,
        target: Tensor,
        real: Tensor,
    ) -> Loss:
        """-log P of the labels of spans as if the pointers had found them, None for no entity, over
        all queries, see `draw_candidates`.

        pointed: `(B, M, 2)` long. target: `(B, M)` long, the entity of each query, -1 for None.
        real: `(B, M)` bool.
        """
        spans, label = draw_candidates(pointed, gold, target, mask.sum(dim=1, keepdim=True))
        logits = self.classifier.at(states.classified, states.queries, spans)
        return candidate_loss(logits, label, real)

    @torch.no_grad()
    def assign(
        self, answers: Answers, gold: Gold, real: Tensor, anchors: Optional[Tensor] = None
    ) -> Tensor:
        """Gold entity of each query by linear assignment (eq. 8-10), per row and block.

        real: `(LB, M)` bool. anchors: `(B, M)`. Returns `(LB, M)` long, -1 for None and padding.
        """
        cost = self.matching_cost(answers, gold)
        if anchors is not None:
            distance = _distance(anchors.repeat(len(cost) // len(anchors), 1), gold.spans)
            cost += self.match_anchor * distance
        target = assign_rows(self._assign_row, cost, real, gold.mask)
        if anchors is not None and self.match_reach is not None:
            target = within_reach(target, distance, self.match_reach)
        return target

    def _assign_row(self, cost: np.ndarray) -> np.ndarray:
        """`(M, G)` costs of one row to the entity of each query."""
        self.warn_of_lost_entities(cost, "queries", REMEDY)
        return ASSIGNMENTS[self.assignment](cost, round(self.quantity * len(cost)))

    def predict(self, batch: Batch, options: PIQNOptions) -> Predictions:
        """One span per query that answers (section 3.3, last paragraph), last block only."""
        return self.found(batch, options)[0]

    def found(self, batch: Batch, options: PIQNOptions) -> Tuple[Predictions, Tensor, Queries]:
        """The spans of the queries that answer, `(K,)` the query of each, and all queries.

        A score is P(label) * P(left) * P(right). options: `threshold` on the score,
        `label_threshold` and `boundary_threshold` on its factors (the paper's pair).
        """
        states, queries = self.encode(*batch)
        answers = self.answer(states[-1], batch.mask, queries)
        left, start = self.probability(answers.left).max(dim=-1)
        right, end = self.probability(answers.right).max(dim=-1)
        label_p, label = answers.labels.softmax(-1).max(dim=-1)
        score = label_p * left * right
        keep = (label > 0) & (start <= end) & (score >= options.threshold)
        keep &= label_p >= options.label_threshold
        keep &= torch.minimum(left, right) >= options.boundary_threshold
        # NaN passes, so that the component can report a model that has diverged.
        keep |= score.isnan()
        if queries.mask is not None:
            keep &= queries.mask
        segment, query = torch.nonzero(keep, as_tuple=True)
        picked = [t[segment, query] for t in (start, end, label - 1, score)]
        return Predictions(segment, *picked), query, queries

    def add_labels(self, n_labels: int) -> None:
        """New rows of the class layer; the old ones, None first, stay as they are."""
        self.classifier.grow(n_labels)


class OneWayBlock(nn.Module):
    """Word-level transformer layer over words and queries; words never see queries (eq. 2-3).

    Query positions enter as the authors' code has it: query and key projections read
    (content + position) / 2, values and the residual read the content.
    """

    def __init__(
        self, width: int, heads: int, feedforward: int, interaction: bool, extra_attention: bool
    ) -> None:
        super().__init__()
        self.heads, self.interaction = heads, interaction
        self.query_key = nn.Linear(width, 2 * width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)
        self.attention_norm = nn.LayerNorm(width)
        self.feedforward = make_feedforward(width, feedforward)
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(0.0)
        self.extra = QueryAttention(width, heads) if extra_attention else None

    def forward(
        self,
        words: Tensor,
        queries: Tensor,
        position: Tensor,
        word_mask: Tensor,
        query_mask: Optional[Tensor],
    ) -> Tuple[Tensor, Tensor]:
        """`(B, N, h)` words and `(B, M, h)` queries to the same shapes."""
        n_words = words.shape[1]
        states = torch.cat([words, queries], dim=1)
        located = torch.cat([words, (queries + position) / 2], dim=1)
        query, key = split_parts(self.query_key(located), 2, self.heads)
        attended = one_way_attention(
            query,
            key,
            split_heads(self.value(states), self.heads),
            n_words,
            word_mask,
            query_interaction=self.interaction,
            query_mask=query_mask,
        )
        attended = self.output(join_heads(attended))
        states = self.attention_norm(states + self.dropout(attended))
        states = self.norm(states + self.dropout(self.feedforward(states)))
        words, queries = states[:, :n_words], states[:, n_words:]
        if self.extra is not None:
            queries = self.extra(queries, position, query_mask)
        return words, queries


class QueryAttention(nn.Module):
    """Self-attention among the queries after a block (authors' code on ACE04, GENIA, KBP17)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(0.0)

    def forward(self, queries: Tensor, position: Tensor, mask: Optional[Tensor]) -> Tensor:
        """`(B, M, h)` to `(B, M, h)`."""
        located = queries + position
        unseen = None if mask is None else ~mask
        attended, _ = self.attention(
            located, located, queries, key_padding_mask=unseen, need_weights=False
        )
        return self.norm(queries + self.dropout(attended))


class QueryClassifier(nn.Module):
    """The label of each query, from its state and its boundaries, None at index 0 (eq. 6-7)."""

    def __init__(
        self, width: int, n_labels: int, attention: bool, span_pooling: bool, heads: int
    ) -> None:
        super().__init__()
        self.query = nn.Linear(width, width)
        self.attention = (
            nn.MultiheadAttention(width, heads, batch_first=True) if attention else None
        )
        self.span_pooling = span_pooling
        self.dropout = nn.Dropout(0.0)
        self.output = nn.Linear((4 if span_pooling else 3) * width, n_labels + 1)

    def forward(
        self, words: Tensor, queries: Tensor, mask: Tensor, left: Tensor, right: Tensor
    ) -> Tensor:
        """left, right: `(B, M, N)` boundary probabilities. Returns `(B, M, C + 1)` logits."""
        query = self.query(queries)
        if self.attention is not None:
            attended, _ = self.attention(
                query, words, words, key_padding_mask=~mask, need_weights=False
            )
            query = query + attended
        parts = [query, left @ words, right @ words]
        if self.span_pooling:
            parts.append(weighted_mean(soft_inside(left, right), words))
        return self._logits(parts)

    def at(self, words: Tensor, queries: Tensor, spans: Tensor) -> Tensor:
        """As `forward`, with certain boundaries: `(B, M, 2)` long, both inclusive. For a classifier
        with `span_pooling` and without `attention`."""
        first, last = spans.unbind(-1)
        edges = words_at(words, first), words_at(words, last)
        return self._logits([self.query(queries), *edges, mean_inside(spans, words)])

    def _logits(self, parts: List[Tensor]) -> Tensor:
        return self.output(self.dropout(torch.relu(torch.cat(parts, dim=-1))))

    def grow(self, n_labels: int) -> None:
        """Rows for new labels; they start low, so that what was found before still is."""
        self.output = grow_outputs(self.output, n_labels + 1)


def _distance(anchors: Tensor, spans: Tensor) -> Tensor:
    """Words from each anchor `(B, M)` to each entity `(B, G, 2)`, 0 inside: `(B, M, G)` float."""
    starts, ends = spans.unbind(-1)
    before = starts.unsqueeze(1) - anchors.unsqueeze(2)
    after = anchors.unsqueeze(2) - ends.unsqueeze(1)
    return torch.maximum(before, after).clamp(min=0).float()
