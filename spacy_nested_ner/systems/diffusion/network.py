"""The denoising network (section 4.2): the sentence, noisy spans and a timestep go in; two boundary
pointers and a label come out for each span.

Section and equation numbers are those of Shen et al. 2023. Shapes: B batch, N words, K noisy spans,
C labels, h width of the spans.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Mapping, NamedTuple, Optional, Tuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spacy_nested_ner.layers.attention import (
    attend,
    make_feedforward,
    split_heads,
    split_parts,
)
from spacy_nested_ner.layers.masks import of_padding
from spacy_nested_ner.layers.pointer import OffsetBias, make_pointer, mask_words, word_probability
from spacy_nested_ner.layers.pooling import mean_inside, words_at
from spacy_nested_ner.layers.span_classifier import SpanClassifier
from spacy_nested_ner.layers.word_layer import WordLayer
from spacy_nested_ner.systems.diffusion.settings import DiffusionSettings
from spacy_nested_ner.systems.matched import Answers

# By how much the logit of a boundary falls, before training, for each word from the noisy one.
OFFSET_SLOPE = 0.5


@dataclass
class ReadWords:
    """What all denoising steps share: everything that depends on the words alone.

    A linear layer over words that a span chooses, or over a mean of words, is one over each word:
    it is computed once for the words, not for every span.
    mask: `(B, N)` bool. padding: the mask, None where it hides nothing. left, right: the words for
    the pointers. boundaries: `(B, N, 2)` logits, is each word the first and is it the last of an
    entity, or None. offsets: `(N, N)` rows of the `OffsetBias` of the first and of the last word,
    or None. pooled, classified: the words for `SpanPooling` and `SpanClassifier`. memory: keys and
    values for each span layer.
    """

    mask: Tensor
    padding: Optional[Tensor]
    left: Tensor
    right: Tensor
    boundaries: Optional[Tensor]
    offsets: Optional[Tuple[Tensor, Tensor]]
    pooled: Dict[str, Tensor]
    classified: Optional[Tensor]
    memory: List[Tuple[Tensor, Tensor]]

    @property
    def lengths(self) -> Tensor:
        """`(B, 1)` long: words of each sentence."""
        return self.mask.sum(dim=1, keepdim=True)


class NoisySpans(NamedTuple):
    """Spans that go into the network.

    spans: `(B, K, 2)` long, first and last word. kinds: `(B, K)` long, see `Variant.span_kinds`.
    real: `(B, K)` bool, False for padding.
    """

    spans: Tensor
    kinds: Tensor
    real: Tensor


class DenoisingNetwork(nn.Module):
    """The function f(x_t, S, t).

    width: of the word vectors.
    """

    def __init__(self, width: int, n_labels: int, settings: DiffusionSettings) -> None:
        super().__init__()
        form, h = settings.form, settings.hidden_width
        words = settings.word_width or h
        self.timesteps, self.boundary = settings.timesteps, form.boundary
        self.n_kinds = form.span_kinds
        self.words = WordLayer(width, words, settings.lstm_layers, form.lstm_dropout)
        self.pool = SpanPooling(words, h, form.span_pooling)
        # One kind needs no vector: the same one in all spans would only make them more alike.
        self.kinds = nn.Parameter(torch.randn(self.n_kinds, h) * 0.5) if self.n_kinds > 1 else None
        self.time = TimestepEmbedding(h)
        self.layers = nn.ModuleList(
            SpanLayer(words, h, settings.attention_heads, form.feedforward)
            for _ in range(settings.depth)
        )
        self.left = make_pointer(form.pointer, h, words)
        self.right = make_pointer(form.pointer, h, words)
        self.word_boundaries = nn.Linear(words, 2) if settings.word_weight else None
        reach = form.offset_reach
        self.left_offset = OffsetBias(reach, OFFSET_SLOPE) if reach else None
        self.right_offset = OffsetBias(reach, OFFSET_SLOPE) if reach else None
        self.classifier = SpanClassifier(words, h, n_labels, form.answer_pooling)

    def encode(self, words: Tensor, mask: Tensor) -> ReadWords:
        """Sentence encoder and all that depends on it alone.

        words: `(B, N, width)`. mask: `(B, N)` bool.
        """
        words = self.words(words, mask)
        offsets = None
        if self.left_offset is not None and self.right_offset is not None:
            n_words = words.shape[1]
            offsets = self.left_offset.rows(n_words), self.right_offset.rows(n_words)
        return ReadWords(
            mask=mask,
            padding=of_padding(mask),
            left=self.left.read(words),
            right=self.right.read(words),
            boundaries=self.word_boundaries(words) if self.word_boundaries is not None else None,
            offsets=offsets,
            pooled=self.pool.read(words),
            classified=self.classifier.read(words),
            memory=[cast(SpanLayer, layer).remember(words) for layer in self.layers],
        )

    def forward(
        self, encoded: ReadWords, noisy: NoisySpans, timestep: Tensor, all_layers: bool = False
    ) -> Tuple[List[Answers], Tensor]:
        """One answer, or with `all_layers` one after every layer; and the states of the spans after
        the last layer, `(B, K, h)`.

        timestep: `(B,)` long.
        """
        layers = self.span_states(encoded, noisy, self.at_time(timestep))
        answering = layers if all_layers else layers[-1:]
        answers = []
        for states in answering:
            left, right = self.point(encoded, states, noisy.spans)
            sides = word_probability(left, self.boundary), word_probability(right, self.boundary)
            answers.append(Answers(left, right, self.classify(encoded, states, *sides)))
        return answers, layers[-1]

    def at_time(self, timestep: Tensor) -> Tensor:
        """`(B,)` long timesteps as vectors, `(B, 1, h)`."""
        return self.time(timestep / self.timesteps).unsqueeze(1)

    def span_states(self, encoded: ReadWords, noisy: NoisySpans, time: Tensor) -> List[Tensor]:
        """States of the spans after every layer, `(B, K, h)` each, for pointers and classifier.

        time: from `at_time`, of each sentence or one for all.
        """
        spans = self.pool(encoded.pooled, noisy.spans)
        if self.kinds is not None:
            spans = spans + self.kinds[noisy.kinds]
        real, states = of_padding(noisy.real), []
        for layer, memory in zip(self.layers, encoded.memory):
            spans = layer(spans, real, memory, encoded.padding)
            states.append(spans + time)
        return states

    def point(
        self, encoded: ReadWords, states: Tensor, noisy_spans: Tensor
    ) -> Tuple[Tensor, Tensor]:
        """Logits of the first and of the last word, `(B, K, N)` each.

        states: `(B, K, h)`. noisy_spans: `(B, K, 2)` long.
        """
        left = self.left.point(states, encoded.left)
        right = self.right.point(states, encoded.right)
        if encoded.offsets is not None:
            left = left + F.embedding(noisy_spans[..., 0], encoded.offsets[0])
            right = right + F.embedding(noisy_spans[..., 1], encoded.offsets[1])
        if encoded.boundaries is not None:
            first, last = encoded.boundaries.unsqueeze(1).unbind(-1)
            left, right = left + first, right + last
        return mask_words(left, encoded.padding), mask_words(right, encoded.padding)

    def classify(self, encoded: ReadWords, states: Tensor, left: Tensor, right: Tensor) -> Tensor:
        """Class logits `(B, K, C + 1)`, None first. left, right: `(B, K, N)` probabilities of the
        pointers."""
        return self.classifier(states, encoded.classified, left, right)

    def classify_spans(self, encoded: ReadWords, states: Tensor, spans: Tensor) -> Tensor:
        """As `classify`, with certain boundaries: `(B, K, 2)` long, both inclusive."""
        return self.classifier.at(states, encoded.classified, spans)


class SpanPooling(nn.Module):
    """Noisy spans as vectors: the mean of their words (section 4.2), their boundaries side by side
    through a linear layer (the authors' code), or the sum of both.

    words: width of the words. width: of the spans. kind: "mean", "boundaries" or "both".
    """

    def __init__(self, words: int, width: int, kind: str) -> None:
        super().__init__()
        self.with_mean = kind in ("mean", "both")
        # A mean alone, of words as wide as spans, needs no layer: the paper's form.
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
        return self.dropout(sum(parts[1:], parts[0]))


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
        self.feedforward = make_feedforward(width, feedforward)
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(0.0)

    def remember(self, words: Tensor) -> Tuple[Tensor, Tensor]:
        """Keys and values of the words, `(B, heads, N, h / heads)`."""
        key, value = split_parts(self.cross_memory(words), 2, self.heads)
        return key, value

    def forward(
        self,
        spans: Tensor,
        real: Optional[Tensor],
        memory: Tuple[Tensor, Tensor],
        mask: Optional[Tensor],
    ) -> Tensor:
        """`(B, K, h)` to `(B, K, h)`. real: `(B, K)`, mask: `(B, N)` bool, None for no padding."""
        query, key, value = split_parts(self.self_input(spans), 3, self.heads)
        update = self.self_output(attend(query, key, value, real))
        spans = self.self_norm(spans + self.dropout(update))
        query = split_heads(self.cross_query(spans), self.heads)
        update = self.cross_output(attend(query, *memory, mask))
        spans = self.cross_norm(spans + self.dropout(update))
        return self.norm(spans + self.dropout(self.feedforward(spans)))


class TimestepEmbedding(nn.Module):
    """Sinusoids of the timestep (Vaswani et al., 2017) through a two-layer perceptron."""

    rates: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("rates", torch.logspace(0, -4, width // 2), persistent=False)
        self.project = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, time: Tensor) -> Tensor:
        """time: `(B,)` float, t / T, so that it means the same for every T. Returns `(B, h)`."""
        angles = 1000 * time.unsqueeze(-1) * self.rates
        return self.project(torch.cat([angles.sin(), angles.cos()], dim=-1).float())
