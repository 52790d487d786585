"""int8 layers: what they round, and that no row depends on another."""

import copy

import pytest
import torch
from torch import nn

from spacy_nested_ner.layers import int8
from spacy_nested_ner.layers.int8 import Int8Embedding, Int8Linear, Int8SelfAttention, to_int8

WIDTH, HEADS = 32, 2
LENGTHS = [9, 4, 1, 7]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def test_products_are_those_of_rounded_rows_and_weights():
    linear, rows = nn.Linear(WIDTH, 20), torch.randn(11, WIDTH) * torch.logspace(-3, 3, 11)[:, None]
    rows[3] = 0.0
    with torch.no_grad():
        found = Int8Linear([linear])(rows)
        weight_scale = linear.weight.abs().amax(1) / 127
        scale = (rows.abs().amax(1) / 127).clamp(min=1e-30)
        # torch has no products of long numbers on a GPU; those of double are exact.
        sums = (rows / scale[:, None]).round().double() @ (
            (linear.weight / weight_scale[:, None]).round().double().T
        )
        expected = sums.float() * scale[:, None] * weight_scale + linear.bias
        torch.testing.assert_close(found, expected)
        assert torch.equal(found[3], linear.bias)
        error = (found - linear(rows)).norm(dim=1) / (linear(rows).norm(dim=1) + 1e-9)
    assert 0 < error.max() < 0.03


def test_several_layers_stand_side_by_side():
    first, second = nn.Linear(WIDTH, 5), nn.Linear(WIDTH, 3)
    states = torch.randn(2, 6, WIDTH)
    together = Int8Linear([first, second])(states)
    alone = [Int8Linear([linear])(states) for linear in (first, second)]
    assert torch.equal(together, torch.cat(alone, dim=-1))
    assert "bias" not in Int8Linear([nn.Linear(WIDTH, 5, bias=False)]).state_dict()


def test_a_row_does_not_depend_on_the_others():
    layer, rows = Int8Linear([nn.Linear(WIDTH, 70)]), torch.randn(40, WIDTH)
    whole = layer(rows)
    for i in range(len(rows)):
        assert torch.equal(layer(rows[i : i + 1])[0], whole[i])
        assert torch.equal(layer(rows[i:])[0], whole[i])


def test_without_fast_products_the_result_is_the_same(monkeypatch):
    layer, rows = Int8Linear([nn.Linear(WIDTH, 70)]), torch.randn(40, WIDTH)
    expected = layer(rows)
    monkeypatch.setattr(int8, "has_int8_products", lambda: False)
    torch.testing.assert_close(layer(rows), expected)


def test_a_cpu_without_the_instructions_is_not_given_the_products(monkeypatch):
    """Where they are exact without, they take many times as long."""
    monkeypatch.setattr(torch, "_int_mm", lambda a, b: a.int() @ b.int())
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    monkeypatch.setattr(int8.platform, "machine", lambda: "x86_64")
    found = {}
    for has_them in (True, False):
        known = {"avx2": True, "avx512_vnni": has_them}
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda known=known: known, raising=False)
        found[has_them] = int8.has_int8_products.__wrapped__()
    assert found == {True: True, False: False}


def test_embeddings_are_rounded_row_by_row():
    table = nn.Embedding(50, WIDTH)
    ids = torch.arange(50).view(5, 10)
    found, expected = Int8Embedding(table)(ids), table(ids)
    assert found.shape == expected.shape
    step = expected.abs().amax(-1, keepdim=True) / 127
    assert ((found - expected).abs() <= step * 0.501).all()


def bert_layer():
    bert = pytest.importorskip("transformers.models.bert.modeling_bert")
    settings = {"hidden_size": WIDTH, "num_attention_heads": HEADS, "intermediate_size": 64}
    return bert.BertLayer(bert.BertConfig(**settings, attn_implementation="sdpa")).eval()


def padded(lengths):
    """States and the mask that Hugging Face makes of the lengths."""
    states = torch.randn(len(lengths), max(lengths), WIDTH)
    real = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    mask = torch.zeros(real.shape).masked_fill(~real, torch.finfo(torch.float32).min)
    return states, mask[:, None, None, :]


@torch.no_grad()
def test_a_layer_is_about_what_it_was_and_ignores_padding_to_the_last_bit():
    layer = bert_layer()
    rounded = copy.deepcopy(layer)
    to_int8(rounded, attention=True)
    assert isinstance(rounded.attention.self, Int8SelfAttention)
    assert not any(isinstance(part, nn.Linear) for part in rounded.modules())
    states, mask = padded(LENGTHS)
    found, expected = rounded(states, mask)[0], layer(states, mask)[0]
    for i, n in enumerate(LENGTHS):
        own = found[i, :n]
        error = (own - expected[i, :n]).norm() / expected[i, :n].norm()
        assert 0 < error < 0.05
        assert torch.equal(rounded(states[i : i + 1, :n])[0][0], own)
        assert torch.equal(rounded(states[i:], mask[i:])[0][0, :n], own)


def test_nothing_learns():
    layer = bert_layer()
    to_int8(layer, attention=True)
    assert int8.is_int8(layer)
    assert {name.split(".")[-2] for name, _ in layer.named_parameters()} == {"LayerNorm"}


def test_padding_between_pieces_is_refused():
    layer = bert_layer()
    to_int8(layer, attention=True)
    states, mask = padded(LENGTHS)
    mask[0, 0, 0, 2] = -1e9
    with pytest.raises(ValueError, match="padding at the end of a row only"):
        layer(states, mask)
