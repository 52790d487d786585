import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st
from spacy.tokens import Doc, Span
from spacy.training import Example

from spacy_nested_ner.pipeline.scorer import make_nested_scorer

VOCAB = spacy.blank("en").vocab
score = make_nested_scorer()


def make_doc(entities, words=("a", "b", "c", "d"), spaces=None, key="sc") -> Doc:
    doc = Doc(VOCAB, words=list(words), spaces=spaces)
    if entities is not None:
        doc.spans[key] = [Span(doc, s, e, label=label) for s, e, label in entities]
    return doc


def make_example(found, gold) -> Example:
    return Example(make_doc(found), make_doc(gold))


def test_by_hand() -> None:
    gold = [(0, 3, "X"), (0, 1, "X"), (0, 1, "Y")]
    found = [(0, 3, "X"), (0, 1, "Y"), (2, 4, "X"), (0, 3, "Y")]
    scores = score([make_example(found, gold)])
    assert scores["nested_p"] == pytest.approx(2 / 4)
    assert scores["nested_r"] == pytest.approx(2 / 3)
    assert scores["nested_f"] == pytest.approx(4 / 7)
    assert scores["nested_per_type"]["X"]["r"] == pytest.approx(1 / 2)
    assert scores["nested_per_type"]["Y"]["p"] == pytest.approx(1 / 2)


entities = st.lists(
    st.tuples(st.integers(0, 2), st.integers(3, 4), st.sampled_from("XY")), max_size=6
)


@given(st.lists(st.tuples(entities, entities), min_size=1, max_size=4))
def test_equals_spacys_scorer_on_equal_tokens(pairs) -> None:
    scores = score([make_example(found, gold) for found, gold in pairs], spans_key="sc")
    for ours, theirs in (("p", "spans_sc_p"), ("r", "spans_sc_r"), ("f", "spans_sc_f")):
        assert scores[f"nested_{ours}"] == pytest.approx(scores[theirs] or 0.0)


def test_a_prediction_that_fits_no_reference_token_counts_against_precision() -> None:
    reference = make_doc([(0, 1, "X")], words=["ab", "cd"], spaces=[True, False])
    predicted = make_doc(
        [(0, 2, "X"), (0, 1, "X")], words=["a", "b", "cd"], spaces=[False, True, False]
    )
    scores = score([Example(predicted, reference)])
    assert (scores["nested_p"], scores["nested_r"]) == (0.5, 1.0)
    assert scores["spans_sc_p"] == 1.0  # what spaCy's own scorer says


def test_other_whitespace_is_no_difference() -> None:
    reference = make_doc([(1, 2, "X")], words=["a", "b"], spaces=[False, False])
    predicted = make_doc([(1, 2, "X")], words=["a", "b"], spaces=[True, False])
    assert score([Example(predicted, reference)])["nested_f"] == 1.0


def test_docs_without_the_key_are_not_scored() -> None:
    without = Example(make_doc([(0, 1, "X")]), make_doc(None))
    assert score([without])["nested_f"] is None
    both = [without, make_example([(0, 1, "X")], [(0, 1, "X")])]
    assert score(both)["nested_f"] == 1.0


def test_own_key() -> None:
    example = Example(make_doc([(0, 1, "X")], key="k"), make_doc([(0, 1, "X")], key="k"))
    scores = score([example], spans_key="k")
    assert scores["nested_f"] == scores["spans_k_f"] == 1.0
