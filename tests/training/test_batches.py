"""Batches that fit the size of a corpus."""

import numpy as np
import pytest

from spacy_nested_ner.training.batches import batch_by_words


def sizes(docs, **settings) -> list:
    """Words of each batch."""
    return [sum(map(len, batch)) for batch in batch_by_words(**settings)(docs)]


@pytest.mark.parametrize(
    "n_docs, words",
    [
        (6, 30),  # of 60 words a tenth would be 6
        (50, 50),  # a tenth of 500
        (300, 200),  # a tenth of 3,000 is more than `size`
    ],
)
def test_a_small_corpus_has_small_batches(n_docs, words) -> None:
    docs = [range(10)] * n_docs
    found = sizes(docs, size=200, smallest=30, batches_per_pass=10, tolerance=0.0)
    assert sum(found) == 10 * n_docs and set(found) == {words}


def test_a_stream_has_full_batches() -> None:
    docs = iter([range(10)] * 6)
    settings = {"size": 30, "smallest": 10, "batches_per_pass": 100, "tolerance": 0.0}
    assert sizes(docs, **settings) == [30, 30]


def test_long_docs_are_batches_of_their_own() -> None:
    docs = [range(10), range(100), range(10)]
    found = sizes(docs, size=20, smallest=20, batches_per_pass=1)
    assert sorted(found) == [20, 100]


def test_a_size_below_the_smallest_holds() -> None:
    docs = [[0] * 10] * 40
    found = sizes(docs, size=20, smallest=200, batches_per_pass=100, tolerance=0.0)
    assert set(found) == {20}


@pytest.mark.parametrize(
    "wrong",
    [
        {"smallest": 0},
        {"size": -1},
        {"size": iter([100])},
        {"batches_per_pass": 0},
        {"tolerance": -0.1},
    ],
)
def test_wrong_sizes(wrong) -> None:
    with pytest.raises(ValueError, match=r"needs numbers above 0 as size.*schedule"):
        batch_by_words(**{"size": 600, "smallest": 150, "batches_per_pass": 100, **wrong})


@pytest.mark.parametrize("number", [float, np.int64])
def test_numbers_of_any_kind(number) -> None:
    settings = {"size": number(20), "smallest": number(20), "batches_per_pass": number(2)}
    assert sizes([range(10)] * 6, **settings, tolerance=0.0) == [20, 20, 20]
