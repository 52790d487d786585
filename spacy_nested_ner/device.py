"""From the host to the device in use."""

from contextlib import contextmanager
from typing import Any, Iterator, Mapping, Union

import numpy as np
import torch
from thinc.api import get_torch_default_device
from torch import Tensor


def device_in_use() -> torch.device:
    """The device that Thinc has torch use.

    Raises ValueError for Apple's GPU (MPS), which lacks double precision and other things that
    heads and encoders need.
    """
    device: torch.device = get_torch_default_device()
    if device.type == "mps":
        raise ValueError(
            "spacy_nested_ner does not run on Apple's GPU (MPS). Use the CPU: leave out --gpu-id, "
            "or call spacy.require_cpu() before a pipeline is loaded or trained."
        )
    return device


def cpu_capabilities() -> Mapping[str, Any]:
    """What torch tells of the CPU, such as its instructions; empty for an older torch, which does
    not tell."""
    return torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}


def on_device(values: Union[np.ndarray, Tensor], device: Union[torch.device, str]) -> Tensor:
    """Values of the host as a tensor; a GPU, which has read them when the call returns, gets a copy
    that is not waited for."""
    tensor = torch.from_numpy(values) if isinstance(values, np.ndarray) else values
    return tensor.to(device, non_blocking=True)


@contextmanager
def own_draws(device: torch.device) -> Iterator[None]:
    """Within, torch draws the same on the CPU and on a CUDA device each time; what it draws
    afterwards is what it would have drawn without. Other devices are not touched."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(0)
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(0)
        yield
