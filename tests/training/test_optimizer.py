"""AdamW against torch's own, and inside spaCy's update and training loops."""

import gc
from typing import Callable, Dict, List, Tuple

import numpy
import pytest
import spacy
import torch
from spacy.tokens import DocBin
from spacy.training import Example
from spacy.training.initialize import init_nlp
from spacy.training.loop import train
from thinc.api import Config, LayerNorm, Linear, Maxout, Model, Optimizer, PyTorchWrapper, chain
from thinc.util import to_numpy
from torch import Tensor, nn

from spacy_nested_ner.encoders.shim import ModuleShim
from spacy_nested_ner.training.optimizer import AdamW
from tests.conftest import make_examples, make_pipeline

STEPS = 6
Named = Dict[str, Tensor]
Toy = Tuple[Model, Callable[[], Named], Callable[[Named], None]]


def thinc_toy() -> Toy:
    """A Thinc model, its parameters by name, and a way to set its gradients."""
    model: Model = chain(Linear(nO=5, nI=4), LayerNorm(nI=5), Maxout(nO=3, nI=5, nP=2))
    model.initialize()
    rng = numpy.random.default_rng(1)
    nodes = {
        f"{node.name}.{name}": (node, name) for node in model.walk() for name in ["W", "b", "G"]
    }
    nodes = {key: (node, name) for key, (node, name) in nodes.items() if node.has_param(name)}
    for node, name in nodes.values():
        shape = node.get_param(name).shape
        node.set_param(name, node.ops.asarray(rng.normal(size=shape).astype("float32")))

    def read() -> Named:
        return {
            key: torch.tensor(to_numpy(node.get_param(name))) for key, (node, name) in nodes.items()
        }

    def set_gradients(gradients: Named) -> None:
        for key, (node, name) in nodes.items():
            if key in gradients:
                node.set_grad(name, node.ops.asarray(gradients[key].numpy().copy()))

    return model, read, set_gradients


def small_module() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Linear(5, 3))


def toy_of(model: Model, module: Callable[[], nn.Module]) -> Toy:
    """The same for a model around a PyTorch module."""

    def read() -> Named:
        return {key: value.detach().cpu().clone() for key, value in module().named_parameters()}

    def set_gradients(gradients: Named) -> None:
        for key, value in module().named_parameters():
            if key in gradients:
                value.grad = gradients[key].clone().to(value.device)

    return model, read, set_gradients


def torch_toy() -> Toy:
    """Thinc's own wrapper."""
    torch.manual_seed(1)
    module = small_module()
    return toy_of(PyTorchWrapper(module), lambda: module)


def own_toy() -> Toy:
    """A shim of this package, which gives its gradients away."""
    torch.manual_seed(1)
    shim = ModuleShim(small_module, {})
    shim.build()
    return toy_of(
        Model("own", lambda model, X, is_train: (X, bool), shims=[shim]), lambda: shim.module
    )


def both(first: Toy, second: Toy) -> Tuple[Callable[[], Named], Callable[[Named], None]]:
    """What reads the parameters of two toys, and what sets their gradients: "1 " or "2 " and the
    name in the toy."""
    toys = {"1 ": first, "2 ": second}

    def read() -> Named:
        return {which + key: w for which, toy in toys.items() for key, w in toy[1]().items()}

    def set_gradients(gradients: Named) -> None:
        for which, toy in toys.items():
            toy[2]({key[2:]: g for key, g in gradients.items() if key.startswith(which)})

    return read, set_gradients


def random_gradients(like: Named, step: int, scale: float = 1.0) -> Named:
    generator = torch.Generator().manual_seed(step)
    return {key: scale * torch.randn(w.shape, generator=generator) for key, w in like.items()}


def decays(key: str, weight: Tensor) -> bool:
    return weight.ndim > 1 and not key.endswith(".b")


def reference(start: Named, rates: Callable[[str], float], clip: float, **settings) -> List[Named]:
    """What torch's AdamW and clip_grad_norm_ make of the same gradients, after each step."""
    parameters = {key: nn.Parameter(weight.clone()) for key, weight in start.items()}
    groups = [
        {"params": [p], "lr": rates(key), "weight_decay": 0.1 if decays(key, p) else 0.0}
        for key, p in parameters.items()
    ]
    optimizer = torch.optim.AdamW(groups, **settings)
    trace = []
    for step in range(STEPS):
        for key, gradient in random_gradients(start, step).items():
            parameters[key].grad = gradient
        nn.utils.clip_grad_norm_(list(parameters.values()), clip)
        optimizer.step()
        trace.append({key: p.detach().clone() for key, p in parameters.items()})
    return trace


def assert_same(got: Named, expected: Named) -> None:
    assert got.keys() == expected.keys()
    for key in expected:
        torch.testing.assert_close(got[key], expected[key], rtol=1e-5, atol=1e-6)


@pytest.fixture(params=[thinc_toy, torch_toy, own_toy], ids=["thinc", "torch", "own"])
def toy(request) -> Toy:
    return request.param()


@pytest.mark.parametrize("clip", [0.5, 1e6])
def test_same_numbers_as_torch(toy: Toy, clip: float) -> None:
    model, read, set_gradients = toy
    start = read()
    expected = reference(start, lambda key: 0.01, clip, betas=(0.8, 0.95), eps=1e-6)
    optimizer = AdamW(0.01, weight_decay=0.1, beta1=0.8, beta2=0.95, eps=1e-6, grad_clip=clip)
    for step in range(STEPS):
        set_gradients(random_gradients(start, step))
        model.finish_update(optimizer)
        optimizer.step_schedules()
        assert_same(read(), expected[step])


def test_grad_clip_zero_means_no_clipping(toy: Toy) -> None:
    model, read, set_gradients = toy
    start = read()
    expected = reference(start, lambda key: 0.01, 1e9)
    optimizer = AdamW(0.01, weight_decay=0.1, grad_clip=0.0)
    for step in range(STEPS):
        set_gradients(random_gradients(start, step))
        model.finish_update(optimizer)
        optimizer.flush()
    assert_same(read(), expected[-1])


def test_without_bias_correction(toy: Toy) -> None:
    model, read, set_gradients = toy
    start = read()
    optimizer = AdamW(0.01, weight_decay=0.0, grad_clip=0.0, bias_correction=False)
    weights = {key: weight.clone() for key, weight in start.items()}
    first = {key: torch.zeros_like(weight) for key, weight in start.items()}
    second = {key: torch.zeros_like(weight) for key, weight in start.items()}
    for step in range(STEPS):
        gradients = random_gradients(start, step)
        for key, gradient in gradients.items():
            first[key] = 0.9 * first[key] + 0.1 * gradient
            second[key] = 0.999 * second[key] + 0.001 * gradient**2
            weights[key] -= 0.01 * first[key] / (second[key].sqrt() + 1e-8)
        set_gradients(gradients)
        model.finish_update(optimizer)
        optimizer.flush()
    torch.testing.assert_close(read(), weights, rtol=1e-5, atol=1e-5)


def test_gradients_are_zero_after_finish_update(toy: Toy) -> None:
    model, read, set_gradients = toy
    set_gradients(random_gradients(read(), 0))
    optimizer = AdamW(0.01)
    model.finish_update(optimizer)
    optimizer.flush()
    once = read()
    # Thinc keeps the gradient's memory: were it not zeroed, it would count again here.
    seen = []
    model.finish_update(lambda key, weights, gradient: (weights, seen.append(gradient.any())))
    assert not any(seen)
    # A shim of this package has none left.
    assert len(seen) == (0 if model.name == "own" else len(once))


def test_clips_by_the_norm_over_two_models() -> None:
    first, second = thinc_toy(), torch_toy()
    read, set_gradients = both(first, second)
    start = read()
    expected = reference(start, lambda key: 0.01, 0.5, eps=0.1)
    optimizer = AdamW(0.01, weight_decay=0.1, grad_clip=0.5, eps=0.1)
    for step in range(STEPS):
        set_gradients(random_gradients(start, step))
        first[0].finish_update(optimizer)
        second[0].finish_update(optimizer)
        optimizer.step_schedules()
        assert_same(read(), expected[step])


def test_no_decay_for_biases_and_normalisation(toy: Toy) -> None:
    model, read, set_gradients = toy
    start = read()
    set_gradients({key: torch.zeros_like(weight) for key, weight in start.items()})
    optimizer = AdamW(0.1, weight_decay=0.5)
    model.finish_update(optimizer)
    optimizer.flush()
    for key, weight in read().items():
        factor = 0.95 if decays(key, weight) else 1.0
        torch.testing.assert_close(weight, factor * start[key])
    assert {decays(key, weight) for key, weight in start.items()} == {True, False}


def test_two_learning_rates() -> None:
    """Ids of Thinc's nodes and of its shims overlap: a head must not claim the encoder's."""
    toys = thinc_toy(), torch_toy()
    read, set_gradients = both(*toys)
    encoder, head = (model for model, _, _ in toys)
    nodes = list(encoder.walk())
    head.shims[0].id = nodes[1].id
    start = read()
    expected = reference(start, lambda key: 0.02 if key[0] == "2" else 0.001, 1.0)
    optimizer = AdamW(0.001, head_learn_rate=0.02, weight_decay=0.1)
    optimizer.set_head(head)
    for step in range(STEPS):
        set_gradients(random_gradients(start, step))
        encoder.finish_update(optimizer)
        head.finish_update(optimizer)
        optimizer.step_schedules()
    assert_same(read(), expected[-1])


def test_head_takes_the_other_rate_by_default() -> None:
    model, read, set_gradients = torch_toy()
    start = read()
    optimizer = AdamW(0.01, weight_decay=0.1)
    optimizer.set_head(model)
    set_gradients(random_gradients(start, 0))
    model.finish_update(optimizer)
    optimizer.flush()
    assert_same(read(), reference(start, lambda key: 0.01, 1.0)[0])


def test_both_rates_follow_their_schedules() -> None:
    optimizer = AdamW([0.1, 0.2, 0.3], head_learn_rate=iter([1.0, 2.0]))
    rates = []
    for _ in range(4):
        rates.append((optimizer.learn_rate, optimizer.head_learn_rate))
        optimizer.step_schedules()
    assert rates == [(0.1, 1.0), (0.2, 2.0), (0.3, 2.0), (0.3, 2.0)]


def test_one_schedule_for_both_rates_moves_once_a_step() -> None:
    schedule = iter([0.1, 0.2, 0.3])
    optimizer = AdamW(schedule, head_learn_rate=schedule)
    optimizer.step_schedules()
    assert optimizer.learn_rate == 0.2 and optimizer.head_learn_rate is None


def test_step_is_applied_with_the_rate_it_was_collected_at() -> None:
    model, read, set_gradients = torch_toy()
    start = read()
    optimizer = AdamW([0.01, 0.5], weight_decay=0.1)
    set_gradients(random_gradients(start, 0))
    model.finish_update(optimizer)
    optimizer.step_schedules()
    assert_same(read(), reference(start, lambda key: 0.01, 1.0)[0])


def test_rate_zero_freezes_to_the_bit(toy: Toy) -> None:
    frozen, read_frozen, set_frozen = toy
    head, read_head, set_head = torch_toy()
    start, start_head = read_frozen(), read_head()
    optimizer = AdamW(0.0, head_learn_rate=0.01, weight_decay=0.1)
    optimizer.set_head(head)
    for step in range(STEPS):
        set_frozen(random_gradients(start, step, scale=1e3))
        set_head(random_gradients(start_head, step))
        frozen.finish_update(optimizer)
        head.finish_update(optimizer)
        optimizer.step_schedules()
    for key, weight in read_frozen().items():
        assert weight.numpy().tobytes() == start[key].numpy().tobytes()
    # The frozen part's large gradient has no share in the norm either.
    assert_same(read_head(), reference(start_head, lambda key: 0.01, 1.0)[-1])


def test_frozen_then_released_starts_afresh() -> None:
    model, read, set_gradients = torch_toy()
    start = read()
    optimizer = AdamW([0.0, 0.0, 0.01], weight_decay=0.1)
    for seed in (7, 8, 0):
        set_gradients(random_gradients(start, seed))
        model.finish_update(optimizer)
        optimizer.step_schedules()
    assert_same(read(), reference(start, lambda key: 0.01, 1.0)[0])


@pytest.mark.parametrize("way", ["step_schedules", "flush", "next step"])
def test_when_a_step_takes_effect(toy: Toy, way: str) -> None:
    model, read, set_gradients = toy
    start = read()
    expected = reference(start, lambda key: 0.01, 1.0)
    optimizer = AdamW(0.01, weight_decay=0.1)
    set_gradients(random_gradients(start, 0))
    model.finish_update(optimizer)
    assert all(torch.equal(weight, start[key]) for key, weight in read().items())
    if way == "next step":
        set_gradients(random_gradients(start, 1))
        model.finish_update(optimizer)
        assert_same(read(), expected[0])
        optimizer.flush()
        assert_same(read(), expected[1])
    else:
        getattr(optimizer, way)()
        assert_same(read(), expected[0])
        getattr(optimizer, way)()
        assert_same(read(), expected[0])


@pytest.mark.parametrize("toy", [thinc_toy, torch_toy], ids=["thinc", "torch"], indirect=True)
def test_weights_that_moved_are_found_again(toy: Toy) -> None:
    model, read, set_gradients = toy
    start = read()
    expected = reference(start, lambda key: 0.01, 1.0)
    optimizer = AdamW(0.01, weight_decay=0.1)
    for step in range(STEPS):
        set_gradients(random_gradients(start, step))
        model.finish_update(optimizer)
        optimizer.flush()
        model.from_bytes(model.to_bytes())
    assert_same(read(), expected[-1])


def test_resized_weights_start_with_new_moments() -> None:
    optimizer = AdamW(0.01, weight_decay=0.0)
    for size in (2, 3):
        weights = numpy.ones((size, 7919), dtype="float32")
        optimizer((1, "W"), weights, numpy.ones_like(weights))
        optimizer.flush()
        numpy.testing.assert_allclose(weights, 0.99, rtol=1e-5)
    gc.collect()
    tensors = [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor)]
    assert not any(tensor.shape == (2, 7919) for tensor in tensors)  # the old moments are gone


def test_scalar_and_empty_parameters() -> None:
    optimizer = AdamW(0.01)
    scalar, empty = numpy.array(1.0, dtype="float32"), numpy.zeros((0, 3), dtype="float32")
    optimizer((1, "scale"), scalar, numpy.ones_like(scalar))
    optimizer((1, "W"), empty, empty.copy())
    optimizer.flush()
    assert scalar == pytest.approx(0.99)


def test_lr_scale() -> None:
    weights = numpy.ones((2, 2), dtype="float32")
    optimizer = AdamW(0.01, weight_decay=0.0)
    optimizer((1, "W"), weights, numpy.ones_like(weights), lr_scale=0.5)
    optimizer.flush()
    numpy.testing.assert_allclose(weights, 0.995, rtol=1e-6)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("clip", [0.0, 1.0])
def test_gradient_that_is_not_finite(toy: Toy, value: float, clip: float) -> None:
    model, read, set_gradients = toy
    start = read()
    gradients = random_gradients(start, 0)
    next(iter(gradients.values()))[0] = value
    optimizer = AdamW(0.01, weight_decay=0.1, grad_clip=clip)
    set_gradients(gradients)
    model.finish_update(optimizer)
    with pytest.raises(ValueError, match=r"not finite \(1 of \d+ parameters.*learning rate"):
        optimizer.flush()
    assert all(torch.equal(weight, start[key]) for key, weight in read().items())
    # Who catches the error goes on as if the batch had not been.
    set_gradients(random_gradients(start, 0))
    model.finish_update(optimizer)
    optimizer.flush()
    assert_same(read(), reference(start, lambda key: 0.01, clip or 1e9)[0])


def test_mps_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(
        "spacy_nested_ner.training.optimizer.get_torch_default_device", lambda: torch.device("mps")
    )
    weights = numpy.ones((2, 2), dtype="float32")
    optimizer = AdamW(0.01)
    optimizer((1, "W"), weights, weights.copy())
    with pytest.raises(ValueError, match="MPS"):
        optimizer.flush()


CONFIG = """
[nlp]
lang = "en"
pipeline = ["tok2vec", "tagger"]

[components]

[components.tok2vec]
factory = "tok2vec"

[components.tok2vec.model]
@architectures = "spacy.HashEmbedCNN.v2"
pretrained_vectors = null
width = 32
depth = 2
embed_size = 200
window_size = 1
maxout_pieces = 2
subword_features = true

[components.tagger]
factory = "tagger"

[components.tagger.model]
@architectures = "spacy.Tagger.v2"

[components.tagger.model.tok2vec]
@architectures = "spacy.Tok2VecListener.v1"
width = 32

[training]
max_steps = 30
eval_frequency = 10
patience = 0

[training.optimizer]
@optimizers = "spacy_nested_ner.AdamW.v1"
head_learn_rate = 0.02
weight_decay = 0.01
grad_clip = 1.0

[training.optimizer.learn_rate]
@schedules = "warmup_linear.v1"
initial_rate = 0.01
warmup_steps = 2
total_steps = 100
"""


def examples(nlp) -> List[Example]:
    texts = [("I like green eggs", "N V J N"), ("Eat blue ham", "V J N"), ("They eat", "N V")]
    return [Example.from_dict(nlp.make_doc(text), {"tags": tags.split()}) for text, tags in texts]


def pipeline():
    nlp = spacy.util.load_model_from_config(Config().from_str(CONFIG), auto_fill=True)
    nlp.initialize(lambda: examples(nlp))
    return nlp


def test_resolves_from_a_training_config() -> None:
    config = pipeline().config["training"]["optimizer"]
    optimizer = spacy.registry.resolve({"optimizer": config})["optimizer"]
    assert isinstance(optimizer, AdamW) and isinstance(optimizer, Optimizer)
    assert optimizer.averages == {}
    assert (optimizer.learn_rate, optimizer.head_learn_rate) == (0.0, 0.02)
    optimizer.step_schedules()
    assert (optimizer.learn_rate, optimizer.head_learn_rate) == (0.005, 0.02)


def test_default_settings_resolve() -> None:
    config = {"optimizer": {"@optimizers": "spacy_nested_ner.AdamW.v1"}}
    optimizer = spacy.registry.resolve(config)["optimizer"]
    assert (optimizer.learn_rate, optimizer.L2, optimizer.grad_clip) == (0.001, 0.01, 1.0)


@pytest.mark.parametrize(
    "name, value",
    [
        ("learn_rate", -0.001),
        ("learn_rate", "abc"),
        ("head_learn_rate", float("nan")),
        ("weight_decay", -1),
        ("grad_clip", -1.0),
        ("eps", 0.0),
        ("beta1", -0.1),
        ("beta2", 1.0),
        ("grad_clip", True),
    ],
)
def test_numbers_out_of_their_range_are_named(name, value) -> None:
    with pytest.raises(ValueError, match=f"AdamW.v1: {name} must be a number .* or a schedule"):
        AdamW(**{name: value})


def test_numbers_of_any_kind_and_schedules_are_taken() -> None:
    optimizer = AdamW(numpy.float32(0.5), weight_decay=0, head_learn_rate=iter([0.1, 0.2]))
    assert (optimizer.learn_rate, optimizer.L2, optimizer.head_learn_rate) == (0.5, 0, 0.1)
    assert AdamW(numpy.int64(1), grad_clip=float("inf")).grad_clip == float("inf")


def test_averages_are_refused_rather_than_ignored() -> None:
    config = {"@optimizers": "spacy_nested_ner.AdamW.v1", "use_averages": True}
    with pytest.raises(Exception, match="use_averages"):
        spacy.registry.resolve({"optimizer": config})


@pytest.mark.parametrize("end_step", ["step_schedules", "flush", None])
def test_nlp_update_learns(end_step) -> None:
    spacy.util.fix_random_seed(0)
    nlp = pipeline()
    optimizer = nlp.resume_training(sgd=AdamW(0.01, head_learn_rate=0.02))
    optimizer.set_head(nlp.get_pipe("tagger").model.get_ref("softmax"))
    trace = []
    for _ in range(40):
        losses: Dict[str, float] = {}
        nlp.update(examples(nlp), sgd=optimizer, losses=losses)
        if end_step is not None:
            getattr(optimizer, end_step)()
        trace.append(losses["tagger"])
    assert trace[-1] < 0.1 * trace[0]


def test_spacy_train(tmp_path) -> None:
    corpus = tmp_path / "corpus.spacy"
    nlp = pipeline()
    DocBin(docs=[eg.reference for eg in examples(nlp)]).to_disk(corpus)
    config = nlp.config.copy()
    config["paths"].update({"train": str(corpus), "dev": str(corpus)})
    trained, path = train(init_nlp(config), tmp_path)
    assert trained.meta["performance"]["tag_acc"] == 1.0
    reloaded = spacy.load(path)
    assert [token.tag_ for token in reloaded("Eat blue ham")] == ["V", "J", "N"]


class Told(Optimizer):
    """An optimizer of one's own that tells heads apart."""

    def __init__(self) -> None:
        super().__init__(0.001)
        self.told: List[str] = []

    def set_head(self, model: Model) -> None:
        self.told.append(f"{model.name} is a head")

    def __call__(self, *args, **kwargs):
        if self.told[-1] != "parameter":
            self.told.append("parameter")
        return super().__call__(*args, **kwargs)

    def flush(self) -> None:
        self.told.append("end of step")


def test_any_optimizer_is_told_what_the_head_is_and_the_end_of_a_step() -> None:
    nlp, optimizer = make_pipeline("piqn_ner"), Told()
    nlp.update(make_examples(nlp), sgd=optimizer)
    assert optimizer.told == ["piqn_head is a head", "parameter", "end of step"]


def test_the_moments_follow_their_schedules() -> None:
    """The gradient of the second step is the opposite; with a beta1 of 0.9 the first one weighs
    more."""
    moved = []
    for beta1 in (0.0, iter([0.0, 0.9])):
        optimizer = AdamW(0.1, beta1=beta1, weight_decay=0.0, grad_clip=0.0)
        weights = numpy.zeros((1, 1), dtype="f")
        for sign in (1, -1):
            before = float(weights[0, 0])
            optimizer((1, "W"), weights, numpy.full((1, 1), sign, dtype="f"))
            optimizer.step_schedules()
            moved.append(float(weights[0, 0]) - before)
    assert moved[0] == pytest.approx(-0.1) == pytest.approx(moved[2])
    assert moved[1] > 0 > moved[3]
