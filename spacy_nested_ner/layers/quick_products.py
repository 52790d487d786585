"""Products of float32 matrices, by the faster of the two libraries that torch has on a CPU.

Torch multiplies with MKL, which on a CPU of AMD makes use of AVX2 alone. oneDNN, which torch brings
along, uses AVX-512 there and takes less than half of the time on Zen 5. (Zen 4 has units of half
that width: AVX-512 gains nothing.) It compiles code for each shape, though, so the number of rows
must not be another in every batch.
"""

from __future__ import annotations

import functools
import threading
from typing import Any, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from spacy_nested_ner.device import cpu_capabilities
from spacy_nested_ner.forks import in_forked_processes

# Multiplications of a product below which it costs less than the choice of a library.
FEW = 2**22
# Steps of the number of rows in each octave, so that shapes repeat.
STEPS = 8


class ByOneDNN:
    """A context in which oneDNN multiplies float32. The setting is that of the process: the first
    thread that comes in changes it, the last one that goes changes it back.

    The setting would allow oneDNN to round to bfloat16 where a CPU has units for that: `is_quick`
    sees to it that it does not.
    """

    def __init__(self) -> None:
        self.lock, self.inside, self.before = threading.Lock(), 0, "none"

    def renew(self) -> None:
        """Leave for those who came in, which are threads of the process that forked this one."""
        if self.inside:
            _setting().fp32_precision = self.before
        self.lock, self.inside = threading.Lock(), 0

    def __enter__(self) -> None:
        with self.lock:
            self.inside += 1  # before the setting is another: see `renew`
            if self.inside == 1:
                self.before = _setting().fp32_precision
                _setting().fp32_precision = "bf16"

    def __exit__(self, *error: Any) -> None:
        with self.lock:
            if self.inside == 1:
                _setting().fp32_precision = self.before
            self.inside -= 1


by_one_dnn = ByOneDNN()
in_forked_processes(by_one_dnn.renew)


def _setting() -> Any:
    """What holds torch's setting for products by oneDNN."""
    return getattr(torch.backends.mkldnn, "matmul", None)


@functools.cache
def is_quick() -> bool:
    """Whether oneDNN multiplies float32 faster than MKL, and as exactly."""
    if not hasattr(_setting(), "fp32_precision"):
        return False  # an older torch
    known = cpu_capabilities()
    wide = known.get("avx_vnni") or known.get("avx512_vp2intersect")  # of AMD's, since Zen 5
    if "AMD" not in str(known.get("cpu_name", "")) or not (known.get("avx512_f") and wide):
        return False
    # Its last bit is lost in bfloat16.
    exact = torch.full((128, 128), 1 + 2.0**-12)
    with by_one_dnn:
        return torch.equal(exact @ torch.eye(128), exact)


def whole_steps(rows: int) -> int:
    """The largest number of rows, at most these, that is one of `STEPS` in its octave."""
    step = max(1, 2 ** (rows.bit_length() - 1) // STEPS)
    return rows - rows % step


def multiply(left: Tensor, right: Tensor, out: Optional[Tensor] = None) -> Tensor:
    """`left @ right` of two matrices, where `left` has another number of rows in every batch.

    out: where the product goes, without a gradient.
    """
    n_rows = len(left)
    if n_rows * right.numel() < FEW or not is_quick():
        return torch.mm(left, right, out=out)
    if out is None:
        out = left.new_empty(n_rows, right.shape[1])
    whole = whole_steps(n_rows)
    with by_one_dnn:
        torch.mm(left[:whole], right, out=out[:whole])
    if whole < n_rows:
        torch.mm(left[whole:], right, out=out[whole:])
    return out


def multiply_rows(left: Tensor, right: Tensor, out: Optional[Tensor] = None) -> Tensor:
    """`left.T @ right` of two matrices, both with another number of rows in every batch."""
    n_rows = len(left)
    if left.shape[1] * right.numel() < FEW or not is_quick():
        return torch.mm(left.t(), right, out=out)
    whole = whole_steps(n_rows)
    with by_one_dnn:
        out = torch.mm(left[:whole].t(), right[:whole], out=out)
    return out if whole == n_rows else out.addmm_(left[whole:].t(), right[whole:])


class LinearProduct(torch.autograd.Function):
    """`torch.nn.functional.linear` with these products."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Optional[Tensor]) -> Tensor:
        """inputs: `(..., width)`; weight: `(outputs, width)`; bias: `(outputs,)` or None."""
        ctx.save_for_backward(inputs, weight)
        outputs = multiply(inputs.reshape(-1, inputs.shape[-1]), weight.t())
        if bias is not None:
            outputs += bias
        return outputs.view(*inputs.shape[:-1], len(weight))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tuple[Optional[Tensor], ...]:
        """Of the inputs, the weight and the bias."""
        inputs, weight = ctx.saved_tensors
        rows = gradient.reshape(-1, len(weight))
        of_inputs, of_weight, of_bias = ctx.needs_input_grad
        return (
            multiply(rows, weight).view(inputs.shape) if of_inputs else None,
            multiply_rows(rows, inputs.reshape(-1, inputs.shape[-1])) if of_weight else None,
            rows.sum(dim=0) if of_bias else None,
        )


def linear(inputs: Tensor, weight: Tensor, bias: Optional[Tensor]) -> Tensor:
    """`torch.nn.functional.linear`, quicker on some CPUs.

    inputs: `(..., width)`; weight: `(outputs, width)`; bias: `(outputs,)` or None.
    """
    if (
        inputs.device.type == "cpu"
        and inputs.numel() * len(weight) >= FEW
        and is_quick()
        and not torch.is_autocast_enabled("cpu")
    ):
        return LinearProduct.apply(inputs, weight, bias)
    return F.linear(inputs, weight, bias)


class Linear(nn.Linear):
    """`torch.nn.Linear` with these products."""

    def forward(self, inputs: Tensor) -> Tensor:
        """`(..., width)` to `(..., outputs)`."""
        return linear(inputs, self.weight, self.bias)


class GRUCell(nn.GRUCell):
    """`torch.nn.GRUCell` with these products."""

    def forward(self, inputs: Tensor, state: Optional[Tensor] = None) -> Tensor:
        """`(batch, width)` and a state, `(batch, h)`, to the next state."""
        if state is None or not is_quick():
            return super().forward(inputs, state)
        width = self.hidden_size
        given = linear(inputs, self.weight_ih, self.bias_ih).split([2 * width, width], dim=1)
        kept = linear(state, self.weight_hh, self.bias_hh).split([2 * width, width], dim=1)
        reset, update = (given[0] + kept[0]).sigmoid().chunk(2, dim=1)
        candidate = torch.addcmul(given[1], reset, kept[1]).tanh()
        return torch.lerp(candidate, state, update)
