"""Vectors of questions, kept from one prediction to the next as long as they hold."""

from typing import Any, Callable, Dict, Hashable, List, NamedTuple, Optional, Tuple, TypeVar

from thinc.api import Model
from torch import nn

# One tensor or a tuple of them.
Vectors = TypeVar("Vectors")


class QuestionCache:
    """Vectors of the questions, kept from one prediction to the next.

    They are computed again when anything that they depend on has changed: the words of the
    questions, their static vectors, the weights or settings of the encoder (see `state_of`). A
    model keeps none from its first training step until it is loaded again, because optimizers
    overwrite weights in place, `spacy_nested_ner.AdamW.v1` even after `finish_update`. Code that
    overwrites arrays by other means than Thinc's or torch's own must call `forget`.
    """

    def __init__(self) -> None:
        self._last: Optional[Tuple[State, Any]] = None
        self._learns = False

    def read(self, state: Optional["State"], read: Callable[[], Vectors]) -> Vectors:
        """The last result of `read` if the state is the same, else a new one.

        state: None for a model whose changes cannot be detected, which keeps nothing."""
        last = self._last
        if state is not None and last is not None and last[0].key == state.key:
            return last[1]
        vectors = read()
        self._last = None if state is None or self._learns else (state, vectors)
        return vectors

    def forget(self) -> None:
        """Read the questions again at the next prediction."""
        self._last = None

    def stop(self) -> None:
        """Keep nothing from now on: the weights are about to change."""
        self._last, self._learns = None, True

    def __getstate__(self) -> Dict[str, Any]:
        """A copy, also in another process, reads the questions itself."""
        return {"_last": None, "_learns": self._learns}


class State(NamedTuple):
    """Whether two predictions of questions must be the same.

    key: equal if so. holds: the objects whose addresses are in the key, so that none is reused.
    """

    key: Tuple[Any, ...]
    holds: List[Any]


def state_of(questions: Hashable, models: List[Model]) -> Optional[State]:
    """Everything that the vectors of questions depend on: what is read of them, and weights and
    plain settings of the models. None where a model holds weights of an unknown kind.

    A weight is identified by its address, in torch also by its count of changes. Thinc overwrites
    arrays in training only.
    """
    key: List[Any] = [questions]
    holds: List[Any] = []
    for node in (node for model in models for node in model.walk()):
        attrs = (item for item in node.attrs.items() if isinstance(item[1], (int, float, str)))
        key.append((node.id, *attrs))
        arrays = [node.get_param(name) for name in node.param_names if node.has_param(name)]
        key.extend(map(id, arrays))
        holds.extend(arrays)
        for module in (shim._model for shim in node.shims):
            if not isinstance(module, nn.Module):
                return None
            tensors = [*module.parameters(), *module.buffers()]
            if any(tensor.is_inference() for tensor in tensors):  # they count no changes
                return None
            key.extend((tensor.data_ptr(), tensor._version) for tensor in tensors)
            holds.extend(tensor.data for tensor in tensors)
    return State(tuple(key), holds)
