import numpy as np
import spacy
from spacy.tokens import Doc, Span
from spacy.training import Example

from spacy_nested_ner.pipeline.gold import aligned_gold, gold_segments

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
    assert gold.lost == {"empty": 0, "misaligned": 0, "unknown label": 0, "across segments": 0}


def test_losses_are_counted_by_reason() -> None:
    entities = [(0, 4, "X"), (0, 1, "Z"), (1, 2, "Y"), (1, 2, "Y")]
    example = make_example(list("abcd"), list("abcd"), entities)
    gold = gold_segments([example], np.array([[0, 0, 2], [0, 2, 4]]), "sc", LABELS)
    assert gold.entities == [[(1, 1, 1)], []]
    assert gold.lost == {"empty": 0, "misaligned": 0, "unknown label": 1, "across segments": 1}


def test_alignment_by_characters() -> None:
    example = make_example(
        ["IL", "-2", "gene"],
        ["IL-2", "ge", "ne"],
        [(0, 1, "X"), (1, 2, "X"), (0, 3, "Y")],
        spaces=[True, False, False],
        predicted_spaces=[False, True, False],
    )
    assert aligned_gold(example, "sc") == ([(0, 2, "X"), (0, 3, "Y")], 1)


def test_other_whitespace_is_aligned_by_words() -> None:
    example = make_example(
        ["a", "b", "c"], ["a", "b", "c"], [(1, 3, "X")], predicted_spaces=[False, False, False]
    )
    assert aligned_gold(example, "sc") == ([(1, 3, "X")], 0)


def test_doc_without_the_key_has_no_gold() -> None:
    example = make_example(["a"], ["a"], [])
    assert aligned_gold(example, "other") == ([], 0)
