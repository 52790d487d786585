"""From the host to the device in use."""

from typing import Union

import numpy as np
import torch
from torch import Tensor


def on_device(values: Union[np.ndarray, Tensor], device: Union[torch.device, str]) -> Tensor:
    """Values of the host as a tensor; a GPU gets a copy that is not waited for.

    CUDA has read the values when the call returns. Apple's MPS may read them later, when their
    memory is another's: it is waited for.
    """
    tensor = torch.from_numpy(values) if isinstance(values, np.ndarray) else values
    return tensor.to(device, non_blocking=torch.device(device).type != "mps")
