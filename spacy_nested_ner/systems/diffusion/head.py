"""DiffusionNER (Shen et al., 2023, "DiffusionNER: Boundary Diffusion for Named Entity
Recognition"): noisy spans are denoised, step by step, into the entities of a sentence.

Section and equation numbers are the paper's. Shapes: B batch, N words, K noisy spans, G gold
entities, C labels, h hidden width.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spacy_nested_ner.layers.growing import grow_outputs
from spacy_nested_ner.layers.pointer import OffsetBias, make_pointer, mask_words
from spacy_nested_ner.layers.pooling import soft_inside, weighted_mean, words_at
from spacy_nested_ner.layers.recurrent import BiLSTM
from spacy_nested_ner.matching import assign_cheapest, assign_dynamic
from spacy_nested_ner.systems.diffusion.settings import (
    FEWEST_WORDS,
    DiffusionOptions,
    DiffusionSettings,
)
from spacy_nested_ner.systems.head import Batch, Gold, Loss, Predictions, marked
from spacy_nested_ner.systems.matched import Answers, MatchedHead

# Words by which each boundary of a candidate may differ from what the pointers show.
CANDIDATE_SHIFT = 2


@dataclass
class Sentence:
    """What all denoising steps share: everything that depends on the words alone.

    A linear layer over words that a span chooses, or over a mean of words, is one over each word:
    words pay once, not spans.
    mask: `(B, N)` bool. left, right: `(B, N, h)`, the words as the pointers read them. boundaries:
    `(B, N, 2)` logits, is each word the first and is it the last of an entity, or None. pooled,
    classified: the words as `SpanPooling` and `EntityClassifier` read them. memory: keys and values
    for each span layer.
    """

    mask: Tensor
    left: Tensor
    right: Tensor
    boundaries: Optional[Tensor]
    pooled: Dict[str, Tensor]
    classified: List[Tensor]
    memory: List[Tuple[Tensor, Tensor]]

    @property
    def lengths(self) -> Tensor:
        """`(B, 1)` long: words of each sentence."""
        return self.mask.sum(dim=1, keepdim=True)


class Denoised(NamedTuple):
    """One step of the reverse process.

    timestep: before the step, T - 1 to 0. real: `(B, K)` bool, False for padding among the spans.
    noisy: `(B, K, 2)` first and last word of the spans that went in. spans: the same of those that
    came out. legal: `(B, K)` bool, see `Diffusion.pointed_at`. probability: `(B, K, C + 1)` of None
    and the labels. score: `(B, K)`, see `Diffusion.entities`.
    """

    timestep: int
    real: Tensor
    noisy: Tensor
    spans: Tensor
    legal: Tensor
    probability: Tensor
    score: Tensor

    @property
    def label(self) -> Tensor:
        """`(B, K)` long: the likeliest label, from 0, -1 for None and where not legal."""
        return (self.probability.argmax(dim=-1) - 1).masked_fill(~self.legal, -1)


class Diffusion(MatchedHead):
    """Boundary-denoising diffusion.

    width, n_labels: see `Head`. settings: see `DiffusionSettings`.
    """

    def __init__(self, width: int, n_labels: int, settings: DiffusionSettings) -> None:
        s, h = settings, settings.hidden_width
        super().__init__(boundary=s.boundary, none_weight=s.none_weight)
        words = s.word_width or h
        self.width, self.n_labels = width, n_labels
        self.auxiliary = s.auxiliary
        self.candidate_weight = s.candidate_weight if s.answer_pooling else 0.0
        self.word_weight = s.word_weight
        self.timesteps, self.scale, self.state = s.timesteps, s.scale, s.state
        self.n_spans, self.spans_per_word = s.n_spans, s.spans_per_word
        self.repetition, self.assignment, self.rollout = s.repetition, s.assignment, s.rollout
        self.none = s.none
        self.match_distance = s.match_distance
        # Kept out of the saved weights: it follows from the settings, and in double precision.
        self.signal = alpha_bars(s.schedule, s.timesteps)
        self.input_dropout = nn.Dropout(0.0)
        self.lstm = BiLSTM(width, words, s.lstm_layers, s.lstm_dropout)
        self.pool = SpanPooling(words, h, s.span_pooling)
        self.kinds = nn.Parameter(torch.randn(s.span_kinds, h) * 0.5)
        self.time = TimestepEmbedding(h)
        self.layers = nn.ModuleList(
            SpanLayer(words, h, s.attention_heads, s.feedforward) for _ in range(s.depth)
        )
        self.left = make_pointer(s.pointer, h, words)
        self.right = make_pointer(s.pointer, h, words)
        self.word_boundaries = nn.Linear(words, 2) if s.word_weight else None
        self.left_offset = OffsetBias(s.offset_reach) if s.offset_reach else None
        self.right_offset = OffsetBias(s.offset_reach) if s.offset_reach else None
        self.classifier = EntityClassifier(words, h, n_labels, s.answer_pooling)
        if s.dropout is not None:
            self.fix_dropout(s.dropout)

    # Spans as numbers ---------------------------------------------------------------------------

    def to_state(self, spans: Tensor, lengths: Tensor) -> Tensor:
        """Spans as points in (-scale, scale), the space that noise is added in (section 4.1).

        Word i of n, or a width of i + 1 words, is the middle of the i-th of n equal cells, so that
        `to_spans` brings every span of every sentence back, one-word sentences included.
        spans: `(B, K, 2)` long, both inclusive. lengths: `(B, 1)`. Returns double precision.
        """
        first, last = spans.unbind(-1)
        second = last - first if self.state == "left_width" else last
        share = (torch.stack([first, second], dim=-1) + 0.5) / lengths.unsqueeze(-1).double()
        return (2 * share - 1) * self.scale

    def to_spans(self, state: Tensor, lengths: Tensor) -> Tensor:
        """The words that points fall on; points outside the interval count as its ends.

        Boundaries in the wrong order change places; a width ends with the sentence. Inverse of
        `to_state`.
        """
        share = (state / self.scale + 1) / 2
        last_word = (lengths - 1).unsqueeze(-1)
        cells = torch.minimum(
            (share * lengths.unsqueeze(-1)).floor().clamp(min=0).long(), last_word
        )
        first, second = cells.unbind(-1)
        if self.state == "left_width":
            return torch.stack([first, torch.minimum(first + second, last_word[..., 0])], dim=-1)
        return torch.stack([torch.minimum(first, second), torch.maximum(first, second)], dim=-1)

    def add_noise(self, state: Tensor, timestep: Tensor, noise: Tensor) -> Tensor:
        """Forward process (eq. 3-4). timestep: `(B,)` long, 0 the cleanest."""
        signal = self.signal.to(state.device)[timestep].view(-1, 1, 1)
        return signal.sqrt() * state + (1 - signal).sqrt() * noise

    def reverse_step(
        self,
        state: Tensor,
        clean: Tensor,
        timestep: Tensor,
        earlier: Tensor,
        eta: float = 0.0,
        noise: Optional[Tensor] = None,
    ) -> Tensor:
        """DDIM: from `timestep` to the `earlier` one, given the predicted clean state (eq. 6-7).

        eta: 0 is deterministic (the paper), 1 as noisy as the forward process (the authors' code);
        it needs `noise` in the shape of `state`.
        """
        table = self.signal.to(state.device)
        now, then = (table[t].view(-1, 1, 1) for t in (timestep, earlier))
        predicted_noise = (state - now.sqrt() * clean) / (1 - now).sqrt()
        variance = eta**2 * (1 - then) / (1 - now) * (1 - now / then)
        state = then.sqrt() * clean + (1 - then - variance).clamp(min=0).sqrt() * predicted_noise
        return state if noise is None else state + variance.clamp(min=0).sqrt() * noise

    # Denoising network --------------------------------------------------------------------------

    def read(self, words: Tensor, mask: Tensor) -> Sentence:
        """Sentence encoder and all that depends on it alone (section 4.2)."""
        words = self.lstm(self.input_dropout(words), mask)
        return Sentence(
            mask=mask,
            left=self.left.word(words),
            right=self.right.word(words),
            boundaries=self.word_boundaries(words) if self.word_boundaries is not None else None,
            pooled=self.pool.read(words),
            classified=self.classifier.read(words),
            memory=[cast(SpanLayer, layer).remember(words) for layer in self.layers],
        )

    def denoise(
        self,
        sentence: Sentence,
        noisy: Tensor,
        kinds: Tensor,
        real: Tensor,
        timestep: Tensor,
        all_layers: bool = False,
    ) -> Tuple[List[Answers], Tensor]:
        """The network f(x_t, S, t): one answer, or with `all_layers` one after every layer; and the
        spans after the last layer, `(B, K, h)`.

        noisy: `(B, K, 2)` long spans. kinds: `(K,)` or `(B, K)` long. real: `(B, K)` bool.
        timestep: `(B,)` long.
        """
        states = self.span_states(sentence, noisy, kinds, real, timestep)
        seen = states if all_layers else states[-1:]
        return [self._answer(sentence, spans, noisy) for spans in seen], states[-1]

    def span_states(
        self, sentence: Sentence, noisy: Tensor, kinds: Tensor, real: Tensor, timestep: Tensor
    ) -> List[Tensor]:
        """What pointers and classifier read of the spans after every layer, `(B, K, h)` each."""
        time = self.time(timestep / self.timesteps).unsqueeze(1)
        spans = self.pool(sentence.pooled, noisy) + self.kinds[kinds]
        states = []
        for layer, memory in zip(self.layers, sentence.memory):
            spans = layer(spans, real, memory, sentence.mask)
            states.append(spans + time)
        return states

    def _answer(self, sentence: Sentence, spans: Tensor, noisy: Tensor) -> Answers:
        """Two boundary pointers, and the classifier on the words that they share out."""
        left, right = self._pointers(sentence, spans, noisy)
        return Answers(left, right, self._labels(sentence, spans, left, right))

    def _pointers(self, sentence: Sentence, spans: Tensor, noisy: Tensor) -> Tuple[Tensor, Tensor]:
        """Logits of the first and of the last word, `(B, K, N)` each."""
        left = self.left.point(spans, sentence.left)
        right = self.right.point(spans, sentence.right)
        if self.left_offset is not None and self.right_offset is not None:
            left = left + self.left_offset(noisy[..., 0], left.shape[-1])
            right = right + self.right_offset(noisy[..., 1], right.shape[-1])
        if sentence.boundaries is not None:
            first, last = sentence.boundaries.unsqueeze(1).unbind(-1)
            left, right = left + first, right + last
        return mask_words(left, sentence.mask), mask_words(right, sentence.mask)

    def _labels(self, sentence: Sentence, spans: Tensor, left: Tensor, right: Tensor) -> Tensor:
        """Class logits of spans whose boundaries are as sure as the pointers are."""
        return self.classifier(
            spans, sentence.classified, self.probability(left), self.probability(right)
        )

    @staticmethod
    def pointed_at(left: Tensor, right: Tensor) -> Tuple[Tensor, Tensor]:
        """Spans that the pointers show, `(B, K, 2)`, and whether they are legal, `(B, K)`.

        A last word before the first is not, and counts as the first. left, right: `(B, K, N)`.
        """
        first, last = left.argmax(dim=-1), right.argmax(dim=-1)
        return torch.stack([first, torch.maximum(first, last)], dim=-1), first <= last

    # Training -----------------------------------------------------------------------------------

    def losses(self, batch: Batch, gold: Gold) -> Dict[str, Loss]:
        """Algorithm 1 at one random timestep per sentence, and `rollout` steps from there."""
        words, mask, _ = batch
        sentence = self.read(words, mask)
        lengths = sentence.lengths
        counts = span_counts(lengths[:, 0], self.n_spans, self.spans_per_word)
        counts = torch.maximum(counts, gold.mask.sum(dim=1))
        real = torch.arange(int(counts.max()), device=mask.device) < counts.unsqueeze(1)
        clean = self.expand(gold, lengths, real)
        # At random: in turn, a kind would tell which entity a span is a copy of.
        kinds = torch.randint(len(self.kinds), real.shape, device=words.device)
        timestep = torch.randint(self.timesteps, (len(words),), device=words.device)
        state = self.add_noise(clean, timestep, torch.randn_like(clean))
        answers: List[Answers] = []
        noisy: List[Tensor] = []
        candidates: List[Tensor] = []
        for step in range(self.rollout + 1):
            noisy.append(self.to_spans(state, lengths))
            said, states = self.denoise(sentence, noisy[-1], kinds, real, timestep, self.auxiliary)
            answers += said
            goes_on = step < self.rollout
            if goes_on or self.candidate_weight:
                ahead, _ = self.pointed_at(answers[-1].left, answers[-1].right)
            if self.candidate_weight:
                spans = self.candidates(ahead, lengths) if step else noisy[-1]
                candidates.append(self.candidate_loss(sentence, states, spans, kinds, gold, real))
            if goes_on:
                predicted = self.to_state(ahead, lengths)
                earlier = (timestep * torch.rand(len(words), device=words.device)).long()
                state = self.reverse_step(state, predicted, timestep, earlier)
                timestep = earlier
        losses = self._losses(answers, noisy, kinds, gold, real, mask)
        if candidates:
            total = torch.stack(candidates).sum()
            terms = len(candidates) * real.sum()
            losses["candidate"] = Loss(total, terms, self.candidate_weight)
        if sentence.boundaries is not None:
            losses["word"] = self.word_loss(sentence.boundaries, gold, mask)
        return losses

    def word_loss(self, logits: Tensor, gold: Gold, mask: Tensor) -> Loss:
        """-log P, for each word, of being the first and of being the last of an entity, or not.

        logits: `(B, N, 2)`. mask: `(B, N)` bool.
        """
        sides = zip(gold.spans.unbind(-1), logits.unbind(-1))
        goal = torch.stack([marked(words, gold.mask, side) for words, side in sides], dim=-1)
        terms = F.binary_cross_entropy_with_logits(logits, goal, reduction="none")
        return Loss((terms * mask.unsqueeze(-1)).sum(), mask.sum(), self.word_weight)

    def candidates(self, shown: Tensor, lengths: Tensor) -> Tensor:
        """Spans near those that the pointers show, `(B, K, 2)`: each boundary moves by up to
        `CANDIDATE_SHIFT` words."""
        shift = torch.randint(
            -CANDIDATE_SHIFT, CANDIDATE_SHIFT + 1, shown.shape, device=shown.device
        )
        moved = torch.minimum((shown + shift).clamp(min=0), (lengths - 1).unsqueeze(-1))
        return moved.sort(dim=-1).values

    def candidate_loss(
        self,
        sentence: Sentence,
        states: Tensor,
        candidates: Tensor,
        kinds: Tensor,
        gold: Gold,
        real: Tensor,
    ) -> Tensor:
        """-log P of the labels of spans as if the pointers had shown them, None for no entity.

        The sum over all real ones. states: `(B, K, h)`. candidates: `(B, K, 2)` long. kinds:
        `(B, K)` long. Of the labels of the same words the one whose turn it is, see `costs`.
        """
        logits = self.classifier.at(states, sentence.classified, candidates)
        hit = same_words(candidates, gold) & on_turn(kinds, gold)
        label = (hit * (gold.labels + 1).unsqueeze(1)).sum(-1)
        return F.cross_entropy(logits[real], label[real], reduction="sum")

    def expand(self, gold: Gold, lengths: Tensor, real: Tensor) -> Tensor:
        """Clean states of K spans: copies of the gold entities in turn, then random spans.

        Section 4.1: `repetition` of the spans are copies, each entity at least once. Random spans
        are drawn from the distribution that the forward process ends in.
        """
        place = torch.arange(real.shape[1], device=real.device).expand_as(real)
        n_gold = gold.mask.sum(dim=1, keepdim=True)
        n_copies = share_of(self.repetition, real.sum(dim=1, keepdim=True), n_gold)
        random = torch.randn((*real.shape, 2), dtype=torch.double, device=real.device)
        if not gold.mask.any():
            return random
        chosen = (place % n_gold.clamp(min=1)).unsqueeze(-1).expand(-1, -1, 2)
        copies = self.to_state(gold.spans.gather(1, chosen), lengths)
        return torch.where((place < n_copies).unsqueeze(-1), copies, random)

    def _losses(
        self,
        answers: List[Answers],
        noisy: List[Tensor],
        kinds: Tensor,
        gold: Gold,
        real: Tensor,
        mask: Tensor,
    ) -> Dict[str, Loss]:
        """Means over all answers, each matched with the gold entities on its own."""
        times = len(answers)
        joined = Answers(
            left=torch.cat([a.left for a in answers]),
            right=torch.cat([a.right for a in answers]),
            labels=torch.cat([a.labels for a in answers]),
        )
        started = torch.cat([t for t in noisy for _ in range(times // len(noisy))])
        kinds, real, mask = (t.repeat(times, 1) for t in (kinds, real, mask))
        gold = gold.repeat(times)
        target = self.match(joined, started, kinds, gold, real)
        return {
            "boundary": self.boundary_loss(joined, gold, target, mask),
            **self.label_losses(joined, gold, self.shown(joined, gold, target), real),
        }

    @torch.no_grad()
    def match(
        self, answers: Answers, noisy: Tensor, kinds: Tensor, gold: Gold, real: Tensor
    ) -> Tensor:
        """Gold entity of each span by the Hungarian algorithm (appendix A), -1 for None."""
        target = np.full(real.shape, -1, dtype=np.int64)
        if gold.mask.any():
            costs = self.costs(answers, noisy, kinds, gold).float().cpu().numpy()
            if not np.isfinite(costs).all():  # diverged: the loss says so, see `NestedNER.update`
                return torch.from_numpy(target).to(real.device)
            sizes = zip(gold.mask.sum(dim=1).tolist(), real.sum(dim=1).tolist())
            for i, (g, k) in enumerate(sizes):
                target[i, :k] = self._assign(costs[i, :k, :g])
        return torch.from_numpy(target).to(real.device)

    def _assign(self, cost: np.ndarray) -> np.ndarray:
        """`(K, G)` costs of one sentence to the entity of each span."""
        if self.assignment == "nearest":
            return assign_cheapest(cost, np.full(len(cost), np.inf))
        return assign_dynamic(cost, len(cost) if self.assignment == "balanced" else 0)

    def costs(self, answers: Answers, noisy: Tensor, kinds: Tensor, gold: Gold) -> Tensor:
        """`(B, K, G)` matching costs.

        Labels of the same words take turns with the kinds, in the order of their index: no
        distance tells such entities apart.
        """
        cost = self.matching_cost(answers, gold)
        if self.match_distance:
            distance = (noisy.unsqueeze(2) - gold.spans.unsqueeze(1)).abs().sum(-1)
            cost += self.match_distance * (distance + ~on_turn(kinds, gold))
        return cost

    @torch.no_grad()
    def shown(self, answers: Answers, gold: Gold, target: Tensor) -> Tensor:
        """Whose label each span learns, `(B, K)` long, -1 for None.

        Where None is what "missed", that is the entity that the pointers show; of several with
        the same words the one that the span is matched with.
        """
        if self.none == "unmatched" or not gold.mask.any():
            return target
        pointed, _ = self.pointed_at(answers.left, answers.right)
        hit = same_words(pointed, gold)
        matched = F.one_hot(target.clamp(min=0), hit.shape[2]) * (target >= 0).unsqueeze(-1)
        entity = (2 * hit.long() + matched).argmax(dim=-1)
        return entity.masked_fill(~hit.any(dim=-1), -1)

    # Inference ----------------------------------------------------------------------------------

    def predict(self, batch: Batch, options: DiffusionOptions) -> Predictions:
        """The distinct spans whose score reaches the threshold.

        options: `threshold`; `score`, see `entities`; `found_in`: spans of "every_step" count, or
        of the "last_step" alone, which is algorithm 2; `steps`, `n_spans`, `spans_per_word`, `eta`
        and `seed` of the reverse process, see `trajectory`.
        """
        words, mask, _ = batch
        every_step = options.found_in == "every_step"
        return self.entities(list(self._reverse(words, mask, options, every_step)), options)

    def entities(self, steps: List[Denoised], options: DiffusionOptions) -> Predictions:
        """The entities among the spans of a reverse process, or of its end.

        options: `score` "sum" is the mean of the probabilities of the label and of the two
        boundaries, a third of the paper's sum, and the highest of all spans with these words and
        this label. "label" is what the classifier says of the words that the pointers show, without
        a look at how sure they are of them: the mean over the spans of one kind that show them, in
        the steps given, and the highest of the kinds. `threshold` on either.
        """
        threshold = options.threshold
        if options.score == "sum":
            found = [_reaching(step, threshold) for step in steps]
            return distinct(Predictions(*map(torch.cat, zip(*found))))
        return distinct(from_all_steps(steps, len(self.kinds), threshold))

    @torch.no_grad()
    def trajectory(self, words: Tensor, mask: Tensor, options: DiffusionOptions) -> List[Denoised]:
        """The spans before and after every denoising step, noisiest first.

        words: `(B, N, width)`; mask: `(B, N)` bool. options: `steps` of the reverse process;
        `n_spans` and `spans_per_word`, see `span_counts`; `eta` (see `reverse_step`); `seed` of the
        noise; `score`. None of them depends on what was trained with.
        """
        return list(self._reverse(words, mask, options, every_step=True))

    def _reverse(
        self, words: Tensor, mask: Tensor, options: DiffusionOptions, every_step: bool
    ) -> Iterator[Denoised]:
        """Reverse process (eq. 5-7). The words are encoded once.

        The pointers alone lead from step to step: spans are classified, and given, in `every_step`
        or in the last one only.
        """
        by_label = options.score == "label"
        eta, seed = options.eta, options.seed
        times = denoising_times(self.timesteps, options.steps)
        sentence = self.read(words, mask)
        lengths = sentence.lengths
        counts = span_counts(lengths[:, 0], options.n_spans, options.spans_per_word)
        size = int(counts.max())
        real = torch.arange(size, device=mask.device) < counts.unsqueeze(1)
        kinds = deal_kinds(size, len(self.kinds)).to(words.device)
        state = noise_table(seed, 0, size).to(words.device).expand(len(words), -1, -1)
        for i, now in enumerate(times):
            timestep = torch.full((len(words),), now, device=words.device)
            noisy = self.to_spans(state, lengths)
            states = self.span_states(sentence, noisy, kinds, real, timestep)[-1]
            left, right = self._pointers(sentence, states, noisy)
            spans, legal = self.pointed_at(left, right)
            is_last = i == len(times) - 1
            if is_last or every_step:
                said = self._classified(sentence, states, left, right, spans, by_label)
                yield Denoised(now, real, noisy, spans, legal, *said)
            if not is_last:
                earlier = torch.full_like(timestep, times[i + 1])
                noise = noise_table(seed, i + 1, size).to(words.device) if eta else None
                clean = self.to_state(spans, lengths)
                state = self.reverse_step(state, clean, timestep, earlier, eta, noise)

    def _classified(
        self,
        sentence: Sentence,
        states: Tensor,
        left: Tensor,
        right: Tensor,
        spans: Tensor,
        by_label: bool,
    ) -> Tuple[Tensor, Tensor]:
        """Probabilities of None and the labels, `(B, K, C + 1)`, and scores, see `entities`."""
        if by_label:
            said = self.classifier.at(states, sentence.classified, spans).softmax(-1)
            return said, said.amax(dim=-1)
        said = self._labels(sentence, states, left, right).softmax(-1)
        sides = self.probability(left).amax(dim=-1) + self.probability(right).amax(dim=-1)
        return said, (said.amax(dim=-1) + sides) / 3

    def add_labels(self, n_labels: int) -> None:
        """New rows of the class layer; the old ones, None first, stay as they are."""
        self.classifier.grow(n_labels)
        self.n_labels = n_labels


class SpanPooling(nn.Module):
    """Noisy spans as vectors: the mean of their words (section 4.2), their boundaries side by side
    through a linear layer (the authors' code), or the sum of both.

    words: width of the words. width: of the spans.
    """

    def __init__(self, words: int, width: int, kind: str) -> None:
        super().__init__()
        self.with_mean = kind in ("mean", "both")
        # A mean alone, of words as wide as spans, is taken as it is: the paper's form.
        with_layer = kind == "both" or (kind == "mean" and words != width)
        self.mean = nn.Linear(words, width) if with_layer else None
        self.edge = nn.Linear(words, 2 * width) if kind in ("boundaries", "both") else None
        self.dropout = nn.Dropout(0.0)

    def read(self, words: Tensor) -> Dict[str, Tensor]:
        """What is pooled, `(B, N, h)` each: words for the "mean", as "left" and as "right" edge."""
        pooled = {}
        if self.with_mean:
            pooled["mean"] = words if self.mean is None else self.mean(words)
        if self.edge is not None:
            pooled["left"], pooled["right"] = self.edge(words).chunk(2, dim=-1)
        return pooled

    def forward(self, pooled: Mapping[str, Tensor], spans: Tensor) -> Tensor:
        """spans: `(B, K, 2)` long, both inclusive. Returns `(B, K, h)`."""
        parts = []
        if "mean" in pooled:
            parts.append(mean_inside(spans, pooled["mean"]))
        if "left" in pooled:
            first, last = spans.unbind(-1)
            parts += [words_at(pooled["left"], first), words_at(pooled["right"], last)]
        return self.dropout(torch.stack(parts).sum(0))


class SpanLayer(nn.Module):
    """Layer of the span encoder: spans attend to each other, then to the words (section 4.2).

    words: width of the words. width: of the spans.
    """

    def __init__(self, words: int, width: int, heads: int, feedforward: int) -> None:
        super().__init__()
        self.heads = heads
        self.self_input = nn.Linear(width, 3 * width)
        self.self_output = nn.Linear(width, width)
        self.self_norm = nn.LayerNorm(width)
        self.cross_query = nn.Linear(width, width)
        self.cross_memory = nn.Linear(words, 2 * width)
        self.cross_output = nn.Linear(width, width)
        self.cross_norm = nn.LayerNorm(width)
        self.feedforward = nn.Sequential(
            nn.Linear(width, feedforward * width), nn.GELU(), nn.Linear(feedforward * width, width)
        )
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(0.0)

    def remember(self, words: Tensor) -> Tuple[Tensor, Tensor]:
        """Keys and values of the words, `(B, heads, N, h / heads)`."""
        key, value = (self._split(t) for t in self.cross_memory(words).chunk(2, dim=-1))
        return key, value

    def forward(
        self, spans: Tensor, real: Tensor, memory: Tuple[Tensor, Tensor], mask: Tensor
    ) -> Tensor:
        """`(B, K, h)` to `(B, K, h)`. real: `(B, K)` bool. mask: `(B, N)` bool."""
        query, key, value = (self._split(t) for t in self.self_input(spans).chunk(3, dim=-1))
        seen = _attend(query, key, value, real)
        spans = self.self_norm(spans + self.dropout(self.self_output(seen)))
        seen = _attend(self._split(self.cross_query(spans)), *memory, mask)
        spans = self.cross_norm(spans + self.dropout(self.cross_output(seen)))
        return self.norm(spans + self.dropout(self.feedforward(spans)))

    def _split(self, states: Tensor) -> Tensor:
        return states.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class TimestepEmbedding(nn.Module):
    """Sinusoids of the timestep (Vaswani et al., 2017) through a two-layer perceptron."""

    rates: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("rates", torch.logspace(0, -4, width // 2), persistent=False)
        self.project = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, time: Tensor) -> Tensor:
        """time: `(B,)` float, 0 to 1, so that every T speaks the same language. `(B, h)`."""
        angles = 1000 * time.unsqueeze(-1) * self.rates
        return self.project(torch.cat([angles.sin(), angles.cos()], dim=-1).float())


class EntityClassifier(nn.Module):
    """Two-layer perceptron with a None class at index 0 (section 4.2).

    answer_pooling: it also sees the words at and between the boundaries that the pointers show.
    words: width of the words. width: of the spans.
    """

    def __init__(self, words: int, width: int, n_labels: int, answer_pooling: bool) -> None:
        super().__init__()
        self.width, self.answer_pooling = width, answer_pooling
        self.input = nn.Linear(width + (3 * words if answer_pooling else 0), width)
        self.dropout = nn.Dropout(0.0)
        self.output = nn.Linear(width, n_labels + 1)

    def read(self, words: Tensor) -> List[Tensor]:
        """Words as first, as last and as any word of an entity, `(B, N, h)` each; or nothing."""
        if not self.answer_pooling:
            return []
        return [words @ part.T for part in self.input.weight[:, self.width :].chunk(3, dim=1)]

    def forward(self, spans: Tensor, read: List[Tensor], left: Tensor, right: Tensor) -> Tensor:
        """left, right: `(B, K, N)` boundary probabilities. Returns `(B, K, C + 1)` logits."""
        if not read:
            return self._say(spans)
        first, last, inside = read
        within = weighted_mean(soft_inside(left, right), inside)
        return self._say(spans, left @ first, right @ last, within)

    def at(self, spans: Tensor, read: List[Tensor], shown: Tensor) -> Tensor:
        """As `forward`, with boundaries beyond doubt: `(B, K, 2)` long, both inclusive."""
        if not read:
            return self._say(spans)
        first, last, inside = read
        left, right = shown.unbind(-1)
        return self._say(
            spans, words_at(first, left), words_at(last, right), mean_inside(shown, inside)
        )

    def _say(self, spans: Tensor, *words: Tensor) -> Tensor:
        hidden = F.linear(spans, self.input.weight[:, : self.width], self.input.bias)
        return self.output(self.dropout(F.gelu(sum(words, hidden))))

    def grow(self, n_labels: int) -> None:
        """Rows for new labels; they start low, so that what was found before still is."""
        self.output = grow_outputs(self.output, n_labels + 1)


def alpha_bars(schedule: str, timesteps: int) -> Tensor:
    """`(T,)` double: share of the signal's variance that is left at each timestep (section 3).

    "linear": betas from 1e-4 to 0.02 at T = 1000, scaled to any T (Ho et al., 2020). "cosine": the
    shares fall like a squared cosine (Nichol and Dhariwal, 2021), betas at most 0.999.
    """
    if schedule == "linear":
        factor = 1000 / timesteps
        betas = torch.linspace(1e-4 * factor, 0.02 * factor, timesteps, dtype=torch.double)
        betas = betas.clamp(max=0.999)
    else:
        time = torch.arange(timesteps + 1, dtype=torch.double) / timesteps
        shares = torch.cos((time + 0.008) / 1.008 * torch.pi / 2) ** 2
        betas = (1 - shares[1:] / shares[:-1]).clamp(max=0.999)
    return (1 - betas).cumprod(dim=0)


def denoising_times(timesteps: int, steps: int) -> List[int]:
    """Timesteps of the reverse process, T - 1 first, in equal strides down to clean spans."""
    if not 1 <= steps <= timesteps:
        raise ValueError(_says(f"steps must be 1 to {timesteps} (timesteps), got {steps}"))
    return np.linspace(-1, timesteps - 1, steps + 1).astype(int)[:0:-1].tolist()


@lru_cache(maxsize=64)
def noise_table(seed: int, step: int, size: int) -> Tensor:
    """`(size, 2)` Gaussian noise, one and the same for every sentence, batch and process.

    The noise that the process starts from (step 0) are the points of a scrambled Sobol sequence:
    each part of the plane gets its share, so that few spans already reach the whole sentence. The
    noise of a later step is drawn point by point: two scramblings of one sequence go hand in hand,
    and what a step adds must not depend on what is there. A smaller table is the head of a larger
    one.
    """
    key = 1000 * seed + step
    if step:
        generator = torch.Generator().manual_seed(key)
        uniform = torch.rand(size, 2, dtype=torch.double, generator=generator)
    else:
        engine = torch.quasirandom.SobolEngine(2, scramble=True, seed=key)
        uniform = engine.draw(size, dtype=torch.double)
    return torch.special.ndtri(uniform.clamp(1e-9, 1 - 1e-9))


def deal_kinds(n_spans: int, n_kinds: int) -> Tensor:
    """`(n_spans,)` long: kinds in equal numbers, without the binary pattern of `noise_table`, so
    that every kind is spread over the sentence (multiples of the golden ratio)."""
    share = torch.arange(n_spans, dtype=torch.double) * 0.6180339887498949 % 1
    return (share * n_kinds).long()


def span_counts(lengths: Tensor, n_spans: Optional[int], per_word: float) -> Tensor:
    """Noisy spans of sentences of so many words, `(B,)` long: `n_spans`, or, where that is None, so
    many `per_word`, with `FEWEST_WORDS` for a shorter sentence."""
    if n_spans is not None:
        return torch.full_like(lengths, n_spans)
    return (lengths.clamp(min=FEWEST_WORDS) * per_word).ceil().long()


def share_of(share: float, n_spans: Tensor, n_gold: Tensor) -> Tensor:
    """So many of the spans, but at least one for each entity and none where there is none."""
    number = torch.maximum(n_gold, (share * n_spans).round().long())
    return torch.where(n_gold > 0, number, torch.zeros_like(number))


def same_words(spans: Tensor, gold: Gold) -> Tensor:
    """`(B, K, 2)` long spans: `(B, K, G)` bool, which have the words of which entities."""
    return (spans.unsqueeze(2) == gold.spans.unsqueeze(1)).all(-1) & gold.mask.unsqueeze(1)


def on_turn(kinds: Tensor, gold: Gold) -> Tensor:
    """`(B, K)` long kinds: `(B, K, G)` bool, whose turn it is among `twins`."""
    n_twins, turn = twins(gold)
    return kinds.unsqueeze(2) % n_twins.unsqueeze(1) == turn.unsqueeze(1)


def twins(gold: Gold) -> Tuple[Tensor, Tensor]:
    """How many entities have the words of each, itself included, and how many of them come before
    it in the order of the labels. `(B, G)` long both."""
    same = same_words(gold.spans, gold)
    earlier = gold.labels.unsqueeze(1) < gold.labels.unsqueeze(2)
    return same.sum(-1).clamp(min=1), (same & earlier).sum(-1)


def mean_inside(spans: Tensor, words: Tensor) -> Tensor:
    """`(B, K, 2)` spans over `(B, N, h)` words: the mean of each span's words, `(B, K, h)`."""
    place = torch.arange(words.shape[1], device=words.device)
    first, last = spans.unsqueeze(-1).unbind(2)
    inside = ((first <= place) & (place <= last)).to(words.dtype)
    return inside @ words / inside.sum(dim=-1, keepdim=True)


def _reaching(step: Denoised, threshold: float) -> Predictions:
    """The entities among the spans of a step."""
    label = step.label
    keep = (label >= 0) & (step.score >= threshold)
    # NaN passes, so that the component can report a model that has diverged.
    keep = (keep | step.score.isnan()) & step.real
    segment, span = torch.nonzero(keep, as_tuple=True)
    first, end = step.spans[segment, span].unbind(-1)
    label = label[segment, span].clamp(min=0)
    return Predictions(segment, first, end, label, step.score[segment, span])


def from_all_steps(steps: List[Denoised], n_kinds: int, threshold: float) -> Predictions:
    """Each span that pointers show, with the label that has the highest mean probability.

    Means are over the noisy spans of one kind, in all steps: kinds may say different labels, so
    that the same words have at most as many labels as there are kinds.
    """
    n_words = 1 + int(max(step.spans.max() for step in steps))
    kinds = deal_kinds(steps[0].real.shape[1], n_kinds).to(steps[0].real.device)
    keys, said = [], []
    for step in steps:
        # NaN counts, for the component to report, see `_reaching`.
        seen = step.real & (step.legal | step.score.isnan())
        segment, span = torch.nonzero(seen, as_tuple=True)
        first, last = step.spans[segment, span].unbind(-1)
        # One number for what is to be equal: numbers are sorted much faster than rows.
        keys.append(((segment * n_words + first) * n_words + last) * n_kinds + kinds[span])
        said.append(step.probability[segment, span])
    key, group, times = torch.cat(keys).unique(return_inverse=True, return_counts=True)
    total = said[0].new_zeros(len(key), said[0].shape[1]).index_add_(0, group, torch.cat(said))
    score, label = (total / times.unsqueeze(-1)).max(dim=-1)
    keep = (label > 0) & (score >= threshold) | score.isnan()
    place = key[keep] // n_kinds
    first, last = place // n_words % n_words, place % n_words
    label = label[keep].clamp(min=1) - 1
    return Predictions(place // n_words**2, first, last, label, score[keep])


def distinct(found: Predictions) -> Predictions:
    """Of equal spans with equal labels the one with the highest score."""
    if not len(found.score):
        return found
    keys = torch.stack(found[:4], dim=1)
    unique, group = keys.unique(dim=0, return_inverse=True)
    score = found.score.new_zeros(len(unique))
    score.scatter_reduce_(0, group, found.score, reduce="amax", include_self=False)
    segment, start, end, label = unique.unbind(1)
    return Predictions(segment, start, end, label, score)


def _attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """Attention under a `(B, keys)` mask, heads joined: `(B, K, h)`."""
    seen = F.scaled_dot_product_attention(query, key, value, mask[:, None, None, :])
    return seen.transpose(1, 2).flatten(2)


def _says(problem: str) -> str:
    return f"Diffusion: {problem}."
