"""Queries or proposals that are made from the words of a sentence, round by round."""

from __future__ import annotations

from typing import Tuple

import torch
from torch import Tensor


def word_rounds(mask: Tensor, per_word: int, at_least: int) -> Tuple[Tensor, Tensor, Tensor]:
    """Which word each query is made from: all words in order, then all words again.

    mask: `(batch, words)` bool, real words first. per_word: rounds for every sentence. at_least:
    queries of a sentence that is too short for so many.
    Returns `(batch, queries)` tensors: bool, which queries are real; long, the word of each; long,
    its round from 0. The last two are 0 at padding.
    """
    n_words = mask.sum(dim=1, keepdim=True)
    n_queries = (per_word * n_words).clamp(min=at_least)
    size = max(per_word * mask.shape[1], at_least)
    index = torch.arange(size, device=mask.device).expand(len(mask), -1)
    real = index < n_queries
    n_words = n_words.clamp(min=1)
    return real, (index % n_words) * real, (index // n_words) * real
