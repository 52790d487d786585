import torch
import torch.nn.functional as F

from spacy_nested_ner.layers.attention import attend, join_heads, make_feedforward, split_heads


def test_heads_are_slices_of_the_width() -> None:
    states = torch.randn(2, 3, 8)
    heads = split_heads(states, 4)
    assert heads.shape == (2, 4, 3, 2)
    assert torch.equal(heads[1, 2, 0], states[1, 0, 4:6])
    assert torch.equal(join_heads(heads), states)


def test_attention_by_hand() -> None:
    query, key, value = torch.randn(3, 1, 2, 3, 4).unbind(0)  # one row, two heads, three words
    mask = torch.tensor([[True, True, False]])
    attended = attend(query, key, value, mask)
    for head in range(2):
        weights = (query[0, head] @ key[0, head, :2].T / 2).softmax(-1)
        expected = weights @ value[0, head, :2]
        torch.testing.assert_close(attended[0, :, 4 * head : 4 * head + 4], expected)


def test_feedforward_by_hand() -> None:
    layer, states = make_feedforward(2, 3), torch.randn(5, 2)
    assert layer[0].out_features == 6
    expected = F.gelu(states @ layer[0].weight.T + layer[0].bias) @ layer[2].weight.T
    torch.testing.assert_close(layer(states), expected + layer[2].bias)
