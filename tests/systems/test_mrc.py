"""BERT-MRC: losses on numbers worked out apart from the code, decoding by hand."""

import math
from typing import Any, Dict, List, Tuple

import pytest
import torch
from head_samples import in_pipeline, options_of
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from spacy_nested_ner.layers.dropout import set_dropout
from spacy_nested_ner.systems.head import Batch, Gold, mean_losses
from spacy_nested_ner.systems.mrc import SYSTEM
from spacy_nested_ner.systems.mrc.head import MRC, MatchScore, best_of_rows, nearest_ends
from spacy_nested_ner.systems.mrc.settings import MRCOptions, MRCSettings

# Start logits, then end logits of two rows; the second has two words only.
STARTS = [[2.0, -1.0, 1.0, -3.0], [-2.0, 0.5, 9.0, 9.0]]
ENDS = [[-2.0, 1.0, -1.0, 3.0], [1.5, -0.5, 9.0, 9.0]]
MASK = torch.tensor([[True] * 4, [True, True, False, False]])
GOLD = Gold.from_lists([[(0, 1, 0), (2, 3, 0)], []])


class FixedMatch(nn.Module):
    """A match score with given logits, which remembers its candidates."""

    def __init__(self, logits: Dict[Tuple[int, int, int], float], other: float = -9.0) -> None:
        super().__init__()
        self.logits, self.other = logits, other
        self.candidates: List[Tuple[int, ...]] = []

    def forward(
        self, first: Tensor, last: Tensor, row: Tensor, start: Tensor, end: Tensor
    ) -> Tensor:
        self.candidates = list(zip(row.tolist(), start.tolist(), end.tolist()))
        return torch.tensor([self.logits.get(cell, self.other) for cell in self.candidates])


def make_head(**settings: Any) -> MRC:
    """A head that reads the start logit from the first place of a vector, the end logit from the
    second; in the paper's form."""
    head = MRC(2, 1, MRCSettings(**{"pairing": "match", **settings})).eval()
    with torch.no_grad():
        for layer, weights in ((head.start, [1.0, 0.0]), (head.end, [0.0, 1.0])):
            layer.weight.copy_(torch.tensor([weights]))
            layer.bias.zero_()
    return head


def words() -> Tensor:
    return torch.tensor([STARTS, ENDS]).permute(1, 2, 0)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def cross_entropy(logit: float, goal: float) -> float:
    p = sigmoid(logit)
    return -math.log(p) if goal else -math.log(1 - p)


def real(values: List[List[float]]) -> List[float]:
    return values[0] + values[1][:2]


def test_start_and_end_are_means_over_real_words() -> None:
    means = mean_losses([make_head().losses(Batch(words(), MASK), GOLD)])
    goals = {"start": [1, 0, 1, 0, 0, 0], "end": [0, 1, 0, 1, 0, 0]}
    for name, logits in (("start", STARTS), ("end", ENDS)):
        terms = [cross_entropy(x, g) for x, g in zip(real(logits), goals[name])]
        assert means[name].item() == pytest.approx(sum(terms) / 6 / 2.1, abs=1e-5)


def test_weights_are_divided_by_their_sum() -> None:
    assert make_head().weights == pytest.approx({"start": 1 / 2.1, "end": 1 / 2.1, "match": 1 / 21})
    assert make_head(pairing="span").weights == make_head().weights
    assert make_head(pairing="nearest").weights == {"start": 0.5, "end": 0.5}


def test_dice_is_equation_1_over_the_whole_batch() -> None:
    head = make_head(boundary_loss="dice")
    means = mean_losses([head.losses(Batch(words(), MASK), GOLD)])
    p = [sigmoid(x) for x in real(STARTS)]
    g = [1, 0, 1, 0, 0, 0]
    above = 2 * sum(a * b for a, b in zip(p, g)) + 1.0
    below = sum(a * a for a in p) + sum(g) + 1.0
    assert means["start"].item() == pytest.approx((1 - above / below) / 2.1, abs=1e-6)


def test_dice_of_parts_is_dice_of_the_whole() -> None:
    head = make_head(boundary_loss="dice")
    whole = mean_losses([head.losses(Batch(words(), MASK), GOLD)])
    golds = [Gold(GOLD.spans[i], GOLD.labels[i], GOLD.mask[i]) for i in (slice(0, 1), slice(1, 2))]
    rows = [
        head.losses(Batch(words()[i : i + 1], MASK[i : i + 1]), gold)
        for i, gold in enumerate(golds)
    ]
    for name, value in mean_losses(rows).items():
        torch.testing.assert_close(value, whole[name])


def test_the_match_score_is_a_hidden_layer_over_both_states() -> None:
    torch.manual_seed(0)
    match, first, last = MatchScore(4, 3), torch.randn(2, 5, 4), torch.randn(2, 5, 4)
    cells = [(0, 1, 3), (1, 0, 0), (0, 1, 4)]
    weight = torch.cat([match.first.weight, match.last.weight], dim=1)
    found = match(first, last, *torch.tensor(cells).T)
    for logit, (row, start, end) in zip(found, cells):
        joined = torch.cat([first[row, start], last[row, end]])
        hidden = nn.functional.gelu(weight @ joined + match.first.bias)
        expected = match.output.weight[0] @ hidden + match.output.bias[0]
        torch.testing.assert_close(logit, expected)


def test_a_match_with_words_reads_the_maximum_over_the_span() -> None:
    torch.manual_seed(0)
    match, states = MatchScore(4, 3, with_words=True), torch.randn(2, 5, 4)
    cells = [(0, 1, 3), (1, 0, 0), (0, 0, 4)]
    found = match(states, states, *torch.tensor(cells).T)
    for logit, (row, start, end) in zip(found, cells):
        hidden = match.first(states[row, start]) + match.last(states[row, end])
        hidden = hidden + match.words(states[row, start : end + 1].amax(0))
        torch.testing.assert_close(logit, match.output(nn.functional.gelu(hidden))[0])
    none = torch.zeros(0, dtype=torch.long)
    assert match(states, states, none, none, none).shape == (0,)


def test_pairing_by_the_span_learns_from_the_words_between() -> None:
    head = make_head(pairing="span")
    losses = head.losses(Batch(words(), MASK), GOLD)
    losses["match"].total.backward()
    assert head.match.words.weight.grad.abs().sum() > 0
    assert make_head().match.words is None


# Row, first and last word. Predicted starts are 0 and 2, ends 1 and 3, of row 1: 1 and 0.
GOLD_CELLS = [(0, 0, 1), (0, 0, 3), (0, 2, 3)]
ALL_CELLS = [(0, i, j) for i in range(4) for j in range(i, 4)] + [(1, 0, 0), (1, 0, 1), (1, 1, 1)]


@pytest.mark.parametrize(("candidates", "expected"), [("gold", GOLD_CELLS), ("all", ALL_CELLS)])
def test_candidates(candidates, expected) -> None:
    head = make_head(candidates=candidates)
    head.match = FixedMatch({})
    head.losses(Batch(words(), MASK), GOLD)
    assert sorted(head.match.candidates) == expected


@pytest.mark.parametrize(
    ("candidates", "predicted"),
    [
        ("gold_and_predicted", [(0, 0, 1), (0, 0, 3), (0, 2, 3)]),
        # But for the start with a logit of -3, whose probability is below 0.1, all.
        ("gold_and_likely", [cell for cell in ALL_CELLS if cell != (0, 3, 3)]),
    ],
)
def test_candidates_of_gold_and_of_what_is_found(candidates, predicted) -> None:
    gold = Gold.from_lists([[(1, 1, 0)], [(0, 0, 0)]])
    head = make_head(candidates=candidates)
    head.match = FixedMatch({})
    head.losses(Batch(words(), MASK), gold)
    assert sorted(head.match.candidates) == sorted({*predicted, (0, 1, 1), (1, 0, 0)})


def test_wrong_pairs_of_gold_boundaries_are_the_negatives() -> None:
    head = make_head(candidates="gold")
    head.match = FixedMatch({(0, 0, 1): 0.3, (0, 0, 3): 0.7, (0, 2, 3): -0.2})
    means = mean_losses([head.losses(Batch(words(), MASK), GOLD)])
    terms = cross_entropy(0.3, 1) + cross_entropy(0.7, 0) + cross_entropy(-0.2, 1)
    assert means["match"].item() == pytest.approx(terms / 3 / 21, abs=1e-6)


def found(head: MRC, **options: Any) -> Dict[Tuple[int, int, int], float]:
    options = {"threshold": 0.5, "score": "match", **options}
    spans = head.predict(Batch(words(), MASK), MRCOptions(**options))
    assert not spans.label.any()
    rows = zip(spans.segment.tolist(), spans.start.tolist(), spans.end.tolist())
    return dict(zip(rows, spans.score.tolist()))


def test_nested_decoding_takes_every_start_and_end_that_match() -> None:
    head = make_head()
    head.match = FixedMatch({(0, 0, 1): 4.0, (0, 0, 3): 0.25, (0, 2, 3): -0.1, (0, 1, 3): 2.0})
    scores = {(0, 0, 1): sigmoid(4.0), (0, 0, 3): sigmoid(0.25)}
    assert found(head, boundary_threshold=0.5) == pytest.approx(scores)
    # The second row's start lies behind its end.
    assert sorted(head.match.candidates) == [(0, 0, 1), (0, 0, 3), (0, 2, 3)]
    assert list(found(head, boundary_threshold=0.5, threshold=0.6)) == [(0, 0, 1)]


def test_a_score_is_the_mean_of_start_end_and_match() -> None:
    head = make_head()
    head.match = FixedMatch({(0, 0, 1): 4.0, (0, 0, 3): 0.25, (0, 1, 3): 2.0})
    _, _, starts, ends = (each.sigmoid() for each in head.boundaries(words()))
    scores = found(head, score="mean", threshold=0)
    assert {(0, 0, 1), (0, 0, 3), (0, 1, 3)} <= set(scores)
    for (row, start, end), score in scores.items():
        match = sigmoid(head.match.logits.get((row, start, end), head.match.other))
        product = (starts[row, start] * ends[row, end]).item() * match**2
        assert score == pytest.approx(product**0.25, rel=1e-4)
    best = max(scores.values())
    assert len(found(head, score="mean", threshold=best - 1e-4)) == 1


def test_a_start_that_is_likely_is_matched_too() -> None:
    """One of the words is a start with a probability of 0.27, another one with 0.05."""
    head = make_head()
    head.match = FixedMatch({(0, 1, 3): 2.0, (0, 3, 3): 2.0})
    assert found(head) == pytest.approx({(0, 1, 3): sigmoid(2.0)})
    cells = {(0, 1, 3): sigmoid(2.0), (0, 3, 3): sigmoid(2.0)}
    assert found(head, boundary_threshold=0.04) == pytest.approx(cells)
    assert found(head, boundary_threshold=0.3) == {}


def test_flat_decoding_takes_the_nearest_end() -> None:
    expected = pytest.approx({(0, 0, 1): sigmoid(1.0), (0, 2, 3): sigmoid(1.0)})
    assert found(make_head(), decoding="flat") == expected
    assert found(make_head(pairing="nearest")) == expected


def test_first_and_last_pieces_are_read_apart() -> None:
    torch.manual_seed(0)
    head = MRC(8, 1, MRCSettings(two_sided=True)).eval()
    states = torch.randn(1, 3, 8)
    first, last, starts, ends = head.boundaries(states)
    assert torch.equal(first, states[..., :4]) and torch.equal(last, states[..., 4:])
    torch.testing.assert_close(starts, head.start(states[..., :4])[..., 0])
    torch.testing.assert_close(ends, head.end(states[..., 4:])[..., 0])


@settings(deadline=None)
@given(data=st.data(), n_words=st.integers(1, 8))
def test_nearest_ends_by_brute_force(data, n_words) -> None:
    flags = st.lists(st.booleans(), min_size=n_words, max_size=n_words)
    starts, ends = data.draw(flags), data.draw(flags)
    expected = []
    for i in (i for i in range(n_words) if starts[i]):
        later = [j for j in range(i, n_words) if ends[j]]
        expected.extend([(0, i, later[0])] if later else [])
    columns = nearest_ends(torch.tensor([starts]), torch.tensor([ends]))
    assert list(zip(*(column.tolist() for column in columns))) == expected


def test_the_best_of_each_row_are_kept() -> None:
    row = torch.tensor([0, 0, 0, 2, 2, 2, 2])
    score = torch.tensor([0.1, 0.9, 0.5, 0.7, 0.7, float("nan"), 0.9])
    keep = best_of_rows(row, score, torch.tensor([2, 1, 3]))
    assert keep.tolist() == [False, True, True, True, False, True, True]
    none = torch.zeros(0, dtype=torch.long)
    assert not len(best_of_rows(none, none.float(), torch.tensor([1, 1])))


def test_one_word_again_and_again_has_no_more_answers_than_can_nest() -> None:
    head = make_head()
    head.match = FixedMatch({}, other=5.0)
    spans = head(
        torch.full((1, 30, 2), 3.0),
        torch.ones(1, 30, dtype=torch.bool),
        options=options_of(head),
    )
    assert len(spans.score) == 59


def test_labels_have_no_weights() -> None:
    head = MRC(4, 2, MRCSettings())
    before = {name: value.clone() for name, value in head.state_dict().items()}
    head.add_labels(7)
    assert all(torch.equal(value, before[name]) for name, value in head.state_dict().items())
    assert {n: v.shape for n, v in MRC(4, 99, MRCSettings()).state_dict().items()} == {
        n: v.shape for n, v in before.items()
    }


def test_dropout_is_before_the_match_score_only() -> None:
    head = in_pipeline(SYSTEM, MRCSettings(dropout=0.3), width=4, n_labels=1)
    set_dropout(head, 0.9)
    assert [m.p for m in head.modules() if isinstance(m, nn.Dropout)] == [0.3]


@pytest.mark.parametrize(
    "wrong",
    [
        {"pairing": "some"},
        {"candidates": "some"},
        {"boundary_loss": "some"},
        {"unanswered_share": 2.0},
        {"hidden_width": 0},
    ],
)
def test_wrong_settings_are_refused(wrong) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        MRCSettings(**wrong)


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ValueError, match="decoding must be"):
        found(make_head(), decoding="some")
    with pytest.raises(ValueError, match="hidden_width must be a multiple of 4, got 30"):
        MRCSettings(hidden_width=30)
