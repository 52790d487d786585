"""Parts of a network that are computed again on the way back, to keep less in between."""

from __future__ import annotations

from typing import Any, Callable, Optional

from torch import Tensor
from torch.utils.checkpoint import checkpoint

# A context in which a part is computed again; None where it is not.
Again = Optional[Callable[[], Any]]


def run_again(again: Again, part: Callable[..., Tensor], *inputs: Any) -> Tensor:
    """`part(*inputs)`, computed again on the way back where `again` is given."""
    if again is None:
        return part(*inputs)
    result: Tensor = checkpoint(part, *inputs, use_reentrant=False, context_fn=again)
    return result
