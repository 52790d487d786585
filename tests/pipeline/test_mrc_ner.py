"""`mrc_ner` as a component: questions, new labels without training, cost."""

import warnings
from typing import Any, List

import numpy as np
import pytest
import spacy
import srsly
from spacy.language import Language
from thinc.api import set_dropout_rate

from spacy_nested_ner.model import head_model
from spacy_nested_ner.model.head_model import head_parts, head_shim
from spacy_nested_ner.model.pairs import read_pairs
from spacy_nested_ner.model.types import HeadInput, encoder_of
from spacy_nested_ner.systems.mrc.questions import questions_of
from tests.conftest import (
    QUESTIONS,
    SENTENCES,
    SMALL_CNN,
    make_example,
    make_examples,
    make_pipeline,
    scores_of,
    spans_of,
    train,
)


@pytest.fixture(scope="module")
def asked() -> Language:
    """A pipeline that has memorised the ten sentences. Not to be changed by a test."""
    nlp = train(make_pipeline("mrc_ner", {"questions": QUESTIONS}), 120)
    assert nlp.evaluate(make_examples(nlp))["nested_f"] == 1.0
    return nlp


def copy_of(nlp: Language) -> Language:
    return spacy.blank("en", config=nlp.config).from_bytes(nlp.to_bytes())


def with_label(nlp: Language, text: str, label: str) -> List[tuple]:
    return [(start, end) for start, end, found in spans_of(nlp(text)) if found == label]


def assert_towns_are_found(nlp: Language) -> None:
    """The label TOWN has the question of GPE: it is answered alike."""
    found = 0
    for text, _ in SENTENCES:
        towns = with_label(nlp, text, "TOWN")
        assert towns == with_label(nlp, text, "GPE")
        found += len(towns)
    assert found > 5


def test_a_new_label_is_answered_without_training(asked, tmp_path) -> None:
    """It has no weights: with the question of another label it finds what that one finds."""
    nlp = copy_of(asked)
    pipe = nlp.get_pipe("ner")
    assert pipe.add_label("TOWN", question=QUESTIONS["GPE"]) == 1
    assert_towns_are_found(nlp)
    nlp.to_disk(tmp_path)
    assert with_label(spacy.load(tmp_path), SENTENCES[0][0], "TOWN") == [(1, 2), (5, 6)]


def on_bert(directory: Any, joint_layers: Any) -> Language:
    tok2vec = {
        "@architectures": "spacy_nested_ner.PairEncoder.v1",
        "name": str(directory),
        "joint_layers": joint_layers,
    }
    return make_pipeline("mrc_ner", {"questions": QUESTIONS, "tok2vec": tok2vec})


@pytest.mark.parametrize("joint_layers", [0, 1, None])
def test_a_new_label_is_answered_however_question_and_sentence_meet(
    tiny_bert, joint_layers
) -> None:
    nlp = train(on_bert(tiny_bert, joint_layers), 20)
    nlp = copy_of(nlp)
    pipe = nlp.get_pipe("ner")
    pipe.cfg["threshold"] = 0.1
    list(nlp.pipe(text for text, _ in SENTENCES))  # keeps the questions
    pipe.add_label("TOWN", question=QUESTIONS["GPE"])
    assert_towns_are_found(nlp)
    assert_same(nlp, copy_of(nlp))


def test_the_layer_of_late_interaction_learns_at_the_rate_of_the_head(tiny_bert) -> None:
    for joint_layers, more in ((0, ["late_interaction"]), (1, [])):
        parts = head_parts(on_bert(tiny_bert, joint_layers).get_pipe("ner").model)
        assert [part.name for part in parts] == ["mrc_head", *more]


@pytest.mark.parametrize("joint_layers", [0, 1])
def test_adversarial_training_through_shared_sentences(tiny_bert, joint_layers) -> None:
    nlp = on_bert(tiny_bert, joint_layers)
    nlp.get_pipe("ner").cfg["adversarial"] = 1.0
    losses = [nlp.update(make_examples(nlp), sgd=nlp.create_optimizer())["ner"] for _ in range(2)]
    assert all(np.isfinite(losses))


def test_another_question_for_a_label_counts_at_once(asked) -> None:
    nlp = copy_of(asked)
    assert nlp.get_pipe("ner").add_label("ORG", question=QUESTIONS["GPE"]) == 0
    text = SENTENCES[0][0]
    assert with_label(nlp, text, "ORG") == with_label(nlp, text, "GPE") == [(1, 2), (5, 6)]


def test_a_question_counts_at_once_between_predictions(asked) -> None:
    """Though a loaded pipeline does not read the questions again for every text."""
    nlp, text = copy_of(asked), SENTENCES[0][0]
    before = spans_of(nlp(text))
    assert [(s, e) for s, e, label in before if label == "ORG"] == [(0, 4)]
    nlp.get_pipe("ner").add_label("ORG", question=QUESTIONS["GPE"])
    assert with_label(nlp, text, "ORG") == with_label(nlp, text, "GPE") == [(1, 2), (5, 6)]
    nlp.get_pipe("ner").add_label("TOWN", question=QUESTIONS["GPE"])
    assert with_label(nlp, text, "TOWN") == [(1, 2), (5, 6)]
    nlp.get_pipe("ner").add_label("ORG", question=QUESTIONS["ORG"])
    assert [span for span in spans_of(nlp(text)) if span[2] != "TOWN"] == before


def test_what_is_learned_between_predictions_counts(asked) -> None:
    nlp, other = copy_of(asked), make_pipeline("mrc_ner", {"questions": QUESTIONS})
    texts = [text for text, _ in SENTENCES]
    for pipeline in (nlp, other):
        list(pipeline.pipe(texts))
    train(nlp, 3)
    nlp.get_pipe("ner").cfg["threshold"] = 0.1
    assert_same(nlp, copy_of(nlp))
    other.from_bytes(nlp.to_bytes())
    assert_same(nlp, other)


def assert_same(nlp: Language, other: Language) -> None:
    """Spans and scores of the ten sentences, with and without batches."""
    texts = [text for text, _ in SENTENCES]
    for a, b, c in zip(nlp.pipe(texts), other.pipe(texts), map(other, texts)):
        assert spans_of(a) == spans_of(b) == spans_of(c)
        assert scores_of(a) == pytest.approx(scores_of(b), abs=1e-5)
        assert scores_of(a) == pytest.approx(scores_of(c), abs=1e-5)


def test_a_question_is_a_text(asked) -> None:
    for question, problem in ((3, "must be a text, got 3"), (" ", "is empty")):
        with pytest.raises(ValueError, match=f"'ner': the question for 'ORG' {problem}"):
            copy_of(asked).get_pipe("ner").add_label("ORG", question=question)


def test_a_label_without_a_question_is_told(asked) -> None:
    pipe = copy_of(asked).get_pipe("ner")
    with pytest.warns(UserWarning, match=r"label\(s\) TOWN.*'Which town is mentioned"):
        pipe.add_label("TOWN")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_pipeline("mrc_ner", {"questions": QUESTIONS})


def test_questions_given_before_initialize_are_asked() -> None:
    nlp = make_pipeline("mrc_ner", {"questions": QUESTIONS}, examples=None)
    nlp.get_pipe("ner").add_label("GPE", question="Where?")
    data = make_examples(nlp)
    nlp.initialize(lambda: data)
    model = nlp.get_pipe("ner").model
    assert model.attrs["questions"] == {**QUESTIONS, "GPE": "Where?"}


def test_a_saved_pipeline_carries_the_questions_of_its_file(tmp_path) -> None:
    source = tmp_path / "questions.json"
    srsly.write_json(source, {**QUESTIONS, "TOWN": "Which towns ?"})
    model = {"questions": {"GPE": "Where ?"}, "question_source": str(source)}
    nlp = make_pipeline("mrc_ner", model)
    source.unlink()
    nlp.to_disk(tmp_path / "saved")
    pipe = spacy.load(tmp_path / "saved").get_pipe("ner")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pipe.add_label("TOWN")  # the file had a question for it
    asked = dict(zip(pipe.labels, questions_of(pipe.model)))
    assert asked == {**QUESTIONS, "GPE": "Where ?", "TOWN": "Which towns ?"}


def test_details_of_a_label_that_are_no_question_are_refused() -> None:
    pipe = make_pipeline("mrc_ner", examples=None).get_pipe("ner")
    with pytest.raises(ValueError, match=r"'ner'.*a 'question' beside its name, no query"):
        pipe.add_label("X", query="Which X?")
    assert pipe.labels == ()


def test_a_question_to_a_system_without_questions_is_refused() -> None:
    pipe = make_pipeline("piqn_ner", examples=None).get_pipe("ner")
    with pytest.raises(ValueError, match=r"'ner'.*takes no question"):
        pipe.add_label("X", question="Which X?")
    assert pipe.labels == ()


def test_flat_decoding(asked) -> None:
    pipe = copy_of(asked).get_pipe("ner")
    doc = make_examples(asked)[2].x.copy()  # Bank of China in New York City
    nested = spans_of(asked(doc.copy()))
    pipe.cfg.update(decoding="flat", overlap="flat")
    flat = spans_of(pipe(doc))
    assert {(6, 9, "GPE"), (6, 8, "GPE")} < set(nested)
    covered = [i for start, end, _ in flat for i in range(start, end)]
    assert flat and len(covered) == len(set(covered))
    assert (6, 8, "GPE") in flat  # the nearest end, not the one of (6, 9)
    pipe.cfg["decoding"] = "some"
    with pytest.raises(ValueError, match=r"'ner': decoding must be one of .*got 'some'"):
        pipe(doc)


def input_of(nlp: Language) -> HeadInput:
    docs = [eg.x for eg in make_examples(nlp)]
    rows = np.array([(i, 0, len(doc)) for i, doc in enumerate(docs)])
    labels = list(nlp.get_pipe("ner").labels)
    gold = [[(s, e - 1, labels.index(label)) for s, e, label in spans] for _, spans in SENTENCES]
    return HeadInput(docs, rows, gold=gold)


def test_only_questions_without_answer_are_left_out(asked) -> None:
    nlp = copy_of(asked)
    model, X = nlp.get_pipe("ner").model, input_of(nlp)
    answered = {(i, label) for i, group in enumerate(X.gold) for _, _, label in group}
    n_pairs = len(SENTENCES) * len(QUESTIONS)
    for share, least, most in ((0.0, 0, 0), (0.5, 8, 33), (1.0, 41, 41)):
        model.attrs["unanswered_share"] = share
        rows, _ = read_pairs(model, X, is_train=True)
        pairs = set(zip(rows.segment.tolist(), rows.label.tolist()))
        assert answered <= pairs and least <= len(pairs - answered) <= most
        assert n_pairs - len(answered) == 41
        again, _ = read_pairs(model, X, is_train=True)
        drawn_anew = pairs != set(zip(again.segment.tolist(), again.label.tolist()))
        assert drawn_anew == (share == 0.5)
        assert len(read_pairs(model, X, is_train=False)[0].segment) == n_pairs


def test_training_without_unanswered_questions() -> None:
    nlp = make_pipeline("mrc_ner", {"questions": QUESTIONS, "unanswered_share": 0.0})
    optimizer = nlp.create_optimizer()
    assert nlp.update(make_examples(nlp), sgd=optimizer)["ner"] > 0
    nothing = [make_example(nlp, "nothing here", [])]
    assert nlp.update(nothing, sgd=optimizer)["ner"] > 0


@pytest.mark.parametrize("loss", ["cross_entropy", "dice"])
def test_the_loss_does_not_depend_on_batch_words(loss) -> None:
    nlp = make_pipeline("mrc_ner", {"questions": QUESTIONS, "boundary_loss": loss})
    pipe, values = nlp.get_pipe("ner"), []
    for batch_words in (20, 10_000):
        pipe.model.attrs["batch_words"] = batch_words
        values.append(pipe.get_loss(make_examples(nlp), None)[0])
    assert values[0] == pytest.approx(values[1], rel=1e-5)


@pytest.mark.parametrize("joint_layers", [0, 2])
def test_pairs_are_never_all_encoded_at_once(joint_layers, monkeypatch) -> None:
    """However many labels there are, so many words of questions and sentences at a time."""
    monkeypatch.setattr(head_model, "ON_GPU", 1)
    nlp = make_pipeline("mrc_ner", {"questions": QUESTIONS, "joint_layers": joint_layers})
    pipe = nlp.get_pipe("ner")
    for i in range(40):
        pipe.add_label(f"L{i}", question="Which of them ?")
    pipe.model.attrs["batch_words"] = 200
    cross = encoder_of(pipe.model).get_ref("cross").shims[0].module
    seen: List[List[int]] = []

    def see(_, args) -> None:  # rows of both, or rows of words and rows of questions
        seen.append([rows.shape[:2].numel() for rows in args[: 1 if joint_layers else 2]])

    cross.register_forward_pre_hook(see)
    list(nlp.pipe(text for text, _ in SENTENCES))
    assert max(map(max, seen)) <= 200
    assert sum(map(sum, seen)) > 46 * len(SENTENCES) * 5


def test_the_transformer_over_a_tok2vec_learns_at_the_rate_of_the_head(asked) -> None:
    model = asked.get_pipe("ner").model
    assert [part.name for part in head_parts(model)] == ["mrc_head", "cross_layers"]
    set_dropout_rate(model, 0.3)
    assert encoder_of(model).get_ref("cross").attrs["dropout_rate"] == 0.3
    set_dropout_rate(model, 0.0)


def listening(**settings: Any) -> Language:
    nlp = spacy.blank("en")
    nlp.add_pipe("tok2vec", config={"model": SMALL_CNN})
    tok2vec = {"@architectures": "spacy.Tok2VecListener.v1", "width": 32}
    model = {"questions": QUESTIONS, "hidden_width": 48, "tok2vec": tok2vec, **settings}
    nlp.add_pipe("mrc_ner", name="ner", config={"model": model})
    return nlp


def test_a_listener_needs_something_else_to_read_the_questions() -> None:
    with pytest.raises(ValueError, match=r"listener.*Give question_tok2vec"):
        listening()
    other = {"@architectures": "spacy.Tok2VecListener.v1", "width": 32}
    with pytest.raises(ValueError, match="question_tok2vec is a listener"):
        listening(question_tok2vec=other)
    with pytest.raises(ValueError, match="question_tok2vec is a listener"):
        make_pipeline("mrc_ner", {"question_tok2vec": other}, examples=None)
    nlp = listening(question_tok2vec=SMALL_CNN)
    data = make_examples(nlp)
    nlp.initialize(lambda: data)
    nlp.update(make_examples(nlp), sgd=nlp.create_optimizer())
    loaded = copy_of(nlp)
    loaded.get_pipe("ner").cfg["threshold"] = nlp.get_pipe("ner").cfg["threshold"] = 0.1
    for text, _ in SENTENCES:
        assert spans_of(loaded(text)) == spans_of(nlp(text))


def test_an_encoder_of_pairs_needs_nothing_else_to_read_the_questions() -> None:
    pairs = {"@architectures": "spacy_nested_ner.PairEncoder.v1", "name": "nowhere"}
    with pytest.raises(ValueError, match="question_tok2vec must be null"):
        make_pipeline("mrc_ner", {"tok2vec": pairs, "question_tok2vec": SMALL_CNN}, examples=None)


def test_early_version_memorises_what_it_can() -> None:
    """Dice and nearest ends: of the ten sentences, those where no start has two ends."""

    def examples(nlp: Language) -> List[Any]:
        return [make_examples(nlp)[i] for i in (0, 3, 4, 7, 9)]

    model = {"questions": QUESTIONS, "pairing": "nearest", "boundary_loss": "dice"}
    nlp = make_pipeline("mrc_ner", model, examples=examples)
    assert head_shim(nlp.get_pipe("ner").model).module.match is None
    for _ in range(6):
        train(nlp, 30, examples)
        if nlp.evaluate(examples(nlp))["nested_f"] == 1.0:
            break
    assert nlp.evaluate(examples(nlp))["nested_f"] == 1.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"unanswered_share": 1.5},
        {"hidden_width": 0},
        {"hidden_width": 50},
        {"question_source": "nowhere"},
    ],
)
def test_wrong_settings_are_refused(wrong) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        make_pipeline("mrc_ner", wrong)


def test_new_labels_without_a_question_are_told_of_once_by_initialize() -> None:
    nlp = train(make_pipeline("mrc_ner", {"questions": QUESTIONS}), 2)
    new = make_example(nlp, "a b c", [(0, 1, "TOWN"), (1, 2, "RIVER")])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        nlp.initialize(lambda: [*make_examples(nlp), new])
    told = [str(each.message) for each in caught if "no question for" in str(each.message)]
    assert len(told) == 1 and "TOWN, RIVER" in told[0]
