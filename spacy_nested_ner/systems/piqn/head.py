"""Parallel Instance Query Network (Shen et al., 2022, "Parallel Instance Query Network for Named
Entity Recognition"): a set of queries reads the sentence, each may answer with one entity.

Section and equation numbers are the paper's. Shapes: B batch, N words, M queries, C labels,
h hidden width, L blocks.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Dict, List, Optional, Tuple

import numpy as np
import torch
from torch import Tensor, nn

from spacy_nested_ner.layers.growing import grow_outputs
from spacy_nested_ner.layers.one_way import InstanceQueries, one_way_attention
from spacy_nested_ner.layers.pointer import OffsetBias, make_pointer, mask_words
from spacy_nested_ner.layers.pooling import soft_inside, weighted_mean
from spacy_nested_ner.layers.recurrent import BiLSTM
from spacy_nested_ner.layers.rounds import word_rounds
from spacy_nested_ner.matching import ASSIGNMENTS
from spacy_nested_ner.systems.head import Batch, Gold, Loss, Predictions
from spacy_nested_ner.systems.matched import Answers, MatchedHead
from spacy_nested_ner.systems.piqn.settings import PIQNOptions, PIQNSettings


@dataclass
class Queries:
    """Queries of a batch.

    content, position: `(B, M, h)`. mask: `(B, M)` bool or None where all are real.
    anchors: `(B, M)` long, the word a query was made from, or None.
    """

    content: Tensor
    position: Tensor
    mask: Optional[Tensor] = None
    anchors: Optional[Tensor] = None


class PIQN(MatchedHead):
    """Instance queries with one-way attention, an entity pointer and an entity classifier.

    width, n_labels: see `Head`. settings: see `PIQNSettings`.
    """

    def __init__(self, width: int, n_labels: int, settings: PIQNSettings) -> None:
        s, h = settings, settings.hidden_width
        super().__init__(boundary=s.boundary, none_weight=s.none_weight)
        self.width, self.n_labels = width, n_labels
        self.auxiliary = s.auxiliary
        self.assignment, self.quantity = s.assignment, s.quantity
        self.match_anchor = s.match_anchor
        self.warned = False
        self.input_dropout = nn.Dropout(0.0)
        self.lstm = BiLSTM(width, h, s.lstm_layers, s.lstm_dropout)
        if s.query_source == "words":
            self.query_input: nn.Module = WordQueries(h, s.queries_per_word, s.min_queries)
        elif s.query_source == "learned":
            self.query_input = LearnedQueries(h, s.n_queries)
        else:
            self.query_input = EncodedQueries(width, h, s.n_queries)
        self.blocks = nn.ModuleList(
            OneWayBlock(h, s.attention_heads, s.feedforward, s.query_interaction, s.query_attention)
            for _ in range(s.depth)
        )
        self.left, self.right = make_pointer(s.pointer, h), make_pointer(s.pointer, h)
        with_offsets = s.query_source == "words" and s.offset_reach > 0
        self.left_offset = OffsetBias(s.offset_reach) if with_offsets else None
        self.right_offset = OffsetBias(s.offset_reach) if with_offsets else None
        self.classifier = EntityClassifier(
            h, n_labels, s.label_attention, s.span_pooling, s.attention_heads
        )
        if s.dropout is not None:
            self.fix_dropout(s.dropout)

    def encode(
        self, words: Tensor, mask: Tensor, queries: Optional[Tensor] = None
    ) -> Tuple[List[Tensor], List[Tensor], Queries]:
        """Word and query states after each block, `(B, N, h)` and `(B, M, h)`, and the queries."""
        words = self.lstm(self.input_dropout(words), mask)
        asked = self.query_input(words, mask, queries)
        content = asked.content
        word_states, query_states = [], []
        for block in self.blocks:
            words, content = block(words, content, asked.position, mask, asked.mask)
            word_states.append(words)
            query_states.append(content)
        return word_states, query_states, asked

    def answer(self, words: Tensor, queries: Tensor, mask: Tensor, asked: Queries) -> Answers:
        """Pointer (eq. 4-5) and classifier (eq. 6-7) on states of one or of stacked blocks."""
        left, right = self.left(queries, words), self.right(queries, words)
        if self.left_offset is not None and self.right_offset is not None:
            assert asked.anchors is not None
            blocks = words.shape[0] // asked.anchors.shape[0]
            anchors = asked.anchors.repeat(blocks, 1)
            left = left + self.left_offset(anchors, words.shape[1])
            right = right + self.right_offset(anchors, words.shape[1])
        left, right = mask_words(left, mask), mask_words(right, mask)
        labels = self.classifier(
            queries, words, mask, self.probability(left), self.probability(right)
        )
        return Answers(left, right, labels)

    def losses(self, batch: Batch, gold: Gold) -> Dict[str, Loss]:
        """Boundary loss (eq. 11) of queries with an entity, class loss (eq. 12) of all; means over
        blocks (eq. 13)."""
        words, mask, queries = batch
        word_states, query_states, asked = self.encode(words, mask, queries)
        if not self.auxiliary:
            word_states, query_states = word_states[-1:], query_states[-1:]
        n_blocks = len(word_states)
        all_mask = mask.repeat(n_blocks, 1)
        answers = self.answer(torch.cat(word_states), torch.cat(query_states), all_mask, asked)
        real = asked.content.new_ones(asked.content.shape[:2], dtype=torch.bool)
        real = (real if asked.mask is None else asked.mask).repeat(n_blocks, 1)
        stacked = gold.repeat(n_blocks)
        target = self.assign(answers, stacked, real, asked.anchors)
        return {
            "boundary": self.boundary_loss(answers, stacked, target, all_mask),
            **self.label_losses(answers, stacked, target, real),
        }

    @torch.no_grad()
    def assign(
        self, answers: Answers, gold: Gold, real: Tensor, anchors: Optional[Tensor] = None
    ) -> Tensor:
        """Gold entity of each query by linear assignment (eq. 8-10), per row and block.

        real: `(LB, M)` bool. Returns `(LB, M)` long, -1 for None and for padding.
        """
        n_rows, n_queries = real.shape
        target = np.full((n_rows, n_queries), -1, dtype=np.int64)
        if gold.mask.any():
            cost = self.matching_cost(answers, gold)
            if anchors is not None and self.match_anchor:
                blocks = len(cost) // len(anchors)
                cost += self.match_anchor * _distance(anchors.repeat(blocks, 1), gold.spans)
            costs = cost.float().cpu().numpy()
            if not np.isfinite(costs).all():  # diverged: the loss says so, see `NestedNER.update`
                return torch.from_numpy(target).to(real.device)
            counts = gold.mask.sum(1).tolist()
            query_counts = real.sum(1).tolist()
            solve = ASSIGNMENTS[self.assignment]
            for i, (n_gold, m) in enumerate(zip(counts, query_counts)):
                if n_gold > m:
                    self._warn_too_many(n_gold, m)
                if n_gold:
                    total = round(self.quantity * m)
                    target[i, :m] = solve(costs[i, :m, :n_gold], total)
        return torch.from_numpy(target).to(real.device)

    def _warn_too_many(self, n_gold: int, n_queries: int) -> None:
        """Once per head: some gold entities have no query to learn from."""
        if not self.warned:
            self.warned = True
            warnings.warn(
                f"PIQN: a sentence has {n_gold} gold entities but only {n_queries} queries; the "
                "entities that fit worst are left out. Raise n_queries (learned queries), or "
                "queries_per_word and min_queries (queries from words). Further cases are not "
                "reported.",
                stacklevel=2,
            )

    def predict(self, batch: Batch, options: PIQNOptions) -> Predictions:
        """One span per query that answers (section 3.3, last paragraph), last block only.

        The score of a span is P(label) * P(left) * P(right). options: `threshold` on the score,
        `label_threshold` and `boundary_threshold` on its factors (the paper's pair).
        """
        words, mask, queries = batch
        word_states, query_states, asked = self.encode(words, mask, queries)
        answers = self.answer(word_states[-1], query_states[-1], mask, asked)
        left, start = self.probability(answers.left).max(dim=-1)
        right, end = self.probability(answers.right).max(dim=-1)
        label_p, label = answers.labels.softmax(-1).max(dim=-1)
        score = label_p * left * right
        keep = (label > 0) & (start <= end) & (score >= options.threshold)
        keep &= label_p >= options.label_threshold
        keep &= torch.minimum(left, right) >= options.boundary_threshold
        # NaN passes, so that the component can report a model that has diverged.
        keep |= score.isnan()
        if asked.mask is not None:
            keep &= asked.mask
        segment, query = torch.nonzero(keep, as_tuple=True)
        picked = [t[segment, query] for t in (start, end, label - 1, score)]
        return Predictions(segment, *picked)

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
        self.feedforward = nn.Sequential(
            nn.Linear(width, feedforward * width),
            nn.GELU(),
            nn.Linear(feedforward * width, width),
        )
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
        query, key = (self._split(t) for t in self.query_key(located).chunk(2, dim=-1))
        attended = one_way_attention(
            query,
            key,
            self._split(self.value(states)),
            n_words,
            word_mask,
            query_interaction=self.interaction,
            query_mask=query_mask,
        )
        attended = self.output(attended.transpose(1, 2).flatten(2))
        states = self.attention_norm(states + self.dropout(attended))
        states = self.norm(states + self.dropout(self.feedforward(states)))
        words, queries = states[:, :n_words], states[:, n_words:]
        if self.extra is not None:
            queries = self.extra(queries, position, query_mask)
        return words, queries

    def _split(self, states: Tensor) -> Tensor:
        """`(B, T, h)` to `(B, heads, T, h / heads)`."""
        return states.unflatten(-1, (self.heads, -1)).transpose(1, 2)


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


class EntityClassifier(nn.Module):
    """Boundary-aware entity classifier with a None class at index 0 (eq. 6-7)."""

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


class WordQueries(nn.Module):
    """Queries made from the words: content and position are projections of a word's own state.

    Queries come in rounds, one query for each word of the sentence. A round has a learned vector
    of its own, so that two queries of one word can say different things.
    """

    def __init__(self, width: int, per_word: int, at_least: int) -> None:
        super().__init__()
        self.per_word, self.at_least = per_word, at_least
        self.project = nn.Linear(width, 2 * width)
        self.kind = nn.Parameter(torch.randn(max(per_word, at_least), width) * 0.02)
        self.norm = nn.LayerNorm(width)
        self.position_norm = nn.LayerNorm(width)

    def forward(self, words: Tensor, mask: Tensor, given: Optional[Tensor]) -> Queries:
        """`(B, N, h)` words to queries, round by round."""
        real, anchors, rounds = word_rounds(mask, self.per_word, self.at_least)
        content, position = self.project(words).chunk(2, dim=-1)
        where = anchors.unsqueeze(-1).expand(-1, -1, words.shape[-1])
        content = content.gather(1, where) + self.kind[rounds]
        position = self.position_norm(position).gather(1, where)
        return Queries(self.norm(content), position, mask=real, anchors=anchors)


class LearnedQueries(nn.Module):
    """The paper's queries: tables of content and position, one shared type vector (eq. 1)."""

    def __init__(self, width: int, n_queries: int) -> None:
        super().__init__()
        self.tables = InstanceQueries(n_queries, width, dropout=0.0)

    def forward(self, words: Tensor, mask: Tensor, given: Optional[Tensor]) -> Queries:
        """The same M queries for every sentence."""
        content, position = self.tables(len(words))
        return Queries(content=content, position=position)


class EncodedQueries(nn.Module):
    """Queries that the encoder has read along with the words; positions are learned here."""

    def __init__(self, width: int, hidden: int, n_queries: int) -> None:
        super().__init__()
        self.project = nn.Linear(width, hidden) if width != hidden else nn.Identity()
        self.position = nn.Parameter(torch.randn(n_queries, hidden) * 0.02)
        self.position_norm = nn.LayerNorm(hidden)
        self.dropout = nn.Dropout(0.0)

    def forward(self, words: Tensor, mask: Tensor, given: Optional[Tensor]) -> Queries:
        """given: `(B, M, width)` query vectors of the encoder."""
        if given is None:
            raise ValueError(
                "PIQN: query_source is 'encoder', but the encoder gives no queries. Use "
                "spacy_nested_ner.QueryEncoder.v1 as tok2vec, or another query_source."
            )
        position = self.dropout(self.position_norm(self.position))
        return Queries(
            content=self.project(given), position=position.expand(given.shape[0], -1, -1)
        )


def _distance(anchors: Tensor, spans: Tensor) -> Tensor:
    """Words from each anchor `(B, M)` to each entity `(B, G, 2)`, 0 inside: `(B, M, G)` float."""
    starts, ends = spans.unbind(-1)
    before = starts.unsqueeze(1) - anchors.unsqueeze(2)
    after = anchors.unsqueeze(2) - ends.unsqueeze(1)
    return torch.maximum(before, after).clamp(min=0).float()
