"""Inference (algorithm 2): the reverse process, and the entities among its spans.

Section and equation numbers are those of Shen et al. 2023. Shapes: B batch, N words, K noisy spans,
C labels.
"""

from __future__ import annotations

from typing import Iterator, List, NamedTuple, Tuple

import torch
from torch import Tensor

from spacy_nested_ner.layers.pointer import word_probability
from spacy_nested_ner.systems.diffusion.network import (
    DenoisingNetwork,
    EncodedWords,
    NoisySpans,
    pointed_spans,
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


class Denoised(NamedTuple):
    """One step of the reverse process.

    timestep: before the step, T - 1 to 0. real: `(B, K)` bool, False for padding among the spans.
    noisy: `(B, K, 2)` first and last word of the spans that went in. spans: the same of those that
    came out. legal: `(B, K)` bool, see `pointed_spans`. probability: `(B, K, C + 1)` of None and
    the labels. score: `(B, K)`, see `find_entities`.
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


def reverse_process(
    network: DenoisingNetwork,
    process: SpanDiffusion,
    words: Tensor,
    mask: Tensor,
    options: DiffusionOptions,
    every_step: bool,
) -> Iterator[Denoised]:
    """Noise becomes spans, step by step (eq. 5-7). The words are encoded once.

    The pointers alone lead from step to step: spans are classified, and yielded, in `every_step` or
    in the last one only. words: `(B, N, width)`. mask: `(B, N)` bool.
    """
    times = denoising_times(process.timesteps, options.steps)
    encoded = network.encode(words, mask)
    lengths = encoded.lengths
    real = first_of(span_counts(lengths[:, 0], options.n_spans, options.spans_per_word))
    size = real.shape[1]
    kinds = spread_kinds(size, len(network.kinds)).to(words.device).expand_as(real)
    state = noise_table(options.seed, 0, size).to(words.device).expand(len(words), -1, -1)
    for i, now in enumerate(times):
        timestep = torch.full((len(words),), now, device=words.device)
        noisy = NoisySpans(process.to_spans(state, lengths), kinds, real)
        states = network.span_states(encoded, noisy, timestep)[-1]
        left, right = network.point(encoded, states, noisy.spans)
        spans, legal = pointed_spans(left, right)
        is_last = i == len(times) - 1
        if is_last or every_step:
            if options.score == "label":
                scored = score_by_label(network, encoded, states, spans)
            else:
                scored = score_by_sum(network, encoded, states, left, right)
            yield Denoised(now, real, noisy.spans, spans, legal, *scored)
        if not is_last:
            earlier = torch.full_like(timestep, times[i + 1])
            noise = None
            if options.eta:
                noise = noise_table(options.seed, i + 1, size).to(words.device)
            clean = process.to_state(spans, lengths)
            state = process.reverse_step(state, clean, timestep, earlier, options.eta, noise)


def score_by_sum(
    network: DenoisingNetwork, encoded: EncodedWords, states: Tensor, left: Tensor, right: Tensor
) -> Tuple[Tensor, Tensor]:
    """Probabilities of None and the labels, `(B, K, C + 1)`, and the mean of the highest ones of
    label, first and last word, `(B, K)`. left, right: `(B, K, N)` logits."""
    probability = network.classify(encoded, states, left, right).softmax(-1)
    first, last = (word_probability(t, network.boundary).amax(dim=-1) for t in (left, right))
    return probability, (probability.amax(dim=-1) + (first + last)) / 3


def score_by_label(
    network: DenoisingNetwork, encoded: EncodedWords, states: Tensor, spans: Tensor
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
    if options.score == "label":
        return best_of_equal(mean_of_equal(steps, n_kinds, options.threshold))
    found = [reaching(step, options.threshold) for step in steps]
    return best_of_equal(Predictions(*map(torch.cat, zip(*found))))


def reaching(step: Denoised, threshold: float) -> Predictions:
    """The entities among the spans of a step."""
    label = step.label
    keep = (label >= 0) & (step.score >= threshold)
    # NaN passes, so that the component can report a model that has diverged.
    keep = (keep | step.score.isnan()) & step.real
    segment, span = torch.nonzero(keep, as_tuple=True)
    first, end = step.spans[segment, span].unbind(-1)
    label = label[segment, span].clamp(min=0)
    return Predictions(segment, first, end, label, step.score[segment, span])


def mean_of_equal(steps: List[Denoised], n_kinds: int, threshold: float) -> Predictions:
    """Each span that pointers find, with the label that has the highest mean probability.

    Means are over the noisy spans of one kind, in all steps: kinds may have different labels, so
    that the same words have at most as many labels as there are kinds.
    """
    n_words = 1 + int(max(step.spans.max() for step in steps))
    kinds = spread_kinds(steps[0].real.shape[1], n_kinds).to(steps[0].real.device)
    keys, probabilities = [], []
    for step in steps:
        # NaN counts, for the component to report, see `reaching`.
        found = step.real & (step.legal | step.score.isnan())
        segment, span = torch.nonzero(found, as_tuple=True)
        first, last = step.spans[segment, span].unbind(-1)
        # One number for what is to be equal: numbers are sorted much faster than rows.
        keys.append(((segment * n_words + first) * n_words + last) * n_kinds + kinds[span])
        probabilities.append(step.probability[segment, span])
    key, group, times = torch.cat(keys).unique(return_inverse=True, return_counts=True)
    probability = torch.cat(probabilities)
    total = probability.new_zeros(len(key), probability.shape[1]).index_add_(0, group, probability)
    score, label = (total / times.unsqueeze(-1)).max(dim=-1)
    keep = (label > 0) & (score >= threshold) | score.isnan()
    place = key[keep] // n_kinds
    first, last = place // n_words % n_words, place % n_words
    label = label[keep].clamp(min=1) - 1
    return Predictions(place // n_words**2, first, last, label, score[keep])


def best_of_equal(found: Predictions) -> Predictions:
    """Of equal spans with equal labels the one with the highest score."""
    if not len(found.score):
        return found
    keys = torch.stack(found[:4], dim=1)
    unique, group = keys.unique(dim=0, return_inverse=True)
    score = found.score.new_zeros(len(unique))
    score.scatter_reduce_(0, group, found.score, reduce="amax", include_self=False)
    segment, start, end, label = unique.unbind(1)
    return Predictions(segment, start, end, label, score)
