"""A clock that charges CPU time to parts of a program while it runs.

Which part runs is known from the functions on Python's call stack, by the module that they are in
or one by one, from the hooks of torch's modules, and from methods that are wrapped for the time.
"""

import inspect
import sys
import time
from collections import defaultdict
from contextlib import contextmanager
from types import CodeType, FrameType, MappingProxyType
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Union

import torch
from thinc.api import Model

BACKWARD = ", backward"
# What has a part: a function, or a module's file or, with "/" at the end, its folder.
Place = Union[str, Callable[..., Any]]


class Shares:
    """CPU seconds by part. While an inner part runs, the outer one does not."""

    def __init__(
        self,
        places: Mapping[Place, Optional[str]] = MappingProxyType({}),
        passes: Sequence[str] = (),
        whole: Sequence[str] = (),
    ) -> None:
        """places: The parts of functions and modules; the longest file counts. None, as for all
            that are not among them, is the part of the caller.
        passes: Parts whose backward pass is one of its own.
        whole: Parts in which no other begins.
        """
        self.passes, self.whole = passes, whole
        self.seconds: Dict[str, float] = defaultdict(float)
        self.running: List[str] = []
        self.since = 0.0
        self.files = {key: part for key, part in places.items() if isinstance(key, str)}
        # Of each function that was called; None for those of no part of their own.
        self.parts: Dict[CodeType, Optional[str]] = {
            inspect.unwrap(key).__code__: part
            for key, part in places.items()
            if not isinstance(key, str)
        }
        self.hooks: List[Any] = []
        self.after_layer = 0.0

    @contextmanager
    def on(self, part: str) -> Iterator[None]:
        """Charge what happens in the `with` block to a part, and parts inside to themselves."""
        previous = sys.getprofile()
        self.begin(part)
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(previous)
            self.end()

    def begin(self, part: str) -> None:
        """Charge a part from now on; inside of any backward pass, its own backward pass."""
        self._charge()
        if self.running and self.running[-1] in self.whole:
            part = self.running[-1]
        elif part in self.passes and any(outer.endswith(BACKWARD) for outer in self.running):
            part += BACKWARD
        self.running.append(part)

    def end(self) -> None:
        """Go on with the part that ran before."""
        self._charge()
        self.running.pop()

    def switch(self, part: str) -> None:
        """Go on with another part up to the end of the innermost one."""
        self._charge()
        if self.running:
            self.running[-1] = part

    def _charge(self) -> None:
        now = time.process_time()
        if self.running:
            self.seconds[self.running[-1]] += now - self.since
        self.since = now

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        """Called by Python at each call and return; generators come and go like functions."""
        if event == "call":
            part = self._part(frame.f_code)
            if part is not None:
                self.begin(part)
        elif event == "return" and self._part(frame.f_code) is not None:
            self.end()

    def _part(self, code: CodeType) -> Optional[str]:
        if code not in self.parts:
            file = code.co_filename.replace("\\", "/")
            known = [key for key in self.files if f"/{key}" in file]
            self.parts[code] = self.files[max(known, key=len)] if known else None
        return self.parts[code]

    def wrap(self, owner: Any, name: str, part: str) -> None:
        """Charge the calls of an object's method."""
        method = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self.begin(part)
            try:
                return method(*args, **kwargs)
            finally:
                self.end()

        setattr(owner, name, call)

    def wrap_model(self, model: Model, part: str) -> Model:
        """A Thinc model that does the same and charges both passes."""

        def forward(outer: Model, X: Any, is_train: bool) -> Any:
            self.begin(part)
            output, backprop = model(X, is_train)
            self.end()

            def back(d_output: Any) -> Any:
                self.begin(part + BACKWARD)
                gradient = backprop(d_output)
                self.end()
                return gradient

            return output, back

        dims: Dict[str, Optional[int]] = {
            name: model.get_dim(name) for name in model.dim_names if model.has_dim(name)
        }
        refs = {name: model.maybe_get_ref(name) for name in model.ref_names}
        return Model(model.name, forward, layers=[model], dims=dims, refs=refs)

    def watch_head(self, head: torch.nn.Module, part: str, rest: str) -> None:
        """Charge both passes of a torch module; what comes after the last of its layers in a
        prediction is the rest. Its losses have a `total`."""
        layers = [module for module in head.modules() if module is not head]
        self.hooks += [layer.register_forward_hook(self._layer_ends(part)) for layer in layers]

        def begins(module: Any, inputs: Any) -> None:
            self.begin(part)
            self.after_layer = self.seconds[part]

        def ends(module: Any, inputs: Any, output: Any) -> None:
            self.end()
            if isinstance(output, dict):
                self.watch_backward([loss.total for loss in output.values()], part)
            else:
                tail = self.seconds[part] - self.after_layer
                self.seconds[part] -= tail
                self.seconds[rest] += tail

        self.hooks.append(head.register_forward_pre_hook(begins))
        self.hooks.append(head.register_forward_hook(ends))

    def _layer_ends(self, part: str) -> Callable[..., None]:
        def hook(module: Any, inputs: Any, output: Any) -> None:
            self._charge()
            self.after_layer = self.seconds[part]

        return hook

    def watch_encoder(self, module: torch.nn.Module, part: str) -> None:
        """Charge the backward pass of a torch module that is in the graph of another."""

        def ends(_: Any, inputs: Any, output: Any) -> None:
            self.watch_backward([output.last_hidden_state], part)

        self.hooks.append(module.register_forward_hook(ends))

    def watch_backward(self, tensors: List[torch.Tensor], part: str) -> None:
        """From these tensors on the backward pass is in the part."""
        for tensor in tensors:
            if tensor.requires_grad:
                tensor.register_hook(lambda _: self.switch(part + BACKWARD))

    def leave(self) -> None:
        """Take the hooks out again."""
        for hook in self.hooks:
            hook.remove()
        self.hooks = []
