import numpy as np
import pytest
import spacy
from hypothesis import given, settings
from hypothesis import strategies as st
from spacy.tokens import Doc, DocBin, Span, SpanGroup
from spacy.training import Example
from spacy.util import fix_random_seed
from spacy.vocab import Vocab

from spacy_nested_ner.pipeline.gold import aligned_gold, gold_segments, keep_sure
from spacy_nested_ner.pipeline.segments import cut_segments
from tests.conftest import make_examples, make_pipeline

VOCAB = spacy.blank("en").vocab
LABELS = {"X": 0, "Y": 1}


def make_example(predicted_words, words, entities, spaces=None, predicted_spaces=None) -> Example:
    reference = Doc(VOCAB, words=words, spaces=spaces)
    reference.spans["sc"] = [Span(reference, s, e, label=label) for s, e, label in entities]
    return Example(Doc(VOCAB, words=predicted_words, spaces=predicted_spaces), reference)


def test_overlapping_windows_share_an_entity() -> None:
    example = make_example(list("abcdef"), list("abcdef"), [(2, 4, "X"), (0, 1, "Y")])
    rows = np.array([[0, 0, 4], [0, 2, 6]])
    gold = gold_segments([example], rows, "sc", LABELS)
    assert gold.entities == [[(0, 0, 1), (2, 3, 0)], [(0, 1, 0)]]
    assert not any(gold.lost.values())


def test_losses_are_counted_by_reason() -> None:
    entities = [(0, 4, "X"), (0, 1, "Z"), (1, 2, "Y"), (1, 2, "Y")]
    example = make_example(list("abcd"), list("abcd"), entities)
    gold = gold_segments([example], np.array([[0, 0, 2], [0, 2, 4]]), "sc", LABELS)
    assert gold.entities == [[(1, 1, 1)], []]
    found = {reason: count for reason, count in gold.lost.items() if count}
    assert found == {"unknown label": 1, "across segments": 1}


def aligned(example: Example, spans_key: str):
    """As `aligned_gold`, with texts and labels of what is misaligned."""
    found, misaligned = aligned_gold(example, spans_key)
    return found, [(span.text, span.label_) for span in misaligned]


def test_alignment_by_characters() -> None:
    example = make_example(
        ["IL", "-2", "gene"],
        ["IL-2", "ge", "ne"],
        [(0, 1, "X"), (1, 2, "X"), (0, 3, "Y")],
        spaces=[True, False, False],
        predicted_spaces=[False, True, False],
    )
    assert aligned(example, "sc") == ([(0, 2, "X"), (0, 3, "Y")], [("ge", "X")])


def test_other_whitespace_is_aligned_by_words() -> None:
    example = make_example(
        ["a", "b", "c"], ["a", "b", "c"], [(1, 3, "X")], predicted_spaces=[False, False, False]
    )
    assert aligned(example, "sc") == ([(1, 3, "X")], [])


@pytest.mark.parametrize("words", [["the", "US", "Co", "urt"], ["the", " ", "US", "Co", "urt"]])
def test_labels_of_gold_of_another_vocab(words) -> None:
    """They stay out of the vocab of the predicted doc, which does not know them."""
    spaces = [True] * (len(words) - 2) + [False, False]
    reference = Doc(Vocab(), words=words, spaces=spaces)
    reference.spans["sc"] = [Span(reference, 0, len(words), label="ELSEWHERE")]
    example = Example(
        Doc(VOCAB, words=["the", "US", "Court"], spaces=[True, True, False]), reference
    )
    assert aligned(example, "sc") == ([(0, 3, "ELSEWHERE")], [])
    assert "ELSEWHERE" not in VOCAB.strings


def test_a_line_break_within_gold_does_not_count() -> None:
    """spaCy's alignment of spans looks for it in the predicted doc; the scores do not."""
    entities = [(0, 5, "X"), (1, 4, "Y"), (2, 3, "X")]
    words = ["the", "US", "\n", "Supreme", "Court"]
    example = make_example(["The", "US", "Supreme", "Court"], words, entities)
    assert aligned_gold(example, "sc")[0][:2] == [(0, 4, "X"), (1, 3, "Y")]
    gold = gold_segments([example], np.array([[0, 0, 4]]), "sc", LABELS)
    assert gold.entities == [[(0, 3, 0), (1, 2, 1)]]
    assert {reason for reason, count in gold.lost.items() if count} == {"empty"}
    inside = make_example(["the", "US", "SupremeCourt"], words, entities[:2])
    assert aligned(inside, "sc") == ([(0, 3, "X")], [("US \n Supreme", "Y")])


def test_doc_without_the_key_has_no_gold() -> None:
    example = make_example(["a"], ["a"], [])
    assert aligned(example, "other") == ([], [])


def sentences_of(n_words: int, starts) -> np.ndarray:
    """Rows of two docs with the same sentences, windows of six words where they are longer."""
    flags = [i in starts for i in range(n_words)]
    docs = [Doc(VOCAB, words=["w"] * n_words, sent_starts=flags) for _ in range(2)]
    return cut_segments(docs, window=6, stride=4).rows


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 40), st.sets(st.integers(0, 39)), st.data())
def test_every_segment_that_holds_an_entity_has_it(n_words, starts, data) -> None:
    rows = sentences_of(n_words, starts)
    spans = st.lists(st.integers(0, n_words), min_size=2, max_size=2, unique=True).map(sorted)
    gold = data.draw(st.lists(st.lists(spans, max_size=5), min_size=2, max_size=2))
    words = ["w"] * n_words
    examples = [make_example(words, words, [(*span, "X") for span in group]) for group in gold]
    expected = [
        sorted({(s - first, e - first - 1, 0) for s, e in gold[i] if first <= s and e <= end})
        for i, first, end in rows.tolist()
    ]
    held = [
        any(i == doc and first <= s and e <= end for doc, first, end in rows.tolist())
        for i, group in enumerate(gold)
        for s, e in group
    ]
    placed = gold_segments(examples, rows, "sc", LABELS)
    assert placed.entities == expected
    assert placed.lost["across segments"] == held.count(False)


class CountingArray(np.ndarray):
    """Counts how often it is asked for something."""

    asked = 0

    def __getitem__(self, key):
        type(self).asked += 1
        return super().__getitem__(key)


def test_rows_are_not_read_again_for_every_entity() -> None:
    """Reading each sentence for each entity took 17 seconds for a doc of 22,400 words."""
    asked = []
    for n_words in (100, 200):
        words = ["w"] * n_words
        example = make_example(words, words, [(i, i + 1, "X") for i in range(0, n_words, 2)])
        rows = np.array([(0, i, i + 2) for i in range(0, n_words, 2)]).view(CountingArray)
        CountingArray.asked = 0
        assert all(gold_segments([example], rows, "sc", LABELS).entities)
        asked.append(CountingArray.asked)
    assert asked[1] <= 2 * asked[0] + 10


def weighted(weights) -> Example:
    example = make_example(list("abc"), list("abc"), [(0, 1, "X"), (1, 2, "X"), (2, 3, "Y")])
    example.reference.spans["sc"].attrs["weights"] = weights
    return example


def test_weighted_spans_are_drawn_in_training_alone() -> None:
    example, rows = weighted([1.0, 0.3, 0.0]), np.array([[0, 0, 3]])
    all_three = [(0, 0, 0), (1, 1, 0), (2, 2, 1)]
    assert gold_segments([example], rows, "sc", LABELS).entities == [all_three]
    fix_random_seed(0)
    found = [gold_segments([example], rows, "sc", LABELS, draw=True).entities[0] for _ in range(99)]
    assert all(each in (all_three[:1], all_three[:2]) for each in found)
    assert 0.2 < sum(len(each) == 2 for each in found) / 99 < 0.4


@pytest.mark.parametrize("weight", [-0.1, 7.0, float("nan")])
def test_weights_are_shares(weight) -> None:
    with pytest.raises(ValueError, match="weights that are not from 0 to 1"):
        aligned_gold(weighted([1.0, weight, 0.0]), "sc", draw=True)


@pytest.mark.parametrize("weights", [0.5, ["a", 1, 1], [[1, 1], [1], [1]]])
def test_weights_that_are_no_numbers(weights) -> None:
    with pytest.raises(ValueError, match=r"of 'a b c.* weights that are no list of numbers"):
        aligned_gold(weighted(weights), "sc", draw=True)


def test_an_error_of_gold_ends_as_a_sentence() -> None:
    nlp = make_pipeline()
    examples = make_examples(nlp)
    examples[0].reference.spans["sc"].attrs["weights"] = [0.5]
    with pytest.raises(
        ValueError, match=r"^Component 'ner': .* Give every span a weight, or none of them\.$"
    ):
        nlp.update(examples)


def test_weights_stay_in_a_file_and_must_be_as_many_as_spans() -> None:
    kept = DocBin(docs=[weighted([1.0, 0.3, 0.0]).reference]).to_bytes()
    (doc,) = DocBin().from_bytes(kept).get_docs(VOCAB)
    assert doc.spans["sc"].attrs["weights"] == [1.0, 0.3, 0.0]
    with pytest.raises(ValueError, match="3 spans and 2 weights"):
        aligned_gold(weighted([1.0, 0.3]), "sc", draw=True)


def test_what_a_teacher_gives_one_half_is_sure() -> None:
    doc = Doc(VOCAB, words=list("abc"))
    spans = [Span(doc, i, i + 1, label="X") for i in range(3)]
    doc.spans["sc"] = SpanGroup(doc, name="sc", spans=spans, attrs={"weights": [0.49, 0.5, 0.9]})
    keep_sure(doc, "sc")
    assert [span.text for span in doc.spans["sc"]] == ["b", "c"]
    assert doc.spans["sc"].attrs["weights"] == [0.5, 0.9]


def test_entities_with_numbers_of_a_knowledge_base():
    nlp = spacy.blank("en")
    reference = nlp.make_doc("a b")
    reference.spans["sc"] = [Span(reference, 0, 2, "X", kb_id=24068)]
    example = Example(nlp.make_doc("a b"), reference)
    assert aligned_gold(example, "sc", draw=True)[0] == [(0, 2, "X")]
