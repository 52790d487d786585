import pytest
import torch
from torch import nn

from spacy_nested_ner.layers.recurrent import BiRNN, last_states


@pytest.mark.parametrize(("cell", "layer"), [("lstm", torch.nn.LSTM), ("gru", torch.nn.GRU)])
def test_equals_packed_layer(cell: str, layer: type) -> None:
    torch.manual_seed(0)
    ours = BiRNN(5, 8, layers=1, cell=cell)
    theirs = layer(5, 4, batch_first=True, bidirectional=True)
    for name, parameter in ours.ahead[0].named_parameters():
        getattr(theirs, name).data = parameter.data
    for name, parameter in ours.back[0].named_parameters():
        getattr(theirs, f"{name}_reverse").data = parameter.data
    words, lengths = torch.randn(3, 6, 5), torch.tensor([6, 2, 4])
    mask = torch.arange(6) < lengths.unsqueeze(1)
    packed = nn.utils.rnn.pack_padded_sequence(
        words, lengths.cpu(), batch_first=True, enforce_sorted=False
    )
    output, final = theirs(packed)
    expected, _ = torch.nn.utils.rnn.pad_packed_sequence(output, batch_first=True)
    states = ours(words, mask)
    torch.testing.assert_close(states[mask], expected[mask])
    final = final[0] if cell == "lstm" else final
    torch.testing.assert_close(last_states(states, mask), torch.cat(list(final), dim=-1))


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_padding_changes_nothing_in_stacked_layers(cell: str) -> None:
    torch.manual_seed(0)
    rnn = BiRNN(5, 8, layers=3, dropout=0.5, cell=cell).eval()
    words = torch.randn(1, 4, 5)
    alone = rnn(words, torch.ones(1, 4, dtype=torch.bool))
    padded = torch.cat([words, torch.full((1, 3, 5), 7.0)], dim=1)
    mask = torch.arange(7).unsqueeze(0) < 4
    torch.testing.assert_close(rnn(padded, mask)[:, :4], alone)


def test_odd_width_is_refused() -> None:
    with pytest.raises(ValueError, match=r"BiRNN.*even"):
        BiRNN(5, 7)


def test_the_default_cell_is_an_lstm() -> None:
    assert isinstance(BiRNN(5, 8).ahead[0], torch.nn.LSTM)
