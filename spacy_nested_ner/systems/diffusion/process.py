"""Boundary diffusion (section 4.1): spans as numbers, noise, and the steps there and back.

Section and equation numbers are those of Shen et al. 2023. Shapes: B batch, K noisy spans.
"""

from __future__ import annotations

from functools import lru_cache
from typing import List, Optional, Tuple

import numpy as np
import torch
from torch import Tensor

from spacy_nested_ner.device import on_device
from spacy_nested_ner.systems.diffusion.settings import FEWEST_WORDS, DiffusionSettings

# A truncated process starts from spans of 1, 3 and 9 words, in turn: so many powers of 3.
START_WIDTHS = 3


class SpanDiffusion:
    """Forward and reverse process over the states of spans, which have no weights.

    A state is the two boundaries of a span as numbers, or its first word and its width.
    timesteps: those that are used, the noisiest last.
    """

    def __init__(self, settings: DiffusionSettings) -> None:
        self.truncated = settings.form.truncation < 1
        self.timesteps = max(1, round(settings.form.truncation * settings.timesteps))
        self.scale = settings.scale
        self.with_width = settings.form.with_width
        self.schedule, self.all_timesteps = settings.schedule, settings.timesteps
        # Double precision: it follows from the settings and is not saved with the weights.
        self.signal = alpha_bars(settings.schedule, settings.timesteps)

    def to_state(self, spans: Tensor, lengths: Tensor) -> Tensor:
        """Spans as points in (-scale, scale), the space that noise is added in.

        Word i of n, or a width of i + 1 words, is the middle of the i-th of n equal cells, so that
        `to_spans` brings every span of every sentence back, one-word sentences included.
        spans: `(B, K, 2)` long, both inclusive. lengths: `(B, 1)`. Returns double precision.
        """
        if self.with_width:
            first, last = spans.unbind(-1)
            spans = torch.stack([first, last - first], dim=-1)
        cell = 2 * self.scale / lengths.double().unsqueeze(-1)
        return (spans.double() + 0.5) * cell - self.scale

    def to_spans(self, state: Tensor, lengths: Tensor) -> Tensor:
        """The words that points fall on; points outside the interval count as its ends.

        Boundaries in the wrong order change places; a width ends with the sentence. Inverse of
        `to_state`.
        """
        half, last_word = lengths.double().unsqueeze(-1) / 2, (lengths - 1).unsqueeze(-1)
        # Whole numbers are cut off above 0, where that is rounding down.
        cells = (state * (half / self.scale) + half).clamp(min=0).long()
        cells = torch.minimum(cells, last_word)
        if not self.with_width:
            return cells.sort(dim=-1).values
        first, width = cells.unbind(-1)
        return torch.stack([first, torch.minimum(first + width, last_word[..., 0])], dim=-1)

    def first_states(self, lengths: Tensor, real: Tensor, seed: int) -> Tensor:
        """`(B, K, 2)` states that the reverse process starts from: noise, or, of a truncated one,
        short spans, spread evenly over each sentence.

        lengths: `(B, 1)` long. real: `(B, K)` bool. seed: of the noise.
        """
        n_spans = real.shape[1]
        if not self.truncated:
            return on_device(noise_table(seed, 0, n_spans), real.device).expand(len(real), -1, -1)
        place = torch.arange(n_spans, device=real.device)
        # In whole numbers: the middle of the k-th of as many equal parts as there are spans.
        first = (2 * place + 1) * lengths // (2 * real.sum(dim=1, keepdim=True).clamp(min=1))
        return self._short(first, place % START_WIDTHS, lengths)

    def random_states(self, lengths: Tensor, real: Tensor) -> Tensor:
        """`(B, K, 2)` states of random spans in training, drawn from what the forward process ends
        in: noise, or, of a truncated one, short spans."""
        if not self.truncated:
            return torch.randn((*real.shape, 2), dtype=torch.double, device=real.device)
        first = (torch.rand(real.shape, device=real.device) * lengths).long()
        width = torch.randint(START_WIDTHS, real.shape, device=real.device)
        return self._short(first, width, lengths)

    def _short(self, first: Tensor, width: Tensor, lengths: Tensor) -> Tensor:
        """States of spans of `3**width` words, cut at the end of the sentence."""
        last_word = lengths - 1
        first = torch.minimum(first, last_word)
        last = torch.minimum(first + 3**width - 1, last_word)
        return self.to_state(torch.stack([first, last], dim=-1), lengths)

    def add_noise(self, state: Tensor, timestep: Tensor, noise: Tensor) -> Tensor:
        """Forward process (eq. 3-4). timestep: `(B,)` long, 0 the cleanest."""
        signal = self.signal.to(state.device)[timestep].view(-1, 1, 1)
        return signal.sqrt() * state + (1 - signal).sqrt() * noise

    def reverse_step(
        self,
        state: Tensor,
        clean: Tensor,
        timestep: int,
        earlier: int,
        eta: float = 0.0,
        noise: Optional[Tensor] = None,
    ) -> Tensor:
        """DDIM: from `timestep` to the `earlier` one, given the predicted clean state (eq. 6-7).

        eta: 0 is deterministic (the paper), 1 as noisy as the forward process (the authors' code);
        it needs `noise` in the shape of `state`.
        """
        of_state, of_clean, of_noise = step_shares(
            self.schedule, self.all_timesteps, timestep, earlier, eta
        )
        state = of_state * state + of_clean * clean
        return state if noise is None else state + of_noise * noise


@lru_cache(maxsize=256)
def step_shares(
    schedule: str, timesteps: int, timestep: int, earlier: int, eta: float
) -> Tuple[float, float, float]:
    """Of the state, the clean state and the noise (eq. 7) in a step between two timesteps."""
    signal = alpha_bars(schedule, timesteps)
    now, then = signal[timestep], signal[earlier]
    variance = eta**2 * (1 - then) / (1 - now) * (1 - now / then)
    of_state = (1 - then - variance).clamp(min=0).sqrt() / (1 - now).sqrt()
    of_clean, of_noise = then.sqrt() - of_state * now.sqrt(), variance.clamp(min=0).sqrt()
    return of_state.item(), of_clean.item(), of_noise.item()


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
    """Timesteps of the reverse process, T - 1 first, in equal strides down to clean spans.

    RAISES (ValueError): For more steps than there are timesteps, or for none.
    """
    if not 1 <= steps <= timesteps:
        raise ValueError(
            f"Diffusion: steps must be 1 to {timesteps}, the number of timesteps that this variant "
            f"of the model uses, not {steps}."
        )
    return np.linspace(-1, timesteps - 1, steps + 1).astype(int)[:0:-1].tolist()


@lru_cache(maxsize=64)
def noise_table(seed: int, step: int, size: int) -> Tensor:
    """`(size, 2)` Gaussian noise, the same for every sentence, batch and process.

    The noise that the process starts from (step 0) is made of the points of a scrambled Sobol
    sequence: they cover the plane evenly, so that few spans already reach the whole sentence. The
    noise of a later step is drawn point by point: two scramblings of one sequence are related, and
    what a step adds must not depend on what it is added to. The first rows do not depend on `size`.
    """
    key = 1000 * seed + step
    if step:
        generator = torch.Generator("cpu").manual_seed(key)
        uniform = torch.rand(size, 2, dtype=torch.double, device="cpu", generator=generator)
    else:
        engine = torch.quasirandom.SobolEngine(2, scramble=True, seed=key)
        uniform = engine.draw(size, dtype=torch.double)
    return torch.special.ndtri(uniform.clamp(1e-9, 1 - 1e-9))


@lru_cache(maxsize=256)
def spread_kinds(n_spans: int, n_kinds: int) -> Tensor:
    """`(n_spans,)` long: kinds in equal numbers, each spread over the whole sentence.

    Multiples of the golden ratio: the kinds in turn would follow the binary pattern of
    `noise_table`.
    """
    # It is kept, so it must also do where gradients are wanted.
    with torch.inference_mode(False):
        share = torch.arange(n_spans, dtype=torch.double) * 0.6180339887498949 % 1
        return (share * n_kinds).long()


def span_counts(lengths: Tensor, n_spans: Optional[int], per_word: float) -> Tensor:
    """Noisy spans of sentences of so many words, `(B,)` long, see `settings.span_count`."""
    if n_spans is not None:
        return torch.full_like(lengths, n_spans)
    return (lengths.clamp(min=FEWEST_WORDS) * per_word).ceil().long()


def first_of(counts: Tensor) -> Tensor:
    """`(B,)` counts to `(B, largest count)` bool: True for so many, then padding."""
    return torch.arange(int(counts.max()), device=counts.device) < counts.unsqueeze(1)
