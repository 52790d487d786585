"""Spans that a classifier learns from."""

import pytest
import torch

from spacy_nested_ner.systems.candidates import draw_candidates, entity_of, with_entities
from spacy_nested_ner.systems.head import Gold


def test_some_candidates_are_entities_and_some_lie_beside_them() -> None:
    torch.manual_seed(0)
    gold = Gold.from_lists([[(10, 20, 0), (3, 3, 1)], []])
    spans, lengths = torch.full((2, 2000, 2), 27), torch.tensor([[30], [30]])
    entity = torch.tensor([[0, 1], [-1, -1]]).repeat(1, 1000)
    first, second = with_entities(spans, gold, entity, lengths)
    assert torch.equal(second, spans[1])
    shares = []
    for begin, end in ((10, 20), (3, 3), (27, 27)):
        shares.append((first == torch.tensor([begin, end])).all(-1).float().mean().item())
    # Beside an entity are 25 places of equal chance, itself among them; some of one word merge.
    assert shares == pytest.approx([0.154, 0.154, 0.5], abs=0.04)
    beside = (first - torch.tensor([10, 20])).abs().amax(-1)
    assert 0.05 < ((beside > 0) & (beside <= 2)).float().mean() < 0.15


def test_of_entities_with_the_same_words_the_preferred_one_counts() -> None:
    gold = Gold.from_lists([[(1, 2, 0), (1, 2, 1), (4, 4, 0)], [(0, 0, 1)]])
    spans = torch.tensor([[[1, 2], [1, 2], [4, 4], [1, 1]], [[0, 0], [1, 2], [0, 0], [0, 0]]])
    preferred = torch.tensor([[1, -1, 1, 1], [-1, 0, 0, -1]])
    drawn = set()
    for _ in range(30):
        first, second = entity_of(spans, gold, preferred).tolist()
        assert first[0] == 1 and first[2:] == [2, -1] and second == [0, -1, 0, 0]
        drawn.add(first[1])
    assert drawn == {0, 1}  # without a preferred one any of them
    nothing = Gold.from_lists([[], []])
    assert entity_of(spans, nothing, preferred).unique().tolist() == [-1]


def test_candidates_are_labelled_by_their_words() -> None:
    torch.manual_seed(0)
    gold = Gold.from_lists([[(10, 20, 0), (3, 3, 1)], []])
    pointed, lengths = torch.full((2, 2000, 2), 27), torch.tensor([[30], [30]])
    target = torch.tensor([[0, 1, -1, -1], [-1, -1, -1, -1]]).repeat(1, 500)
    spans, label = draw_candidates(pointed, gold, target, lengths)
    for begin, end, expected in ((10, 20, 1), (3, 3, 2)):
        hit = (spans == torch.tensor([begin, end])).all(-1)
        assert torch.equal(hit, label == expected) and hit[0].any() and not hit[1].any()
        # Of those with this entity three in ten are it, and some of the spans beside it are.
        assert 0.13 < hit[0].float().mean() / 0.5 < 0.2
    assert (label[1] == 0).all()
    # Without an entity half are as they are pointed at, half near it; one place of 25 is the same.
    stayed = (spans[1] == 27).all(-1).float().mean().item()
    assert stayed == pytest.approx(0.52, abs=0.04)
    assert (spans[1] - 27).abs().max() == 2
    assert (spans[..., 0] <= spans[..., 1]).all()
