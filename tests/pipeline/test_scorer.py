import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st
from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.training import Example
from thinc.api import Adam

from spacy_nested_ner.evaluation.scores.entities import read_entities
from spacy_nested_ner.pipeline.scorer import make_nested_scorer
from tests.conftest import NOT_FORKED, SMALL_MODELS, but_cupys
from tests.conftest import make_examples as make_nested

VOCAB = spacy.blank("en").vocab
score = make_nested_scorer()


def make_doc(entities, words=("a", "b", "c", "d"), spaces=None, key="sc") -> Doc:
    doc = Doc(VOCAB, words=list(words), spaces=spaces)
    if entities is not None:
        doc.spans[key] = [Span(doc, s, e, label=label) for s, e, label in entities]
    return doc


def make_example(found, gold) -> Example:
    return Example(make_doc(found), make_doc(gold))


def test_doc_ents_are_scored_where_they_are_set() -> None:
    nlp = spacy.blank("en")
    pipe = nlp.add_pipe("locate_and_label_ner")
    found, gold = make_doc([(0, 2, "X")]), make_doc([(0, 2, "X")])
    found.set_ents([Span(found, 0, 2, "X")])
    gold.set_ents([Span(gold, 0, 2, "X"), Span(gold, 3, 4, "Y")])
    assert "ents_f" not in pipe.score([Example(found, gold)])
    pipe.cfg["set_ents"] = "outermost"
    scores = pipe.score([Example(found, gold)])
    assert (scores["ents_p"], scores["ents_r"]) == (1, 0.5)
    assert scores["ents_per_type"]["X"]["f"] == 1 == scores["nested_f"]


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


@pytest.mark.parametrize("blank", [" ", "\u200b", "\ufeff\n"])
def test_spans_of_whitespace_do_not_count(blank: str) -> None:
    words, gold = ("a", blank, "b"), [(0, 1, "X"), (0, 2, "X"), (1, 2, "X")]
    example = Example(make_doc([(0, 1, "X")], words), make_doc(gold, words))
    assert score([example])["nested_f"] == 1.0
    assert list(read_entities(example.reference, "sc")) == [(0, 1, "X")]


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


def two_components(keys=("a", "b")) -> Language:
    """Initialised pipes "first" and "second", whose gold is the same under two keys."""
    nlp = spacy.blank("en")
    for name, key in zip(("first", "second"), keys):
        config = {"model": SMALL_MODELS["piqn_ner"], "spans_key": key}
        nlp.add_pipe("piqn_ner", name=name, config=config)
    nlp.initialize(lambda: under_both(nlp))
    return nlp


def under_both(nlp: Language) -> list:
    examples = make_nested(nlp, "a")
    for eg in examples:
        eg.reference.spans["b"] = list(eg.reference.spans["a"])
    return examples


@pytest.fixture(scope="module")
def first_trained() -> Language:
    nlp = two_components()
    optimizer = Adam(0.003, L2=0.01, L2_is_weight_decay=True, grad_clip=1.0)
    for _ in range(60):
        nlp.update(under_both(nlp), sgd=optimizer, exclude=["second"])
    nlp.get_pipe("second").cfg["threshold"] = 0.9
    return nlp


def test_two_components_have_one_score_and_each_its_own(first_trained) -> None:
    """The second, which has learned nothing, halves the recall that the first has alone."""
    scores = first_trained.evaluate(under_both(first_trained))
    assert scores["spans_a_f"] == 1.0 and scores["spans_b_f"] == 0.0
    assert scores["nested_p"] == 1.0
    assert scores["nested_r"] == pytest.approx(0.5)
    assert scores["nested_f"] == pytest.approx(2 / 3)
    assert scores["nested_per_type"]["ORG"]["r"] == pytest.approx(0.5)


def test_the_order_of_components_and_who_is_asked_do_not_matter(first_trained) -> None:
    scores = first_trained.evaluate(under_both(first_trained), per_component=True)
    assert scores["first"]["nested_f"] == scores["second"]["nested_f"] == pytest.approx(2 / 3)
    with first_trained.select_pipes(disable=["second"]):
        assert first_trained.evaluate(under_both(first_trained))["nested_f"] == 1.0


@pytest.mark.parametrize("way", ["disk", pytest.param("processes", marks=NOT_FORKED), "copies"])
def test_the_score_of_both_outlives(way, first_trained, tmp_path) -> None:
    nlp = first_trained
    if way == "disk":
        nlp.to_disk(tmp_path)
        nlp = spacy.load(tmp_path)
    examples = under_both(nlp)
    found = list(nlp.pipe([eg.x for eg in examples], n_process=2 if way == "processes" else 1))
    if way == "copies":
        found = [Doc(nlp.vocab).from_bytes(doc.copy().to_bytes()) for doc in found]
    scored = [Example(doc, eg.y) for doc, eg in zip(found, examples)]
    assert nlp.get_pipe("second").score(scored)["nested_f"] == pytest.approx(2 / 3)


def test_one_key_for_two_components_is_warned_about() -> None:
    nlp = two_components(keys=("a", "a"))
    with pytest.warns(UserWarning, match=r"'second': .*component 'first'.*spans_key 'a'") as caught:
        list(nlp.pipe(["a b", "c d"]))
    assert len(but_cupys(caught)) == 1


def test_spacys_own_scores_leave_out_docs_without_the_key_too() -> None:
    without = Example(make_doc([(0, 1, "X")]), make_doc(None))
    assert score([without])["spans_sc_f"] is None
    both = [without, make_example([(0, 1, "X")], [(0, 1, "X")])]
    assert score(both)["spans_sc_p"] == 1.0
