"""Masks of padded batches."""

from __future__ import annotations

from typing import Optional

from torch import Tensor

# A logit whose probability is 0 under sigmoid and softmax; -inf is NaN where all is padding.
MASKED = -1e4


def of_padding(mask: Tensor) -> Optional[Tensor]:
    """The `(batch, words)` bool mask, None where it hides nothing: less is to be done then.

    On a GPU always the mask: the answer would have to be waited for.
    """
    return None if mask.device.type == "cpu" and bool(mask.all()) else mask
