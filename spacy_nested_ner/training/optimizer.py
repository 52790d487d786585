"""AdamW with two learning rates and clipping by the global norm, as a Thinc optimizer.

Thinc 8.3 calls its optimizer with one parameter at a time, which allows no norm over all parameters
and no groups. Here a call only collects; `AdamW.flush` applies the whole step.
"""

import math
from numbers import Real
from typing import (
    Any,
    Callable,
    Dict,
    List,
    Optional,
    Protocol,
    Set,
    Tuple,
    cast,
    runtime_checkable,
)

import numpy
import torch
from thinc.api import Model, Optimizer, get_torch_default_device
from thinc.optimizers import FloatOrSeq, KeyT
from thinc.types import FloatsXd
from torch import Tensor, nn

from spacy_nested_ner.settings import Setting
from spacy_nested_ner.training.schedules import RATE

BIAS_NAMES = ("b", "bias")
# Of the settings; what is not here has that of a rate.
RANGES = {
    "beta1": Setting(least=0, below=1),
    "beta2": Setting(least=0, below=1),
    "eps": Setting(above=0),
}


@runtime_checkable
class GroupedOptimizer(Protocol):
    """A Thinc optimizer that wants to know which parameters are the head's and when a step is
    complete. A pipe tells any optimizer that has these methods."""

    def set_head(self, model: Model) -> None:
        """Called before the parameters of a step: those of this model are the head's."""

    def flush(self) -> None:
        """Called after all parameters of a step."""


class AdamW(Optimizer):
    """`spacy_nested_ner.AdamW.v1`: Adam with decoupled weight decay (Loshchilov and Hutter 2019),
    one step over the parameters of a component and of all before it.

    Weights are updated in place by `flush`, which is called by `step_schedules` (so by
    `spacy train` after each step), by a call with a parameter that is already waiting (a new step
    has begun), and by `NestedNER.finish_update`. A loop of your own around
    `nlp.update(..., sgd=optimizer)` should end each step with `step_schedules()` or `flush()`.

    A parameter whose rate is 0 is frozen as if it did not require a gradient: no update, no decay,
    no moments, no share in the norm. Parameter averages are not offered: with a CNN on GENIA they
    gained nothing over a rate that falls to 0, as that of the shipped configs. `averages` is empty,
    not None, which `spacy pretrain` would not take.
    Weights must share memory with the arrays that Thinc hands over: true of Thinc layers and
    PyTorch wrappers on CPU and CUDA, not on Apple's MPS and not for TensorFlow or MXNet wrappers.

    learn_rate: rate of everything that is not the head's, a number or a schedule.
    head_learn_rate: rate of the head, a number or a schedule; `learn_rate` if None.
    weight_decay: decay per step and unit of learning rate; biases and 1-d parameters have none.
    beta1, beta2, eps: as in Adam.
    grad_clip: highest norm of the gradient over all parameters that step together; 0 for no limit.
        A component of this package ends a step with itself: several of them are clipped one by one.
    bias_correction: False for the moments as they are, as in BERT's own optimizer.

    Raises ValueError for a number out of its range; those that a schedule gives are not checked.
    """

    head_learn_rate: Optional[float]
    bias_correction: bool

    def __init__(
        self,
        learn_rate: FloatOrSeq = 1e-3,
        *,
        head_learn_rate: Optional[FloatOrSeq] = None,
        weight_decay: FloatOrSeq = 0.01,
        beta1: FloatOrSeq = 0.9,
        beta2: FloatOrSeq = 0.999,
        eps: FloatOrSeq = 1e-8,
        grad_clip: FloatOrSeq = 1.0,
        bias_correction: bool = True,
    ):
        super().__init__(
            _checked("learn_rate", learn_rate),
            L2=_checked("weight_decay", weight_decay),
            beta1=_checked("beta1", beta1),
            beta2=_checked("beta2", beta2),
            eps=_checked("eps", eps),
            grad_clip=_checked("grad_clip", grad_clip),
            use_averages=False,
        )
        self.averages = {}
        self.head_learn_rate = None
        # One schedule object for both would be advanced twice a step.
        if head_learn_rate is not None and head_learn_rate is not learn_rate:
            rate = _checked("head_learn_rate", head_learn_rate)
            self._set_attr_or_schedule("head_learn_rate", rate)
        self.bias_correction = bias_correction
        self._head: Set[KeyT] = set()
        self._parameters: Dict[KeyT, nn.Parameter] = {}
        # Parameters of the step under way, with their learning rate and weight decay.
        self._pending: Dict[KeyT, Tuple[float, float]] = {}
        # Those whose gradients came by `take`, and whom to tell after the step.
        self._taken: List[Tuple[nn.Parameter, Callable[[Tensor], None]]] = []
        self._torch = torch.optim.AdamW([{"params": []}], fused=True, **self._settings())

    def set_head(self, model: Model) -> None:
        """Let all parameters of a model learn at the rate of the head.

        To be called before the model's `finish_update`, any number of times and for any number of
        models. Parameters are told apart by `(id, name)`, not by id, because Thinc numbers nodes
        and shims independently.

        model: the Thinc model whose nodes and PyTorch modules, all the way down, are meant.
        """
        self._head.update(_parameter_keys(model))

    def __call__(
        self, key: KeyT, weights: FloatsXd, gradient: FloatsXd, *, lr_scale: float = 1.0
    ) -> Tuple[FloatsXd, FloatsXd]:
        """Collect one parameter and its gradient for the next `flush`.

        Returns the same two arrays, the weights unchanged for now, the gradient set to zero as
        Thinc's optimizer does (Thinc's models rely on it).
        """
        if gradient.size == 0:
            return weights, gradient
        incoming = _as_tensor(gradient)
        parameter = self._collect(key, _as_tensor(weights), lr_scale)
        if parameter is not None:
            if parameter.grad is None:
                parameter.grad = torch.empty_like(parameter)
            parameter.grad.copy_(incoming)
        incoming.zero_()
        return weights, gradient

    def take(
        self, key: KeyT, weights: Tensor, gradient: Tensor, done: Callable[[Tensor], None]
    ) -> None:
        """As a call, for a parameter of a torch module whose gradient is the optimizer's from now
        on: it is not copied, and `flush` lets go of it.

        done: called with the gradient when the optimizer needs it no more.
        """
        parameter = self._collect(key, weights, 1.0)
        if parameter is None:
            done(gradient)
        else:
            parameter.grad = gradient
            self._taken.append((parameter, done))

    def _collect(self, key: KeyT, weights: Tensor, lr_scale: float) -> Optional[nn.Parameter]:
        """The torch parameter of a key, a part of the next `flush`; None if it does not learn."""
        if key in self._pending:
            self.flush()
        rate = lr_scale * self._rate(key)
        if rate == 0:
            return None
        self._pending[key] = (rate, self.L2 if _decays(key[1], weights.ndim) else 0.0)
        return self._bind(key, weights)

    def flush(self) -> None:
        """Apply the collected step to the weights, in place. Without one, do nothing.

        Raises ValueError if the norm of the gradient is not finite; the step is dropped then.
        """
        pending, self._pending = self._pending, {}
        if not pending:
            return
        if get_torch_default_device().type == "mps":
            raise ValueError(
                "spacy_nested_ner.AdamW.v1 cannot update weights on Apple's MPS, where Thinc "
                "hands over copies. Train on the CPU or use @optimizers = 'Adam.v1'."
            )
        taken, self._taken = self._taken, []
        try:
            self._clip([self._parameters[key] for key in pending])
            self._torch.param_groups = self._groups(pending)
            self._torch.step()
        finally:
            for parameter, done in taken:
                gradient, parameter.grad = parameter.grad, None
                done(cast(Tensor, gradient))

    def step_schedules(self) -> None:
        """Apply the collected step, then move all schedules on by one."""
        self.flush()
        super().step_schedules()

    def _rate(self, key: KeyT) -> float:
        if self.head_learn_rate is not None and key in self._head:
            return self.head_learn_rate
        return self.learn_rate

    def _settings(self) -> dict:
        """What all parameters have in common: schedules may have changed it since the last step."""
        return {"betas": (float(self.b1), float(self.b2)), "eps": float(self.eps)}

    def _bind(self, key: KeyT, weights: Tensor) -> nn.Parameter:
        """The torch parameter of a key, sharing the memory of the given weights.

        Weights may have moved since the last step (a model loaded from disk); the moments stay
        as long as the layout does, and start anew otherwise (a resized layer, another device).
        """
        parameter = self._parameters.get(key)
        if parameter is not None and _layout(parameter) == _layout(weights):
            parameter.data = weights
            return parameter
        if parameter is not None:
            self._torch.state.pop(parameter, None)
        parameter = self._parameters[key] = nn.Parameter(weights)
        if not self.bias_correction:
            self._torch.state[parameter] = _uncorrected_state(parameter)
        return parameter

    def _clip(self, parameters: List[nn.Parameter]) -> None:
        limit = self.grad_clip or float("inf")
        try:
            nn.utils.clip_grad_norm_(parameters, limit, error_if_nonfinite=True)
        except RuntimeError as err:
            if "non-finite" not in str(err):
                raise
            raise ValueError(_nonfinite_message(parameters)) from err

    def _groups(self, pending: Dict[KeyT, Tuple[float, float]]) -> List[dict]:
        """Parameter groups for torch: one per pair of learning rate and weight decay."""
        members: Dict[Tuple[float, float], List[nn.Parameter]] = {}
        for key, setting in pending.items():
            members.setdefault(setting, []).append(self._parameters[key])
        common = {**self._torch.defaults, **self._settings()}
        return [
            {**common, "params": parameters, "lr": rate, "weight_decay": decay}
            for (rate, decay), parameters in members.items()
        ]


def _checked(name: str, value: Any) -> Any:
    """A number as a float, ValueError if it is out of its range. Whatever is no number is a
    schedule."""
    if not isinstance(value, (Real, str)):
        return value
    known = RANGES.get(name, RATE)
    if known.holds(value, float) or (name == "grad_clip" and value == math.inf):
        return float(value)
    raise ValueError(
        f"spacy_nested_ner.AdamW.v1: {name} must be {known.expected(float)} or a schedule, "
        f"got {value!r}."
    )


def _parameter_keys(model: Model) -> Set[KeyT]:
    """The keys by which Thinc's `finish_update` names the parameters of a model."""
    keys: Set[KeyT] = set()
    for node in model.walk():
        keys.update((node.id, name) for name in node.param_names)
        for shim in node.shims:
            if isinstance(shim._model, nn.Module):
                keys.update((shim.id, name) for name, _ in shim._model.named_parameters())
    return keys


def _as_tensor(array: FloatsXd) -> Tensor:
    """A tensor on the memory of a numpy or cupy array, never a copy."""
    if isinstance(array, numpy.ndarray):
        return torch.from_numpy(array)
    return torch.from_dlpack(array)


def _decays(name: str, ndim: int) -> bool:
    """Biases and normalisation weights do not decay. Thinc's Maxout has a bias `b` of 2 axes."""
    return ndim > 1 and name.rsplit(".", 1)[-1] not in BIAS_NAMES


def _layout(tensor: Tensor) -> tuple:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device


def _uncorrected_state(parameter: nn.Parameter) -> Dict[str, Tensor]:
    """Moments at 0 after infinitely many steps: both of Adam's corrections `1 - beta**step` are 1.

    torch's AdamW has no switch for the corrections; infinity stays infinity when it counts on.
    """
    return {
        "step": torch.tensor(float("inf"), device=parameter.device),
        "exp_avg": torch.zeros_like(parameter, requires_grad=False),
        "exp_avg_sq": torch.zeros_like(parameter, requires_grad=False),
    }


def _nonfinite_message(parameters: List[nn.Parameter]) -> str:
    gradients = [cast(Tensor, parameter.grad) for parameter in parameters]
    affected = sum(not bool(torch.isfinite(gradient).all()) for gradient in gradients)
    return (
        f"The norm of the gradient is not finite ({affected} of {len(gradients)} parameters hold "
        "NaN or infinite values), so the step was not applied. Lower the learning rate, warm it "
        "up over more steps, and check the training data of this batch."
    )
