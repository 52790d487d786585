import pytest
import torch
from torch import nn

from spacy_nested_ner.layers.recurrent import BiGRU, BiLSTM


@pytest.mark.parametrize(("kind", "packed_kind"), [(BiLSTM, nn.LSTM), (BiGRU, nn.GRU)])
def test_equals_packed(kind, packed_kind) -> None:
    torch.manual_seed(0)
    ours = kind(5, 8, layers=1)
    theirs = packed_kind(5, 4, batch_first=True, bidirectional=True)
    for name, parameter in ours.ahead[0].named_parameters():
        getattr(theirs, name).data = parameter.data
    for name, parameter in ours.back[0].named_parameters():
        getattr(theirs, f"{name}_reverse").data = parameter.data
    words, lengths = torch.randn(3, 6, 5), torch.tensor([6, 2, 4])
    mask = torch.arange(6) < lengths.unsqueeze(1)
    packed = nn.utils.rnn.pack_padded_sequence(
        words, lengths, batch_first=True, enforce_sorted=False
    )
    expected, _ = nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)
    torch.testing.assert_close(ours(words, mask)[mask], expected[mask])


def test_padding_changes_nothing_in_stacked_layers() -> None:
    torch.manual_seed(0)
    lstm = BiLSTM(5, 8, layers=3, dropout=0.5).eval()
    words = torch.randn(1, 4, 5)
    alone = lstm(words, torch.ones(1, 4, dtype=torch.bool))
    padded = torch.cat([words, torch.full((1, 3, 5), 7.0)], dim=1)
    mask = torch.arange(7).unsqueeze(0) < 4
    torch.testing.assert_close(lstm(padded, mask)[:, :4], alone)


def test_odd_width_is_refused() -> None:
    with pytest.raises(ValueError, match="even"):
        BiLSTM(5, 7)
