"""Embeddings whose gradient is made once for a step. (What reads packed texts is compared with
Hugging Face's own encoder in tests/encoders/test_sorted_transformer.py.)"""

import torch
from torch import nn

from spacy_nested_ner.layers.packed_encoder import PieceEmbedding


def test_gradients_are_those_of_torch_and_add_up() -> None:
    torch.manual_seed(0)
    plain, own = nn.Embedding(9, 4), PieceEmbedding(9, 4)
    own.load_state_dict(plain.state_dict())
    for ids in (torch.tensor([[1, 3], [3, 0]]), torch.tensor([[8, 3]])):
        wanted = torch.randn(*ids.shape, 4)
        for table in (plain, own):
            table(ids).backward(wanted)
    torch.testing.assert_close(own.weight.grad, plain.weight.grad)
    assert (own.weight.grad[[2, 4, 5, 6, 7]] == 0).all() and own.weight.grad[3].abs().sum() > 0


def test_without_gradients_it_is_a_plain_embedding() -> None:
    table, ids = PieceEmbedding(9, 4), torch.tensor([2, 5])
    with torch.no_grad():
        assert torch.equal(table(ids), table.weight[ids])
    table.requires_grad_(False)
    assert not table(ids).requires_grad and table.weight.grad is None


def test_bfloat16_gradients_are_added_in_float32() -> None:
    table = PieceEmbedding(3, 2)
    table(torch.tensor([1])).to(torch.bfloat16).sum().backward()
    assert table.weight.grad.dtype == torch.float32
    assert torch.equal(table.weight.grad, torch.tensor([[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]))
