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
from spacy_nested_ner.encoders.protocol import listens


class NotAdversarial(ValueError):
    """A model that cannot learn this way; says why and what to change."""


def learn_twice(model: Model, learn: Callable[[], float], size: float) -> float:
    """Add the gradients of a batch, then those of the same batch with perturbed embeddings.

    learn: adds the gradients of the batch and returns its loss. size: see `perturbed`.
    RETURNS (float): The loss without perturbation.
    RAISES (NotAdversarial): For a listener and for an encoder without embeddings that learn. After
        this and any other error no gradient of the batch is left.
    """
    if listens(model):
        raise NotAdversarial(
            "adversarial training needs an encoder of the component's own: through a listener, the "
            "gradients of the first pass would be counted twice. Set adversarial to 0, or give the "
            "component a pretrained encoder of this package or a tok2vec of its own "
            "(nlp.replace_listeners)"
        )
    with new_gradients(model):
        loss = learn()
        tables = embedding_tables(model)
        if not tables:
            raise NotAdversarial(
                "adversarial training finds no trainable embeddings: the encoder must not be "
                "frozen, and either be a pretrained one of this package or have spaCy's hashed "
                "embeddings. Set adversarial to 0 or change the encoder"
            )
        with perturbed(tables, size):
            learn()
    return loss


class Table(NamedTuple):
    """Embeddings and their gradient after a backward pass, `(entries, h)` both, in the memory of
    the model."""

    weights: Tensor
    gradient: Tensor


def embedding_tables(model: Model) -> List[Table]:
    """The embeddings that learn: those of the pieces of a pretrained encoder of this package; where
    there is none, spaCy's hashed ones. Beside one that is frozen, what is hashed is a small part of
    what the head reads. To be called after a backward pass."""
    pieces, hashed, rests = [], [], False
    for node in model.walk():
        if node.name == "hashembed" and node.has_grad("E"):
            hashed.append(Table(xp2torch(node.get_param("E")), xp2torch(node.get_grad("E"))))
        for shim in node.shims:
            if isinstance(shim, PretrainedShim):
                weights = shim.piece_embeddings
                if weights.grad is not None:
                    pieces.append(Table(weights.detach(), weights.grad))
                else:
                    rests = True
    return pieces or ([] if rests else hashed)


@contextlib.contextmanager
def new_gradients(model: Model) -> Iterator[None]:
    """Within, the model starts without gradients. Afterwards the earlier ones, of other parts of an
    accumulated batch, are added. After an error only the earlier ones are left."""
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
    """Take all gradients out of the model (Thinc's own layers keep zeros). Returns calls that add
    them again."""
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
def perturbed(tables: List[Table], size: float) -> Iterator[None]:
    """Within, the embeddings are perturbed along their gradient g, by `size * g / ||g||` (eq. 6).

    The paper takes the norm over the words of one text, each occurrence by itself. Here it is taken
    over all rows of all tables that the batch has used: a word has one embedding wherever it
    occurs.
    """
    used = [table.gradient.any(1).nonzero()[:, 0] for table in tables]
    moves = _of_norm_one([table.gradient[rows] for table, rows in zip(tables, used)])
    kept = [table.weights[rows] for table, rows in zip(tables, used)]
    try:
        for table, rows, values, move in zip(tables, used, kept, moves):
            table.weights[rows] = values + size * move
        yield
    finally:
        for table, rows, values in zip(tables, used, kept):
            table.weights[rows] = values


def _of_norm_one(gradients: List[Tensor]) -> List[Tensor]:
    """Divided by the norm of all together. A sure model has gradients whose squares are too small
    for a float."""
    maxima = [each.abs().max() for each in gradients if each.numel()]
    if not maxima:
        return gradients
    largest = torch.stack(maxima).max()
    scaled = [each / largest for each in gradients]
    norm = torch.stack([each.norm() for each in scaled]).norm()
    return [each / norm for each in scaled]
