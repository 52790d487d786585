"""Pooling over spans against the plain definition."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_nested_ner.layers.pooling import Maximum, RangeMax


@settings(max_examples=40, deadline=None)
@given(n_words=st.integers(1, 40), n_rows=st.integers(1, 3))
def test_range_max_is_the_maximum_over_every_span(n_words: int, n_rows: int) -> None:
    torch.manual_seed(n_words)
    words = torch.randn(n_rows, n_words, 4)
    spans = [(r, i, j) for r in range(n_rows) for i in range(n_words) for j in range(i, n_words)]
    found = RangeMax(words)(*torch.tensor(spans).unbind(-1))
    expected = torch.stack([words[r, i : j + 1].amax(0) for r, i, j in spans])
    assert torch.equal(found, expected)


def test_range_max_of_no_spans() -> None:
    none = torch.zeros(0, dtype=torch.long)
    assert RangeMax(torch.randn(2, 5, 4))(none, none, none).shape == (0, 4)


def test_gradient_reaches_the_largest_word_alone() -> None:
    words = torch.tensor([[[1.0], [5.0], [2.0], [3.0]]], requires_grad=True)
    zero = torch.tensor([0])
    RangeMax(words)(zero, zero, torch.tensor([2])).sum().backward()
    assert words.grad.flatten().tolist() == [0.0, 1.0, 0.0, 0.0]


def test_gradient_of_a_maximum() -> None:
    pair = [torch.tensor(row, requires_grad=True) for row in ([1.0, 2.0, 3.0], [2.0, 2.0, 1.0])]
    found = Maximum.apply(*pair)
    assert found.tolist() == [2.0, 2.0, 3.0]
    found.backward(torch.tensor([10.0, 20.0, 30.0]))
    assert [one.grad.tolist() for one in pair] == [[0.0, 20.0, 30.0], [10.0, 0.0, 0.0]]


def test_range_max_of_lengths_around_powers_of_two() -> None:
    words = torch.arange(40000.0).view(1, -1, 1)
    ends = torch.tensor([n - 1 + d for n in (8, 1024, 16384, 32768) for d in (-1, 0, 1)])
    zero = torch.zeros_like(ends)
    assert RangeMax(words)(zero, zero, ends).flatten().tolist() == ends.tolist()
