"""Parallel Instance Query Network (Shen et al., 2022, "Parallel Instance Query Network for Named
Entity Recognition"): a set of queries reads the sentence, each may answer with one entity.

Section and equation numbers are the paper's. Shapes: B batch, N words, M queries, G gold entities,
C labels, h hidden width, L blocks.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

import numpy as np
import torch
from torch import Tensor, nn

from spacy_nested_ner.layers.attention import join_heads, make_feedforward, split_heads, split_parts
from spacy_nested_ner.layers.growing import grow_outputs
from spacy_nested_ner.layers.one_way import one_way_attention
from spacy_nested_ner.layers.pointer import OffsetBias, make_pointer, mask_words
from spacy_nested_ner.layers.pooling import soft_inside, weighted_mean
from spacy_nested_ner.layers.recurrent import BiLSTM
from spacy_nested_ner.matching import ASSIGNMENTS, assign_rows
from spacy_nested_ner.systems.head import Batch, Gold, Loss, Predictions
from spacy_nested_ner.systems.matched import Answers, MatchedHead
from spacy_nested_ner.systems.piqn.queries import Queries, make_queries
from spacy_nested_ner.systems.piqn.settings import PIQNOptions, PIQNSettings

REMEDY = "Raise n_queries (learned queries) or queries_per_word (queries from words)"


class PIQN(MatchedHead):
    """Instance queries with one-way attention, an entity pointer and an entity classifier.

    width, n_labels: see `Head`. settings: see `PIQNSettings`.
    """

    def __init__(self, width: int, n_labels: int, settings: PIQNSettings) -> None:
        s, form, h = settings, settings.form, settings.hidden_width
        super().__init__(boundary=form.boundary, none_weight=form.none_weight)
        self.width, self.n_labels = width, n_labels
        self.assignment, self.quantity = s.assignment, s.quantity
        self.match_anchor = s.match_anchor
        self.input_dropout = nn.Dropout(0.0)
        self.lstm = BiLSTM(width, h, s.lstm_layers, form.lstm_dropout)
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
        if s.dropout is not None:
            self.fix_dropout(s.dropout)

    def encode(
        self, words: Tensor, mask: Tensor, encoded: Optional[Tensor] = None
    ) -> Tuple[List[Tensor], List[Tensor], Queries]:
        """Word and query states after each block, `(B, N, h)` and `(B, M, h)`, and the queries that
        the first block reads. encoded: `(B, M, width)` queries of the encoder."""
        words = self.lstm(self.input_dropout(words), mask)
        queries = self.query_input(words, mask, encoded)
        content = queries.content
        word_states, query_states = [], []
        for block in self.blocks:
            words, content = block(words, content, queries.position, mask, queries.mask)
            word_states.append(words)
            query_states.append(content)
        return word_states, query_states, queries

    def answer(
        self, word_states: Tensor, query_states: Tensor, mask: Tensor, queries: Queries
    ) -> Answers:
        """Pointer (eq. 4-5) and classifier (eq. 6-7) on states of one or of stacked blocks."""
        left, right = self.left(query_states, word_states), self.right(query_states, word_states)
        if self.left_offset is not None and self.right_offset is not None:
            assert queries.anchors is not None
            n_blocks, n_words = len(word_states) // len(queries.anchors), word_states.shape[1]
            anchors = queries.anchors.repeat(n_blocks, 1)
            left = left + self.left_offset(anchors, n_words)
            right = right + self.right_offset(anchors, n_words)
        left, right = mask_words(left, mask), mask_words(right, mask)
        labels = self.classifier(
            query_states, word_states, mask, self.probability(left), self.probability(right)
        )
        return Answers(left, right, labels)

    def losses(self, batch: Batch, gold: Gold) -> Dict[str, Loss]:
        """Boundary loss (eq. 11) of queries with an entity, class loss (eq. 12) of all; means over
        blocks (eq. 13)."""
        word_states, query_states, queries = self.encode(*batch)
        n_blocks = len(word_states)
        mask = batch.mask.repeat(n_blocks, 1)
        answers = self.answer(torch.cat(word_states), torch.cat(query_states), mask, queries)
        real, gold = queries.real.repeat(n_blocks, 1), gold.repeat(n_blocks)
        target = self.assign(answers, gold, real, queries.anchors)
        return {
            "boundary": self.boundary_loss(answers, gold, target, mask),
            **self.label_losses(answers, gold, target, real),
        }

    @torch.no_grad()
    def assign(
        self, answers: Answers, gold: Gold, real: Tensor, anchors: Optional[Tensor] = None
    ) -> Tensor:
        """Gold entity of each query by linear assignment (eq. 8-10), per row and block.

        real: `(LB, M)` bool. anchors: `(B, M)`. Returns `(LB, M)` long, -1 for None and padding.
        """
        cost = self.matching_cost(answers, gold)
        if anchors is not None and self.match_anchor:
            n_blocks = len(cost) // len(anchors)
            cost += self.match_anchor * _distance(anchors.repeat(n_blocks, 1), gold.spans)
        return assign_rows(self._assign_row, cost, real, gold.mask)

    def _assign_row(self, cost: np.ndarray) -> np.ndarray:
        """`(M, G)` costs of one row to the entity of each query."""
        self.warn_of_lost_entities(cost, "queries", REMEDY)
        return ASSIGNMENTS[self.assignment](cost, round(self.quantity * len(cost)))

    def predict(self, batch: Batch, options: PIQNOptions) -> Predictions:
        """One span per query that answers (section 3.3, last paragraph), last block only.

        The score of a span is P(label) * P(left) * P(right). options: `threshold` on the score,
        `label_threshold` and `boundary_threshold` on its factors (the paper's pair).
        """
        word_states, query_states, queries = self.encode(*batch)
        answers = self.answer(word_states[-1], query_states[-1], batch.mask, queries)
        return self.found(answers, queries, options)[0]

    def found(
        self, answers: Answers, queries: Queries, options: PIQNOptions
    ) -> Tuple[Predictions, Tensor]:
        """The spans of the queries that answer, see `predict`, and `(K,)` the query of each."""
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
        return Predictions(segment, *picked), query

    def add_labels(self, n_labels: int) -> None:
        """New rows of the class layer; the old ones, None first, stay as they are."""
        self.classifier.grow(n_labels)
        self.n_labels = n_labels


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
        self, queries: Tensor, words: Tensor, mask: Tensor, left: Tensor, right: Tensor
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
