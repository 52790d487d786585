"""Torch modules inside Thinc models: built late, saved without pickle."""

from __future__ import annotations

import contextlib
import copy
import functools
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

import srsly
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from thinc.api import (
    CupyOps,
    Model,
    Optimizer,
    Shim,
    get_current_ops,
    set_gpu_allocator,
)
from thinc.backends import context_pools
from thinc.util import torch2xp, xp2torch
from torch import nn

from spacy_nested_ner.device import cpu_capabilities, device_in_use
from spacy_nested_ner.layers.int8 import is_int8
from spacy_nested_ner.layers.packed_encoder import keep_memory
from spacy_nested_ner.layers.quick_layers import with_quick_layers
from spacy_nested_ner.warn import warn

CANNOT_LEARN = (
    "the weights of its encoder are int8, which cannot be trained further. Train the pipeline that "
    "it was compressed from, and compress the result with 'python -m spacy nested-ner compress'"
)


# Seen on a Zen 3: 8.2 instead of 0.7 seconds for 16 sentences with MiniLM.
EMULATED = (
    "The encoder has mixed_precision = true, but its device ({device}) has no instructions for "
    "bfloat16, so that a training step can take ten times as long. Set mixed_precision to null, "
    "which is true only where there are such instructions."
)


@functools.cache
def has_bfloat16(device: str) -> bool:
    """Whether a kind of device, "cpu" or "cuda", has instructions for products in bfloat16."""
    if device == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    known = cpu_capabilities() if device == "cpu" else {}
    return any(known.get(name) for name in ("amx_bf16", "avx512_bf16"))


@contextlib.contextmanager
def running(
    is_train: bool, *modules: nn.Module, mixed_precision: Optional[bool] = False
) -> Iterator[None]:
    """Training or evaluation mode with gradients or without; evaluation mode afterwards.

    mixed_precision: matrix products of a training step in bfloat16, None where the device has
        instructions for that. Predictions stay in float32: in bfloat16 they would depend on what
        else is in the batch.

    Raises ValueError for training with int8 weights.
    """
    if is_train and any(map(is_int8, modules)):
        raise ValueError(f"A pretrained encoder cannot learn: {CANNOT_LEARN}.")
    for module in modules:
        if module.training != is_train:  # every part is told: too much for every doc
            module.train(is_train)
    precision: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if is_train and mixed_precision is not False:
        device = next(modules[0].parameters()).device.type
        if mixed_precision and not has_bfloat16(device):
            warn(EMULATED.format(device=device))
        if mixed_precision or has_bfloat16(device):
            precision = torch.autocast(device, torch.bfloat16)
    try:
        with torch.set_grad_enabled(is_train), precision:
            yield
    finally:
        for module in modules if is_train else ():
            module.eval()


def share_gpu_memory() -> None:
    """On a GPU let cupy, which Thinc's layers use, take its memory from torch's pool: of two pools
    each would keep what the other lacks. Thinc's own PyTorch shim does the same."""
    if isinstance(get_current_ops(), CupyOps) and "pytorch" not in context_pools.get():
        set_gpu_allocator("pytorch")
        CupyOps.xp.get_default_memory_pool().free_all_blocks()


def called_by_its_parent(model: Model, X: Any, is_train: bool) -> Any:
    """In place of the forward pass of a node that only holds a shim for the node above it."""
    raise ValueError(f"'{model.name}' has no input of its own: call the model that it belongs to.")


class TorchShim(Shim):
    """Base of shims that hold a torch module which does not exist before `initialize`.

    Thinc wants the same nodes when a model is saved and when it is loaded. A node with such a shim
    is therefore always there; what the shim saves is enough to build the module again.
    """

    what = "module"

    @property
    def module(self) -> Any:
        """The torch module; ValueError before there are weights."""
        if self._model is None:
            raise ValueError(
                f"The {self.what} has no weights yet: call nlp.initialize(...) or load a trained "
                "pipeline before using it."
            )
        return self._model

    @property
    def device(self) -> torch.device:
        """Where its weights are; ValueError before there are any."""
        return next(self.module.parameters()).device

    @property
    def is_built(self) -> bool:
        """Whether there are weights."""
        return self._model is not None

    def set_module(self, module: nn.Module) -> None:
        """Take a new module, in evaluation mode, to the device in use, see `device_in_use`."""
        share_gpu_memory()
        module = with_quick_layers(module)
        self._model = module.float().eval().to(device_in_use())
        self.renew_id()

    def renew_id(self) -> None:
        """A new key for optimizers, which keep moments in the shape of the old parameters."""
        with Shim.global_id_lock:
            Shim.global_id += 1
            self.id = Shim.global_id

    def _keyed_parameters(self) -> Iterator[Tuple[Tuple[int, str], nn.Parameter]]:
        if self._model is not None:
            for name, parameter in self._model.named_parameters():
                yield (self.id, name), parameter

    def finish_update(self, optimizer: Optimizer) -> None:
        """Let the optimizer step over every parameter that has a gradient. `AdamW.v1` may keep the
        gradients, which are of no more use here."""
        take = getattr(optimizer, "take", None)
        for key, parameter in self._keyed_parameters():
            if parameter.grad is None:
                continue
            done = functools.partial(keep_memory, parameter)
            if take is not None:
                take(key, parameter.data, parameter.grad, done)
            else:
                _step(optimizer, key, parameter)
                done(parameter.grad)
            parameter.grad = None

    @contextlib.contextmanager
    def use_params(self, params: Dict[Any, Any]) -> Iterator[None]:
        """Weights from `params`, the optimizer's averages, inside the context."""
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

    def copy(self) -> TorchShim:
        """A copy with a key of its own, so that an optimizer tells the two apart."""
        copied = copy.deepcopy(self)
        copied.renew_id()
        return copied

    def to_device(self, device_type: str, device_id: int) -> None:
        """Move the weights: "cpu" or "gpu"."""
        if self._model is not None:
            self._model.to("cpu" if device_type == "cpu" else f"cuda:{device_id}")

    def _weights(self) -> Optional[bytes]:
        """All weights as safetensors, None before there are any."""
        return None if self._model is None else weights_of(self._model)


def weights_of(module: nn.Module) -> bytes:
    """All weights as safetensors."""
    state = module.state_dict()
    return save_tensors({k: v.detach().cpu().contiguous() for k, v in state.items()})


def _step(optimizer: Optimizer, key: Tuple[int, str], parameter: nn.Parameter) -> None:
    """A step of an optimizer over one parameter."""
    weights, _ = optimizer(
        key,
        torch2xp(parameter.data),  # type: ignore[arg-type]
        torch2xp(parameter.grad),  # type: ignore[arg-type]
    )
    updated = xp2torch(weights, device=parameter.device)
    # Updated in place, the usual case: another tensor over the same memory would only keep the one
    # before alive, step after step.
    if updated.data_ptr() != parameter.data_ptr():
        parameter.data = updated


class ModuleShim(TorchShim):
    """Holds a module whose constructor takes JSON-serialisable settings, some of them known late.

    module_class: of the module. settings: keyword arguments known from the start.
    """

    def __init__(self, module_class: Callable[..., nn.Module], settings: Dict[str, Any]) -> None:
        super().__init__(None)
        self.module_class = module_class
        self.settings = dict(settings)

    def build(self, **sizes: Any) -> None:
        """Make a fresh module of the settings and these further ones."""
        self.settings.update(sizes)
        self.set_module(self.module_class(**self.settings))

    def to_bytes(self) -> bytes:
        """Settings as JSON, weights as safetensors; None before `build`."""
        return srsly.msgpack_dumps(
            {"settings": srsly.json_dumps(self.settings), "weights": self._weights()}
        )

    def from_bytes(self, data: bytes) -> ModuleShim:
        """Rebuild the module that `to_bytes` saved, on the device in use."""
        saved = srsly.msgpack_loads(data)
        self.settings, self._model = srsly.json_loads(saved["settings"]), None
        if saved["weights"] is not None:
            module = self.module_class(**self.settings)
            module.load_state_dict(load_tensors(saved["weights"]))
            self.set_module(module)
        return self
