"""Locate and Label: equations on numbers worked out apart from the code, decoding by hand."""

from typing import Any, List, Tuple

import pytest
import torch
import torch.nn.functional as F
from head_samples import GOLD, LOCATE_SMALL, WIDTH, from_config, options_of, random_batch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from spacy_nested_ner.layers.dropout import set_dropout
from spacy_nested_ner.layers.pooling import RangeMax
from spacy_nested_ner.systems.head import Batch, Gold, mean_losses
from spacy_nested_ner.systems.locate_and_label import SYSTEM
from spacy_nested_ner.systems.locate_and_label.head import LocateAndLabel, focal_terms
from spacy_nested_ner.systems.locate_and_label.settings import (
    LocateAndLabelOptions,
    LocateAndLabelSettings,
)
from spacy_nested_ner.systems.locate_and_label.spans import (
    SpanMLP,
    Spans,
    WordStates,
    best_entity,
    iou,
    soft_nms,
)


def make_head(n_labels: int = 3, **changes: Any) -> LocateAndLabel:
    torch.manual_seed(0)
    return LocateAndLabel(
        WIDTH, n_labels, LocateAndLabelSettings(**{**LOCATE_SMALL, **changes})
    ).eval()


def spans(*rows: Tuple[int, int, int]) -> Spans:
    return Spans(*torch.tensor(rows).reshape(-1, 3).unbind(-1))


def listed(found: Spans) -> List[Tuple[int, ...]]:
    return list(zip(*(column.tolist() for column in found)))


def adjust(head: LocateAndLabel, words: WordStates, chosen: Spans) -> Tuple[Tensor, Spans, Tensor]:
    return head.adjust(words, chosen, words.range_max(*chosen))


def fix_offsets(head: LocateAndLabel, left: float, right: float) -> None:
    """Let the regressor say the same offsets of every span."""
    with torch.no_grad():
        head.offsets.output.weight.zero_()
        head.offsets.output.bias.copy_(torch.tensor([left, right]))


def test_seeds_are_all_starts_of_every_length_within_the_sentence() -> None:
    mask = torch.tensor([[True, True, True], [True, False, False]])
    found = make_head(lengths=[1, 3]).seeds(mask)
    assert sorted(listed(found)) == [(0, 0, 0), (0, 0, 2), (0, 1, 1), (0, 2, 2), (1, 0, 0)]


def test_iou_by_hand() -> None:
    first, last = torch.tensor([0, 0, 2, 4]), torch.tensor([3, 3, 3, 4])
    other_first, other_last = torch.tensor([0, 2, 0, 0]), torch.tensor([3, 5, 3, 3])
    found = iou(first, last, other_first, other_last)
    torch.testing.assert_close(found, torch.tensor([1.0, 2 / 6, 2 / 4, 0.0]))


def test_a_seed_is_paired_with_the_entity_of_highest_iou() -> None:
    gold = Gold.from_lists([[(0, 3, 0), (2, 3, 1)], [(0, 0, 2)]])
    value, index = best_entity(spans((0, 0, 2), (0, 2, 2), (0, 9, 9), (1, 0, 1)), gold)
    torch.testing.assert_close(value, torch.tensor([3 / 4, 1 / 2, 0.0, 1 / 2]))
    assert index.tolist()[:2] == [0, 1] and index[3] == 0


def test_span_mlp_is_equation_1_to_3() -> None:
    torch.manual_seed(0)
    mlp, words = SpanMLP(4, 2), torch.randn(1, 5, 4)
    pooled = words[0, 1:4].amax(0)
    left, right = mlp.bounds.weight.chunk(2)
    hidden = mlp.pooled(pooled) + left @ words[0, 1] + right @ words[0, 3]
    expected = mlp.output(F.gelu(hidden))
    found = mlp.inside(WordStates(words, torch.ones(1, 5, dtype=torch.bool)), spans((0, 1, 3)))
    torch.testing.assert_close(found[0], expected)


def test_the_regressor_reads_the_outer_words_and_the_edges() -> None:
    head = make_head()
    torch.nn.init.normal_(head.offsets.output.weight)
    states, mask = torch.randn(2, 4, 16), torch.tensor([[True] * 4, [True] * 2 + [False] * 2])
    found = adjust(head, WordStates(states, mask), spans((0, 1, 2), (0, 0, 0), (1, 0, 1)))[0]
    left, right = head.edges
    outer = [(states[0, 0], states[0, 3]), (left, states[0, 1]), (left, right)]
    inner = [states[0, 1:3], states[0, :1], states[1, :2]]
    for offsets, (before, after), words in zip(found, outer, inner):
        bounds = head.offsets.bounds.weight.chunk(2)
        hidden = head.offsets.pooled(words.amax(0)) + bounds[0] @ before + bounds[1] @ after
        torch.testing.assert_close(offsets, head.offsets.output(F.gelu(hidden)))


def test_adjusted_spans_are_rounded_and_clamped() -> None:
    """Equations 6 and 7; the second sentence has two words only."""
    head, mask = make_head(), torch.tensor([[True] * 5, [True, True, False, False, False]])
    words = WordStates(torch.randn(2, 5, 16), mask)
    fix_offsets(head, -1.4, 0.5)  # floor(t + 1/2): -1 and 1
    _, adjusted, legal = adjust(head, words, spans((0, 2, 3), (0, 0, 4), (1, 1, 1)))
    assert listed(adjusted) == [(0, 1, 4), (0, 0, 4), (1, 0, 1)] and legal.all()
    fix_offsets(head, 2.0, -2.0)
    _, _, legal = adjust(head, words, spans((0, 0, 4), (0, 2, 3), (1, 1, 1)))
    assert legal.tolist() == [True, False, False]  # the first is one word now, the others are none


def test_the_sigmoid_regressor_never_moves_a_boundary_to_the_left() -> None:
    head, (states, mask) = make_head(regressor="sigmoid"), random_batch()
    fix_offsets(head, -20.0, 0.0)
    words = head.encode(states, mask)
    offsets, _, _ = adjust(head, words, spans((0, 2, 3), (1, 1, 1)))
    torch.testing.assert_close(offsets[:, 1], torch.tensor([3.0, 1.5]))  # half the sentence
    assert (offsets[:, 0] >= 0).all()


def test_weights_are_equation_11() -> None:
    value, positive = torch.tensor([0.8, 1.0, 0.4, 0.0]), torch.tensor([True, True, False, False])
    for soft, expected in ((True, [0.8, 1, 0.6, 1]), (False, [1] * 4)):
        found = make_head(soft_examples=soft).example_weights(value, positive)
        torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float))


def test_focal_terms_are_equation_12() -> None:
    logits, goal = torch.tensor([0.3, 0.3]), torch.tensor([1.0, 0.0])
    p = torch.sigmoid(torch.tensor(0.3))
    expected = torch.stack([-((1 - p) ** 2) * p.log(), -(p**2) * (1 - p).log()])
    torch.testing.assert_close(focal_terms(logits, goal), expected)


def test_every_example_has_its_own_weight_in_the_filter_loss() -> None:
    head, (states, mask) = make_head(), random_batch()
    words, chosen = head.encode(states, mask), spans((0, 0, 3), (0, 1, 1), (1, 2, 2))
    value, positive = torch.tensor([0.8, 0.25, 0.0]), torch.tensor([True, False, False])
    logits = head.filter.inside(words, chosen).squeeze(-1)
    p = logits.sigmoid()
    expected = 0.8 * -((1 - p[0]) ** 2) * p[0].log()
    expected = expected + 0.75 * -(p[1] ** 2) * (1 - p[1]).log()
    expected = expected - (p[2] ** 2) * (1 - p[2]).log()
    loss = head.filter_loss(words, logits, value, positive)
    torch.testing.assert_close(loss.total, expected)
    assert loss.terms == 1 + 3  # the positive span and the sentences


def test_seeds_that_the_filter_rejects_are_shown_in_part() -> None:
    logits = torch.tensor([-9.0] * 1000 + [-9.0, 9.0])
    positive = torch.tensor([False] * 1000 + [True, False])
    for share, least, most in ((0.0, 0, 0), (0.1, 50, 150), (1.0, 1000, 1000)):
        head = make_head(rejected_share=share)
        assert head.shown(logits, positive).all()  # it is not in training
        shown = head.train().shown(logits, positive)
        assert shown[1000:].all() and least <= shown[:1000].sum() <= most


def test_seeds_that_the_filter_may_let_pass_are_all_shown() -> None:
    head = make_head(rejected_share=0.0).train()
    logits = torch.tensor([0.19, 0.21, 0.9, 0.01]).logit()
    shown = head.shown(logits, torch.tensor([False, False, False, True]))
    assert shown.tolist() == [False, True, True, True]


def test_regression_losses_are_equations_14_and_15() -> None:
    head, gold = make_head(), Gold.from_lists([[(1, 4, 0)]])
    offsets = torch.tensor([[0.5, -2.0], [9.0, 9.0]])
    losses = head.regression_losses(
        spans((0, 0, 4), (0, 2, 3)),
        offsets,
        gold,
        torch.tensor([0, 0]),
        torch.tensor([True, False]),
    )
    means = mean_losses([losses])
    # Targets are +1 and 0: |0.5| < 1 is squared and halved, 2 is linear.
    torch.testing.assert_close(means["offset"], 0.1 * torch.tensor(0.5 * 0.25 + 1.5))
    # Words 0.5 to 3 (exclusive) against 1 to 5: 2 shared of 4.5.
    torch.testing.assert_close(means["overlap"], 0.1 * torch.tensor(1 - 2 / 4.5))


def test_an_exact_span_has_no_regression_loss() -> None:
    head, gold = make_head(), Gold.from_lists([[(1, 1, 0)]])
    one, yes = torch.tensor([0]), torch.tensor([True])
    losses = head.regression_losses(spans((0, 0, 1)), torch.tensor([[1.0, 0.0]]), gold, one, yes)
    assert [float(loss) for loss in mean_losses([losses]).values()] == [0.0, 0.0]


@pytest.mark.parametrize("classifier", ["softmax", "sigmoid"])
def test_label_loss_is_equation_16(classifier) -> None:
    head, (states, mask) = make_head(classifier=classifier, n_labels=2), random_batch()
    words, gold = head.encode(states, mask), Gold.from_lists([[(0, 3, 1)], [], []])
    chosen = spans((0, 0, 3), (0, 0, 2), (1, 0, 0))  # exact; IoU 3/4; far from any entity
    logits = head.labels.inside(words, chosen)
    if classifier == "softmax":
        terms = F.cross_entropy(logits, torch.tensor([2, 0, 0]), reduction="none")
    else:
        goal = torch.tensor([[0.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
        terms = F.binary_cross_entropy_with_logits(logits, goal, reduction="none").sum(-1)
    loss = head.label_loss(words, chosen, gold)
    torch.testing.assert_close(loss.total, terms[0] + 0.25 * terms[1] + terms[2])
    assert loss.terms == 1 + 3


def test_two_labels_of_one_span_are_both_learned_by_sigmoids() -> None:
    gold = Gold.from_lists([[(0, 1, 2), (0, 1, 0), (0, 0, 1)]])
    one = spans((0, 0, 1))
    _, paired = best_entity(one, gold)
    goal = make_head().label_goal(one, gold, paired, torch.tensor([True]))
    assert goal.tolist() == [[True, False, True]]


def test_negatives_are_sampled_per_sentence() -> None:
    head = make_head(negatives=2.0)
    row = torch.tensor([0] * 20 + [1] * 20 + [2] * 3)
    positive = torch.zeros(43, dtype=torch.bool)
    positive[[3, 7, 25]] = True
    draws = set()
    for seed in range(5):
        torch.manual_seed(seed)
        chosen = head.sample(Spans(row, row, row), positive, 3)
        assert torch.bincount(row[chosen]).tolist() == [2 + 6, 1 + 4, 2]
        assert set(torch.nonzero(positive).flatten().tolist()) <= set(chosen.tolist())
        assert len(set(chosen.tolist())) == len(chosen)
        draws.add(tuple(sorted(chosen.tolist())))
    assert len(draws) == 5


def test_entities_of_lengths_without_seeds_are_examples() -> None:
    gold = Gold.from_lists([[(0, 5, 0), (1, 2, 1)], [(0, 4, 0)]])
    assert listed(make_head(lengths=[1, 2]).unreachable(gold)) == [(0, 0, 5), (1, 0, 4)]
    assert listed(make_head(lengths=[1, 2, 5, 6]).unreachable(gold)) == []


def by_algorithm_1(rows: List[Tuple[int, int, int]], scores: List[float], k: float, u: float):
    """The paper's algorithm with lists, sorted anew after every step."""
    waiting = [(score, i) for i, score in enumerate(scores)]
    final = {}
    while waiting:
        waiting.sort(key=lambda pair: (-pair[0], pair[1]))
        score, i = waiting.pop(0)
        final[i] = score
        for j, (other, index) in enumerate(waiting):
            a, b = set(range(rows[i][1], rows[i][2] + 1)), rows[index]
            b = set(range(b[1], b[2] + 1)) if b[0] == rows[i][0] else set()
            if len(a & b) / len(a | b) >= k:
                waiting[j] = (other * u, index)
    return [final[i] for i in range(len(rows))]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 5), st.integers(0, 4), st.integers(1, 10**6)),
        min_size=0,
        max_size=12,
        unique_by=lambda item: item[3],
    )
)
def test_soft_nms_is_algorithm_1(items) -> None:
    rows = [(row, start, start + length) for row, start, length, _ in items]
    scores = [score / 10**6 for *_, score in items]
    score = torch.tensor(scores, dtype=torch.float64)
    found = score * soft_nms(spans(*rows), score, 0.5, 0.8)
    expected = torch.tensor(by_algorithm_1(rows, scores, 0.5, 0.8), dtype=torch.float64)
    torch.testing.assert_close(found, expected)


def test_soft_nms_where_another_type_of_numbers_is_the_default() -> None:
    """Other code in the process may have changed it."""
    score = torch.tensor([0.9, 0.8])
    expected = soft_nms(spans((0, 0, 3), (0, 0, 2)), score, 0.5, 0.8)
    torch.set_default_dtype(torch.float64)
    try:
        found = soft_nms(spans((0, 0, 3), (0, 0, 2)), score, 0.5, 0.8)
    finally:
        torch.set_default_dtype(torch.float32)
    assert found.dtype == torch.float32 and torch.equal(found, expected)


def test_soft_nms_looks_at_the_order_again() -> None:
    """After the first has pushed the second behind the third, the third decays it once more."""
    chosen = spans((0, 0, 4), (0, 0, 3), (0, 1, 3))
    found = soft_nms(chosen, torch.tensor([0.9, 0.8, 0.75]), 0.7, 0.9)
    torch.testing.assert_close(found, torch.tensor([1.0, 0.81, 1.0]))


def test_proposals_that_land_on_one_span_are_one_prediction() -> None:
    head, (states, mask) = make_head(span_filter=False), random_batch()
    fix_offsets(head, -9.0, 9.0)  # every seed becomes its whole sentence
    found = head(states, mask, options=options_of(head, filter_threshold=0.0, nms_decay=1.0))
    places = list(zip(*(column.tolist() for column in found[:4])))
    assert sorted(places) == [
        (i, 0, n - 1, label) for i, n in enumerate((6, 3, 1)) for label in range(3)
    ]


def test_decoding_by_hand() -> None:
    chosen = spans((0, 0, 4), (0, 0, 3), (0, 2, 2))
    scores = torch.tensor([[0.9, 0.1], [0.2, 0.55], [0.6, 0.7]])
    found = LocateAndLabel.decode(
        chosen, scores, LocateAndLabelOptions(threshold=0.5, nms_iou=0.6, nms_decay=0.9)
    )
    # The second overlaps the first by 4/5 and falls to 0.495; the third has two labels.
    assert found.start.tolist() == [0, 2, 2] and found.label.tolist() == [0, 0, 1]
    torch.testing.assert_close(found.score, torch.tensor([0.9, 0.6, 0.7]))
    kept = LocateAndLabel.decode(chosen, scores, LocateAndLabelOptions(threshold=0.5, nms_decay=1))
    assert len(kept.score) == 4


def test_a_softmax_answers_with_its_best_label_or_none() -> None:
    head = make_head(classifier="softmax", n_labels=2)
    found = head.label_probability(torch.tensor([[0.52, 0.46, 0.02], [0.1, 0.5, 0.4]]).log())
    torch.testing.assert_close(found, torch.tensor([[0.0, 0.0], [0.5, 0.0]]))
    spans = Spans(*torch.tensor([[0, 0], [0, 1], [0, 1]]))
    kept = LocateAndLabel.decode(spans, found, LocateAndLabelOptions(threshold=0.0))
    assert kept.start.tolist() == [1] and kept.label.tolist() == [0]


def test_words_are_dropped_once_where_there_is_no_lstm() -> None:
    head = make_head(lstm_layers=0, hidden_width=WIDTH).train()
    set_dropout(head, 0.5)
    words, mask = random_batch()
    assert torch.equal(head.encode(words, mask).states, words)


def test_the_filter_threshold_drops_seeds() -> None:
    head, (states, mask) = make_head(), random_batch()
    words = head.encode(states, mask)
    probability = head.filter.inside(words, head.seeds(mask)).sigmoid().squeeze(-1)
    cut = probability.median().item()
    passing, pooled = head.proposals(words, cut)
    assert len(passing.row) == int((probability >= cut).sum())
    assert torch.equal(pooled, words.range_max(*passing))
    assert not len(head(states, mask, options=options_of(head, filter_threshold=1.0)).score)


@pytest.mark.parametrize("span_filter", [True, False])
def test_seeds_are_pooled_once_in_training_and_in_prediction(span_filter, monkeypatch) -> None:
    head, (words, mask) = make_head(span_filter=span_filter), random_batch()
    pooled: List[int] = []
    look_up = RangeMax.__call__

    def counted(runs: RangeMax, row: Tensor, start: Tensor, end: Tensor) -> Tensor:
        pooled.append(len(row))
        return look_up(runs, row, start, end)

    monkeypatch.setattr(RangeMax, "__call__", counted)
    head.losses(Batch(words, mask), Gold.from_lists(GOLD))
    assert len(pooled) == 2  # seeds and what they become
    head(words, mask, options=options_of(head))
    assert len(pooled) == 4


def test_losses_and_gradients_of_shared_seeds_are_those_of_each_stage_on_its_own() -> None:
    """With the maximum of each span taken anew, word by word, wherever it is read."""
    head, gold = make_head(), Gold.from_lists(GOLD)
    for parameter in head.parameters():  # the regressor starts at no movement, and so without slope
        torch.nn.init.normal_(parameter, std=0.3)
    words, mask = random_batch()
    found = mean_losses([head.losses(Batch(words, mask), gold)])
    read = head.encode(words, mask)
    seeds = head.seeds(mask)
    seeds = Spans(*(torch.cat(p) for p in zip(seeds, head.unreachable(gold))))

    def maxima() -> Tensor:
        rows = zip(*(column.tolist() for column in seeds))
        return torch.stack([read.states[row, a : b + 1].amax(0) for row, a, b in rows])

    value, paired = best_entity(seeds, gold)
    positive = value >= head.seed_iou
    p = head.filter.at(read.states, maxima(), *seeds).squeeze(-1).sigmoid()
    p_right = torch.where(positive, p, 1 - p)
    weights = torch.where(positive, value, 1 - value)
    expected = {
        "filter": -(weights * (1 - p_right) ** 2 * p_right.log()).sum()
        / (positive.sum() + len(mask))
    }
    offsets, adjusted, legal = head.adjust(read, seeds, maxima())
    apart = head.regression_losses(seeds, offsets, gold, paired, positive)
    apart["label"] = head.label_loss(read, adjusted.pick(legal).distinct(mask.shape[1]), gold)
    expected.update(mean_losses([apart]))
    assert set(found) == set(expected)
    parameters = dict(head.named_parameters())
    for name in found:
        torch.testing.assert_close(found[name], expected[name])
        slopes = [
            torch.autograd.grad(
                each[name], list(parameters.values()), retain_graph=True, allow_unused=True
            )
            for each in (found, expected)
        ]
        for one, other in zip(*slopes):
            assert (one is None) == (other is None)
            if one is not None:
                torch.testing.assert_close(one, other)


def test_an_entity_longer_than_any_seed_is_found_by_regression() -> None:
    """Six words where seeds have four at most; without the regressor it is out of reach."""
    words, mask = random_batch()
    reached = {}
    for regressor in ("linear", None):
        head = make_head(regressor=regressor).train()
        optimizer = torch.optim.Adam(head.parameters(), lr=0.01)
        for _ in range(120):
            optimizer.zero_grad()
            losses = mean_losses([head.losses(Batch(words, mask), Gold.from_lists(GOLD))])
            torch.stack(list(losses.values())).sum().backward()
            optimizer.step()
        found = head.eval()(
            words, mask, options=options_of(head, threshold=0.5, filter_threshold=0.1)
        )
        reached[regressor] = (0, 0, 5, 0) in set(zip(*(c.tolist() for c in found[:4])))
    assert reached == {"linear": True, None: False}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"regressor": "quadratic"}, "null or one of .linear., .sigmoid."),
        ({"classifier": "svm"}, '"sigmoid", "softmax"'),
        ({"lengths": []}, "lengths"),
        ({"lengths": [0, 1]}, "lengths"),
        ({"seed_iou": 0.0}, "seed_iou"),
        ({"seed_iou": 1.5}, "seed_iou"),
        ({"negatives": 0}, "negatives"),
        ({"soft_examples": 0.5}, "soft_examples must be true or false"),
    ],
)
def test_wrong_settings_are_refused(changes, problem) -> None:
    with pytest.raises(ValueError, match=problem):
        make_head(**changes)


def test_the_paper_config_builds_the_form_of_the_paper() -> None:
    """Sections 2.1 to 2.5 and what the authors ran on GENIA; see
    docs/systems/locate_and_label_ner.md."""
    head = from_config("locate_and_label_paper", SYSTEM, width=1024, n_labels=5)
    shapes = {name: tuple(value.shape) for name, value in head.state_dict().items()}
    h = 1024  # the encoder has the BiLSTM
    for part, outputs in (("filter", 1), ("offsets", 2), ("labels", 6)):  # with a None class
        assert shapes.pop(f"{part}.pooled.weight") == (h, h)
        assert shapes.pop(f"{part}.bounds.weight") == (2 * h, h)
        assert shapes.pop(f"{part}.output.weight") == (outputs, h)
        assert shapes.pop(f"{part}.pooled.bias") and shapes.pop(f"{part}.output.bias")
    assert shapes == {"edges": (2, h)}
    assert head.lengths == list(range(1, 12)) and head.seed_iou == 0.7 and head.negatives == 5
    assert (head.regressor, head.classifier) == ("linear", "softmax") and head.soft_examples
    assert head.labels.dropout.p == 0.5
