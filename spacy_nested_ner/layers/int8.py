"""Layers with int8 weights: smaller, and on CPUs faster to predict with. They cannot learn.

Whatever a layer rounds it rounds row by row, and sums of int8 products are exact. So what a text
gives does not depend, to the last bit, on the texts beside it: a rounded value would turn the
smallest difference into a visible one. This is also why `Int8SelfAttention` leaves padding out.
"""

from __future__ import annotations

import functools
import itertools
import platform
from typing import Any, List, Optional, Tuple

import torch
from torch import Tensor, nn

from spacy_nested_ner.device import cpu_capabilities
from spacy_nested_ner.layers.attention import attend, split_parts

LARGEST = 127

# How many texts of how many pieces follow each other; texts of one length are read together.
Runs = List[Tuple[int, int]]


def to_int8(module: nn.Module, attention: bool) -> None:
    """Replace the linear layers and embeddings inside a module by ones with int8 weights.

    attention: replace the self-attention of Hugging Face's layers of the BERT and RoBERTa family,
        too, see `Int8SelfAttention`.
    """
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, Int8Linear([child]))
        elif isinstance(child, nn.Embedding):
            setattr(module, name, Int8Embedding(child))
        elif attention and all(hasattr(child, part) for part in ("query", "key", "value")):
            setattr(module, name, Int8SelfAttention(child))
        else:
            to_int8(child, attention)


def is_int8(module: nn.Module) -> bool:
    """Whether any layer has int8 weights."""
    return any(isinstance(part, (Int8Linear, Int8Embedding)) for part in module.modules())


def _rounded(rows: Tensor) -> Tuple[Tensor, Tensor]:
    """`(rows, n)` whole numbers from -127 to 127, as float, and the scale of each row, `(rows, 1)`:
    its largest absolute value becomes 127."""
    scale = rows.abs().amax(dim=1, keepdim=True).mul_(1 / LARGEST)
    scale.clamp_(min=torch.finfo(torch.float32).tiny)  # a row of zeros
    return (rows / scale).round_(), scale


class Int8Linear(nn.Module):
    """Linear layers on one input, with int8 weights and a scale for each output. Each row of the
    input is rounded to int8, too.

    linears: their outputs stand side by side.
    """

    weight: Tensor
    scale: Tensor
    bias: Optional[Tensor]

    def __init__(self, linears: List[nn.Linear]) -> None:
        super().__init__()
        weight, scale = _rounded(torch.cat([linear.weight.detach() for linear in linears]))
        self.register_buffer("weight", weight.to(torch.int8))
        self.register_buffer("scale", scale.squeeze(1))
        biases = [linear.bias.detach() for linear in linears if linear.bias is not None]
        self.register_buffer("bias", torch.cat(biases) if biases else None)

    def forward(self, states: Tensor) -> Tensor:
        """`(..., width) float` to `(..., outputs) float`."""
        rows, scale = _rounded(states.reshape(-1, states.shape[-1]))
        sums = _product(rows, self.weight)
        # One operation after the other: fused ones round differently at the end of a row.
        output = sums.mul_(scale).mul_(self.scale)
        if self.bias is not None:
            output.add_(self.bias)
        return output.view(*states.shape[:-1], len(self.weight))


class Int8Embedding(nn.Module):
    """An embedding table in int8 with a scale for each row."""

    weight: Tensor
    scale: Tensor

    def __init__(self, embedding: nn.Embedding) -> None:
        super().__init__()
        weight, scale = _rounded(embedding.weight.detach())
        self.register_buffer("weight", weight.to(torch.int8))
        self.register_buffer("scale", scale)

    def forward(self, ids: Tensor) -> Tensor:
        """`(...) long` to `(..., width) float`."""
        return self.weight[ids] * self.scale[ids]


class Int8SelfAttention(nn.Module):
    """The self-attention of a Hugging Face layer: query, key and value in one product, then each
    text by itself and without its padding.

    attention: with `query`, `key`, `value` and `num_attention_heads`.
    """

    def __init__(self, attention: Any) -> None:
        super().__init__()
        self.heads: int = attention.num_attention_heads
        self.joint = Int8Linear([attention.query, attention.key, attention.value])

    def forward(self, states: Tensor, mask: Optional[Tensor] = None, *_: Any, **__: Any) -> Tuple:
        """`(batch, pieces, h)` states. mask: `(batch, 1, any, pieces)`, 0 for the real pieces of a
        row, which come first; None if all are. Returns a tuple with the same shape, zeros at
        padding."""
        shape = states.shape[:2]
        real = states.new_ones(shape, dtype=torch.bool) if mask is None else mask[:, 0, 0] == 0
        attended = torch.zeros_like(states)
        attended[real] = self.of_texts(states[real], runs_of(real))
        return (attended,)

    def of_texts(self, states: Tensor, runs: Runs) -> Tensor:
        """`(pieces, h)` states of texts that lie one after the other to the same shape."""
        joint = self.joint(states)
        found = []
        for part, (n_texts, length) in zip(joint.split([a * b for a, b in runs]), runs):
            query, key, value = split_parts(part.view(n_texts, length, -1), 3, self.heads)
            found.append(attend(query, key, value, None).flatten(0, 1))
        return torch.cat(found)


def runs_of(real: Tensor) -> Runs:
    """How many rows of how many pieces follow each other. real: `(batch, pieces)` bool.

    Raises ValueError for padding between pieces."""
    if (real[:, 1:] & ~real[:, :-1]).any():
        raise ValueError("int8 attention takes padding at the end of a row only.")
    lengths = itertools.groupby(real.sum(1).tolist())
    return [(len(list(rows)), length) for length, rows in lengths]


def _product(rows: Tensor, weight: Tensor) -> Tensor:
    """Whole numbers as float, `(rows, width)`, times int8 weights, `(outputs, width)`, transposed:
    `(rows, outputs)` float."""
    if rows.is_cuda or not has_int8_products():
        return rows @ weight.t().float()
    return torch._int_mm(rows.to(torch.int8), weight.t()).float()


@functools.cache
def has_int8_products() -> bool:
    """Whether this CPU multiplies int8 fast and without a rounding error."""
    if platform.machine() not in ("x86_64", "AMD64") or not torch.backends.mkldnn.is_available():
        return False
    known = cpu_capabilities()
    if known and not known.get("avx512_vnni"):
        return False  # where oneDNN is exact then, it takes ten times as long as for float32
    # Of an older torch that is not known. Sums of two products may not fit where they are kept.
    signs = torch.tensor([[1], [-1]]).expand(2, 64)
    numbers = (LARGEST * signs).to(torch.int8).contiguous()
    exact = 64 * LARGEST**2 * torch.tensor([[1, -1], [-1, 1]])
    try:
        return torch.equal(torch._int_mm(numbers, numbers.t()).long(), exact)
    except NotImplementedError:  # of a torch that knows them on GPUs only
        return False
