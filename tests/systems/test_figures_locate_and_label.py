from __future__ import annotations

import pytest
import torch

from spacy_nested_ner.systems.locate_and_label.figures import (
    OFFSETS,
    offset_counts,
    plot_offsets,
)
from tests.systems.views import predicted, view_of, views_of_docs


def test_offsets_agree_with_a_loop_over_seeds():
    view = view_of("locate_and_label_ner", filter_threshold=0.0, nms_decay=1.0)
    head = view.head
    with torch.no_grad():  # an untrained regressor moves nothing
        weight = head.offsets.output.weight
        weight.copy_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)))
    expected = dict.fromkeys(OFFSETS, 0)
    for one in views_of_docs(view):
        entities = {(s, e - 1) for s, e, _ in predicted(one)}
        ((batch, _),) = one.batches()
        with torch.no_grad():
            words = head.encode(batch.words, batch.mask)
            seeds = head.seeds(batch.mask)
            _, moved, legal = head.adjust(words, seeds, words.range_max(*seeds))
        for i in range(len(seeds.row)):
            end = (int(moved.start[i]), int(moved.end[i]))
            if legal[i] and end in entities:
                for before, after in zip((seeds.start[i], seeds.end[i]), end):
                    expected[OFFSETS[min(4, abs(after - int(before)))]] += 1
    assert offset_counts(view) == expected
    assert sum(expected.values()) > 0 and expected["1"] + expected["2"] > 0


def test_picture():
    pytest.importorskip("matplotlib")
    (axes,) = plot_offsets({"0": 5, "1": 2}).axes
    assert [bar.get_height() for bar in axes.patches] == [5, 2]
