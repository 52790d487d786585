"""Spans that see their neighbours."""

import torch
import torch.nn.functional as F

from spacy_nested_ner.layers.span_grid import SpanGrid

WORDS, WIDTH = 6, 8
LENGTHS = [1, 2, 4]


def make_grid(depth: int = 2) -> SpanGrid:
    torch.manual_seed(0)
    return SpanGrid(WORDS, WIDTH, LENGTHS, depth).eval()


def sentence(n_words: int = 7) -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(1, n_words, WORDS)


def whole(words: torch.Tensor) -> torch.Tensor:
    return torch.ones(words.shape[:2], dtype=torch.bool)


def test_without_convolutions_a_span_is_made_of_its_first_and_last_word() -> None:
    grid, words = make_grid(depth=0), sentence()
    found = grid(words, whole(words))
    first, last = grid.first_and_last(words[0]).chunk(2, dim=-1)
    for column, length in enumerate(LENGTHS):
        for start in range(7):
            end = start + length - 1
            wanted = F.gelu(first[start] + last[end]) if end < 7 else torch.zeros(WIDTH)
            torch.testing.assert_close(found[0, start, column], wanted)


def test_a_span_sees_those_beside_it_and_no_further() -> None:
    """One convolution: spans that begin one word further, or have the next length."""
    grid, words = make_grid(depth=1), sentence()
    moved = words.clone()
    moved[0, 6] += 1.0
    before, after = grid(words, whole(words)), grid(moved, whole(words))
    changed = (before != after).any(-1)[0]
    # Only spans that end with the last word changed by themselves: (6, 1), (5, 2) and (3, 4 words).
    expected = torch.zeros(7, 3, dtype=torch.bool)
    for start, column in ((6, 0), (5, 1), (3, 2)):
        rows, columns = slice(max(0, start - 1), start + 2), slice(max(0, column - 1), column + 2)
        expected[rows, columns] = True
    expected &= (before != 0).any(-1)[0]
    assert torch.equal(changed, expected)


def test_padding_reaches_nothing() -> None:
    grid, words = make_grid(), sentence()
    alone = grid(words[:, :5], whole(words[:, :5]))
    padded = grid(words, torch.arange(7).unsqueeze(0) < 5)
    torch.testing.assert_close(padded[:, :5], alone, atol=1e-6, rtol=0)
    assert not padded[:, 5:].any()


def test_vectors_of_spans_by_their_place() -> None:
    grid, words = make_grid(), sentence()
    cells = grid(words, whole(words))
    row, start, end = torch.tensor([[0, 0, 0], [0, 2, 3], [0, 1, 4], [0, 0, 2], [0, 0, 6]]).T
    found = grid.at(cells, row, start, end)
    torch.testing.assert_close(
        found[:3], torch.stack([cells[0, 0, 0], cells[0, 2, 1], cells[0, 1, 2]])
    )
    assert not found[3:].any()  # 3 and 7 words are no lengths of it
