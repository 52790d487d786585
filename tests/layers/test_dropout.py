import pytest
import torch

from spacy_nested_ner.layers.dropout import Dropout


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rate_mean_and_gradient(rate, dtype) -> None:
    torch.manual_seed(0)
    values = torch.ones(301, 97, dtype=dtype, requires_grad=True)
    dropped = Dropout(rate)(values)
    assert dropped.dtype == dtype and dropped.shape == values.shape
    share = (dropped == 0).float().mean().item()
    assert share == pytest.approx(rate, abs=0.01)
    assert dropped.float().mean().item() == pytest.approx(1.0, abs=0.03)
    dropped.sum().backward()
    assert torch.equal(values.grad, dropped.detach())


def test_every_place_and_every_batch_is_drawn_anew() -> None:
    torch.manual_seed(0)
    layer, ones = Dropout(0.5), torch.ones(64, 64)
    draws = torch.stack([layer(ones) for _ in range(200)])
    shares = (draws == 0).float().mean(dim=0)
    assert shares.min() > 0.3 and shares.max() < 0.7
    pairs = (draws[:, 0] == 0).float()
    agree = torch.corrcoef(pairs.T).fill_diagonal_(0).abs().max()
    assert agree < 0.4  # neighbours have nothing in common


def test_it_follows_the_seed_and_the_mode() -> None:
    layer, values = Dropout(0.3), torch.randn(5, 7)
    torch.manual_seed(3)
    first = layer(values)
    torch.manual_seed(3)
    assert torch.equal(first, layer(values))
    assert torch.equal(layer.eval()(values), values)
    assert torch.equal(Dropout(0.0)(values), values)
    assert not Dropout(1.0)(values).any()
