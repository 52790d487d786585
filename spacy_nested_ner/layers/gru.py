"""Gated recurrent units (Cho et al. 2014) on a CPU, several directions in one loop.

PyTorch has a fused LSTM for CPUs but no fused GRU: there each word costs a dozen small operations
in each direction, all of them on autograd's tape. Here what can be done for all words at once is
done outside of the loop, and the gradient of the weights is one product.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence, Tuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from spacy_nested_ner.layers.quick_products import linear


class Run(NamedTuple):
    """What a loop over T words in D directions has computed, `(T, D, batch, ...)`.

    states: `(T + 1, D, batch, h)`, zeros first. gates: `(..., 2 h)`, reset and update.
    candidate: `(..., h)`, the new state. recurrent: `(..., h)`, its recurrent part before the gate.
    """

    states: Tensor
    gates: Tensor
    candidate: Tensor
    recurrent: Tensor


def gru_states(layers: Sequence[nn.GRU], inputs: Sequence[Tensor]) -> Tuple[Tensor, ...]:
    """What plain GRU layers of one size make of inputs of one size, the first state being zero.

    layers: one layer and one direction each. inputs: `(batch, T, width)`, one for each of them.
    Returns `(batch, T, h)` for each of them.
    """
    in_weights, weights, in_biases, biases = zip(*(layer.all_weights[0] for layer in layers))
    each = zip(inputs, in_weights, in_biases)
    projected = [linear(words.transpose(0, 1), weight, bias) for words, weight, bias in each]
    recurrence = [torch.stack(column) for column in (weights, biases)]
    run = _Recurrence.apply if torch.is_grad_enabled() else _predicted
    states = run(torch.stack(projected, dim=1), *recurrence)
    return tuple(direction.transpose(0, 1) for direction in states.unbind(1))


class _Recurrence(torch.autograd.Function):
    """`(T, D, batch, 3 h)` projected words, `(D, 3 h, h)` weights and `(D, 3 h)` biases to
    `(T, D, batch, h)` states. As in PyTorch, reset gate, update gate and candidate in this order.
    """

    @staticmethod
    def forward(ctx: Any, projected: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        run = _run(projected, weight, bias)
        ctx.save_for_backward(weight, *run)
        return run.states[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        weight, *saved = ctx.saved_tensors
        run = Run(*saved)
        of_candidate, of_recurrent = _slopes(run)
        by_state = torch.empty_like(run.candidate)
        by_recurrent = torch.empty_like(of_recurrent)
        update = run.gates.chunk(2, dim=-1)[1]
        later = torch.zeros_like(by_state[0])
        each = (gradient, update, of_recurrent, by_state, by_recurrent)
        for given, kept, slope, state, parts in zip(*(reversed(t.unbind(0)) for t in each)):
            torch.add(given, later, out=state)
            torch.mul(state.unsqueeze(2), slope, out=parts)
            later = torch.baddbmm(state * kept, parts.flatten(2), weight)
        by_projected = by_recurrent.clone()
        by_projected[..., 2, :] = by_state * of_candidate
        flat = by_recurrent.flatten(3).transpose(0, 1).flatten(1, 2)  # `(D, T * batch, 3 h)`
        before = run.states[:-1].transpose(0, 1).flatten(1, 2)
        return by_projected.flatten(3), flat.transpose(1, 2) @ before, flat.sum(dim=1)


def _run(projected: Tensor, weight: Tensor, bias: Tensor) -> Run:
    """The loop over the words; everything is written where it stays."""
    width = weight.shape[2]
    size = projected.shape[:3]
    states = projected.new_empty(size[0] + 1, *size[1:], width)
    states[0] = 0.0
    parts = projected.new_empty(*size, 3 * width)
    candidates = projected.new_empty(*size, width)
    of_gates, of_candidate = projected.split([2 * width, width], dim=-1)
    gates, recurrent = parts.split([2 * width, width], dim=-1)
    reset, update = gates.chunk(2, dim=-1)
    weight, bias = weight.transpose(1, 2), bias.unsqueeze(1)
    each = (states[:-1], states[1:], of_gates, of_candidate, parts, gates, recurrent)
    rows = zip(*(t.unbind(0) for t in (*each, reset, update, candidates)))
    for before, after, gate_in, new_in, out, gate, new, r, z, candidate in rows:
        torch.baddbmm(bias, before, weight, out=out)
        gate.add_(gate_in).sigmoid_()
        torch.addcmul(new_in, r, new, out=candidate).tanh_()
        torch.lerp(candidate, before, z, out=after)
    return Run(states, gates, candidates, recurrent)


def _predicted(projected: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """As `_Recurrence`, of which nobody asks a gradient. numpy does what is done number by number:
    on so few numbers its operations cost less than half as much. projected is overwritten.

    A sigmoid is (1 + tanh(x / 2)) / 2: gates are halved before and doubled in what follows.
    """
    width = weight.shape[2]
    halves = weight.new_full((3 * width, 1), 0.5)
    weight, bias = (weight * halves).transpose(1, 2), (bias * halves[:, 0]).unsqueeze(1)
    projected[..., : 2 * width] *= 0.5
    states = projected.new_empty(*projected.shape[:3], width)
    parts = projected.new_empty(*projected.shape[1:])
    sums, from_words, after = parts.numpy(), projected.numpy(), states.numpy()
    gates, candidate = sums[..., : 2 * width], sums[..., 2 * width :]
    reset, update = gates[..., :width], gates[..., width:]
    before = projected.new_zeros(states.shape[1:])
    numbers, change = before.numpy(), np.empty_like(candidate)
    each = zip(from_words[..., : 2 * width], from_words[..., 2 * width :], after, states.unbind(0))
    for gate_in, new_in, out, state in each:
        torch.baddbmm(bias, before, weight, out=parts)
        gates += gate_in
        np.tanh(gates, out=gates)
        gates += 1.0
        np.multiply(candidate, reset, out=candidate)
        np.add(candidate, new_in, out=candidate)
        np.tanh(candidate, out=candidate)
        np.subtract(numbers, candidate, out=change)
        change *= update
        change *= 0.5
        np.add(candidate, change, out=out)
        before, numbers = state, out
    return states


def _slopes(run: Run) -> Tuple[Tensor, Tensor]:
    """How the next state moves with the candidate's input, `(T, D, batch, h)`, and with the three
    recurrent parts, `(T, D, batch, 3, h)`."""
    reset, update = run.gates.chunk(2, dim=-1)
    of_candidate = (1 - update) * (1 - run.candidate.square())
    of_reset = of_candidate * run.recurrent * reset * (1 - reset)
    of_update = (run.states[:-1] - run.candidate) * update * (1 - update)
    return of_candidate, torch.stack([of_reset, of_update, of_candidate * reset], dim=3)
