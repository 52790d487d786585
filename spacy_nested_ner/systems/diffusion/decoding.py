"""Inference (algorithm 2): the reverse process, and the entities among its spans.

Section and equation numbers are those of Shen et al. 2023. Shapes: B batch, N words, K noisy spans,
C labels.
"""

from __future__ import annotations

from typing import Iterator, List, NamedTuple, Sequence, Tuple, TypeVar

import torch
from torch import Tensor

from spacy_nested_ner.device import on_device
from spacy_nested_ner.layers.pointer import word_probability
from spacy_nested_ner.systems.candidates import pointed_spans
from spacy_nested_ner.systems.diffusion.network import (
    DenoisingNetwork,
    NoisySpans,
    ReadWords,
)
from spacy_nested_ner.systems.diffusion.process import (
    SpanDiffusion,
    denoising_times,
    first_of,
    noise_table,
    span_counts,
    spread_kinds,
)
from spacy_nested_ner.systems.diffusion.settings import DiffusionOptions
from spacy_nested_ner.systems.head import Predictions

# Steps whose spans are classified at once: a large call costs less than many small ones.
AT_ONCE = 8


class Pointed(NamedTuple):
    """What the pointers find in a step of the reverse process, or in several, side by side.

    real: `(B, K)` bool, False for padding among the spans. kinds: `(B, K)` long. noisy: `(B, K, 2)`
    first and last word of the spans that went in. spans: the same of those that came out. legal:
    `(B, K)` bool, see `pointed_spans`. states: `(B, K, h)`. left, right: `(B, K, N)` logits.
    """

    real: Tensor
    kinds: Tensor
    noisy: Tensor
    spans: Tensor
    legal: Tensor
    states: Tensor
    left: Tensor
    right: Tensor


class Denoised(NamedTuple):
    """The spans of a step of the reverse process, or of several, side by side.

    real, kinds, noisy, spans, legal: see `Pointed`. probability: `(B, K, C + 1)` of None and the
    labels. score: `(B, K)`, see `find_entities`.
    """

    real: Tensor
    kinds: Tensor
    noisy: Tensor
    spans: Tensor
    legal: Tensor
    probability: Tensor
    score: Tensor

    @property
    def label(self) -> Tensor:
        """`(B, K)` long: the likeliest label, from 0, -1 for None and where not legal."""
        return (self.probability.argmax(dim=-1) - 1).masked_fill(~self.legal, -1)


def reverse_process(
    network: DenoisingNetwork,
    process: SpanDiffusion,
    words: Tensor,
    mask: Tensor,
    options: DiffusionOptions,
    in_place: bool = False,
) -> Iterator[Denoised]:
    """Noise becomes spans, step by step (eq. 5-7). The words are encoded once.

    The pointers alone lead from step to step: spans are classified in the steps that count, see
    `found_in`. words: `(B, N, width)`. mask: `(B, N)` bool. in_place: all steps, one by one, and
    span k of a step is span k of the step before; those that do not go on become padding.
    """
    encoded = network.encode(words, mask)
    pending: List[Pointed] = []
    steps = pointed_steps(network, process, encoded, options, in_place)
    for i, step in enumerate(steps, start=1):
        if in_place or options.found_in == "every_step" or i == options.steps:
            pending.append(step)
        if pending and (in_place or i == options.steps or len(pending) == AT_ONCE):
            yield classified(network, encoded, side_by_side(pending), options.score)
            pending = []


def pointed_steps(
    network: DenoisingNetwork,
    process: SpanDiffusion,
    encoded: ReadWords,
    options: DiffusionOptions,
    in_place: bool,
) -> Iterator[Pointed]:
    """The steps of the reverse process, see there."""
    lengths, device = encoded.lengths, encoded.mask.device
    times = denoising_times(process.timesteps, options.steps)
    vectors = network.at_time(torch.tensor(times, device=device))
    real = first_of(span_counts(lengths[:, 0], options.n_spans, options.spans_per_word))
    size = real.shape[1]
    # Which point of the noise tables each span has: all in order, until some are left out.
    place = torch.arange(size, device=device).expand_as(real)
    all_kinds = on_device(spread_kinds(size, network.n_kinds), device)
    kinds = all_kinds.expand_as(real)
    state = process.first_states(lengths, real, options.seed)
    for i, now in enumerate(times):
        noisy = NoisySpans(process.to_spans(state, lengths), kinds, real)
        states = network.span_states(encoded, noisy, vectors[i])[-1]
        left, right = network.point(encoded, states, noisy.spans)
        spans, legal = pointed_spans(left, right)
        yield Pointed(real, kinds, noisy.spans, spans, legal, states, left, right)
        if now == times[-1]:
            return
        if options.carried == "distinct":
            real = first_of_equal(spans, kinds, real, left.shape[2])
            if not in_place:
                order = front(real)
                place, spans, state, real = (at(t, order) for t in (place, spans, state, real))
                kinds = all_kinds[place]
        noise = None
        if options.eta:
            noise = on_device(noise_table(options.seed, i + 1, size), device)[place]
        clean = process.to_state(spans, lengths)
        state = process.reverse_step(state, clean, now, times[i + 1], options.eta, noise)


S = TypeVar("S", Pointed, Denoised)


def first_of_equal(spans: Tensor, kinds: Tensor, real: Tensor, n_words: int) -> Tensor:
    """`(B, K)` bool: the first real one of the `(B, K, 2)` spans with the same words and kind.

    n_words: of the padded batch.
    """
    first, last = spans.unbind(-1)
    key = ((kinds * n_words + first) * n_words + last).masked_fill(~real, -1)
    equal = key.unsqueeze(2) == key.unsqueeze(1)
    return real & ~equal.tril(-1).any(dim=2)


def front(chosen: Tensor) -> Tensor:
    """`(B, K)` bool to `(B, most chosen of a row)` long: those chosen in order, then others."""
    size = int(chosen.sum(dim=1).max())
    return chosen.byte().argsort(dim=1, descending=True, stable=True)[:, :size]


def at(values: Tensor, order: Tensor) -> Tensor:
    """`(B, K)` or `(B, K, 2)` values in a `(B, chosen)` order."""
    if values.dim() == 3:
        order = order.unsqueeze(-1).expand(-1, -1, values.shape[2])
    return values.gather(1, order)


def side_by_side(steps: List[S]) -> S:
    """The spans of all steps as if they were of one."""
    if len(steps) == 1:
        return steps[0]
    return type(steps[0])(*(torch.cat(column, dim=1) for column in zip(*steps)))


def classified(
    network: DenoisingNetwork, encoded: ReadWords, found: Pointed, score: str
) -> Denoised:
    """What the pointers find, with labels and scores. score: "sum" or "label"."""
    if score == "label":
        scored = score_by_label(network, encoded, found.states, found.spans)
    else:
        scored = score_by_sum(network, encoded, found.states, found.left, found.right)
    return Denoised(found.real, found.kinds, found.noisy, found.spans, found.legal, *scored)


def score_by_sum(
    network: DenoisingNetwork, encoded: ReadWords, states: Tensor, left: Tensor, right: Tensor
) -> Tuple[Tensor, Tensor]:
    """Probabilities of None and the labels, `(B, K, C + 1)`, and the mean of the highest ones of
    label, first and last word, `(B, K)`. left, right: `(B, K, N)` logits."""
    sides = [word_probability(logits, network.boundary) for logits in (left, right)]
    probability = network.classify(encoded, states, *sides).softmax(-1)
    first, last = (side.amax(dim=-1) for side in sides)
    return probability, (probability.amax(dim=-1) + (first + last)) / 3


def score_by_label(
    network: DenoisingNetwork, encoded: ReadWords, states: Tensor, spans: Tensor
) -> Tuple[Tensor, Tensor]:
    """Probabilities of None and the labels for `(B, K, 2)` spans, and the highest of them."""
    probability = network.classify_spans(encoded, states, spans).softmax(-1)
    return probability, probability.amax(dim=-1)


def find_entities(steps: List[Denoised], options: DiffusionOptions, n_kinds: int) -> Predictions:
    """The entities among the spans of some steps.

    options: `score` "sum" is the mean of the probabilities of the label and of the two boundaries,
    a third of the paper's sum, and the highest of all spans with these words and this label.
    "label" is the probability of the label for the words that the pointers find, whatever the
    probabilities of the pointers are: the mean over the spans of one kind that find them, in the
    steps given, and the highest of the kinds. `threshold` on either.
    """
    step = side_by_side(steps)
    if options.score == "label":
        return best_of_equal(mean_of_equal(step, n_kinds, options.threshold))
    return best_of_equal(reaching(step, options.threshold))


def reaching(step: Denoised, threshold: float) -> Predictions:
    """The entities among the spans."""
    label = step.label
    keep = (label >= 0) & (step.score >= threshold)
    # NaN passes, so that the component can report a model that has diverged.
    keep = (keep | step.score.isnan()) & step.real
    segment, span = torch.nonzero(keep, as_tuple=True)
    first, end = step.spans[segment, span].unbind(-1)
    label = label[segment, span].clamp(min=0)
    return Predictions(segment, first, end, label, step.score[segment, span])


def mean_of_equal(step: Denoised, n_kinds: int, threshold: float) -> Predictions:
    """Each span that pointers find, with the label that has the highest mean probability.

    Means are over the noisy spans of one kind: kinds may have different labels, so that the same
    words have at most as many labels as there are kinds.
    """
    n_words = 1 + int(step.spans.max())
    # NaN counts, for the component to report, see `reaching`.
    segment, span = torch.nonzero(step.real & (step.legal | step.score.isnan()), as_tuple=True)
    first, last = step.spans[segment, span].unbind(-1)
    keys = numbered((segment, first, last, step.kinds[segment, span]), n_words, n_kinds)
    key, group, times = keys.unique(return_inverse=True, return_counts=True)
    probability = step.probability[segment, span]
    total = probability.new_zeros(len(key), probability.shape[1]).index_add_(0, group, probability)
    score, label = (total / times.unsqueeze(-1)).max(dim=-1)
    keep = (label > 0) & (score >= threshold) | score.isnan()
    segment, first, last, _ = columns_of(key[keep], n_words, n_kinds)
    label = label[keep].clamp(min=1) - 1
    return Predictions(segment, first, last, label, score[keep])


def best_of_equal(found: Predictions) -> Predictions:
    """Of equal spans with equal labels the one with the highest score."""
    if not len(found.score):
        return found
    n_words, n_labels = (1 + torch.stack([found.end.max(), found.label.max()])).tolist()
    keys = numbered(found[:4], n_words, n_labels)
    unique, group = keys.unique(return_inverse=True)
    score = found.score.new_zeros(len(unique))
    score.scatter_reduce_(0, group, found.score, reduce="amax", include_self=False)
    return Predictions(*columns_of(unique, n_words, n_labels), score)


def numbered(columns: Sequence[Tensor], n_words: int, n_kinds: int) -> Tensor:
    """One number for segment, first word, last word and kind, or label, of each span: numbers are
    sorted much faster than rows. All `(K,)` long; n_words, n_kinds: more than any of theirs."""
    segment, first, last, kind = columns
    return ((segment * n_words + first) * n_words + last) * n_kinds + kind


def columns_of(
    numbers: Tensor, n_words: int, n_kinds: int
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    """What `numbered` was given."""
    place = numbers // n_kinds
    return place // n_words**2, place // n_words % n_words, place % n_words, numbers % n_kinds
