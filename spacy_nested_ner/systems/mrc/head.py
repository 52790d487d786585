"""BERT-MRC (Li et al., 2020, "A Unified MRC Framework for Named Entity Recognition"): each label is
a question, an entity is an answer.

A row of the batch is a sentence as it was read together with one question. The head finds the
answers and knows no labels: the word vectors hold the question, too. The match and the weights of
the losses follow the authors' later code; the dice loss of an early version of the paper is a
setting. Shapes: P pairs of sentence and question, N words.
"""

from __future__ import annotations

from typing import Dict, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spacy_nested_ner.layers.pooling import RangeMax
from spacy_nested_ner.systems.head import PRIOR, Batch, Gold, Head, Loss, Predictions, marked
from spacy_nested_ner.systems.mrc.settings import LIKELY, MRCOptions, MRCSettings

# Hidden layer of the match score.
MATCH_WIDTH = 256
# Weight of the match among the losses (the authors' code); that of starts and of ends is 1.
MATCH_WEIGHT = 0.1
# Probability from which a start or an end is a candidate of the match, by the setting.
CANDIDATES_FROM = {"gold_and_likely": LIKELY, "gold_and_predicted": 0.5}
# Of the dice loss.
SMOOTH = 1.0


class MRC(Head):
    """Start and end of answers, and which start goes with which end.

    width, n_labels: see `Head`. Labels have no weights: a new one costs nothing and is answered at
        once, as well as the encoder understands its question. settings: see `MRCSettings`.
    """

    def __init__(self, width: int, n_labels: int, settings: MRCSettings) -> None:
        super().__init__()
        s = settings
        self.two_sided, self.candidates = s.two_sided, s.candidates
        self.boundary_loss = s.boundary_loss
        side = width // 2 if s.two_sided else width
        self.start, self.end = nn.Linear(side, 1), nn.Linear(side, 1)
        for boundary in (self.start, self.end):
            nn.init.constant_(boundary.bias, PRIOR)
        self.match: Optional[MatchScore] = None
        if s.pairing != "nearest":
            self.match = MatchScore(side, MATCH_WIDTH, with_words=s.pairing == "span")
        weights = {"start": 1.0, "end": 1.0}
        if self.match is not None:
            weights["match"] = MATCH_WEIGHT
        total = sum(weights.values())
        self.weights = {name: weight / total for name, weight in weights.items()}

    def boundaries(self, words: Tensor) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
        """First and last pieces `(P, N, h)`, and the logits `(P, N)` of starts and ends."""
        first, last = words.chunk(2, dim=-1) if self.two_sided else (words, words)
        return first, last, self.start(first).squeeze(-1), self.end(last).squeeze(-1)

    def losses(self, batch: Batch, gold: Gold) -> Dict[str, Loss]:
        """Losses of starts and ends over all words, and of the match over its candidates.

        gold: the answers to the question of each row; their labels say nothing more.
        """
        words, mask, _ = batch
        first, last, starts, ends = self.boundaries(words)
        gold_starts = marked(gold.spans[..., 0], gold.mask, starts)
        gold_ends = marked(gold.spans[..., 1], gold.mask, ends)
        losses = {
            "start": self._boundary_loss(starts, gold_starts, mask, self.weights["start"]),
            "end": self._boundary_loss(ends, gold_ends, mask, self.weights["end"]),
        }
        if self.match is not None:
            chosen = mask.unsqueeze(2) & mask.unsqueeze(1)
            if self.candidates != "all":
                chosen = crossed(gold_starts.bool(), gold_ends.bool())
            if self.candidates in CANDIDATES_FROM:
                least = CANDIDATES_FROM[self.candidates]
                boundaries = likely(starts.sigmoid(), ends.sigmoid(), mask, least)
                chosen = chosen | crossed(*boundaries)
            losses["match"] = self._match_loss(self.match, first, last, chosen.triu(), gold)
        return losses

    def _boundary_loss(self, logits: Tensor, gold: Tensor, mask: Tensor, weight: float) -> Loss:
        """Binary cross-entropy, or dice: 1 - (2 sum pg + s) / (sum pp + sum gg + s), written as a
        quotient of two sums, so that it is that of the whole batch however it is cut."""
        if self.boundary_loss == "dice":
            p = logits.sigmoid() * mask
            squares = (p * p + gold * gold).sum()
            return Loss(squares - 2 * (p * gold).sum(), squares, weight, SMOOTH)
        terms = F.binary_cross_entropy_with_logits(logits, gold, reduction="none")
        return Loss((terms * mask).sum(), mask.sum(), weight)

    def _match_loss(
        self, match: MatchScore, first: Tensor, last: Tensor, chosen: Tensor, gold: Gold
    ) -> Loss:
        """Cross-entropy over the chosen `(P, N, N)` pairs of start and end."""
        starts, ends = gold.spans.unbind(-1)
        cells = starts * chosen.shape[2] + ends
        answers = marked(cells, gold.mask, chosen.flatten(1)).view_as(chosen)
        row, start, end = torch.nonzero(chosen, as_tuple=True)
        logits = match(first, last, row, start, end)
        goal = answers[row, start, end].to(logits.dtype)
        loss = F.binary_cross_entropy_with_logits(logits, goal, reduction="sum")
        return Loss(loss, float(len(row)), self.weights["match"])

    def predict(self, batch: Batch, options: MRCOptions) -> Predictions:
        """Answers to the question of each row; their label is always 0.

        options: `score` and `threshold` on it, see `scored_pairs`; `boundary_threshold` on the
        probability of start and end; `decoding`: "nested" pairs each start with each end, "flat"
        with the nearest end. What has no match has the smaller one of the probabilities of start
        and end.

        The best 2 N - 1 answers of a sentence of N words are kept: no more spans can nest in it. A
        text that repeats one word would else have an answer for each pair of its words.
        """
        words, mask, _ = batch
        first, last, start_logits, end_logits = self.boundaries(words)
        starts, ends = start_logits.sigmoid(), end_logits.sigmoid()
        if self.match is None or options.decoding == "flat":
            row, start, end = nearest_ends(*likely(starts, ends, mask, options.threshold))
            score = torch.minimum(starts[row, start], ends[row, end])
        else:
            row, start, end, score = self.scored_pairs(first, last, starts, ends, mask, options)
            keep = torch.nonzero(~(score < options.threshold)).squeeze(1)
            row, start, end, score = row[keep], start[keep], end[keep], score[keep]
            keep = torch.nonzero(best_of_rows(row, score, 2 * mask.sum(1) - 1)).squeeze(1)
            row, start, end, score = row[keep], start[keep], end[keep], score[keep]
        return Predictions(row, start, end, torch.zeros_like(row), score)

    def scored_pairs(
        self,
        first: Tensor,
        last: Tensor,
        starts: Tensor,
        ends: Tensor,
        mask: Tensor,
        options: MRCOptions,
    ) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
        """Row, start and end of each likely start with each likely end, and the score, `(K,)` each:
        the geometric mean of the probabilities of the match, which counts twice, the start and the
        end; or that of the match alone, which with 0.5 for it and for `boundary_threshold` decides
        as the authors' code.

        first, last: `(P, N, h)` states of starts and ends. starts, ends: `(P, N)` probabilities.
        """
        assert self.match is not None
        pairs = crossed(*likely(starts, ends, mask, options.boundary_threshold)).triu()
        row, start, end = torch.nonzero(pairs, as_tuple=True)
        score = self.match(first, last, row, start, end).sigmoid()
        if options.score == "mean":
            score = ((starts[row, start] * ends[row, end]).sqrt() * score).sqrt()
        return row, start, end, score

    def add_labels(self, n_labels: int) -> None:
        """Nothing to grow: a label is its question."""


class MatchScore(nn.Module):
    """Whether a start and an end belong together: `v . GELU(A E_start + B E_end + b) + c`.

    The hidden layer over the concatenation `[E_start; E_end]` of the authors' code in two halves,
    so that a word is multiplied once, however many partners it has.

    with_words: the hidden layer also reads the maximum over the words of the span, in their states
        as starts where these are others than those as ends.
    """

    def __init__(self, width: int, hidden_width: int, with_words: bool = False) -> None:
        super().__init__()
        self.words = nn.Linear(width, hidden_width, bias=False) if with_words else None
        self.first = nn.Linear(width, hidden_width)
        self.last = nn.Linear(width, hidden_width, bias=False)
        self.dropout = nn.Dropout(0.0)
        self.output = nn.Linear(hidden_width, 1)

    def forward(
        self, first: Tensor, last: Tensor, row: Tensor, start: Tensor, end: Tensor
    ) -> Tensor:
        """`(P, N, h)` states of starts and of ends; row, first and last word of each span, `(K,)`
        long. Returns `(K,)` logits."""
        hidden = _once_per_word(self.first, first, row, start)
        hidden = hidden + _once_per_word(self.last, last, row, end)
        if self.words is not None:
            hidden = hidden + self.words(RangeMax(first)(row, start, end))
        return self.output(self.dropout(F.gelu(hidden))).squeeze(-1)


def _once_per_word(layer: nn.Module, words: Tensor, row: Tensor, word: Tensor) -> Tensor:
    """`layer(words[row, word])`, each word that occurs computed once. A GPU would be waited for to
    learn which ones do; it computes all."""
    if words.is_cuda:
        return F.embedding(row * words.shape[1] + word, layer(words).flatten(0, 1))
    used = torch.zeros(words.shape[:2], dtype=torch.bool, device=words.device)
    used[row, word] = True
    place = used.flatten().cumsum(0).view_as(used) - 1
    return F.embedding(place[row, word], layer(words[used]))


def likely(starts: Tensor, ends: Tensor, mask: Tensor, least: float) -> Tuple[Tensor, Tensor]:
    """Which words may be starts and which ends, by their probabilities: `(P, N)` bool. NaN passes,
    so that the component can report a model that has diverged."""
    return mask & ~(starts < least), mask & ~(ends < least)


def crossed(starts: Tensor, ends: Tensor) -> Tensor:
    """`(P, N)` bool each to the pairs of both, `(P, N, N)` bool."""
    return starts.unsqueeze(2) & ends.unsqueeze(1)


def nearest_ends(starts: Tensor, ends: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
    """Row, start and the nearest end at or after it, `(K,)` long; starts with none are left out.

    starts, ends: `(P, N)` bool.
    """
    n_words = ends.shape[1]
    position = torch.arange(n_words, device=ends.device).expand_as(ends)
    at_end = torch.where(ends, position, n_words)
    nearest = at_end.flip(1).cummin(dim=1).values.flip(1)
    row, start = torch.nonzero(starts & (nearest < n_words), as_tuple=True)
    return row, start, nearest[row, start]


def best_of_rows(row: Tensor, score: Tensor, most: Tensor) -> Tensor:
    """Which of `(K,)` spans are among the `most` best of their row, `(K,)` bool.

    row: `(K,)` long, rising. most: `(rows,)` long. Of equal scores the earlier span comes first.
    """
    order = score.argsort(descending=True, stable=True)
    order = order[row[order].argsort(stable=True)]
    counts = torch.bincount(row, minlength=len(most))
    rank = torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[row]
    keep = torch.zeros_like(row, dtype=torch.bool)
    keep[order] = rank < most[row]
    return keep
