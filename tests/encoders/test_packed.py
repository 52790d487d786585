"""Texts that are read one after the other, without padding."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spacy_nested_ner.encoders import batching
from spacy_nested_ner.encoders.packed import packing
from spacy_nested_ner.encoders.sorted_transformer import build_sorted_transformer, encoder_shim
from tests.encoders.test_sorted_transformer import make_docs

pytest.importorskip("transformers")


@given(st.lists(st.integers(1, 90), min_size=1, max_size=40), st.integers(1, 600))
def test_every_piece_stands_in_one_row_and_finds_its_way_back(lengths, budget) -> None:
    """Numbers of the pieces go into rows and come back as they were; a row holds one text."""
    lengths = np.array(lengths)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(batching.BATCH_PIECES, "cpu", budget)
        rows, back = packing(lengths, torch.device("cpu"))
    text = torch.from_numpy(np.repeat(np.arange(len(lengths)), lengths))
    cells = []
    for places, mask in rows:
        real = torch.ones_like(places, dtype=torch.bool) if mask is None else mask
        assert places.numel() <= max(budget, int(lengths.max()))
        for row, inside in zip(places, real):
            pieces = row[inside]
            assert torch.equal(pieces, torch.arange(pieces[0], pieces[-1] + 1))
            assert (text == text[pieces[0]]).sum() == len(pieces)
        cells.append(places.masked_fill(~real, -1).flatten())
    assert torch.equal(torch.cat(cells)[back], torch.arange(int(lengths.sum())))


@pytest.mark.parametrize("budget", [20, 5000])
def test_rows_change_nothing(directory, monkeypatch, budget) -> None:
    """In training, without dropout, as in prediction: docs in one row or in several, and docs that
    are longer than the encoder reads at once."""
    for kind in ("cpu", "cuda"):
        monkeypatch.setitem(batching.BATCH_PIECES, kind, budget)
    model = build_sorted_transformer(directory, max_pieces=12, mixed_precision=False)
    model.initialize()
    docs = make_docs()
    for part in encoder_shim(model).module.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    for found, expected in zip(model(docs, is_train=True)[0], model.predict(docs)):
        np.testing.assert_allclose(found, expected, atol=1e-5)
