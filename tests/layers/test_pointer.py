import pytest
import torch

from spacy_nested_ner.layers.pointer import (
    OFFSET_SPEED,
    AdditivePointer,
    BilinearPointer,
    OffsetBias,
    mask_words,
)
from spacy_nested_ner.layers.pooling import soft_inside, weighted_mean


def test_additive_is_equation_4_and_5() -> None:
    torch.manual_seed(0)
    pointer = AdditivePointer(3)
    queries, words = torch.randn(2, 4, 3), torch.randn(2, 5, 3)
    logits = pointer(queries, words)
    for b, i, j in ((0, 0, 0), (1, 3, 4), (0, 2, 1)):
        fused = torch.relu(
            pointer.query.weight @ queries[b, i]
            + pointer.query.bias
            + pointer.word.weight @ words[b, j]
        )
        expected = pointer.score.weight[0] @ fused + pointer.score.bias[0]
        assert logits[b, i, j].item() == pytest.approx(expected.item(), abs=1e-5)


def test_bilinear_is_a_scaled_product() -> None:
    torch.manual_seed(0)
    pointer = BilinearPointer(4)
    queries, words = torch.randn(1, 2, 4), torch.randn(1, 3, 4)
    expected = pointer.query(queries)[0, 1] @ pointer.word(words)[0, 2] / 2 + pointer.bias[0]
    assert pointer(queries, words)[0, 1, 2].item() == pytest.approx(expected.item(), abs=1e-5)


def test_offset_bias_by_hand() -> None:
    offset = OffsetBias(reach=1)
    offset.bias.data = torch.tensor([-1.0, 0.0, 1.0]) / OFFSET_SPEED
    bias = offset(torch.tensor([[0, 2]]), n_words=4)
    assert bias.tolist() == [[[0.0, 1.0, 1.0, 1.0], [-1.0, -1.0, 0.0, 1.0]]]


def test_an_offset_bias_may_fall_with_the_distance_from_the_start() -> None:
    bias = OffsetBias(reach=2, slope=0.5)(torch.tensor([[1]]), n_words=5)
    assert bias.flatten().tolist() == pytest.approx([-0.5, 0.0, -0.5, -1.0, -1.0])
    assert not OffsetBias(reach=2).bias.any()


def test_padding_gets_no_probability() -> None:
    logits = mask_words(torch.zeros(1, 1, 3), torch.tensor([[True, True, False]]))
    assert logits.softmax(-1)[0, 0].tolist() == [0.5, 0.5, 0.0]
    assert logits.sigmoid()[0, 0, 2].item() == 0.0


def test_soft_inside_of_sure_boundaries_is_the_span() -> None:
    left, right = torch.zeros(1, 1, 5), torch.zeros(1, 1, 5)
    left[..., 1] = right[..., 3] = 1.0
    assert soft_inside(left, right).tolist() == [[[0.0, 1.0, 1.0, 1.0, 0.0]]]
    words = torch.arange(5.0).reshape(1, 5, 1)
    assert weighted_mean(soft_inside(left, right), words).item() == pytest.approx(2.0)
