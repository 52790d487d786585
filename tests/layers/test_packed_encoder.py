"""Rows that are read without their padding, and embeddings whose gradient is made once for a step.
(What reads packed texts in training is compared with Hugging Face's own encoder in
tests/encoders/test_sorted_transformer.py.)"""

import pytest
import torch
from thinc.api import Adam
from torch import nn

from spacy_nested_ner.encoders import shim
from spacy_nested_ner.encoders.shim import ModuleShim
from spacy_nested_ner.layers.int8 import to_int8
from spacy_nested_ner.layers.packed_encoder import PieceEmbedding, keep_memory, read_rows
from spacy_nested_ner.training.optimizer import AdamW


@pytest.mark.parametrize("lengths", [[9, 4, 1, 7], [5, 5], [6]])
@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("kind", ["bert", "roberta"])
@torch.no_grad()
def test_rows_are_read_as_by_the_encoder_itself(kind, int8, lengths) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
    config = transformers.AutoConfig.for_model(
        kind, vocab_size=50, num_hidden_layers=2, type_vocab_size=2, **sizes
    )
    encoder = transformers.AutoModel.from_config(config, add_pooling_layer=False).eval()
    if int8:
        to_int8(encoder, attention=True)
    ids = torch.randint(3, 50, (len(lengths), max(lengths)))
    real = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    ids[~real] = config.pad_token_id
    types = (torch.arange(max(lengths)) % 2).expand_as(ids)
    found = read_rows(encoder, ids, real, types)
    output = encoder(ids, attention_mask=real.long(), token_type_ids=types)
    torch.testing.assert_close(found[real], output.last_hidden_state[real])
    assert not found[~real].any()
    without = read_rows(encoder, ids, real)
    assert not torch.equal(without, found)
    for i, n in enumerate(lengths):
        alone = read_rows(encoder, ids[i : i + 1, :n], real[i : i + 1, :n])[0]
        torch.testing.assert_close(alone, without[i, :n], rtol=0, atol=0 if int8 else 1e-5)


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


@pytest.mark.no_gpu("memory is kept on a CPU only")
def test_memory_of_a_gradient_is_used_again() -> None:
    """After it was given back, until a prediction; nothing of the last step is left in it."""
    table = PieceEmbedding(9, 4)

    def gradient(*ids: int) -> torch.Tensor:
        table(torch.tensor(ids)).sum().backward()
        made, table.weight.grad = table.weight.grad, None
        assert made.sum(1).nonzero().flatten().tolist() == sorted(ids)
        return made

    first = gradient(1, 3)
    other = gradient(4)  # the first is still read
    assert other.data_ptr() != first.data_ptr() and first.sum() == 8
    keep_memory(table.weight, first)
    assert gradient(0).data_ptr() == first.data_ptr()
    keep_memory(table.weight, other)
    with torch.no_grad():
        table(torch.tensor([1]))
    assert gradient(2).data_ptr() != other.data_ptr()


def test_memory_of_other_gradients_is_not_kept() -> None:
    plain = nn.Embedding(3, 2)
    plain(torch.tensor([1])).sum().backward()
    keep_memory(plain.weight, plain.weight.grad)
    assert not any(torch.is_tensor(value) for value in vars(plain.weight).values())


@pytest.mark.parametrize("optimizer", [AdamW, Adam])
@pytest.mark.parametrize("end_step", [False, True])
def test_steps_with_memory_that_is_used_again(optimizer, end_step, monkeypatch) -> None:
    """The weights after some steps are those of a table whose gradients are always new."""
    found = []
    for keeps in (True, False):
        if not keeps:
            monkeypatch.setattr(shim, "keep_memory", lambda parameter, gradient: None)
        torch.manual_seed(0)
        table = ModuleShim(PieceEmbedding, {"num_embeddings": 9, "embedding_dim": 4})
        table.build()
        steps, places = optimizer(0.1), []
        for ids in ([1, 3], [3, 5, 5], [0], [1]):
            table.module(torch.tensor(ids)).pow(2).sum().backward()
            places.append(table.module.weight.grad.data_ptr())
            table.finish_update(steps)
            if end_step:
                steps.step_schedules()
        steps.step_schedules()
        found.append(table.module.weight.detach().clone())
        if keeps:
            assert len(set(places)) < len(places)
    torch.testing.assert_close(*found, rtol=0, atol=0)
