"""Diffusion: equations on numbers worked out apart from the code, and the paper's properties."""

from dataclasses import fields, replace
from itertools import pairwise
from typing import Any, Dict, List, Tuple

import pytest
import torch
import torch.nn.functional as F
from head_samples import (
    DIFFUSION_AUTHORS,
    DIFFUSION_PAPER,
    DIFFUSION_SMALL,
    GOLD,
    options_of,
    random_batch,
    rows_of,
)

from spacy_nested_ner.layers.pooling import mean_inside
from spacy_nested_ner.layers.span_classifier import SpanClassifier
from spacy_nested_ner.systems.candidates import nearby_spans, pointed_spans
from spacy_nested_ner.systems.diffusion import process as diffusion_process
from spacy_nested_ner.systems.diffusion.decoding import (
    Denoised,
    best_of_equal,
    find_entities,
    score_by_label,
    score_by_sum,
)
from spacy_nested_ner.systems.diffusion.head import (
    Diffusion,
    label_ranks,
)
from spacy_nested_ner.systems.diffusion.network import (
    NoisySpans,
    SpanPooling,
    TimestepEmbedding,
)
from spacy_nested_ner.systems.diffusion.process import (
    SpanDiffusion,
    alpha_bars,
    denoising_times,
    noise_table,
    spread_kinds,
)
from spacy_nested_ner.systems.diffusion.settings import (
    VARIANTS,
    DiffusionOptions,
    DiffusionSettings,
    Variant,
)
from spacy_nested_ner.systems.head import Batch, Gold, Predictions, mean_losses
from spacy_nested_ner.systems.matched import Answers
from tests.conftest import slack

FORM = tuple(field.name for field in fields(Variant))


def make_settings(**given: Any) -> DiffusionSettings:
    """Settings, and choices of a variant that differ from those of the named one."""
    changes = {name: given.pop(name) for name in FORM if name in given}
    if changes:
        VARIANTS["under test"] = replace(VARIANTS[given.get("variant", "default")], **changes)
        given["variant"] = "under test"
    return DiffusionSettings(**{**DIFFUSION_SMALL, **given})


def make_head(n_labels: int = 3, **settings: Any) -> Diffusion:
    torch.manual_seed(0)
    return Diffusion(10, n_labels, make_settings(**settings))


def make_process(**settings: Any) -> SpanDiffusion:
    return SpanDiffusion(make_settings(**settings))


def noisy_spans(spans: Any, kinds: Any = None, real: Any = None) -> NoisySpans:
    """Of kind 0 and all real, if not told otherwise."""
    spans = torch.as_tensor(spans)
    kinds = torch.zeros_like(spans[..., 0]) if kinds is None else kinds
    real = torch.ones_like(spans[..., 0], dtype=torch.bool) if real is None else real
    return NoisySpans(spans, kinds, real)


def all_spans(n: int) -> torch.Tensor:
    """Every span of a sentence of n words, `(1, spans, 2)`."""
    first, last = torch.triu_indices(n, n)
    return torch.stack([first, last], dim=-1).unsqueeze(0)


@pytest.mark.parametrize(
    ("schedule", "deviations"),
    [
        ("cosine", {50: 0.09, 100: 0.17, 199: 0.32, 399: 0.59, 599: 0.81, 799: 0.95, 999: 1.0}),
        ("linear", {50: 0.17, 100: 0.32, 199: 0.58, 399: 0.90, 599: 0.99, 799: 1.0, 999: 1.0}),
    ],
)
def test_noise_of_the_schedules(schedule, deviations) -> None:
    signal = alpha_bars(schedule, 1000)
    for timestep, deviation in deviations.items():
        assert (1 - signal[timestep]).sqrt().item() == pytest.approx(deviation, abs=0.006)
    assert (signal[1:] < signal[:-1]).all()


def test_schedules_of_a_few_timesteps() -> None:
    assert alpha_bars("linear", 1000)[0].item() == pytest.approx(1 - 1e-4)
    # T = 2: f(0) = cos(0.00793651 pi / 2), f(1/2) = cos(0.50396825 pi / 2), squared.
    assert alpha_bars("cosine", 2)[0].item() == pytest.approx(0.4937669 / 0.9998446, abs=1e-6)
    for schedule in ("linear", "cosine"):
        signal = alpha_bars(schedule, 1)
        assert 0 < signal[0] < 1


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_fewer_timesteps_go_the_same_way(schedule) -> None:
    fine, coarse = alpha_bars(schedule, 1000), alpha_bars(schedule, 250)
    torch.testing.assert_close(coarse, fine[3::4], atol=0.005, rtol=0)


def test_normalisation_by_hand() -> None:
    span, length = torch.tensor([[[1, 2]]]), torch.tensor([[4]])
    # Middles of the second and third of four cells are 3/8 and 5/8; 2 (2 * 3/8 - 1) = -1/2.
    assert make_process(scale=2.0).to_state(span, length).tolist() == [[[-0.5, 0.5]]]
    # Two words are the second of four widths.
    widths = make_process(scale=2.0, with_width=True).to_state(span, length)
    assert widths.tolist() == [[[-0.5, -0.5]]]


@pytest.mark.parametrize("with_width", [False, True])
@pytest.mark.parametrize("n", [*range(1, 40), 128])
def test_every_span_of_every_length_comes_back(with_width, n) -> None:
    process = make_process(scale=1.3, with_width=with_width)
    spans, length = all_spans(n), torch.tensor([[n]])
    points = process.to_state(spans, length)
    assert (points.abs() < 1.3).all()
    assert torch.equal(process.to_spans(points, length), spans)
    # Not by luck: a tenth of a cell of noise changes nothing.
    assert torch.equal(process.to_spans(points + 0.1 * 2.6 / n, length), spans)


def test_points_outside_and_in_the_wrong_order_are_spans() -> None:
    points, length = torch.tensor([[[-9.0, 9.0], [0.9, -0.9], [0.9, 0.9]]]), torch.tensor([[10]])
    spans = make_process(scale=1.0).to_spans(points, length)
    assert spans.tolist() == [[[0, 9], [0, 9], [9, 9]]]
    spans = make_process(scale=1.0, with_width=True).to_spans(points, length)
    assert spans.tolist() == [[[0, 9], [9, 9], [9, 9]]]


def test_forward_process_is_equation_4() -> None:
    process = make_process()
    process.signal = torch.tensor([0.64, 0.36], dtype=torch.double)
    clean = torch.full((2, 1, 2), 0.5, dtype=torch.double)
    noisy = process.add_noise(clean, torch.tensor([0, 1]), torch.ones_like(clean))
    torch.testing.assert_close(noisy[0], torch.full((1, 2), 0.8 * 0.5 + 0.6).double())
    torch.testing.assert_close(noisy[1], torch.full((1, 2), 0.6 * 0.5 + 0.8).double())


def test_reverse_step_is_equations_6_and_7(monkeypatch) -> None:
    process = make_process()
    process.schedule = "by hand"
    by_hand = {"by hand": torch.tensor([0.64, 0.36], dtype=torch.double)}
    monkeypatch.setattr(diffusion_process, "alpha_bars", lambda schedule, _: by_hand[schedule])
    state, clean = torch.ones(1, 1, 2).double(), torch.full((1, 1, 2), 0.5).double()
    step = (state, clean, 1, 0)
    # Predicted noise (1 - 0.6 * 0.5) / 0.8 = 0.875; then 0.8 * 0.5 + 0.6 * 0.875.
    torch.testing.assert_close(process.reverse_step(*step), torch.full((1, 1, 2), 0.925).double())
    # eta 1: the variance is 0.36 / 0.64 * (1 - 0.36 / 0.64) = 0.24609375.
    expected = 0.4 + (0.36 - 0.24609375) ** 0.5 * 0.875 + 0.24609375**0.5 * 2
    noisy = process.reverse_step(*step, 1.0, torch.full((1, 1, 2), 2.0).double())
    torch.testing.assert_close(noisy, torch.full((1, 1, 2), expected).double())


def test_a_right_prediction_walks_back_along_its_own_noise() -> None:
    process, noise = make_process(), torch.randn(3, 4, 2).double()
    clean = torch.rand(3, 4, 2).double()

    def noisy(timestep: int) -> torch.Tensor:
        return process.add_noise(clean, torch.tensor([timestep] * 3), noise)

    for late, early in ((999, 799), (700, 20), (30, 0)):
        state = process.reverse_step(noisy(late), clean, late, early)
        torch.testing.assert_close(state, noisy(early))


def test_denoising_times() -> None:
    assert denoising_times(1000, 5) == [999, 799, 599, 399, 199]
    assert denoising_times(1000, 1) == [999]
    assert denoising_times(3, 3) == [2, 1, 0]
    for steps in (0, 4):
        with pytest.raises(ValueError, match=r"steps must be 1 to 3"):
            denoising_times(3, steps)


def test_timestep_embedding_by_hand() -> None:
    time = TimestepEmbedding(4)
    time.project = torch.nn.Identity()
    # Half of the way is 500 of a thousand; the two waves turn by 500 and by 0.05.
    expected = torch.tensor([500.0, 0.05])
    torch.testing.assert_close(
        time(torch.tensor([0.5])), torch.cat([expected.sin(), expected.cos()]).unsqueeze(0)
    )


def test_the_timestep_is_added_after_the_span_encoder() -> None:
    head, (words, mask) = make_head(timesteps=10).eval(), random_batch((6,))
    times, encoded = [], []
    network = head.network
    network.time.register_forward_pre_hook(lambda _, args: times.append(args[0]))
    network.layers[-1].register_forward_hook(lambda *args: encoded.append(args[-1]))
    for timestep in (2, 9):
        noisy = noisy_spans([[[0, 1], [2, 2]]])
        network(network.encode(words, mask), noisy, torch.tensor([timestep]))
    assert torch.cat(times).tolist() == pytest.approx([0.2, 0.9])
    assert torch.equal(*encoded)


def test_candidates_learn_the_label_of_their_words_or_none() -> None:
    head, (words, mask) = make_head(n_labels=3, span_kinds=2).eval(), random_batch((6, 6))
    gold = Gold.from_lists([[(0, 2, 0), (3, 3, 1), (3, 3, 2)], []])
    candidates = torch.tensor(
        [[(0, 2), (3, 3), (3, 3), (0, 1), (5, 5)], [(0, 2), (3, 3), (0, 0), (1, 1), (2, 2)]]
    )
    expected = [[1, 2, 3, 0, 0], [0, 0, 0, 0, 0]]  # the second kind is for the second label
    kinds = torch.tensor([[0, 0, 1, 1, 0]] * 2)
    real = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    encoded = head.network.encode(words, mask)
    states = torch.randn(2, 5, head.network.kinds.shape[1])
    noisy = noisy_spans(torch.zeros_like(candidates), kinds, real)
    loss = head.classifier_loss(encoded, states, noisy, candidates, gold)
    hot = F.one_hot(candidates, 6).float()
    logits = head.network.classifier(states, encoded.classified, hot[:, :, 0], hot[:, :, 1])
    log_p = logits.log_softmax(-1)
    one_by_one = [
        -log_p[i, k, label]
        for i, row in enumerate(expected)
        for k, label in enumerate(row)
        if real[i, k]
    ]
    assert loss.total.item() == pytest.approx(sum(one_by_one).item(), rel=1e-5)
    assert loss.terms == len(one_by_one)


def test_candidates_lie_near_the_pointed_spans_and_in_the_sentence() -> None:
    torch.manual_seed(0)
    pointed = torch.tensor([[0, 0], [4, 9], [2, 3]]).repeat(400, 1, 1)
    lengths = torch.tensor([[10]] * 399 + [[4]])
    pointed[-1] = pointed[-1].clamp(max=3)
    near = nearby_spans(pointed, lengths)
    assert (near[..., 0] <= near[..., 1]).all()
    assert near.min() == 0 and (near <= (lengths - 1).unsqueeze(-1)).all()
    moves = (near - pointed)[:-1, 1]
    assert set(moves[:, 0].tolist()) == {-2, -1, 0, 1, 2} and set(moves[:, 1].tolist()) == {
        -2,
        -1,
        0,
    }


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_candidates_are_a_loss_where_they_have_a_weight(weight) -> None:
    words, mask = random_batch()
    gold = Gold.from_lists([[(0, 1, 0)]] + [[]] * (len(words) - 1))
    losses = make_head(candidate_weight=weight).losses(Batch(words, mask), gold)
    assert ("candidate" in losses) == (weight > 0)


@pytest.mark.parametrize("answer_pooling", [False, True])
def test_the_classifier_is_one_layer_over_span_and_words(answer_pooling) -> None:
    torch.manual_seed(0)
    classifier = SpanClassifier(6, 4, 2, answer_pooling)
    spans, words = torch.randn(1, 2, 4), torch.randn(1, 5, 6)
    spans_of_words = torch.tensor([[[1, 3], [2, 2]]])
    inputs = [spans]
    if answer_pooling:
        middle = torch.stack([words[0, 1:4].mean(0), words[0, 2]])
        inputs += [words[:, [1, 2]], words[:, [3, 2]], middle.unsqueeze(0)]
    hidden = classifier.input(torch.cat(inputs, dim=-1))
    expected = classifier.output(F.gelu(hidden))
    read = classifier.read(words)
    torch.testing.assert_close(classifier.at(spans, read, spans_of_words), expected)
    left, right = F.one_hot(spans_of_words, 5).float().unbind(2)
    torch.testing.assert_close(classifier(spans, read, left, right), expected)


def test_words_learn_whether_an_entity_begins_and_ends_with_them() -> None:
    head, (_, mask) = make_head(word_weight=2.0), random_batch((3, 2))
    gold = Gold.from_lists([[(0, 1, 0), (0, 2, 1)], []])
    logits = torch.randn(2, 3, 2)
    loss = head.word_loss(logits, gold, mask)
    goals = [[[1, 0], [0, 1], [0, 1]], [[0, 0], [0, 0]]]  # first, last
    expected = sum(
        F.softplus(-logits[i, j, side] if goal else logits[i, j, side])
        for i, words in enumerate(goals)
        for j, sides in enumerate(words)
        for side, goal in enumerate(sides)
    )
    torch.testing.assert_close(loss.total, expected)
    assert loss.terms == 5 and loss.weight == 2.0
    nothing = head.word_loss(logits, Gold.from_lists([[], []]), mask)
    torch.testing.assert_close(
        nothing.total, F.softplus(logits[0]).sum() + F.softplus(logits[1, :2]).sum()
    )


def test_the_scores_of_words_move_the_pointers_of_all_spans() -> None:
    head, (words, mask) = make_head(word_weight=1.0).eval(), random_batch((6,))
    with torch.no_grad():
        before = head.trajectory(words, mask, options_of(head, steps=1))[0].spans
        assert head.network.encode(words, mask).boundaries.shape == (1, 6, 2)
        # A word's score is a linear function of the word: one that is high at word 4 alone.
        states = head.network.words(words, mask)[0]
        wanted = torch.full((6, 1), -100.0)
        wanted[4] = 100.0
        head.network.word_boundaries.weight[:] = (torch.linalg.pinv(states) @ wanted).T
        after = head.trajectory(words, mask, options_of(head, steps=1))[0].spans
    assert len(before.unique()) > 1 and after.unique().tolist() == [4]


def test_words_may_be_wider_than_spans() -> None:
    for pooling in ("mean", "boundaries", "both"):
        head = make_head(word_width=24, span_pooling=pooling, word_weight=1.0, candidate_weight=1.0)
        words, mask = random_batch()
        assert (
            head.network.words(words, mask).shape[-1] == 24 and head.network.kinds.shape[-1] == 16
        )
        losses = head(words, mask, gold=Gold.from_lists([[(0, 1, 0)], [], []]))
        assert set(losses) == {"boundary", "label", "candidate", "word"}
        head.eval()(words, mask, options=options_of(head))


@pytest.mark.parametrize(("repetition", "copies"), [(0.0, 2), (0.5, 4), (1.0, 8)])
def test_expansion(repetition, copies) -> None:
    head = make_head(repetition=repetition, truncation=1.0)
    gold = Gold.from_lists([[(0, 2, 0), (1, 1, 1)], []])
    lengths, real = torch.tensor([[5], [5]]), torch.ones(2, 8, dtype=torch.bool)
    states = head.expand(gold, lengths, real)
    expected = head.process.to_state(torch.tensor([[[0, 2], [1, 1]] * 4, [[0, 0]] * 8]), lengths)
    same = (states == expected).all(-1)
    assert same[0].tolist() == [True] * copies + [False] * (8 - copies)
    assert not same[1].any() and len(states[1].unique()) == 16


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("repetition", [0.0, 1.0])
def test_more_entities_than_spans_get_as_many_spans(repetition) -> None:
    head = make_head(repetition=repetition, n_spans=10, spans_per_word=0.0)
    words, mask = torch.randn(1, 160, 10), torch.ones(1, 160, dtype=torch.bool)
    targets = []
    match = head.match
    head.match = lambda *args: targets.append(match(*args)) or targets[-1]
    losses = head(words, mask, gold=Gold.from_lists([[(i, i + 1, 0) for i in range(149)]]))
    assert mean_losses([losses])["boundary"].isfinite()
    # Of every answer, layer by layer and step by step, each entity has one.
    assert all(set(row.tolist()) == set(range(149)) for row in targets[0])


def answers_by_hand() -> Answers:
    """One row, three spans, two words, one label (and None)."""
    return Answers(
        left=torch.tensor([[[2.0, -2.0], [0.0, 0.0], [-2.0, 2.0]]]),
        right=torch.tensor([[[2.0, -2.0], [0.0, 0.0], [-2.0, 2.0]]]),
        labels=torch.tensor([[[0.0, 1.0], [0.0, 0.0], [0.0, 1.0]]]),
    )


REAL = torch.ones(1, 3, dtype=torch.bool)
NOISY = noisy_spans(torch.zeros(1, 3, 2, dtype=torch.long))


def test_spans_that_are_padding_are_not_matched_and_learn_nothing() -> None:
    head = make_head(1, assignment="nearest", none_weight=1.0)
    answers, gold = answers_by_hand(), Gold.from_lists([[(0, 0, 0)]])
    real = torch.tensor([[True, True, False]])
    target = head.match(answers, NOISY._replace(real=real), gold)
    assert target.tolist() == [[0, 0, -1]]
    (loss,) = head.label_losses(answers, gold, target, real).values()
    # The first is for the label by one logit, the second by none, the third is not there.
    expected = F.softplus(torch.tensor(-1.0)) + torch.log(torch.tensor(2.0))
    torch.testing.assert_close(loss.total, expected)
    assert loss.terms == 2


def test_each_sentence_has_its_timestep_and_all_layers_learn_from_the_same_spans() -> None:
    head = make_head(depth=2, auxiliary=True, truncation=1.0).train()
    words, mask = random_batch((9,) * 40)
    calls, matched = [], []
    match = head.match

    def spied_match(answers, noisy, gold):
        matched.append(noisy.spans)
        return match(answers, noisy, gold)

    head.network.register_forward_hook(lambda _, args, output: calls.append((args, output)))
    head.match = spied_match
    head(words, mask, gold=Gold.from_lists([[(0, 2, 0), (1, 1, 1)]] * 40))
    (((_, noisy, timestep, *_), (answers, _)),) = calls
    # From all of them.
    assert len(timestep.unique()) > 30 and timestep.min() < 150 and timestep.max() > 850
    assert len(answers) == 2
    assert torch.equal(matched[0], torch.cat([noisy.spans, noisy.spans]))


def test_matching_minimises_the_cost_of_appendix_a() -> None:
    answers, gold = answers_by_hand(), Gold.from_lists([[(1, 1, 0), (0, 0, 0)]])
    head = make_head(1, assignment="one_to_one", boundary="sigmoid", match_distance=0.0)
    assert head.match(answers, NOISY, gold).tolist() == [[1, -1, 0]]
    # Third span, first entity: -P(label) - P(left) - P(right).
    sure, label = torch.tensor(2.0).sigmoid(), torch.tensor(1.0).sigmoid()
    torch.testing.assert_close(head.matching_cost(answers, gold)[0, 2, 0], -(2 * sure + label))


def test_balanced_entities_have_equal_numbers_and_nearest_ones_have_not() -> None:
    gold = Gold.from_lists([[(0, 0, 0), (5, 5, 0)]])
    noisy = noisy_spans([[[0, 0], [0, 1], [1, 1], [5, 4]]])
    answers = Answers(*(torch.zeros(1, 4, size) for size in (6, 6, 2)))
    for assignment, expected in (("balanced", [0, 0, 1, 1]), ("nearest", [0, 0, 0, 1])):
        head = make_head(1, assignment=assignment, match_reach=None)
        assert head.match(answers, noisy, gold).tolist() == [expected]


def test_distance_keeps_far_spans_away() -> None:
    head = make_head(1, assignment="one_to_one", match_distance=5.0)
    gold, noisy = Gold.from_lists([[(0, 0, 0)]]), noisy_spans([[[0, 1], [0, 0], [1, 1]]])
    assert head.match(answers_by_hand(), noisy, gold).tolist() == [[-1, 0, -1]]


def test_far_spans_have_no_entity_but_for_the_nearest() -> None:
    gold = Gold.from_lists([[(0, 0, 0), (9, 9, 0)]])
    noisy = noisy_spans([[[0, 0], [0, 4], [0, 5], [5, 6], [4, 6]]])
    answers = Answers(*(torch.zeros(1, 5, size) for size in (10, 10, 2)))
    assert make_head(1).match(answers, noisy, gold).tolist() == [[0, 0, -1, 1, -1]]
    for reach, expected in ((8, [0, 0, 0, 1, 1]), (None, [0, 0, 0, 1, 1])):
        head = make_head(1, match_reach=reach)
        assert head.match(answers, noisy, gold).tolist() == [expected]


def test_labels_of_the_same_words_have_different_kinds_of_spans() -> None:
    gold = Gold.from_lists([[(0, 0, 1), (1, 1, 0), (0, 0, 0)], [(0, 1, 0)]])
    n_labels, rank = label_ranks(gold)
    assert n_labels[0].tolist() == [2, 1, 2] and rank[0].tolist() == [1, 0, 0]
    noisy = noisy_spans(torch.zeros(2, 4, 2).long(), torch.arange(4).expand(2, -1))
    distance = make_head(2).distances(noisy, gold)
    assert (distance[0, :, 0] - distance[0, :, 2]).tolist() == [1.0, -1.0, 1.0, -1.0]
    assert len(distance[1, :, 0].unique()) == 1


def test_a_span_whose_pointers_miss_learns_none() -> None:
    gold = Gold.from_lists([[(1, 1, 0), (0, 1, 0), (1, 1, 0)]])
    answers = answers_by_hand()  # they find (0, 0), (0, 0) and (1, 1)
    answers.right[0, 1] = torch.tensor([0.0, 1.0])  # now (0, 1)
    target = torch.tensor([[0, 0, 2]])
    learned = make_head(1, none="missed").label_target(answers, gold, target)
    # The first finds no entity, the second another than its own, the third two with the same words.
    assert learned.tolist() == [[-1, 1, 2]]
    assert make_head(1, none="unmatched").label_target(answers, gold, target) is target


def test_losses_by_hand() -> None:
    head = make_head(1, boundary="sigmoid", none_weight=0.5)
    answers, gold = answers_by_hand(), Gold.from_lists([[(1, 1, 0), (0, 0, 0)]])
    target = torch.tensor([[1, -1, 0]])
    loss = head.boundary_loss(answers, gold, target)
    # Each matched span is right by logits of +-2 at both words, for each of the two sides.
    torch.testing.assert_close(loss.total / loss.terms, 4 * F.softplus(torch.tensor(-2.0)))
    head.boundary = "softmax"
    loss = head.boundary_loss(answers, gold, target)
    torch.testing.assert_close(loss.total / loss.terms, 2 * F.softplus(torch.tensor(-4.0)))
    matched = F.softplus(torch.tensor(-1.0))  # -log softmax([0, 1])[1]
    none = -torch.log(torch.tensor(0.5))
    losses = mean_losses([head.label_losses(answers, gold, target, REAL)])
    torch.testing.assert_close(losses["label"], (2 * matched + 0.5 * none) / 2.5)
    head.none_weight = None
    losses = mean_losses([head.label_losses(answers, gold, target, REAL)])
    torch.testing.assert_close(losses["label"], matched / 2)
    torch.testing.assert_close(losses["none"], none / 2)


def test_mean_pooling_by_hand() -> None:
    words = torch.tensor([[[1.0], [2.0], [6.0]]])
    spans = torch.tensor([[[0, 0], [1, 2], [0, 2]]])
    assert mean_inside(spans, words).tolist() == [[[1.0], [4.0], [3.0]]]


def test_boundary_pooling_is_a_linear_layer_over_both_words() -> None:
    torch.manual_seed(0)
    pool, words = SpanPooling(4, 4, "boundaries"), torch.randn(1, 3, 4)
    weight = torch.cat(pool.edge.weight.chunk(2), dim=1)
    expected = F.linear(torch.cat([words[0, 0], words[0, 2]]), weight, sum(pool.edge.bias.chunk(2)))
    pooled = pool(pool.read(words), torch.tensor([[[0, 2]]]))
    torch.testing.assert_close(pooled[0, 0], expected)


def test_spans_see_each_other_the_words_and_the_time() -> None:
    head, (words, mask) = make_head().eval(), random_batch((6,))

    def labels(last: int = 3, timestep: int = 500, **changed: torch.Tensor) -> torch.Tensor:
        encoded = head.network.encode(changed.get("words", words), mask)
        noisy = noisy_spans([[[0, 1], [2, 2], [1, last]]])
        (answers,), _ = head.network(encoded, noisy, torch.tensor([timestep]))
        return answers.labels[0, 0]

    before = labels()
    assert not torch.allclose(before, labels(last=5))
    assert not torch.allclose(before, labels(timestep=100))
    assert not torch.allclose(before, labels(words=words + 1))


def test_noise_is_gaussian_and_a_table_is_the_head_of_a_larger_one() -> None:
    table = noise_table(0, 0, 1024)
    assert table.mean().abs() < 0.02 and abs(table.std() - 1) < 0.02
    assert torch.equal(noise_table(0, 0, 10), table[:10])
    assert not torch.equal(noise_table(1, 0, 10), table[:10])
    assert not torch.equal(noise_table(0, 1, 10), table[:10])
    # Few spans reach everywhere: of 32 one quarter lies in each quadrant, near enough.
    quadrants = (table[:32] > 0).float()
    assert (quadrants.mean(0) - 0.5).abs().max() < 0.05


def test_noise_of_later_steps_is_gaussian_and_independent() -> None:
    tables = torch.stack([noise_table(0, step, 1024) for step in range(6)])
    assert tables.mean(1).abs().max() < 0.1 and (tables.std(1) - 1).abs().max() < 0.1
    related = torch.corrcoef(tables.transpose(1, 2).flatten(0, 1)) - torch.eye(
        12, device=tables.device
    )
    assert related.abs().max() < 0.1
    assert torch.equal(noise_table(0, 1, 11), tables[1, :11])


@pytest.mark.parametrize("carried", ["distinct", "all"])
@pytest.mark.parametrize("found_in", ["every_step", "last_step"])
@torch.no_grad()
def test_entities_are_those_of_every_step_or_of_the_last_one(found_in, carried) -> None:
    head, (words, mask) = make_head(truncation=1.0).eval(), random_batch(tuple(range(4, 24)))
    calls: List[int] = []
    head.network.classifier.register_forward_hook(lambda *_: calls.append(1))
    dials = {"steps": 4, "n_spans": 40, "eta": 1.0, "carried": carried, "score": "sum"}
    found = head(words, mask, options=options_of(head, **dials, threshold=0.1, found_in=found_in))
    assert len(calls) == 1  # all at once
    steps = head.trajectory(words, mask, options_of(head, **dials))
    best: Dict[Tuple[int, ...], float] = {}
    for step in steps if found_in == "every_step" else steps[-1:]:
        for row, i in torch.nonzero((step.label >= 0) & (step.score >= 0.1) & step.real).tolist():
            key = (row, *step.spans[row, i].tolist(), int(step.label[row, i]))
            best[key] = max(float(step.score[row, i]), best.get(key, 0.0))
    keys = zip(*(column.tolist() for column in found[:4]))
    assert dict(zip(keys, found.score.tolist())) == pytest.approx(best, rel=slack(1e-6))
    assert len(best) > 10


@pytest.mark.parametrize("found_in", ["every_step", "last_step"])
@torch.no_grad()
def test_scores_of_labels_are_means_over_spans_of_one_kind_that_meet(found_in) -> None:
    head = make_head(span_kinds=2, truncation=1.0).eval()
    words, mask = random_batch(tuple(range(4, 24)))
    head.network.classifier.output.bias.data[0] = -1.0
    dials = {"steps": 4, "n_spans": 40, "score": "label"}
    found = head(words, mask, options=options_of(head, **dials, threshold=0.35, found_in=found_in))
    steps = head.trajectory(words, mask, options_of(head, **dials))
    kinds = spread_kinds(steps[0].real.shape[1], 2)
    groups: Dict[Tuple[int, ...], List[torch.Tensor]] = {}
    for step in steps if found_in == "every_step" else steps[-1:]:
        for row, i in torch.nonzero(step.real & step.legal).tolist():
            key = (row, *step.spans[row, i].tolist(), int(kinds[i]))
            groups.setdefault(key, []).append(step.probability[row, i])
    best: Dict[Tuple[int, ...], float] = {}
    for (*span, _), each in groups.items():
        score, label = torch.stack(each).mean(0).max(0)
        if label > 0 and score >= 0.35:
            entity = (*span, int(label) - 1)
            best[entity] = max(best.get(entity, 0.0), float(score))
    keys = zip(*(column.tolist() for column in found[:4]))
    assert dict(zip(keys, found.score.tolist())) == pytest.approx(best)
    assert len(best) > 10 and max(map(len, groups.values())) > 1


def test_scores_that_are_not_numbers_are_predicted() -> None:
    head, (words, mask) = make_head().eval(), random_batch()
    head.network.classifier.output.bias.data[:] = float("nan")
    for score in ("label", "sum"):
        found = head(words, mask, options=options_of(head, threshold=0.9, score=score))
        assert len(found.score) and found.score.isnan().all()


def test_nan_of_spans_that_are_not_legal_is_seen() -> None:
    spans, nan = torch.tensor([[[1, 1]]]), torch.full((1, 1, 3), float("nan"))
    one = torch.ones(1, 1, dtype=torch.bool)
    step = Denoised(one, one.long(), spans, spans, ~one, nan, nan[..., 0])
    for score in ("label", "sum"):
        found = make_head(2).entities([step], DiffusionOptions(score=score, threshold=0.5))
        assert found.score.isnan().tolist() == [True]


@pytest.mark.parametrize("eta", [0.0, 1.0])
def test_inference_depends_on_the_seed_alone(eta) -> None:
    head, (words, mask) = make_head(truncation=1.0).eval(), random_batch()
    options = options_of(head, eta=eta, seed=3)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = head(words, mask, options=options)
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    order = torch.tensor([2, 0, 1])
    second = head(words[order], mask[order], options=options)
    place = torch.argsort(order)  # row i of the first call is row place[i] of the second
    again = [(order[row].item(), *rest) for row, *rest in rows_of(second)]
    assert sorted(again) == rows_of(first) and len(place) == 3
    other = head.trajectory(words, mask, options_of(head, eta=eta, seed=4))
    assert not torch.equal(other[0].noisy, head.trajectory(words, mask, options)[0].noisy)


@torch.no_grad()
def test_one_span_for_each_words_and_kind_goes_on_to_the_next_step() -> None:
    head, (words, mask) = make_head(span_kinds=2).eval(), random_batch((9, 4, 1))
    dials = {"steps": 4, "n_spans": 30}
    steps = head.trajectory(words, mask, options_of(head, **dials))
    assert steps[0].real.all()
    for step, later in pairwise(steps):
        for row in range(3):
            keys = [(*step.spans[row, k].tolist(), int(step.kinds[row, k])) for k in range(30)]
            was = [k for k in range(30) if step.real[row, k]]
            first = [k for k in was if keys[k] not in [keys[j] for j in was if j < k]]
            assert first == torch.nonzero(later.real[row]).flatten().tolist()
    left = steps[-1].real.sum(1).tolist()
    # Of one word there is one span, of each kind.
    assert left[0] < 30 and left[2] == 2
    everything = head.trajectory(words, mask, options_of(head, **dials, carried="all"))
    assert all(step.real.all() for step in everything)


def test_eta_adds_noise_to_the_steps_after_the_first() -> None:
    head, (words, mask) = make_head().eval(), random_batch((40,))
    plain = head.trajectory(words, mask, options_of(head, eta=0.0))
    noisy = head.trajectory(words, mask, options_of(head, eta=1.0))
    assert torch.equal(plain[0].spans, noisy[0].spans)
    assert not torch.equal(plain[1].noisy, noisy[1].noisy)


@pytest.mark.parametrize("steps", [1, 2, 10])
def test_the_sentence_is_encoded_once(steps) -> None:
    head, (words, mask) = make_head().eval(), random_batch()
    calls = []
    head.network.words.register_forward_hook(lambda *_: calls.append(1))
    assert len(head.trajectory(words, mask, options_of(head, steps=steps))) == steps
    assert len(calls) == 1


@pytest.mark.parametrize("n_spans", [1, 10, 300])
def test_more_and_fewer_spans_than_trained_with(n_spans) -> None:
    head, (words, mask) = make_head(n_spans=12).eval(), random_batch()
    (step,) = head.trajectory(words, mask, options_of(head, n_spans=n_spans, steps=1))
    assert step.spans.shape == (3, n_spans, 2) and step.real.all()
    assert ((step.spans >= 0) & (step.spans < mask.sum(1)[:, None, None])).all()


def test_longer_sentences_get_more_spans_and_shorter_ones_not_too_few() -> None:
    head, (words, mask) = make_head().eval(), random_batch((40, 31, 3))
    options = options_of(head, n_spans=None, spans_per_word=1.5, steps=1)
    (step,) = head.trajectory(words, mask, options)
    assert step.real.sum(1).tolist() == [60, 47, 45]


def test_a_label_found_in_one_step_outlives_a_surer_label_of_another_step() -> None:
    """One span with two labels in the first step, of which the second step repeats one."""
    spans, one = torch.tensor([[[1, 2], [1, 2]]]), torch.ones(1, 2, dtype=torch.bool)
    labels = torch.eye(3)[[1, 2]].unsqueeze(0), torch.eye(3)[[1, 1]].unsqueeze(0)
    scores = torch.tensor([[0.85, 0.84]]), torch.tensor([[0.9, 0.7]])
    steps = [
        Denoised(one, one.long(), spans, spans, one, label, score)
        for label, score in zip(labels, scores)
    ]
    found = make_head(2).entities(steps, DiffusionOptions(threshold=0.8, score="sum"))
    assert rows_of(found) == [(0, 1, 2, 0), (0, 1, 2, 1)]
    assert sorted(found.score.tolist()) == pytest.approx([0.84, 0.9])


def test_spans_of_a_longer_neighbour_are_neither_seen_nor_predicted() -> None:
    head, (words, mask) = make_head(offset_reach=2).eval(), random_batch((100, 12))
    for offset in (head.network.left_offset, head.network.right_offset):
        offset.bias.data[2] = 1000.0  # every span stays where it is
    head.network.classifier.output.bias.data[0] = -1000.0  # and is an entity
    options = options_of(head, n_spans=None, spans_per_word=0.1, found_in="last_step")
    together = head(words, mask, options=options)
    alone = head(words[1:, :12], mask[1:, :12], options=options)
    mine = together.segment == 1
    assert len(alone.score) == 3 and len(together.score) > 9
    for a, b in zip(alone[1:], together[1:]):
        torch.testing.assert_close(a, b[mine], atol=1e-5, rtol=0)


@torch.no_grad()
def test_a_truncated_process_starts_from_short_spans_all_over_each_sentence() -> None:
    head, (words, mask) = make_head(truncation=0.25).eval(), random_batch((30, 7, 1))
    times_read = []
    head.network.time.register_forward_pre_hook(lambda _, args: times_read.append(args[0].tolist()))
    options = options_of(head, n_spans=None, spans_per_word=2.0, steps=2)
    first = head.trajectory(words, mask, options)[0]
    torch.testing.assert_close(torch.tensor(times_read), torch.tensor([[0.249, 0.124]]))
    for row, n_words in enumerate((30, 7, 1)):
        spans = first.noisy[row][first.real[row]]
        assert len(spans) == 60 and spans[:, 0].unique().tolist() == list(range(n_words))
        begins, width = spans[:, 0], spans[:, 1] - spans[:, 0]
        assert set(width[begins + 8 < n_words].tolist()) == ({0, 2, 8} if n_words > 8 else set())
        assert spans.max() == n_words - 1
        alone = head.trajectory(
            words[row : row + 1, :n_words], mask[row : row + 1, :n_words], options
        )
        assert torch.equal(alone[0].noisy[0], spans)


def test_training_of_a_truncated_process_stays_near_its_start() -> None:
    head, (words, mask) = (
        make_head(truncation=0.1, repetition=0.0).train(),
        random_batch((30,) * 60),
    )
    encoded = head.network.encode(words, mask)
    noisy, timestep = head.start(encoded, Gold.from_lists([[]] * 60))
    assert 50 < timestep.max() < 100 and timestep.min() < 20
    assert noisy.spans.min() == 0 and noisy.spans.max() == 29
    # Of noise alone a span would have twelve words.
    width = (noisy.spans[..., 1] - noisy.spans[..., 0]).float()
    assert 2 < width.mean() < 6


def test_published_forms_have_no_candidates() -> None:
    words, mask = random_batch()
    gold = Gold.from_lists([[(0, 1, 0)], [], []])
    for variant in ("paper", "authors"):
        assert "candidate" not in make_head(variant=variant).losses(Batch(words, mask), gold)


@pytest.mark.parametrize("eta", [0.0, 0.5])
def test_reverse_process_step_by_step(eta) -> None:
    head, (words, mask) = make_head(truncation=1.0).eval(), random_batch((40, 25))
    times_read = []
    head.network.time.register_forward_pre_hook(lambda _, args: times_read.append(args[0].tolist()))
    options = options_of(head, steps=4, n_spans=20, eta=eta, seed=7)
    steps, lengths = head.trajectory(words, mask, options), mask.sum(1, keepdim=True)
    times = [999, 749, 499, 249]
    torch.testing.assert_close(torch.tensor(times_read), torch.tensor([[t / 1000 for t in times]]))
    state = noise_table(7, 0, 20).to(mask.device).expand(2, -1, -1)
    for i, step in enumerate(steps):
        assert torch.equal(step.noisy, head.process.to_spans(state, lengths))
        if i < 3:
            now, then = times[i : i + 2]
            noise = noise_table(7, i + 1, 20).to(mask.device) if eta else None
            clean = head.process.to_state(step.spans, lengths)
            state = head.process.reverse_step(state, clean, now, then, eta, noise)


def test_score_is_the_mean_of_the_three_probabilities_or_that_of_the_label(monkeypatch) -> None:
    head, answers = make_head(1, boundary="sigmoid"), answers_by_hand()
    answers.left[0, 1], answers.right[0, 1] = torch.tensor([[0.0, 3.0], [3.0, 0.0]])
    answers.labels[0, 1] = torch.tensor([0.0, 1.0])
    spans, legal = pointed_spans(answers.left, answers.right)
    # The second ends before it begins: it is None, whatever its probabilities are.
    assert legal.tolist() == [[True, False, True]]
    assert spans.tolist() == [[[0, 0], [1, 1], [1, 1]]]
    network = head.network
    encoded, states = network.encode(*random_batch((2,))), torch.zeros(1, 3, 16)
    monkeypatch.setattr(network, "classify", lambda *_: answers.labels)
    monkeypatch.setattr(network, "classify_spans", lambda *_: answers.labels)
    sure, label = torch.tensor(2.0).sigmoid(), torch.tensor(1.0).sigmoid()
    by_sum = score_by_sum(network, encoded, states, answers.left, answers.right)
    by_label = score_by_label(network, encoded, states, spans)
    for (probability, score), expected in ((by_sum, (2 * sure + label) / 3), (by_label, label)):
        step = Denoised(REAL, NOISY.kinds, NOISY.spans, spans, legal, probability, score)
        assert step.label.tolist() == [[0, -1, 0]]
        torch.testing.assert_close(step.score[0, ::2], expected.expand(2))


def test_the_distance_bias_of_each_side_counts_from_its_own_boundary() -> None:
    head, (words, mask) = make_head(offset_reach=2).eval(), random_batch((6,))
    for bias, offset in ((head.network.left_offset.bias, 1), (head.network.right_offset.bias, -1)):
        bias.data[2 + offset] = 1000.0
    encoded, noisy = head.network.encode(words, mask), noisy_spans([[[0, 3], [2, 5]]])
    (answers,), _ = head.network(encoded, noisy, torch.tensor([5]))
    assert pointed_spans(answers.left, answers.right)[0].tolist() == [[[1, 2], [3, 4]]]


def test_trajectory_begins_with_noise_and_ends_with_the_predictions() -> None:
    head, (words, mask) = make_head(truncation=1.0).eval(), random_batch()
    options = options_of(head, steps=3, n_spans=20, found_in="last_step", score="sum")
    steps = head.trajectory(words, mask, options)
    assert len(steps) == 3
    lengths = mask.sum(1, keepdim=True)
    noise = noise_table(0, 0, 20).to(mask.device).expand(3, -1, -1)
    assert torch.equal(steps[0].noisy, head.process.to_spans(noise, lengths))
    last = steps[-1]
    found = [
        (row, *last.spans[row, i].tolist(), last.label[row, i].item())
        for row, i in torch.nonzero((last.label >= 0) & last.real).tolist()
    ]
    assert sorted(set(found)) == rows_of(head(words, mask, options=options))


def test_of_equal_spans_the_highest_score_stays() -> None:
    columns = torch.tensor([[0, 1, 2, 0], [0, 1, 2, 0], [0, 1, 2, 1], [1, 1, 2, 0]]).unbind(1)
    found = best_of_equal(Predictions(*columns, torch.tensor([0.5, 0.7, 0.6, 0.1])))
    rows = dict(zip(zip(*(c.tolist() for c in found[:4])), found.score.tolist()))
    expected = {(0, 1, 2, 0): 0.7, (0, 1, 2, 1): 0.6, (1, 1, 2, 0): 0.1}
    assert rows == pytest.approx(expected) and len(found.score) == 3


@pytest.mark.parametrize(
    "variant, learned", [("default", True), ("paper", False), ("authors", False)]
)
def test_one_kind_of_noisy_spans_has_no_vector(variant: str, learned: bool) -> None:
    assert ("network.kinds" in dict(make_head(variant=variant).named_parameters())) == learned


def test_kinds_come_in_equal_numbers_and_everywhere() -> None:
    kinds, table = spread_kinds(256, 4).cpu(), noise_table(0, 0, 256).cpu()
    for kind in range(4):
        points = table[kinds == kind]
        assert 62 <= len(points) <= 66
        assert points.mean(0).abs().max() < 0.2 and (points.std(0) - 1).abs().max() < 0.2


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize(
    ("settings", "n_updates"),
    [
        pytest.param({}, 60, marks=pytest.mark.no_gpu("learned with the random numbers of a CPU")),
        # A kind for each label and many spans: learned whatever the random numbers are.
        ({"span_kinds": 2, "n_spans": 24}, 120),
    ],
)
def test_one_word_sentences_with_two_labels_and_none_are_learned(
    settings, n_updates, steps
) -> None:
    head, words = make_head(**settings), torch.randn(2, 1, 10)
    mask, gold = torch.ones(2, 1, dtype=torch.bool), Gold.from_lists([[(0, 0, 0), (0, 0, 1)], []])
    optimizer = torch.optim.Adam(head.parameters(), lr=0.01)
    for _ in range(n_updates):
        optimizer.zero_grad()
        torch.stack(list(mean_losses([head(words, mask, gold=gold)]).values())).sum().backward()
        optimizer.step()
    found = head.eval()(words, mask, options=options_of(head, threshold=0.5, steps=steps))
    assert rows_of(found) == [(0, 0, 0, 0), (0, 0, 0, 1)]


@pytest.mark.parametrize("settings", [DIFFUSION_PAPER, DIFFUSION_AUTHORS], ids=["paper", "authors"])
def test_published_forms_denoise_all_spans_to_the_entity_of_each_sentence(settings) -> None:
    head, (words, mask) = make_head(**settings), random_batch((6, 6))
    gold = Gold.from_lists([[(0, 2, 0)], [(4, 4, 1)]])
    optimizer = torch.optim.Adam(head.parameters(), lr=0.01)
    for _ in range(80):
        optimizer.zero_grad()
        torch.stack(list(mean_losses([head(words, mask, gold=gold)]).values())).sum().backward()
        optimizer.step()
    last = head.eval().trajectory(words, mask, options_of(head))[-1]
    assert last.spans.unique(dim=1).tolist() == [[[0, 2]], [[4, 4]]]


def test_only_the_authors_form_teaches_no_none_beside_entities() -> None:
    words, mask = random_batch()
    for settings, learned in (
        ({"assignment": "balanced", "none": "unmatched"}, False),
        ({"assignment": "one_to_one", "none": "unmatched"}, True),
        ({"assignment": "balanced", "none": "missed"}, True),
    ):
        head = make_head(**DIFFUSION_PAPER, **settings, none_weight=None)
        losses = head(words, mask, gold=Gold.from_lists(GOLD))
        assert (losses["none"].terms > 0) == learned


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"schedule": "steep"}, "schedule.*cosine"),
        ({"variant": "published"}, 'variant must be one of "default", "paper", "authors"'),
        ({"timesteps": 0}, "timesteps must be .* of at least 1"),
        ({"n_spans": 0}, "n_spans must be .* of at least 1"),
        ({"spans_per_word": 0.0}, "spans_per_word must be positive without n_spans"),
        ({"word_width": 0}, "word_width must be .* of at least 1"),
        ({"word_weight": -1.0}, "word_weight must be .* of at least 0"),
        ({"candidate_weight": -1.0}, "candidate_weight must be .* of at least 0"),
        ({"repetition": 1.5}, "repetition"),
        ({"scale": 0.0}, "scale"),
        ({"hidden_width": 18, "attention_heads": 4}, "multiple"),
    ],
)
def test_wrong_settings_are_refused(settings, problem) -> None:
    with pytest.raises(ValueError, match=problem):
        DiffusionSettings(**settings)


def test_wrong_options_are_refused() -> None:
    head, (words, mask) = make_head(timesteps=40, truncation=0.25), random_batch()
    with pytest.raises(ValueError, match="steps must be 1 to 10"):
        head(words, mask, options=options_of(head, steps=11))
    with pytest.raises(ValueError, match="n_spans must be null or a whole number of at least 1"):
        DiffusionOptions(n_spans=0)
    with pytest.raises(ValueError, match="spans_per_word must be positive without n_spans"):
        DiffusionOptions(spans_per_word=0)
    with pytest.raises(ValueError, match="eta must be a number from 0 to 1"):
        DiffusionOptions(eta=1.1)
    with pytest.raises(ValueError, match='found_in must be one of "every_step", "last_step"'):
        DiffusionOptions(found_in="no_step")


def test_candidates_have_the_weight_of_the_setting() -> None:
    batch = Batch(*random_batch())
    losses = make_head(candidate_weight=0.25).losses(batch, Gold.from_lists(GOLD))
    assert losses["candidate"].weight == 0.25


@pytest.mark.parametrize(("score", "threshold"), [("sum", 0.75), ("label", 1.0)])
def test_a_score_reaches_a_threshold_that_it_equals(score, threshold) -> None:
    one, span = torch.ones(1, 1, dtype=torch.bool), torch.tensor([[[1, 2]]])
    labels, total = torch.tensor([[[0.0, 1.0]]]), torch.tensor([[0.75]])
    step = Denoised(one, one.long(), span, span, one, labels, total)
    options = DiffusionOptions(threshold=threshold, score=score)
    assert len(find_entities([step], options, 4).score) == 1


def test_the_sum_counts_both_boundaries(monkeypatch) -> None:
    network = make_head(1, variant="paper").network
    labels = torch.tensor([[[0.2, 0.8]]]).log()
    monkeypatch.setattr(network, "classify", lambda *_: labels)
    left, right = torch.tensor([[[0.9, 0.1]]]).logit(), torch.tensor([[[0.1, 0.4]]]).logit()
    _, score = score_by_sum(network, None, torch.zeros(1, 1, 16), left, right)
    torch.testing.assert_close(score, torch.tensor([[(0.8 + 0.9 + 0.4) / 3]]))


def test_spans_start_in_the_middle_of_their_places() -> None:
    process, length = make_process(), torch.tensor([[10]])
    states = process.first_states(length, torch.ones(1, 5, dtype=torch.bool), 0)
    assert process.to_spans(states, length).tolist() == [[[1, 1], [3, 5], [5, 9], [7, 7], [9, 9]]]
