"""Where the host waits for a GPU, by the line of the package that makes it wait."""

import inspect
import warnings
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Iterator, Mapping, Optional, Sequence

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

import spacy_nested_ner

PACKAGE = Path(spacy_nested_ner.__file__).parent
# What gives the host a value, or a tensor whose size it has to know.
WAITING = {"__bool__", "__float__", "__index__", "__int__", "item", "tolist", "cpu"}
WAITING |= {"argwhere", "bincount", "equal", "masked_select", "nonzero", "unique"}
WAITING |= {"unique_consecutive"}


@contextmanager
def counted_waits() -> Iterator["Counter[str]"]:
    """Count by call site how often the host waits in the `with` block.

    Where a GPU is in use, what torch warns of counts; cupy's own waits are not among it. Without
    one, what would wait if its tensors were on a GPU: tensors that are on the host in any case are
    among it, and the backward pass is not.
    """
    found: Counter[str] = Counter()
    if torch.cuda.is_initialized():
        torch.cuda.set_sync_debug_mode("warn")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always")
                warnings.showwarning = lambda message, *_, **__: _take(found, str(message))
                yield found
        finally:
            torch.cuda.set_sync_debug_mode("default")
    else:
        with _Calls(found):
            yield found


def _take(found: "Counter[str]", message: str) -> None:
    if "called a synchronizing" in message:
        found[call_site()] += 1


class _Calls(TorchFunctionMode):
    """Counts the calls that would wait."""

    def __init__(self, found: "Counter[str]") -> None:
        super().__init__()
        self.found = found

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Optional[Mapping[str, Any]] = None,
    ) -> Any:
        kwargs = kwargs or {}
        if _waits(getattr(func, "__name__", ""), args, kwargs):
            self.found[call_site()] += 1
        return func(*args, **kwargs)


def _waits(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    if name in ("__getitem__", "__setitem__"):
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
        return any(isinstance(each, Tensor) and each.dtype == torch.bool for each in index)
    if name == "repeat_interleave":
        return any(isinstance(each, Tensor) for each in args[1:])
    if name == "to":  # a copy to the device, unless it is told not to wait
        to_device = any(isinstance(each, (torch.device, str)) for each in args[1:])
        return to_device and not kwargs.get("non_blocking", False)
    return name in WAITING


def call_site() -> str:
    """The innermost line of the package that led here; without one that outside of this file."""
    frame: Optional[FrameType] = inspect.currentframe()
    inner = None
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        place = f"{frame.f_lineno} {frame.f_code.co_name}"
        if path.is_relative_to(PACKAGE):
            return f"{path.relative_to(PACKAGE).as_posix()}:{place}"
        if inner is None and str(path) not in (__file__, warnings.__file__):
            inner = f"{path.parent.name}/{path.name}:{place}"
        frame = frame.f_back
    return inner or "unknown"
