"""PIQN: equations on numbers worked out apart from the code, and the paper's properties."""

from typing import Any, List

import pytest
import torch
import torch.nn.functional as F
from head_samples import GOLD, PIQN_PAPER, PIQN_SMALL, from_config, options_of, random_batch

from spacy_nested_ner.layers.pointer import AdditivePointer
from spacy_nested_ner.systems.head import Gold, Loss, Predictions, mean_losses
from spacy_nested_ner.systems.matched import Answers, MatchedHead, within_reach
from spacy_nested_ner.systems.piqn import SYSTEM
from spacy_nested_ner.systems.piqn.head import (
    PIQN,
    OneWayBlock,
    QueryClassifier,
    States,
)
from spacy_nested_ner.systems.piqn.settings import PIQNOptions, PIQNSettings


def make_head(n_labels: int = 3, **settings: Any) -> PIQN:
    torch.manual_seed(0)
    return PIQN(10, n_labels, PIQNSettings(**{**PIQN_SMALL, **settings}))


def test_words_never_see_queries() -> None:
    head = make_head(**PIQN_PAPER).eval()
    words, mask = random_batch()
    before, _ = head.encode(words, mask)
    with torch.no_grad():
        head.query_input.tables.content[0] += 1.0
        head.query_input.tables.position[0] -= 1.0
    after, _ = head.encode(words, mask)
    for a, b in zip(before, after):
        torch.testing.assert_close(a.words, b.words)
    assert not torch.allclose(before[-1].queries, after[-1].queries)


def test_queries_see_each_other_only_with_interaction() -> None:
    for interaction in (True, False):
        torch.manual_seed(0)
        block = OneWayBlock(8, 2, 2, interaction, extra_attention=False).eval()
        words, mask = torch.randn(1, 4, 8), torch.ones(1, 4, dtype=torch.bool)
        queries, position = torch.randn(1, 3, 8), torch.randn(1, 3, 8)
        _, before = block(words, queries, position, mask, None)
        queries[0, 2] += 1.0
        _, after = block(words, queries, position, mask, None)
        assert torch.allclose(before[0, :2], after[0, :2]) != interaction


def test_classifier_is_equation_6_and_7() -> None:
    torch.manual_seed(0)
    classifier = QueryClassifier(4, 2, attention=False, span_pooling=False, heads=2).eval()
    query, words = torch.randn(1, 1, 4), torch.randn(1, 3, 4)
    left, right = torch.tensor([[[0.9, 0.1, 0.0]]]), torch.tensor([[[0.0, 0.2, 0.7]]])
    mask = torch.ones(1, 3, dtype=torch.bool)
    state = torch.cat(
        [
            classifier.query(query)[0, 0],
            0.9 * words[0, 0] + 0.1 * words[0, 1],
            0.2 * words[0, 1] + 0.7 * words[0, 2],
        ]
    )
    expected = classifier.output(torch.relu(state))
    torch.testing.assert_close(classifier(words, query, mask, left, right)[0, 0], expected)
    assert expected.shape == (3,)  # two labels and None


def answers_by_hand() -> Answers:
    """One row, three queries, two words, one label (and None)."""
    return Answers(
        left=torch.tensor([[[2.0, -2.0], [0.0, 0.0], [-2.0, 2.0]]]),
        right=torch.tensor([[[2.0, -2.0], [0.0, 0.0], [-2.0, 2.0]]]),
        labels=torch.tensor([[[0.0, 1.0], [0.0, 0.0], [0.0, 1.0]]]),
    )


def test_assignment_minimises_equation_8() -> None:
    head = make_head(1, assignment="one_to_one", variant="paper", match_anchor=0.0)
    gold = Gold.from_lists([[(1, 1, 0), (0, 0, 0)]])
    target = head.assign(answers_by_hand(), gold, torch.ones(1, 3, dtype=torch.bool))
    assert target.tolist() == [[1, -1, 0]]


def test_losses_are_equations_11_and_12() -> None:
    head = MatchedHead(boundary="sigmoid", none_weight=0.5)
    answers, gold = answers_by_hand(), Gold.from_lists([[(1, 1, 0), (0, 0, 0)]])
    target = torch.tensor([[1, -1, 0]])
    # Each assigned query is right by logits of +-2 at both words, for each of the two sides.
    expected = 4 * F.softplus(torch.tensor(-2.0))
    loss = head.boundary_loss(answers, gold, target)
    torch.testing.assert_close(loss.total / loss.terms, expected)
    assigned = F.softplus(torch.tensor(-1.0))  # -log softmax([0, 1])[1]
    none = -torch.log(torch.tensor(0.5))
    expected = (2 * assigned + 0.5 * none) / 2.5
    real = torch.ones(1, 3, dtype=torch.bool)
    losses = mean_losses([head.label_losses(answers, gold, target, real)])
    torch.testing.assert_close(losses["label"], expected)


def test_softmax_boundary_loss_by_hand() -> None:
    head = MatchedHead(boundary="softmax", none_weight=0.5)
    answers, gold = answers_by_hand(), Gold.from_lists([[(0, 0, 0)]])
    target = torch.tensor([[0, -1, -1]])
    expected = 2 * F.softplus(torch.tensor(-4.0))
    loss = head.boundary_loss(answers, gold, target)
    torch.testing.assert_close(loss.total / loss.terms, expected)


def test_without_a_none_weight_the_sides_weigh_the_same() -> None:
    head = MatchedHead(boundary="softmax", none_weight=None)
    answers, gold = answers_by_hand(), Gold.from_lists([[(0, 0, 0)]])
    target, real = torch.tensor([[0, -1, -1]]), torch.ones(1, 3, dtype=torch.bool)
    one = F.softplus(torch.tensor(-1.0))
    none = (-torch.log(torch.tensor(0.5)) + F.softplus(torch.tensor(1.0))) / 2
    losses = mean_losses([head.label_losses(answers, gold, target, real)])
    torch.testing.assert_close(losses["label"], one / 2)
    torch.testing.assert_close(losses["none"], none / 2)


def test_anchors_keep_far_queries_away() -> None:
    head = make_head(1, assignment="one_to_one", match_anchor=10.0)
    gold, real = Gold.from_lists([[(0, 0, 0)]]), torch.ones(1, 3, dtype=torch.bool)
    near = head.assign(answers_by_hand(), gold, real, torch.tensor([[5, 0, 7]]))
    assert near.tolist() == [[-1, 0, -1]]


def test_far_queries_lose_their_entity_but_for_the_nearest() -> None:
    distance = torch.tensor([[[0.0, 9.0], [1.0, 9.0], [2.0, 5.0], [3.0, 4.0], [7.0, 6.0]]])
    target = torch.tensor([[0, 0, 0, 1, 1]])
    assert within_reach(target, distance, 1).tolist() == [[0, 0, -1, 1, -1]]
    assert within_reach(target, distance, 2).tolist() == [[0, 0, 0, 1, -1]]
    none = torch.full((1, 5), -1)
    assert torch.equal(within_reach(none, distance, 1), none)
    assert torch.equal(within_reach(none, distance[..., :0], 1), none)


def test_the_default_form_gives_entities_to_near_queries_only() -> None:
    gold, real = Gold.from_lists([[(0, 0, 0)]]), torch.ones(1, 3, dtype=torch.bool)
    anchors = torch.tensor([[5, 1, 0]])
    for variant, expected in (("default", [[-1, 0, 0]]), ("paper", [[0, 0, 0]])):
        head = make_head(1, variant=variant, quantity=1.0)
        assert head.assign(answers_by_hand(), gold, real, anchors).tolist() == expected


def test_the_classifier_at_certain_boundaries_is_that_of_certain_pointers() -> None:
    classifier = QueryClassifier(4, 2, attention=False, span_pooling=True, heads=2).eval()
    queries, words = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    spans = torch.tensor([[[0, 0], [1, 3], [4, 4]], [[0, 4], [2, 3], [1, 1]]])
    left, right = (F.one_hot(side, 5).float() for side in spans.unbind(-1))
    soft = classifier(words, queries, torch.ones(2, 5, dtype=torch.bool), left, right)
    torch.testing.assert_close(classifier.at(words, queries, spans), soft)


def test_candidates_have_the_label_of_their_words() -> None:
    """A classifier that reads the first word alone, of entities with the word's own label."""
    head = make_head(2).eval()
    torch.manual_seed(0)
    words = F.one_hot(torch.tensor([[2, 0, 2, 1, 2, 2]]), 16).float()
    states = States(words, words, words)
    gold = Gold.from_lists([[(1, 1, 0), (3, 3, 1)]])
    pointed = torch.tensor([[[1, 1], [3, 3], [0, 0], [5, 5]]]).repeat(1, 100, 1)
    target = torch.tensor([[0, 1, -1, -1]]).repeat(1, 100)

    def at(words: torch.Tensor, queries: torch.Tensor, spans: torch.Tensor) -> torch.Tensor:
        first = words[0, spans[..., 0], :3].roll(1, dims=-1)
        return 50.0 * torch.where((spans[..., :1] == spans[..., 1:]), first, torch.eye(3)[0])

    head.classifier.at = at
    mask, real = torch.ones(1, 6, dtype=torch.bool), torch.ones(1, 400, dtype=torch.bool)
    loss = head.classifier_loss(states, mask, pointed, gold, target, real)
    assert loss.terms == 400 and loss.total.item() == pytest.approx(0.0, abs=1e-3)
    real[:, 200:] = False
    assert head.classifier_loss(states, mask, pointed, gold, target, real).terms == 200
    swapped = Gold(gold.spans, 1 - gold.labels, gold.mask)
    loss = head.classifier_loss(states, mask, pointed, swapped, target, real)
    assert loss.total.item() > 1000


def test_the_classifier_reads_the_words_that_enter_the_blocks() -> None:
    words, mask = random_batch()
    for variant in ("default", "paper"):
        head = make_head(variant=variant, lstm_layers=0, depth=2).eval()
        states, _ = head.encode(words, mask)
        early = head.words(words, mask)
        for state in states:
            expected = early if variant == "default" else state.words
            assert torch.equal(state.classified, expected)
            assert not torch.allclose(state.words, early)


def test_the_paper_has_no_candidates() -> None:
    words, mask = random_batch()
    for variant, expected in (("default", True), ("paper", False)):
        losses = make_head(variant=variant)(words, mask, gold=Gold.from_lists(GOLD))
        assert ("candidate" in losses) == expected


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"query_source": "air"}, '"words", "learned", "encoder"'),
        ({"assignment": "best"}, "dynamic"),
        ({"variant": "mine"}, '"default", "paper"'),
        ({"hidden_width": 18, "attention_heads": 4}, "multiple"),
        ({"depth": 0}, "depth must be .* of at least 1"),
        ({"attention_heads": 0}, "attention_heads must be .* of at least 1"),
        ({"quantity": 3.0}, "quantity"),
    ],
)
def test_wrong_settings_are_refused(settings, problem) -> None:
    with pytest.raises(ValueError, match=problem):
        PIQNSettings(**settings)


def test_queries_of_the_encoder_are_read() -> None:
    head = make_head(query_source="encoder", n_queries=4)
    words, mask = random_batch()
    found = head(words, mask, options=options_of(head), queries=torch.randn(3, 4, 10))
    assert len(found) == 5


@pytest.mark.filterwarnings("error")
def test_more_entities_than_queries_warns_once_and_learns_from_the_rest() -> None:
    head = make_head(query_source="learned", n_queries=2)
    words, mask = random_batch()
    with pytest.warns(UserWarning, match="4 gold entities but only 2 queries.*n_queries"):
        losses = head(words, mask, gold=Gold.from_lists(GOLD))
    assert losses["boundary"].total.item() > 0
    head(words, mask, gold=Gold.from_lists(GOLD))  # a second warning would be an error


def test_short_sentences_get_extra_rounds_of_queries() -> None:
    _, mask = random_batch()  # 6, 3 and 1 words
    queries = make_head().query_input(torch.randn(3, 6, 16), mask, None)
    assert queries.mask.sum(1).tolist() == [6, 4, 4]
    assert queries.anchors[1, :4].tolist() == [0, 1, 2, 0]
    assert queries.anchors[2, :4].tolist() == [0, 0, 0, 0]


def test_the_paper_config_builds_the_form_of_the_paper() -> None:
    """Section 3, appendix B, and what the authors' code adds; see docs/systems/piqn_ner.md."""
    head = from_config("piqn_paper", SYSTEM, width=1024, n_labels=5, n_queries=60)
    shapes = {name: tuple(value.shape) for name, value in head.state_dict().items()}
    h = 1024
    # Three layers of a BiLSTM, five blocks, each with a self-attention of its own for queries.
    assert shapes["words.lstm.back.2.weight_hh_l0"] == (4 * h // 2, h // 2)
    assert isinstance(head.left, AdditivePointer) and isinstance(head.right, AdditivePointer)
    for block in range(5):
        assert shapes[f"blocks.{block}.feedforward.0.weight"] == (4 * h, h)
        assert shapes[f"blocks.{block}.extra.attention.in_proj_weight"] == (3 * h, h)
    assert shapes["query_input.position"] == (60, h)
    # Query, start and end, no mean of the words between; the query attends to the words.
    assert shapes["classifier.output.weight"] == (6, 3 * h)
    assert shapes["classifier.attention.in_proj_weight"] == (3 * h, h)
    assert not [name for name in shapes if "offset" in name]
    assert len(shapes) == 145 and sum(v.numel() for v in head.state_dict().values()) == 112_410_632
    assert (head.boundary, head.none_weight, head.quantity) == ("sigmoid", None, 0.5)
    assert head.words.lstm.dropout.p == 0.5 and head.classifier.dropout.p == 0.1


def test_a_one_way_block_reads_the_mean_of_content_and_position() -> None:
    block = OneWayBlock(8, 2, 2, True, extra_attention=False).eval()
    words, mask = torch.randn(1, 4, 8), torch.ones(1, 4, dtype=torch.bool)
    queries, position = torch.randn(1, 3, 8), torch.randn(1, 3, 8)
    read: List[torch.Tensor] = []
    block.query_key.register_forward_pre_hook(lambda _, args: read.append(args[0]))
    block(words, queries, position, mask, None)
    torch.testing.assert_close(read[0], torch.cat([words, (queries + position) / 2], dim=1))


def test_score_and_thresholds_by_hand(monkeypatch) -> None:
    head = make_head(1, query_source="learned", n_queries=1).eval()
    answers = Answers(
        left=torch.tensor([[[0.9, 0.1]]]).log(),
        right=torch.tensor([[[0.3, 0.7]]]).log(),
        labels=torch.tensor([[[0.2, 0.8]]]).log(),
    )
    monkeypatch.setattr(head, "answer", lambda *_: answers)

    def found(**options: float) -> Predictions:
        words, mask = torch.randn(1, 2, 10), torch.ones(1, 2, dtype=torch.bool)
        return head(words, mask, options=PIQNOptions(**options))

    (row,) = zip(*(column.tolist() for column in found(threshold=0.5)))
    assert row[:-1] == (0, 0, 1, 0) and row[-1] == pytest.approx(0.9 * 0.7 * 0.8)
    assert not len(found(threshold=0.51).score)
    for name, least in (("boundary_threshold", 0.7), ("label_threshold", 0.8)):
        assert len(found(threshold=0.5, **{name: least - 0.01}).score)
        assert not len(found(threshold=0.5, **{name: least + 0.01}).score)


def test_candidates_have_the_targets_of_the_last_block(monkeypatch) -> None:
    head, (words, mask) = make_head(depth=2), random_batch()
    assign, seen = head.assign, {}

    def none_in_the_first(*args: Any) -> torch.Tensor:
        seen["target"] = assign(*args)
        seen["target"][: len(mask)] = -1
        return seen["target"]

    def classifier_loss(states, mask, pointed, gold, target, real) -> Loss:
        seen["learned"] = target
        return Loss(torch.zeros(()), 1.0)

    monkeypatch.setattr(head, "assign", none_in_the_first)
    monkeypatch.setattr(head, "classifier_loss", classifier_loss)
    head(words, mask, gold=Gold.from_lists(GOLD))
    assert (seen["learned"] >= 0).any()
    assert torch.equal(seen["learned"], seen["target"][len(mask) :])


def test_all_queries_inside_an_entity_are_as_near() -> None:
    """The first is the better match; the second stands in the middle."""
    head = make_head(1, assignment="one_to_one", match_anchor=10.0)
    answers = Answers(
        left=torch.zeros(1, 2, 5),
        right=torch.zeros(1, 2, 5),
        labels=torch.tensor([[[0.0, 1.1], [0.0, 1.0]]]),
    )
    real, gold = torch.ones(1, 2, dtype=torch.bool), Gold.from_lists([[(0, 4, 0)]])
    assert head.assign(answers, gold, real, torch.tensor([[0, 2]])).tolist() == [[0, -1]]
