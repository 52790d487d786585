"""Every word proposes a span and a label, from itself or from a feature pyramid (section 3.2).

Section and equation numbers are those of Wen et al. 2023. Shapes: B batch, N words, P proposals,
C labels, h hidden width. Class 0 is None. Locations are word positions within the sentence, first
and last word, as real numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Collection, List, NamedTuple, Optional, Sequence, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spacy_nested_ner.layers.growing import grow_outputs
from spacy_nested_ner.layers.learned import learned
from spacy_nested_ner.layers.masks import MASKED, of_padding
from spacy_nested_ner.layers.pooling import words_at
from spacy_nested_ner.layers.recurrent import BiRNN
from spacy_nested_ner.layers.rounds import word_rounds


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
        """New outputs are `bias` until they are trained."""
        self.output = grow_outputs(self.output, outputs, bias)


class Proposer(nn.Module):
    """Feature pyramid and proposal fusion (section 3.2), or, without kernel sizes, the words as
    they are."""

    def __init__(
        self,
        width: int,
        n_labels: int,
        kernel_sizes: Sequence[int],
        min_proposals: int,
        without: Collection[str],
    ) -> None:
        super().__init__()
        self.min_proposals = min_proposals
        self.pyramid: Optional[FeaturePyramid] = None
        if kernel_sizes:
            self.pyramid = FeaturePyramid(width, kernel_sizes, "backward_block" not in without)
            self.anchor = MLP(width, 2)
        self.labels = MLP(width, n_labels + 1)
        rounds = max(min_proposals - 1, 0)
        self.kind = learned(rounds, width) if rounds else None

    def forward(self, words: Tensor, mask: Tensor) -> Proposals:
        """`(B, N, h)` words to one proposal per word, and to more of them in short sentences."""
        features, location = self._read(words, mask)
        if (
            not torch.is_grad_enabled()
            and mask.shape[1] >= self.min_proposals
            and of_padding(mask) is None
        ):  # one proposal per word, in order
            return Proposals(features, location, self.labels(features), mask)
        real, anchors, rounds = word_rounds(mask, 1, self.min_proposals)
        query = words_at(features, anchors)
        if self.kind is not None:
            query = query + F.pad(self.kind, (0, 0, 1, 0))[rounds]
        location = words_at(location, anchors)
        return Proposals(query, location, self.labels(query), real)

    def _read(self, words: Tensor, mask: Tensor) -> Tuple[Tensor, Tensor]:
        """Features of each word, `(B, N, h)`, and the first location of its proposal, `(B, N, 2)`:
        without a pyramid the word itself."""
        if self.pyramid is not None:
            levels = self.pyramid(words, mask)
            scores = [self.anchor(level.features) for level in levels]
            return levels[0].features, fuse_locations(scores, levels)
        position = torch.arange(words.shape[1], dtype=words.dtype, device=words.device)
        return words, position.view(1, -1, 1).expand(len(words), -1, 2)


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
        """Backward blocks from the top. The highest level of a sentence reads its own features in
        place of those from above: the levels that only longer sentences of the batch have do not
        reach it."""
        assert self.fall is not None
        done: List[Level] = []
        for i, level in reversed(list(enumerate(levels))):
            above = level.features
            if done:
                upper = done[-1]
                from_above = _along_words(self.spread[i], upper.features * upper.mask.unsqueeze(-1))
                has_upper = upper.mask.any(dim=1)[:, None, None]
                above = torch.where(has_upper, from_above, above)
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
        self.recurrent = BiRNN(width, width, cell="gru")
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
    scores_of_word, offsets = [], []
    for score, (_, mask, vision) in zip(scores, levels):
        masked = score.masked_fill(~mask.unsqueeze(-1), MASKED)
        # Word j lies in the spans that begin at j - vision + 1 to j; MASKED beyond the sentence.
        padded = F.pad(masked, (0, 0, vision - 1, vision - 1), value=MASKED)
        scores_of_word.append(padded.unfold(1, vision, 1))
        last = torch.arange(vision, device=score.device)
        offsets.append(torch.stack([last - vision + 1, last]))
    weights = torch.cat(scores_of_word, dim=-1).softmax(dim=-1)
    offset = (weights * torch.cat(offsets, dim=-1)).sum(dim=-1)
    position = torch.arange(offset.shape[1], device=offset.device)
    return position.view(1, -1, 1) + offset


def _along_words(convolution: nn.Module, states: Tensor) -> Tensor:
    """A convolution over the second axis of `(B, M, h)`, and GELU."""
    return F.gelu(convolution(states.transpose(1, 2)).transpose(1, 2))
