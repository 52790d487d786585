"""States of texts behind layers that do not learn, kept from one training step to the next."""

from typing import Any, Callable, Dict, Hashable, List, Sequence

import torch
from torch import Tensor

# Texts beyond that are read again in every step: 100,000 pieces of a width of 640.
MOST_BYTES = 2**28


class FrozenStates:
    """What the lower layers of an encoder have made of texts, as long as these layers stay.

    An epoch reads each text again. Without dropout, layers that do not learn would make the same of
    it every time.
    """

    def __init__(self) -> None:
        self._of: Hashable = None
        self.forget()

    def read(
        self, of: Hashable, keys: Sequence[Hashable], read: Callable[[List[int]], List[Tensor]]
    ) -> Tensor:
        """States of the pieces of all texts, one text after the other, `(pieces, h)`.

        of: what else they depend on; if it changes, nothing of before is used. keys: of the texts.
        read: gives the states of those at some indices, `(pieces, h)` each.
        """
        if of != self._of:
            self.forget()
            self._of = of
        missing = {key: i for i, key in enumerate(keys) if key not in self._kept}
        fresh = dict(zip(missing, read(list(missing.values())))) if missing else {}
        states = [self._kept[key] if key in self._kept else fresh[key] for key in keys]
        for key, state in fresh.items():
            size = state.numel() * state.element_size()
            if self._size + size <= MOST_BYTES:
                self._kept[key] = state
                self._size += size
        return torch.cat(states)

    def forget(self) -> None:
        """Keep nothing of before: the layers change."""
        self._kept: Dict[Hashable, Tensor] = {}
        self._size = 0

    def __getstate__(self) -> Dict[str, Any]:
        """A copy, also in another process, reads the texts itself."""
        return vars(FrozenStates())
