"""What every head promises."""

import pytest
import torch
from head_samples import (
    GOLD,
    GROWING,
    HEADS,
    N_LABELS,
    RANDOM,
    SLOW,
    MRCPerLabel,
    build,
    options_of,
    random_batch,
    rows_of,
)

from spacy_nested_ner.systems.diffusion.head import Diffusion
from spacy_nested_ner.systems.head import Gold, Head, mean_losses
from spacy_nested_ner.systems.locate_and_label.head import LocateAndLabel
from spacy_nested_ner.systems.mrc.settings import LIKELY

LIKELY_ALONE = {MRCPerLabel: {"boundary_threshold": LIKELY}}


@pytest.fixture(params=HEADS)
def name(request) -> str:
    return request.param


@pytest.fixture
def head(name) -> Head:
    return build(name)


@pytest.fixture
def answering(head) -> Head:
    """The head in prediction. Before training some find None everywhere: it is made unlikely, so
    that there are spans to look at."""
    if isinstance(head, Diffusion):
        head.network.classifier.output.bias.data[0] -= 10
    elif isinstance(head, LocateAndLabel) and head.classifier == "softmax":
        head.labels.output.bias.data[0] -= 10
    return head.eval()


def losses_of(head: Head, words, mask, entities) -> dict:
    torch.manual_seed(2)
    return head(words, mask, gold=Gold.from_lists(entities))


def total(losses: dict) -> torch.Tensor:
    return torch.stack(list(mean_losses([losses]).values())).sum()


@pytest.mark.parametrize("name", [name for name in HEADS if name not in SLOW])
def test_it_memorises_nested_entities(name) -> None:
    head, (words, mask) = build(name), random_batch()
    gold = Gold.from_lists(GOLD)
    optimizer = torch.optim.Adam(head.parameters(), lr=0.005)
    expected = sorted((i, *entity) for i, group in enumerate(GOLD) for entity in group)
    for _ in range(32):
        head.train()
        for _ in range(20):
            optimizer.zero_grad()
            total(head(words, mask, gold=gold)).backward()
            optimizer.step()
        # The match of starts and ends learns from likely ones alone.
        options = options_of(head, threshold=0.5, **LIKELY_ALONE.get(type(head), {}))
        found = rows_of(head.eval()(words, mask, options=options))
        if found == expected:
            break
    assert found == expected


def test_padding_reaches_nothing(answering) -> None:
    head, (words, mask) = answering, random_batch()
    together = head(words, mask, options=options_of(head))
    assert len(together.score)
    for i, n in enumerate(mask.sum(1).tolist()):
        alone = head(words[i : i + 1, :n], mask[i : i + 1, :n], options=options_of(head))
        mine = together.segment == i
        for a, b in zip(alone[1:], together[1:]):
            torch.testing.assert_close(a, b[mine], atol=1e-5, rtol=0)


def test_spans_lie_within_their_rows(answering) -> None:
    head, (words, mask) = answering, random_batch()
    found = head(words, mask, options=options_of(head))
    assert len(found.score)
    lengths = mask.sum(1)[found.segment]
    assert ((found.start >= 0) & (found.start <= found.end) & (found.end < lengths)).all()
    assert ((found.label >= 0) & (found.label < N_LABELS)).all()
    assert ((found.score >= 0) & (found.score <= 1)).all()


def test_a_threshold_keeps_the_higher_scores(answering) -> None:
    head, (words, mask) = answering, random_batch()
    everything = head(words, mask, options=options_of(head, threshold=0.0))
    scores = sorted(everything.score.tolist())
    # Where the scores lie widest apart, so that rounding cannot decide.
    above = max(range(1, len(scores)), key=lambda i: scores[i] - scores[i - 1])
    cut = (scores[above - 1] + scores[above]) / 2
    kept = head(words, mask, options=options_of(head, threshold=cut))
    assert sorted(kept.score.tolist()) == pytest.approx([s for s in scores if s >= cut])


def test_a_batch_without_entities_has_finite_losses_and_gradients(head) -> None:
    words, mask = random_batch()
    loss = total(losses_of(head, words, mask, [[], [], []]))
    loss.backward()
    assert loss.isfinite() and loss > 0
    assert all(p.grad.isfinite().all() for p in head.parameters() if p.grad is not None)


def test_losses_have_the_same_names_with_and_without_entities(head) -> None:
    words, mask = random_batch()
    assert list(losses_of(head, words, mask, GOLD)) == list(losses_of(head, words, mask, [[]] * 3))


def test_every_parameter_learns(head) -> None:
    words, mask = random_batch()
    total(losses_of(head, words, mask, GOLD)).backward()
    assert [name for name, p in head.named_parameters() if p.grad is None] == []


@pytest.mark.parametrize("name", GROWING)
def test_growing_keeps_the_old_outputs(name) -> None:
    head = build(name).eval()
    words, mask = random_batch()
    before = head(words, mask, options=options_of(head))
    head.add_labels(N_LABELS + 2)
    after = head(words, mask, options=options_of(head))
    old = after.label < N_LABELS
    assert rows_of(before) == rows_of(column[old] for column in after)
    torch.testing.assert_close(before.score, after.score[old], atol=0.03, rtol=0)
    assert (after.score[~old] < 0.05).all()
    # cuDNN has gradients of recurrent layers in training only.
    total(losses_of(head.train(), words, mask, [[(0, 1, N_LABELS + 1)], [], []])).backward()


@pytest.mark.parametrize("name", GROWING)
def test_labels_that_come_one_by_one_begin_like_those_that_come_at_once(name) -> None:
    at_once, one_by_one = build(name), build(name)
    one_by_one.load_state_dict(at_once.state_dict())
    at_once.add_labels(N_LABELS + 20)
    for more in range(1, 21):
        one_by_one.add_labels(N_LABELS + more)
    biases = [
        {name: each for name, each in head.named_parameters() if name.endswith("bias")}
        for head in (at_once, one_by_one)
    ]
    torch.testing.assert_close(*biases)


@pytest.mark.parametrize("name", [name for name in HEADS if name not in RANDOM])
def test_the_mean_does_not_depend_on_how_a_batch_is_cut(name) -> None:
    head = build(name).eval()
    words, mask = random_batch()
    whole = mean_losses([losses_of(head, words, mask, GOLD)])
    rows = [losses_of(head, words[i : i + 1], mask[i : i + 1], GOLD[i : i + 1]) for i in range(3)]
    for key, value in mean_losses(rows).items():
        if key != "candidate":  # of spans that are drawn
            torch.testing.assert_close(value, whole[key])
