"""A torch head inside a Thinc model: built late, saved without pickle."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import srsly
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from thinc.api import Optimizer, Shim, get_torch_default_device
from thinc.util import torch2xp, xp2torch

from spacy_nested_ner.heads.base import Head


class HeadShim(Shim):
    """Holds a head that does not exist before the widths and the labels are known.

    Thinc wants the same nodes when a model is saved and when it is loaded. The node of the head is
    therefore always there, with this shim; what the shim saves is enough to build the head:
    constructor settings, vector width and labels as JSON, weights as safetensors.
    """

    def __init__(self, head_class: Callable[..., Head], settings: Dict[str, Any]) -> None:
        super().__init__(None)
        self.head_class = head_class
        self.settings = settings
        self.width: Optional[int] = None
        self.labels: List[str] = []

    @property
    def head(self) -> Head:
        """The torch module; ValueError before `build`."""
        if self._model is None:
            raise ValueError(
                "The head of this component has no weights yet: call nlp.initialize(...) or load "
                "a trained pipeline before using it."
            )
        return self._model

    @property
    def is_built(self) -> bool:
        """Whether there are weights."""
        return self._model is not None

    def build(self, width: int, labels: List[str]) -> None:
        """Make a fresh head for word vectors of this width and these labels."""
        self.width, self.labels = width, list(labels)
        head = self.head_class(width, len(labels), **self.settings)
        self._model = head.to(get_torch_default_device())
        self._renew_id()

    def add_labels(self, labels: List[str]) -> None:
        """Grow a trained head to these labels, which begin with the present ones."""
        self.head.add_labels(len(labels))
        self.labels = list(labels)
        self._renew_id()

    def _renew_id(self) -> None:
        """A new key for optimizers, which keep moments in the shape of the old parameters."""
        Shim.global_id += 1
        self.id = Shim.global_id

    def _keyed_parameters(self) -> Iterator[Tuple[Tuple[int, str], torch.nn.Parameter]]:
        for name, parameter in self.head.named_parameters():
            yield (self.id, name), parameter

    def finish_update(self, optimizer: Optimizer) -> None:
        """Let the optimizer step over every parameter that has a gradient."""
        for key, parameter in self._keyed_parameters():
            if parameter.grad is not None:
                weights, _ = optimizer(
                    key, torch2xp(parameter.data), torch2xp(parameter.grad)  # type: ignore[arg-type]
                )
                parameter.data = xp2torch(weights, requires_grad=True, device=parameter.device)
                parameter.grad = None

    @contextlib.contextmanager
    def use_params(self, params: Dict[Any, Any]) -> Iterator[None]:
        """Weights from `params` (the optimizer's averages) inside the context."""
        if not self.is_built:
            yield
            return
        backup = {}
        for key, parameter in self._keyed_parameters():
            if key in params:
                backup[key] = parameter.data
                parameter.data = xp2torch(params[key], device=parameter.device)
        try:
            yield
        finally:
            for key, parameter in self._keyed_parameters():
                if key in backup:
                    parameter.data = backup[key]

    def to_device(self, device_type: str, device_id: int) -> None:
        """Move the weights: "cpu" or "gpu"."""
        if self.is_built:
            self.head.to("cpu" if device_type == "cpu" else f"cuda:{device_id}")

    def to_bytes(self) -> bytes:
        """Settings and weights; weights are None before `build`."""
        weights = None
        if self.is_built:
            state = self.head.state_dict()
            weights = save_tensors({k: v.detach().cpu().contiguous() for k, v in state.items()})
        return srsly.msgpack_dumps(
            {
                "settings": srsly.json_dumps(self.settings),
                "width": self.width,
                "labels": self.labels,
                "weights": weights,
            }
        )

    def from_bytes(self, bytes_data: bytes) -> HeadShim:
        """Rebuild the head that `to_bytes` saved, on the device in use."""
        saved = srsly.msgpack_loads(bytes_data)
        self.settings = srsly.json_loads(saved["settings"])
        self.width, self.labels = saved["width"], list(saved["labels"])
        self._model = None
        if saved["weights"] is not None:
            self.build(saved["width"], self.labels)
            self.head.load_state_dict(load_tensors(saved["weights"]))
        return self
