"""Adversarial training on embeddings (Miyato et al. 2017, "Adversarial Training Methods for
Semi-Supervised Text Classification", section 3), for the encoder of any system."""

import contextlib
from functools import partial
from typing import Callable, Iterator, List, NamedTuple

import torch
from thinc.api import Model
from thinc.util import xp2torch
from torch import Tensor
from torch.nn import Module, Parameter

from spacy_nested_ner.encoders.pretrained import PretrainedShim


class Table(NamedTuple):
    """Embeddings and the gradient that a backward pass has left, `(entries, h)` both; the memory
    is the model's."""

    weights: Tensor
    gradient: Tensor


def embedding_tables(model: Model) -> List[Table]:
    """The embeddings that learn: those of the pieces of a pretrained encoder of this package, and
    spaCy's hashed ones. To be called after a backward pass."""
    tables = []
    for node in model.walk():
        if node.name == "hashembed" and node.has_grad("E"):
            tables.append(Table(xp2torch(node.get_param("E")), xp2torch(node.get_grad("E"))))
        for shim in node.shims:
            if isinstance(shim, PretrainedShim):
                weights = shim.piece_embeddings
                if weights.grad is not None:
                    tables.append(Table(weights.detach(), weights.grad))
    return tables


@contextlib.contextmanager
def new_gradients(model: Model) -> Iterator[None]:
    """Within, the model has no gradients but those of what happens inside. Afterwards those from
    before, of earlier parts of an accumulated batch, are added; after an error they alone are
    there."""
    before = _take_gradients(model)
    try:
        yield
    except BaseException:
        _take_gradients(model)
        raise
    finally:
        for add in before:
            add()


def _take_gradients(model: Model) -> List[Callable[[], None]]:
    """Leave the model without gradients (zeros in Thinc's own layers, which cannot be without);
    calls that add each of them again."""
    taken: List[Callable[[], None]] = []
    for node in model.walk():
        for name in node.param_names:
            if node.has_grad(name):
                gradient = node.get_grad(name)
                taken.append(partial(node.inc_grad, name, gradient))
                node.set_grad(name, node.ops.xp.zeros_like(gradient))
        for shim in node.shims:
            module = getattr(shim, "_model", None)
            for parameter in module.parameters() if isinstance(module, Module) else ():
                if parameter.grad is not None:
                    taken.append(partial(_add_gradient, parameter, parameter.grad))
                    parameter.grad = None
    return taken


def _add_gradient(parameter: Parameter, gradient: Tensor) -> None:
    parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)


@contextlib.contextmanager
def moved(tables: List[Table], size: float) -> Iterator[None]:
    """Within, the embeddings stand where the loss is higher, `r = size * g / ||g||` further along
    its gradient g (eq. 6); afterwards they are back.

    The paper takes the norm over the words of one text, each occurrence by itself. Here it is that
    over all rows that the batch has used, of all tables: an embedding is one and the same wherever
    it occurs.
    """
    used = [table.gradient.any(1).nonzero()[:, 0] for table in tables]
    moves = [table.gradient[rows] for table, rows in zip(tables, used)]
    norm = torch.stack([move.norm() for move in moves]).norm()
    kept = [table.weights[rows] for table, rows in zip(tables, used)]
    for table, rows, values, move in zip(tables, used, kept, moves):
        table.weights[rows] = values + move * (size / norm)
    try:
        yield
    finally:
        for table, rows, values in zip(tables, used, kept):
            table.weights[rows] = values
