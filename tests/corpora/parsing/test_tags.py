"""Tag sequences and their schemes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spacy_nested_ner.corpora.parsing.tags import TagError, decode_tags
from tests.corpora.comparing import SPANS, TAGS


@pytest.mark.parametrize("scheme", TAGS)
def test_schemes(scheme):
    assert decode_tags(TAGS[scheme].split(), scheme) == SPANS


def test_bilou_is_read_as_bioes():
    tags = TAGS["BIOES"].replace("E-", "L-").replace("S-", "U-")
    assert decode_tags(tags.split(), "BIOES") == SPANS


@pytest.mark.parametrize("prefix", ["", "I-"])
def test_io_joins_neighbours(prefix):
    labels = ["A", "A", "", "B-x", "B-x", "C"]
    tags = [f"{prefix}{label}" if label else "O" for label in labels]
    assert decode_tags(tags, "IO") == [(0, 2, "A"), (3, 5, "B-x"), (5, 6, "C")]


@pytest.mark.parametrize(
    "tags, scheme, index",
    [
        ("O I-A", "BIO", 1),
        ("B-A I-B", "BIO", 1),
        ("B-A E-A", "BIO", 1),
        ("A", "BIO", 0),
        ("B-", "BIO", 0),
        ("B-A O", "BIOES", 0),
        ("B-A I-A", "BIOES", 1),
        ("B-A S-A", "BMES", 0),
        ("O E-A", "BMES", 1),
        ("B-A I-A E-A", "BMES", 1),
    ],
)
def test_tags_that_do_not_fit(tags, scheme, index):
    with pytest.raises(TagError) as err:
        decode_tags(tags.split(), scheme)
    assert err.value.index == index


FLAT = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), st.sampled_from("XY")), max_size=6)


@given(FLAT)
def test_every_flat_annotation_survives_every_scheme(parts):
    """Each part: words outside before the entity, its words, its label."""
    spans, position = [], 0
    for before, length, label in parts:
        spans.append((position + before, position + before + length, label))
        position += before + length
    for scheme in TAGS:
        assert decode_tags(encoded(spans, position + 1, scheme), scheme) == spans


def encoded(spans, length, scheme):
    tags = ["O"] * length
    for i, (start, end, label) in enumerate(spans):
        touching = i > 0 and spans[i - 1][1] == start and spans[i - 1][2] == label
        middle = "M" if scheme == "BMES" else "I"
        letters = ["B" if scheme != "IOB1" or touching else "I"] + [middle] * (end - start - 1)
        if scheme in ("BIOES", "BMES"):
            letters[-1] = "E" if len(letters) > 1 else "S"
        tags[start:end] = [f"{letter}-{label}" for letter in letters]
    return tags
