from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spacy_nested_ner.encoders.batching import cut_batches, equal_batches, padded_batches


@given(lengths=st.lists(st.integers(0, 9), max_size=20), budget=st.integers(1, 40))
def test_every_element_is_in_one_batch_in_its_place(lengths, budget):
    lengths = np.array(lengths, dtype=np.int64)
    begins = np.cumsum(lengths) - lengths
    seen = []
    for rows, places, mask in padded_batches(lengths, budget):
        assert len(rows) == 1 or mask.numel() <= budget
        for row, place, real in zip(rows, places, mask):
            expected = list(range(begins[row], begins[row] + lengths[row]))
            assert place[real].tolist() == expected
            assert set(place[~real].tolist()) <= {expected[0]}
            seen += expected
    assert sorted(seen) == list(range(lengths.sum()))


@given(lengths=st.lists(st.integers(1, 9), max_size=20), budget=st.integers(1, 40))
def test_equal_batches_need_no_padding(lengths, budget):
    lengths = np.array(lengths, dtype=np.int64)
    batches = equal_batches(lengths, budget)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(set(lengths[batch])) == 1
        assert len(batch) == 1 or lengths[batch].sum() <= budget


@given(
    lengths=st.lists(st.integers(1, 30), max_size=40),
    budget=st.integers(1, 90),
    padding=st.none() | st.integers(0, 40),
)
def test_batches_have_no_more_padding_than_allowed(lengths, budget, padding):
    lengths = np.array(lengths, dtype=np.int64)
    batches = cut_batches(lengths, budget, padding)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        size = len(batch) * lengths[batch].max()
        assert len(batch) == 1 or size <= budget
        if padding is not None:
            assert size - lengths[batch].sum() <= padding
    # Longest first, and no batch is cut before it has to be.
    for batch, after in pairwise(batches):
        joined = lengths[[*batch, after[0]]]
        assert lengths[batch].min() >= lengths[after].max()
        size = len(joined) * joined.max()
        over = padding is not None and size - joined.sum() > padding
        assert size > budget or over
