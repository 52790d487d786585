"""Proposer and regressor: equations on numbers worked out apart from the code."""

from typing import Any, List, Tuple

import pytest
import torch
from head_samples import GOLD, PROPOSER_PAPER, PROPOSER_SMALL, options_of, random_batch, rows_of
from torch import Tensor

from spacy_nested_ner.systems.head import Gold, mean_losses
from spacy_nested_ner.systems.proposer_regressor import head as proposer_head
from spacy_nested_ner.systems.proposer_regressor import span_distribution
from spacy_nested_ner.systems.proposer_regressor.head import ProposerRegressor
from spacy_nested_ner.systems.proposer_regressor.proposer import (
    BackwardBlock,
    FeaturePyramid,
    Level,
    Proposals,
    fuse_locations,
    visions,
)
from spacy_nested_ner.systems.proposer_regressor.regressor import RegressorLayer, spatial_weight
from spacy_nested_ner.systems.proposer_regressor.settings import ProposerRegressorSettings
from spacy_nested_ner.systems.proposer_regressor.span_distribution import (
    JointPointer,
    SpanDistribution,
    span_cells,
)


def make_head(n_labels: int = 3, **settings: Any) -> ProposerRegressor:
    torch.manual_seed(0)
    return ProposerRegressor(
        10, n_labels, ProposerRegressorSettings(**{**PROPOSER_SMALL, **settings})
    ).eval()


def make_layer(*without: str) -> RegressorLayer:
    torch.manual_seed(0)
    return RegressorLayer(8, 2, 2, without).eval()


def make_proposals(n: int = 4, width: int = 8) -> Proposals:
    """One sentence whose last proposal is padding."""
    torch.manual_seed(3)
    mask = torch.arange(n).unsqueeze(0) < n - 1
    return Proposals(torch.randn(1, n, width), torch.rand(1, n, 2) * n, torch.randn(1, n, 3), mask)


def test_visions_are_equation_5() -> None:
    assert visions([]) == [1]
    assert visions([2, 2]) == [1, 2, 3]
    assert visions([2, 3, 2]) == [1, 2, 4, 5]


def test_locations_are_equations_8_and_9() -> None:
    words, pairs = torch.ones(1, 3, dtype=torch.bool), torch.ones(1, 2, dtype=torch.bool)
    levels = [Level(torch.zeros(1, 3, 1), words, 1), Level(torch.zeros(1, 2, 1), pairs, 2)]
    scores = [torch.zeros(1, 3, 2), torch.zeros(1, 2, 2)]
    scores[1][0, 0, 0] = torch.log(torch.tensor(2.0))  # the words 0 and 1, as a first word
    found = fuse_locations(scores, levels)[0]
    # Word 1 lies in (1, 1), (0, 1) and (1, 2); the first words weigh 1/4, 2/4 and 1/4.
    expected = [[0.0, 0.5], [(1 + 2 * 0 + 1) / 4, (1 + 1 + 2) / 3], [1.5, 2.0]]
    torch.testing.assert_close(found, torch.tensor(expected))


def test_locations_do_not_leave_a_short_sentence() -> None:
    mask = torch.tensor([[True, True, False, False]])
    levels = [Level(torch.zeros(1, 4 - v, 1), mask[:, v:], v + 1) for v in range(3)]
    found = fuse_locations([torch.zeros(1, 4 - v, 2) for v in range(3)], levels)[0, :2]
    torch.testing.assert_close(found, torch.tensor([[0.0, 0.5], [0.5, 1.0]]))


@pytest.mark.parametrize("backward_block", [True, False])
def test_pyramid_levels_do_not_depend_on_padding(backward_block) -> None:
    torch.manual_seed(0)
    pyramid = FeaturePyramid(6, [2, 3], backward_block).eval()
    lengths = torch.tensor([7, 3, 2, 1])
    mask = torch.arange(7) < lengths.unsqueeze(1)
    words = torch.randn(4, 7, 6)
    together = pyramid(words, mask)
    assert [level.features.shape[1] for level in together] == [7, 6, 4]
    for i, n in enumerate(lengths.tolist()):
        alone = pyramid(words[i : i + 1, :n], mask[i : i + 1, :n])
        assert len(alone) == sum(vision <= n for vision in (1, 2, 4))
        for mine, level in zip(alone, together):
            torch.testing.assert_close(mine.features[0], level.features[i][level.mask[i]])


def test_words_are_pooled_into_the_residual() -> None:
    block = BackwardBlock(4, 2).eval()
    torch.nn.init.zeros_(block.join.weight)
    torch.nn.init.zeros_(block.join.bias)
    words = torch.randn(1, 3, 4)
    level = Level(torch.randn(1, 2, 4), torch.ones(1, 2, dtype=torch.bool), 2)
    expected = block.norm((words[:, :2] + words[:, 1:]) / 2)
    torch.testing.assert_close(block(level, level.features, words), expected)


def test_spatial_weight_is_equation_12_with_a_minus() -> None:
    location = torch.tensor([[[3.0, 5.0], [1.0, 2.0]]])
    centre = torch.tensor([1.0, 2.0]).expand(1, 1, 2, 2)
    theta = torch.tensor([[1.0, 0.0], [2.0, 1.0]]).expand(1, 1, 2, 2, 2)
    # theta^T (2, 3) = (8, 3), squared 73; at the centre nothing is lost.
    expected = torch.tensor([[-73.0, 0.0], [-73.0, 0.0]])
    torch.testing.assert_close(spatial_weight(location, centre, theta)[0, 0], expected)


def test_attention_is_equations_13_to_16() -> None:
    layer, given = make_layer(), make_proposals()
    state = given.query
    attended, location = layer.attend(state, given.location, given.mask)
    query, key, value = (t.unflatten(-1, (2, 4)) for t in layer.project(state).chunk(3, dim=-1))
    for i in range(4):
        votes, centres = [], []
        for m in range(2):
            values = layer.locator.mlp(query[0, i, m])
            centre, theta = given.location[0, i] + values[:2], values[2:].view(2, 2)
            scores = []
            for j in range(3):
                x = given.location[0, j] - centre
                spatial = -(x @ theta @ theta.T @ x)
                scores.append(query[0, i, m] @ key[0, j, m] / 4**0.5 + spatial)
            output = torch.stack(scores).softmax(0) @ value[0, :3, m]
            torch.testing.assert_close(attended[0, m, i], output)
            votes.append(layer.vote(output))
            centres.append(centre)
        weights = torch.stack(votes).softmax(0)
        torch.testing.assert_close(location[0, i], (weights * torch.stack(centres)).sum(0))


def test_gate_can_keep_the_state() -> None:
    """With z = 1 in eq. 18 the gate gives back h, the category-embedded query of eq. 11."""
    layer, given = make_layer(), make_proposals()
    with torch.no_grad():
        layer.gate.bias_ih[8:16] = 100.0
    state = given.query + given.labels.softmax(-1) @ layer.category
    torch.testing.assert_close(layer(given).query, layer.gate_norm(2 * state))


def test_logits_and_locations_are_iterated_only_if_asked() -> None:
    given = make_proposals()
    layer = make_layer()
    found = layer(given)
    torch.testing.assert_close(found.labels, given.labels + layer.labels(found.query))
    assert not torch.allclose(found.location, given.location)
    layer = make_layer("location_iteration", "logits_iteration")
    found = layer(given)
    assert torch.equal(found.location, given.location)
    assert torch.equal(found.labels, given.labels)


@pytest.mark.parametrize("without", [[], ["spatial_modulation"]])
def test_locations_steer_attention_only_with_modulation(without) -> None:
    layer, given = make_layer(*without), make_proposals()
    before, _ = layer.attend(given.query, given.location, given.mask)
    after, _ = layer.attend(given.query, given.location * 2, given.mask)
    assert torch.allclose(before, after) == bool(without)


@pytest.mark.parametrize("without", [[], ["category_embedding"]])
def test_labels_steer_the_query_only_with_category_embedding(without) -> None:
    layer, given = make_layer(*without), make_proposals()
    before = layer(given).query
    given.labels = given.labels.flip(-1)
    assert torch.allclose(before, layer(given).query) == bool(without)


def test_without_gate_the_attention_is_the_query() -> None:
    layer, given = make_layer("gated_update", "category_embedding"), make_proposals()
    attended, _ = layer.attend(given.query, given.location, given.mask)
    joined = layer.output(attended.transpose(1, 2).flatten(2))
    expected = layer.attention_norm(given.query + joined)
    torch.testing.assert_close(layer(given).query, expected)


def pointer_by_loops(
    pointer: JointPointer, given: Proposals, words: Tensor, n: int
) -> List[List[Tuple[int, int, Tensor]]]:
    """Eq. 22 span by span: (first word, last word, score) for each proposal."""
    query_s, query_e = pointer.query(given.query[0]).chunk(2, dim=-1)
    word_s, word_e = pointer.word(words[0]).chunk(2, dim=-1)
    table = []
    for i in range(given.query.shape[1]):
        values = pointer.locator.mlp(given.query[0, i])
        centre, theta = given.location[0, i] + values[:2], values[2:].view(2, 2)
        row = []
        for s in range(n):
            for e in range(s, n):
                x = torch.tensor([s, e]) - centre
                product = query_s[i] @ word_s[s] + query_e[i] @ word_e[e]
                row.append((s, e, product / 8**0.5 - x @ theta @ theta.T @ x))
        table.append(row)
    return table


def test_joint_pointer_is_equation_22() -> None:
    torch.manual_seed(0)
    pointer, given = JointPointer(8).eval(), make_proposals()
    words, mask = torch.randn(1, 5, 8), torch.tensor([[True] * 4 + [False]])
    scores = pointer(given, words, mask)
    partition, (probability, start, end) = scores.log_partition(), scores.best()
    for i, row in enumerate(pointer_by_loops(pointer, given, words, 4)):
        spans = torch.tensor([[(s, e) for s, e, _ in row]])
        expected = torch.stack([score for _, _, score in row])
        torch.testing.assert_close(scores.at(spans)[0, i], expected)
        torch.testing.assert_close(partition[0, i], expected.logsumexp(0))
        best = int(expected.argmax())
        assert (int(start[0, i]), int(end[0, i])) == row[best][:2]
        torch.testing.assert_close(probability[0, i], expected.softmax(0)[best])


@pytest.mark.parametrize("chunk_cells", [2**20, 60])  # all rows at once; two at a time, of 25 cells
def test_partition_and_its_gradients_are_those_of_all_cells(monkeypatch, chunk_cells) -> None:
    torch.manual_seed(0)
    columns = [torch.randn(2, 3, 5) for _ in range(4)]
    columns[1][0, :, 4] = -torch.inf  # padding
    columns = [column.requires_grad_() for column in columns]
    cells = span_cells(*(column.flatten(0, 1) for column in columns))
    expected = cells.logsumexp(dim=1).view(2, 3)
    expected_gradients = torch.autograd.grad(expected.square().sum(), columns)
    scores = SpanDistribution(*columns)
    best = scores.best()
    for name in ("CHUNK_CELLS", "CHUNK_CELLS_ON_GPU"):
        monkeypatch.setattr(span_distribution, name, chunk_cells)
    found = scores.log_partition()
    torch.testing.assert_close(found, expected)
    gradients = torch.autograd.grad(found.square().sum(), columns)
    torch.testing.assert_close(gradients, expected_gradients)
    with torch.no_grad():
        torch.testing.assert_close(scores.log_partition(), expected)
    torch.testing.assert_close(scores.best(), best)


def test_loss_is_equation_24_on_the_assigned_targets() -> None:
    head = make_head(min_proposals=0)
    words, mask = random_batch((4,))
    gold = Gold.from_lists([[(0, 3, 1), (1, 2, 0)]])
    encoded, stages = head.refine(words, mask)
    logits, spans = head.answer(encoded, mask, stages[-1])
    labels_p = logits.log_softmax(-1)[0]
    spans_p = (spans.at(gold.spans) - spans.log_partition().unsqueeze(-1))[0]
    target = torch.tensor([[1, -1, 0, 0]])
    head.assign = lambda *given: target  # type: ignore[method-assign]
    losses = mean_losses([head(words, mask, gold=gold)])
    by_hand = -(labels_p[0, 1] + labels_p[2, 2] + labels_p[3, 2] + labels_p[1, 0]) / 4
    torch.testing.assert_close(losses["label"], by_hand)
    by_hand = -(spans_p[0, 1] + spans_p[2, 0] + spans_p[3, 0]) / 4
    torch.testing.assert_close(losses["span"], by_hand)


def test_assignment_is_algorithm_1() -> None:
    head = make_head(1)
    # Rows are proposals. Entity 0 costs 2, 1, 1, 3 and entity 1 costs 1, 2, 5, 9; None costs 4.
    spans_p = -torch.tensor([[[2.0, 1.0], [1.0, 2.0], [1.0, 5.0], [9.0, 9.0], [0.0, 0.0]]])
    labels_p = torch.zeros(1, 5, 2)
    labels_p[..., 0] = -4.0
    gold = Gold.from_lists([[(0, 0, 0), (0, 1, 0)]])
    real = torch.tensor([[True, True, True, True, False]])
    # The third is left over and takes the entity that is cheapest, the fourth takes None.
    assert head.assign(labels_p, spans_p, gold, real).tolist() == [[1, 0, 0, -1, -1]]


def test_half_is_the_threshold_of_algorithm_2() -> None:
    head = make_head(classifier="proposal")
    words, mask = random_batch()
    with torch.no_grad():
        head.labels.output.bias[0] -= 0.3  # so that some proposals are accepted
    encoded, stages = head.refine(words, mask)
    logits, spans = head.answer(encoded, mask, stages[-1])
    labels_p = logits.softmax(-1)
    accepted = spans.best()[0] * labels_p[..., 1:].max(-1)[0] >= labels_p[..., 0]
    accepted &= stages[-1].mask
    found = head(words, mask, options=options_of(head, threshold=0.5))
    assert 0 < len(found.segment) < int(stages[-1].mask.sum())
    assert torch.bincount(found.segment, minlength=3).tolist() == accepted.sum(1).tolist()


def test_proposals_that_cannot_reach_the_threshold_change_nothing() -> None:
    head = make_head(classifier="proposal")
    words, mask = random_batch()
    encoded, stages = head.refine(words, mask)
    assert not head.decode(encoded, mask, stages[-1], 1.0).score.any()  # not looked for
    everything = head(words, mask, options=options_of(head, threshold=0.0))
    assert len(everything.score) == int(stages[-1].mask.sum())
    threshold = everything.score.median().item()
    found = head(words, mask, options=options_of(head, threshold=threshold))
    keep = everything.score >= threshold
    for column, expected in zip(found, everything):
        assert torch.equal(column, expected[keep])


def test_the_span_classifier_says_label_and_score() -> None:
    head = make_head()
    words, mask = random_batch()
    encoded, stages = head.refine(words, mask)
    final = head.decode(encoded, mask, stages[-1])
    _, spans = head.answer(encoded, mask, stages[-1])
    span_p, start, end = spans.best(stages[-1].mask)
    found = torch.stack([start, end], dim=-1)
    read = head.classifier.read(encoded)
    labels_p = head.classifier.at(stages[-1].query, read, found).softmax(-1)[..., 1:]
    label_p, label = labels_p.max(-1)
    real = stages[-1].mask
    assert torch.equal(final.label[real], label[real])
    torch.testing.assert_close(final.score.square(), label_p * span_p)
    # A proposal whose own label is far behind None has no span.
    with torch.no_grad():
        head.proposer.labels.output.bias[0] += 20.0
    assert not len(head(words, mask, options=options_of(head, threshold=0.0)).score)


def test_the_span_classifier_learns_from_candidates(monkeypatch) -> None:
    head = make_head()
    words, mask = random_batch()
    entity = torch.tensor([0, 0])
    drawn: List[Tensor] = []

    def draw(pointed, gold, target, lengths):
        drawn.extend([pointed, target, lengths])
        return entity.expand(*target.shape, 2), torch.ones_like(target)

    monkeypatch.setattr(proposer_head, "draw_candidates", draw)
    loss = head(words, mask, gold=Gold.from_lists(GOLD))["candidate"]
    pointed, target, lengths = drawn
    assert lengths.tolist() == [[6], [3], [1]] and loss.terms == 14
    assert ((pointed >= 0) & (pointed < lengths.unsqueeze(-1)))[target >= 0].all()
    encoded, stages = head.refine(words, mask)
    spans = entity.expand(*target.shape, 2)
    logits = head.classifier.at(stages[-1].query, head.classifier.read(encoded), spans)
    by_hand = -logits.log_softmax(-1)[..., 1][stages[-1].mask].sum()
    torch.testing.assert_close(loss.total, by_hand)
    losses = make_head(classifier="proposal")(words, mask, gold=Gold.from_lists(GOLD))
    assert set(losses) == {"label", "span"}


def test_trace_follows_the_proposals() -> None:
    head = make_head()
    words, mask = random_batch()
    trace = head.trace(words, mask)
    assert trace.location.shape == (3, 3, 6, 2)  # the proposer and two layers
    assert trace.mask.sum(1).tolist() == [6, 4, 4]
    torch.testing.assert_close(trace.labels.sum(-1), torch.ones(3, 3, 6))
    _, stages = head.refine(words, mask)
    torch.testing.assert_close(trace.location[0], stages[0].location)
    everything = head(words, mask, options=options_of(head))
    final = [column[trace.mask].tolist() for column in trace.final[:3]]
    rows = torch.nonzero(trace.mask)[:, 0].tolist()
    assert sorted(set(zip(rows, *final))) == rows_of(everything)


def test_first_locations_lie_around_their_words() -> None:
    head = make_head(kernel_sizes=[2, 3])
    words, mask = random_batch((6,))
    location = head.trace(words, mask).location[0, 0]
    position = torch.arange(6)
    assert (location[:, 0] <= position).all() and (location[:, 1] >= position).all()
    assert (location[:, 0] >= position - 3).all() and (location[:, 1] <= position + 3).all()


def test_short_sentences_get_extra_rounds_of_proposals() -> None:
    words, mask = random_batch()  # 6, 3 and 1 words
    assert make_head().refine(words, mask)[1][0].mask.sum(1).tolist() == [6, 4, 4]
    head = make_head(**PROPOSER_PAPER)
    assert head.refine(words, mask)[1][0].mask.sum(1).tolist() == [6, 3, 1]


@pytest.mark.filterwarnings("error")
def test_more_entities_than_proposals_warns_once_and_learns_from_the_rest() -> None:
    head = make_head(min_proposals=0)
    words, mask = random_batch()
    crowded = [GOLD[0], GOLD[1], [(0, 0, 0), (0, 0, 1)]]
    with pytest.warns(UserWarning, match="2 gold entities but only 1 proposals.*min_proposals"):
        losses = head(words, mask, gold=Gold.from_lists(crowded))
    assert losses["span"].total.item() > 0
    head(words, mask, gold=Gold.from_lists(crowded))  # a second warning would be an error


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"hidden_width": 18, "attention_heads": 4}, "multiple of the attention_heads"),
        ({"attention_heads": 0}, "attention_heads"),
        ({"hidden_width": 0}, "hidden_width"),
        (
            {"hidden_width": 17, "attention_heads": 1, "kernel_sizes": [2, 2]},
            "hidden_width .17. must be even",
        ),
        ({"kernel_sizes": [2, 1]}, "kernel_sizes"),
        ({"regressor_layers": -1}, "regressor_layers"),
        ({"min_proposals": -1}, "min_proposals"),
        ({"without": ["gate"]}, 'without must be a list with any of "backward_block".*got .*gate'),
        ({"without": "gated_update"}, "without must be a list with any of"),
        (
            {"dropout": 1.5},
            "dropout must be null or a number from 0 to 0.99, got 1.5",
        ),
    ],
)
def test_wrong_settings_are_refused(settings, problem) -> None:
    with pytest.raises(ValueError, match=problem):
        make_head(**settings)


@torch.no_grad()
def test_a_label_is_proposed_from_a_small_share_on() -> None:
    head, (words, mask) = make_head(1), random_batch()
    encoded, stages = head.refine(words, mask)
    head.labels.output.weight.zero_()
    head.labels.output.bias.zero_()
    for share, is_proposed in ((0.05, True), (0.01, False)):
        stages[-1].labels.zero_()
        stages[-1].labels[..., 1] = torch.tensor(share).logit()
        assert (head.decode(encoded, mask, stages[-1]).score > 0).any() == is_proposed
