import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from spacy_nested_ner.layers.one_way import InstanceQueries, OneWayEncoder, one_way_attention


def full_attention(query, key, value, n_words, word_mask, query_interaction, query_mask, asked):
    """The definition: one softmax over words and queries under the mask of eq. 3."""
    batch, _, n, width = query.shape
    allowed = torch.zeros((batch, n, n), dtype=torch.bool)
    allowed[:, :, :n_words] = word_mask[:, None, :]
    allowed[:, n_words:, :n_words] = asked[:, None, :]
    if query_interaction:
        allowed[:, n_words:, n_words:] = query_mask[:, None, :]
    scores = (query @ key.transpose(2, 3) / width**0.5).masked_fill(~allowed[:, None], -torch.inf)
    return scores.softmax(dim=-1).nan_to_num() @ value


@settings(max_examples=60, deadline=None)
@given(
    batch=st.integers(1, 4),
    heads=st.integers(1, 3),
    n_words=st.integers(0, 5),
    n_queries=st.integers(0, 4),
    interaction=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_equals_masked_attention(batch, heads, n_words, n_queries, interaction, seed):
    torch.manual_seed(seed)
    shape = (batch, heads, n_words + n_queries, 4)
    query, key, value = (torch.randn(shape).double() for _ in range(3))
    word_mask = torch.rand((batch, n_words)) < 0.6
    query_mask = torch.rand((batch, n_queries)) < 0.6
    asked = word_mask & (torch.rand((batch, n_words)) < 0.6)
    found = one_way_attention(
        query,
        key,
        value,
        n_words,
        word_mask,
        query_interaction=interaction,
        query_mask=query_mask,
        attended_mask=asked,
    )
    expected = full_attention(query, key, value, n_words, word_mask, interaction, query_mask, asked)
    torch.testing.assert_close(found, expected)
    settings = {"query_interaction": interaction, "query_mask": query_mask}
    of_all = one_way_attention(query, key, value, n_words, word_mask, **settings)
    of_real = one_way_attention(
        query, key, value, n_words, word_mask, attended_mask=word_mask, **settings
    )
    assert torch.equal(of_all, of_real)


def random_states(batch=2, n=7) -> Tensor:
    torch.manual_seed(0)
    return torch.randn((batch, 2, n, 4))


@pytest.mark.parametrize("interaction", [True, False])
def test_rows_without_words_have_finite_values_and_gradients(interaction):
    states = random_states().requires_grad_()
    mask = torch.tensor([[True, True, False, False], [False] * 4])
    out = one_way_attention(states, states, states, 4, mask, query_interaction=interaction)
    assert torch.isfinite(out).all()
    assert (out[1, :, :4] == 0).all()
    assert (out[1, :, 4:] == 0).all() != interaction
    out.sum().backward()
    assert torch.isfinite(states.grad).all()


def test_words_do_not_see_queries_and_nobody_sees_padding():
    states, mask = random_states(), torch.tensor([[True] * 4, [True, True, False, False]])
    query_mask = torch.tensor([[True, True, False], [True] * 3])
    out = one_way_attention(states, states, states, 4, mask, query_mask=query_mask)
    other = states.clone()
    other[:, :, 4:] += 1.0
    changed = one_way_attention(other, other, other, 4, mask, query_mask=query_mask)
    assert torch.equal(changed[:, :, :4], out[:, :, :4])
    assert not torch.allclose(changed[:, :, 4:], out[:, :, 4:])
    other = states.clone()
    other[1, :, 2:4] += 1.0
    other[0, :, 6] += 1.0
    changed = one_way_attention(other, other, other, 4, mask, query_mask=query_mask)
    real = torch.cat([mask, query_mask], dim=1)[:, None, :, None].expand_as(out)
    torch.testing.assert_close(changed[real], out[real])


def test_dropout_is_applied_only_when_asked_for():
    states, mask = random_states(), torch.ones((2, 4), dtype=torch.bool)
    torch.manual_seed(0)
    plain = [one_way_attention(states, states, states, 4, mask) for _ in range(2)]
    assert torch.equal(*plain)
    dropped = one_way_attention(states, states, states, 4, mask, dropout=0.5)
    assert not torch.allclose(dropped[:, :, :4], plain[0][:, :, :4])
    assert not torch.allclose(dropped[:, :, 4:], plain[0][:, :, 4:])


def test_instance_queries():
    queries = InstanceQueries(3, 8, with_type=False, dropout=0.5)
    assert {name for name, _ in queries.named_parameters()} == {
        "content",
        "position",
        "content_norm.weight",
        "content_norm.bias",
        "position_norm.weight",
        "position_norm.bias",
    }
    content, position = queries(4)
    assert content.shape == position.shape == (4, 3, 8)
    assert not torch.equal(content[0], content[1])
    content, position = queries.eval()(4)
    assert torch.equal(content[0], content[3])
    torch.testing.assert_close(
        position[2], torch.nn.functional.layer_norm(queries.position, [8], eps=1e-12)
    )


def test_type_vector_is_shared_by_all_queries():
    queries = InstanceQueries(3, 8, with_type=True).eval()
    before, _ = queries(1)
    summed = torch.nn.functional.layer_norm(queries.content + queries.shared, [8], eps=1e-12)
    torch.testing.assert_close(before[0], summed)
    before.sum().backward()
    assert queries.shared.grad is not None


def tiny_encoder(kind: str, interaction: bool):
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.for_model(
        kind,
        vocab_size=30,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=20,
        pad_token_id=1,
        initializer_range=0.3,
    )
    torch.manual_seed(0)
    pretrained = transformers.AutoModel.from_config(config).double().eval()
    first = 0 if kind == "bert" else 2
    layers = pretrained.encoder.layer
    encoder = OneWayEncoder(
        pretrained.embeddings,
        layers,
        attention_heads=2,
        attention_dropout=0.0,
        first_position=first,
        query_interaction=interaction,
    )
    return pretrained, encoder.eval()


def reference_encoder(encoder, ids, types, mask, asked, content, position):
    """The same sums written as one masked attention over pieces and queries."""
    n_pieces, n_queries = ids.shape[1], content.shape[1]
    places = torch.arange(n_pieces).expand_as(ids) + encoder.first_position
    pieces = encoder.embeddings(input_ids=ids, token_type_ids=types, position_ids=places)
    states = torch.cat([pieces, content], dim=1)
    shift = torch.cat([torch.zeros_like(pieces), position], dim=1)
    scale = torch.cat([torch.ones(n_pieces), torch.full((n_queries,), 0.5)])[:, None].double()
    query_mask = torch.ones((len(ids), n_queries), dtype=torch.bool)
    for layer in encoder.layers:
        project = layer.attention.self
        located = (states + shift) * scale
        split = [
            t.reshape(*t.shape[:2], 2, 4).transpose(1, 2)
            for t in (project.query(located), project.key(located), project.value(states))
        ]
        attended = full_attention(
            *split, n_pieces, mask, encoder.query_interaction, query_mask, asked
        )
        merged = attended.transpose(1, 2).reshape(states.shape)
        states = layer.attention.output(merged, states)
        states = layer.output(layer.intermediate(states), states)
    return states[:, :n_pieces], states[:, n_pieces:]


def encoder_input():
    torch.manual_seed(1)
    ids = torch.randint(2, 30, (2, 6))
    mask = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    asked = mask & torch.tensor([False, True, True, False, False, False])
    content, position = (torch.randn((2, 3, 8)).double() for _ in range(2))
    return ids, torch.zeros_like(ids), mask, asked, content, position


@pytest.mark.parametrize("interaction", [True, False])
@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_encoder_and_its_gradients_equal_the_masked_reference(kind, interaction):
    _, encoder = tiny_encoder(kind, interaction)
    ids, types, mask, asked, content, position = encoder_input()
    content.requires_grad_(), position.requires_grad_()
    inputs = [content, position, *encoder.parameters()]
    results = []
    for run in (encoder, lambda *args: reference_encoder(encoder, *args)):
        pieces, queries = run(ids, types, mask, asked, content, position)
        pieces = pieces[mask]
        loss = (pieces**3).sum() + (queries.sin() * queries).sum()
        results.append([pieces, queries, *torch.autograd.grad(loss, inputs)])
    for found, expected in zip(*results):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("kind", ["bert", "roberta", "xlm-roberta", "camembert"])
def test_pieces_are_those_of_the_encoder_without_queries(kind):
    pretrained, encoder = tiny_encoder(kind, True)
    ids, types, mask, asked, content, position = encoder_input()
    # Hugging Face finds RoBERTa's positions by the padding id.
    ids = ids.masked_fill(~mask, 1)
    pieces, _ = encoder(ids, types, mask, asked, content, position)
    expected = pretrained(input_ids=ids, attention_mask=mask.long()).last_hidden_state
    torch.testing.assert_close(pieces[mask], expected[mask])
