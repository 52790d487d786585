"""Products of float32 by oneDNN."""

import threading
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from spacy_nested_ner.layers import quick_products as products
from spacy_nested_ner.layers.quick_layers import with_quick_layers
from spacy_nested_ner.layers.quick_products import (
    FEW,
    GRUCell,
    by_one_dnn,
    multiply,
    multiply_rows,
    whole_steps,
)

FEW_ROWS = FEW // (32 * 48)  # that are many enough for the layers here
ROWS = [1, FEW_ROWS, FEW_ROWS + 1, FEW_ROWS + 2, 3000]


@pytest.fixture
def setting(monkeypatch):
    """What holds torch's setting; of an older torch, which has none, something in its place."""
    if not hasattr(products._setting(), "fp32_precision"):
        held = SimpleNamespace(fp32_precision="none")
        monkeypatch.setattr(products, "_setting", lambda: held)
    return products._setting()


@pytest.fixture
def quick(monkeypatch, setting):
    """A CPU on which oneDNN is used."""
    monkeypatch.setattr(products, "is_quick", lambda: True)


@pytest.fixture(params=["of this machine", "quick"])
def cpu(request):
    """This CPU, and one on which oneDNN is used; elsewhere oneDNN may round to bfloat16."""
    if request.param == "quick":
        request.getfixturevalue("quick")
    return {"rtol": 2e-2, "atol": 0.5} if request.param == "quick" else {"rtol": 1e-4, "atol": 1e-4}


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("given", [False, True])
def test_products_are_those_of_torch(rows, given, cpu):
    torch.manual_seed(0)
    left, right, narrow = torch.randn(rows, 32), torch.randn(32, 48), torch.randn(rows, 24)
    out = torch.full((rows, 48), torch.nan) if given else None
    found = multiply(left, right, out)
    assert_close(found, left @ right, **cpu)
    assert not given or found is out
    out = torch.full((32, 24), torch.nan) if given else None
    found = multiply_rows(left, narrow, out)
    assert_close(found, left.t() @ narrow, **cpu)
    assert not given or found.data_ptr() == out.data_ptr()


@pytest.mark.parametrize("shape", [(3000, 32), (7, 430, 32), (3, 32)])
@pytest.mark.parametrize("bias", [False, True])
def test_a_quick_layer_and_its_gradients_are_those_of_torch(shape, bias, cpu):
    torch.manual_seed(0)
    quick = with_quick_layers(nn.Sequential(nn.Linear(32, 48, bias=bias)))[0]
    plain = nn.Linear(32, 48, bias=bias)
    plain.load_state_dict(quick.state_dict())
    gradient = torch.randn(*shape[:-1], 48)
    found = []
    for layer in (quick, plain):
        inputs = torch.linspace(-1, 1, torch.Size(shape).numel()).view(shape).requires_grad_()
        outputs = layer(inputs)
        outputs.backward(gradient)
        found.append([outputs, inputs.grad, *(p.grad for p in layer.parameters())])
    for mine, expected in zip(*found):
        assert_close(mine, expected, **cpu)


@pytest.mark.parametrize("rows", [3, 3000])
def test_a_quick_cell_and_its_gradients_are_those_of_torch(rows, cpu):
    torch.manual_seed(0)
    quick, plain = with_quick_layers(nn.Sequential(nn.GRUCell(40, 48)))[0], nn.GRUCell(40, 48)
    plain.load_state_dict(quick.state_dict())
    assert type(quick) is GRUCell
    found = []
    for cell in (quick, plain):
        inputs, state = (
            torch.linspace(-1, 1, rows * width).view(rows, width).requires_grad_()
            for width in (40, 48)
        )
        output = cell(inputs, state)
        (output / rows).sum().backward()
        found.append([output, cell(inputs), inputs.grad, state.grad])
        found[-1] += [parameter.grad for parameter in cell.parameters()]
    for mine, expected in zip(*found):
        assert_close(mine, expected, **cpu)


def test_frozen_layers_and_inputs_have_no_gradient(quick):
    layer = with_quick_layers(nn.Sequential(nn.Linear(32, 48)))[0].requires_grad_(False)
    inputs = torch.ones(FEW_ROWS + 1, 32, requires_grad=True)
    layer(inputs).sum().backward()
    assert layer.weight.grad is None and layer.bias.grad is None
    assert_close(
        inputs.grad, layer.weight.sum(dim=0).expand(FEW_ROWS + 1, -1), rtol=1e-2, atol=1e-2
    )


@pytest.mark.no_gpu("oneDNN multiplies on a CPU only")
def test_one_dnn_multiplies_many_rows_in_float32(monkeypatch, quick):
    layer, calls = with_quick_layers(nn.Sequential(nn.Linear(32, 48)))[0], []
    apply = products.LinearProduct.apply
    monkeypatch.setattr(products.LinearProduct, "apply", lambda *a: calls.append(a) or apply(*a))
    with torch.autocast("cpu", torch.bfloat16):
        layer(torch.ones(FEW_ROWS + 1, 32))
    layer(torch.ones(FEW_ROWS, 32))
    assert not calls
    layer(torch.ones(FEW_ROWS + 1, 32))
    with torch.no_grad():
        layer(torch.ones(FEW_ROWS + 1, 32))
    assert len(calls) == 2


def test_the_setting_of_torch_is_as_before(setting, quick):
    before = setting.fp32_precision
    multiply(torch.ones(FEW_ROWS + 1, 32), torch.ones(32, 48))
    with pytest.raises(RuntimeError), by_one_dnn:
        assert setting.fp32_precision == "bf16"
        torch.mm(torch.ones(2, 3), torch.ones(2, 3))
    assert setting.fp32_precision == before


def test_threads_that_overlap_leave_the_setting_of_torch(setting):
    before = setting.fp32_precision
    came_in, may_go = threading.Event(), threading.Event()

    def first():
        with by_one_dnn:
            came_in.set()
            may_go.wait(10)

    thread = threading.Thread(target=first)
    thread.start()
    assert came_in.wait(10)
    with by_one_dnn:
        may_go.set()
        thread.join()
        assert setting.fp32_precision == "bf16"
    assert setting.fp32_precision == before


ZEN_4 = {"cpu_name": "AMD EPYC", "avx512_f": True, "avx_vnni": False}
ZEN_5 = {**ZEN_4, "avx_vnni": True}


@pytest.mark.parametrize(
    "known", [{**ZEN_5, "cpu_name": "Intel(R) Xeon(R)"}, ZEN_4, {**ZEN_5, "avx512_f": False}, {}]
)
def test_other_cpus_multiply_as_torch_does(known, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: known, raising=False)
    assert not products.is_quick.__wrapped__()


def test_an_older_torch_multiplies_as_ever(monkeypatch):
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert not products.is_quick.__wrapped__()


def test_a_cpu_that_rounds_multiplies_as_torch_does(monkeypatch, setting):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: ZEN_5, raising=False)
    monkeypatch.setattr(torch, "eye", lambda n: torch.full((n, n), 0.99 / n))
    assert not products.is_quick.__wrapped__()


def test_numbers_of_rows_repeat():
    found = {whole_steps(n) for n in range(128, 8 * 128)}
    assert len(found) == 3 * products.STEPS
    for n in (1, 9, 35, 700, 5003):
        assert 0.89 * n < whole_steps(n) <= n
