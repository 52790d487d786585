"""From raw text and with gold tokens, at the threshold of a component and at the best one."""

from __future__ import annotations

from typing import List, Tuple

import numpy as np
import pytest
import spacy
from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.util import filter_spans

from spacy_nested_ner.evaluation.scores.entities import read_entities
from spacy_nested_ner.evaluation.scores.evaluate import evaluate_pipeline, evaluate_predictions
from spacy_nested_ner.evaluation.scores.own_thresholds import scored_components
from spacy_nested_ner.evaluation.scores.raw_text import compare_tokens
from spacy_nested_ner.evaluation.scores.remarks import known_labels, remarks, sets_sentences
from tests.conftest import SENTENCES, SMALL_MODELS, make_examples, make_pipeline, train

TEXT = "antiCD28 growth. IL-2 rose."
WORDS = ["anti", "CD28", "growth", ".", "IL-2", "rose", "."]
ENTITIES = [("CD28", "protein"), ("IL-2", "protein")]


def rules(*pipes: str) -> Language:
    """Finds the two entities wherever they are tokens."""
    nlp = spacy.blank("en")
    for pipe in pipes:
        nlp.add_pipe(pipe)
    ruler = nlp.add_pipe("span_ruler", config={"spans_key": "sc"})
    ruler.add_patterns([{"label": label, "pattern": text} for text, label in ENTITIES])
    return nlp


def published(text: str = TEXT, sent_starts: List[int] = (0, 4)) -> Doc:
    """Tokens that give the boundaries away, and the text as `convert` keeps it."""
    starts = [i in sent_starts for i in range(len(WORDS))]
    doc = Doc(spacy.blank("en").vocab, words=WORDS, sent_starts=starts)
    doc.spans["sc"] = [Span(doc, 1, 2, "protein"), Span(doc, 4, 5, "protein")]
    if text:
        doc.user_data["text"] = text
    return doc


def test_scores_are_from_raw_text_and_gold_tokens_stand_beside():
    found = evaluate_pipeline(rules(), [published()]).to_dict()
    assert found["scored_on"] == "raw text"
    assert found["strict"]["micro"] == found["raw_text"]
    assert (found["raw_text"]["right"], found["gold_tokens"]["right"]) == (1, 2)
    assert found["documents_with_other_tokens"] == 1 and found["documents_without_text"] == 0
    (remark,) = remarks(found, "sc")
    assert "66.67 on raw text and 100.00 with gold tokens" in remark and "--tokens spacy" in remark


def test_data_with_tokens_that_the_pipeline_did_not_learn_from():
    nlp = spacy.blank("en")
    ruler = nlp.add_pipe("span_ruler", config={"spans_key": "sc"})
    ruler.add_patterns([{"label": "protein", "pattern": "antiCD28"}])
    doc = published()
    doc.spans["sc"] = [Span(doc, 0, 2, "protein")]
    found = evaluate_pipeline(nlp, [doc]).to_dict()
    assert (found["raw_text"]["f"], found["gold_tokens"]["f"]) == (1.0, 0.0)
    found.update(documents_with_other_tokens=300, documents_with_other_sentences=3)
    (remark,) = remarks(found, "sc")
    assert "In 300 docs the tokens of the data differ" in remark and "did not learn from" in remark
    assert "convert this data with --tokens spacy" in remark and "what users get" in remark
    assert "train again" not in remark and "sentence" not in remark.split("sentences. ")[1]


def test_gold_tokens_alone():
    found = evaluate_pipeline(rules(), [published()], gold_tokens=True).to_dict()
    assert found["scored_on"] == "gold tokens" and found["raw_text"] is None
    assert found["strict"]["micro"] == found["gold_tokens"] and found["gold_tokens"]["f"] == 1.0
    assert not list(remarks(found, "sc"))


@pytest.mark.parametrize("text", ["", "another text"])
def test_without_the_text_gold_tokens_are_scored(text):
    found = evaluate_pipeline(rules(), [published(text)]).to_dict()
    assert found["scored_on"] == "gold tokens" and found["documents_without_text"] == 1
    assert found["strict"]["micro"]["f"] == 1.0
    assert found["raw_text"]["right"] == 2  # a blank before "CD28"


class Counting:
    """Counts the docs that go through, and keeps whether each had sentence boundaries."""

    def __init__(self) -> None:
        self.sentences: List[bool] = []

    def __call__(self, doc: Doc) -> Doc:
        self.sentences.append(doc.has_annotation("SENT_START"))
        doc.spans.setdefault("sc", [])
        return doc


def counting(nlp: Language) -> Counting:
    counter = Counting()
    Language.component("counting_docs", func=counter)
    nlp.add_pipe("counting_docs", first=True)
    return counter


def test_only_docs_that_differ_are_predicted_again():
    nlp = rules("sentencizer")
    counter = counting(nlp)
    same = nlp.make_doc("IL-2 rose. It fell.")
    same.spans["sc"] = [same.char_span(0, 4, label="protein")]
    plain = same.copy()
    for token in same:
        token.is_sent_start = token.i in (0, 3)
    found = evaluate_pipeline(nlp, [plain, same]).to_dict()
    assert len(counter.sentences) == 2 + 2  # two to warm up
    assert found["raw_text"] == found["gold_tokens"]
    counter.sentences.clear()
    evaluate_pipeline(nlp, [plain, same, published()])
    assert counter.sentences == [False] * (2 + 3) + [True] * (1 + 1)


def test_sentences_are_the_pipelines_own():
    doc = spacy.blank("en").make_doc("IL-2 rose. It fell.")
    doc.spans["sc"] = [Span(doc, 0, 1, "protein")]
    for token in doc:
        token.is_sent_start = token.i in (0, 3)
    nlp = rules()

    @Language.component("only_in_sentences")
    def only_in_sentences(doc):
        if not doc.has_annotation("SENT_START"):
            doc.spans["sc"] = []
        return doc

    nlp.add_pipe("only_in_sentences")
    found = evaluate_pipeline(nlp, [doc]).to_dict()
    assert found["documents_with_other_sentences"] == 1
    assert found["documents_with_other_tokens"] == 0
    assert (found["raw_text"]["f"], found["gold_tokens"]["f"]) == (0.0, 1.0)
    nothing, differs = remarks(found, "sc")
    assert "check its rules" in nothing and "add a sentencizer" in differs
    assert not sets_sentences(nlp) and sets_sentences(rules("sentencizer"))
    _, differs = remarks(found, "sc", own_sentences=True)
    assert "add a sentencizer" not in differs and "trained senter" in differs


def test_docs_without_sentences_that_the_pipeline_cuts():
    nlp = spacy.blank("en")
    docs = [nlp.make_doc(text) for text in ("IL-2 rose. It fell.", "IL-2 rose.")]
    for doc in docs:
        doc.spans["sc"] = [Span(doc, 0, 1, "protein")]
    counts = ("documents_cut_into_sentences", "documents_with_other_sentences")
    cut = evaluate_pipeline(rules("sentencizer"), docs).to_dict()
    assert [cut[key] for key in counts] == [1, 0]
    whole = evaluate_pipeline(rules(), docs).to_dict()
    assert [whole[key] for key in counts] == [0, 0]


@pytest.mark.parametrize(
    "factory",
    ["diffusion_ner", "piqn_ner", "locate_and_label_ner", "mrc_ner", "proposer_regressor_ner"],
)
def test_what_reaches_a_threshold_is_what_is_predicted_at_it(factory):
    nlp = train(make_pipeline(factory), 15)
    pipe = nlp.get_pipe("ner")
    texts = [text for text, _ in SENTENCES]
    sizes = set()
    for overlap, labels_per_span in (("any", None), ("no_crossing", 1), ("flat", None)):
        pipe.cfg.update(overlap=overlap, labels_per_span=labels_per_span, threshold=0.05)
        everything = [read_entities(doc, "sc") for doc in nlp.pipe(texts)]
        for threshold in (0.1, 0.3, 0.6):
            pipe.cfg["threshold"] = threshold
            component = scored_components(nlp)["sc"]
            for doc, known in zip(nlp.pipe(texts), everything):
                assert component.kept(known) == pytest.approx(read_entities(doc, "sc"), abs=1e-6)
                sizes.add(len(doc.spans["sc"]))
    assert len(sizes) > 2


def test_thresholds_of_components_and_the_best():
    nlp = train(make_pipeline("piqn_ner", threshold=0.9), 15)
    references = [eg.reference for eg in make_examples(nlp)]
    found = evaluate_pipeline(nlp, references).to_dict()
    (own,) = found["thresholds"]
    assert (own["component"], own["spans_key"], own["threshold"]) == ("ner", "sc", 0.9)
    assert nlp.get_pipe("ner").cfg["threshold"] == 0.9
    assert own["f"] == found["strict"]["micro"]["f"] < own["best"]["f"]
    nlp.get_pipe("ner").cfg["threshold"] = own["best"]["threshold"]
    (again,) = evaluate_pipeline(nlp, references).to_dict()["thresholds"]
    assert again["f"] == pytest.approx(own["best"]["f"])
    assert again["best"] == {"threshold": own["best"]["threshold"], "f": again["f"]}


def test_thresholds_on_doc_ents():
    nlp = train(make_pipeline("piqn_ner", threshold=0.9), 15)
    references = [eg.reference for eg in make_examples(nlp)]
    for doc in references:
        doc.ents = filter_spans(doc.spans.pop("sc"))
    found = evaluate_pipeline(nlp, references, ents=True).to_dict()
    (own,) = found["thresholds"]
    assert own["f"] == found["strict"]["micro"]["f"] < own["best"]["f"]


def test_doc_ents_are_those_at_the_threshold():
    """A component that also fills them is not lowered."""
    nlp = train(make_pipeline("piqn_ner", spans_key="sc", set_ents="outermost"), 15)
    ner = nlp.get_pipe("ner")
    references = []
    ner.cfg["spans_key"] = "own"
    scores = [s for eg in make_examples(nlp) for s in nlp(eg.text).spans["own"].attrs["scores"]]
    ner.cfg["threshold"] = float(np.median(scores))
    for example in make_examples(nlp):
        doc, reference = nlp(example.text), nlp.make_doc(example.text)
        reference.ents = [Span(reference, e.start, e.end, e.label) for e in doc.ents]
        reference.spans["own"] = [
            Span(reference, s.start, s.end, s.label) for s in doc.spans["own"]
        ]
        references.append(reference)
    found = evaluate_pipeline(nlp, references, ents=True).to_dict()
    n_ents = sum(len(doc.ents) for doc in references)
    assert found["strict"]["micro"]["predicted"] == found["strict"]["micro"]["right"] == n_ents
    (own,) = found["thresholds"]
    assert own["f"] == 1.0 and own["best"] is None


def test_two_components_have_a_threshold_each():
    nlp = make_pipeline("piqn_ner", examples=None)
    config = {"model": SMALL_MODELS["locate_and_label_ner"], "spans_key": "other"}
    nlp.add_pipe("locate_and_label_ner", name="second", config=config)
    examples = make_examples(nlp)
    references = [eg.reference for eg in examples]
    for doc in references:
        doc.spans["other"] = list(doc.spans["sc"])
    nlp.initialize(lambda: examples)
    found = evaluate_pipeline(nlp, references).to_dict()["thresholds"]
    assert [(each["component"], each["spans_key"]) for each in found] == [
        ("ner", "sc"),
        ("second", "other"),
    ]
    references = [eg.reference for eg in make_examples(nlp)]
    (alone,) = evaluate_pipeline(nlp, references).to_dict()["thresholds"]
    assert alone["component"] == "ner"


def test_what_a_lower_threshold_finds_is_bounded():
    nlp = make_pipeline("piqn_ner", threshold=0.5)
    component = scored_components(nlp)["sc"]
    found = {(i, i + 1, "GPE"): score for i, score in enumerate((0.1, 0.9, 0.2, 0.3, 0.4))}
    assert component.lowest == 0.05
    assert sorted(component.bounded(found, most=2).values()) == [0.3, 0.4, 0.9]
    assert 0.2 < component.lowest < 0.21
    assert component.bounded({(0, 1, "GPE"): 0.1}, most=2) == {(0, 1, "GPE"): 0.1}


def test_pairing_with_the_nearest_end_has_no_best_threshold_from_one_prediction():
    nlp = make_pipeline("mrc_ner", decoding="flat", threshold=0.3)
    references = [eg.reference for eg in make_examples(nlp)]
    (own,) = evaluate_pipeline(nlp, references).to_dict()["thresholds"]
    assert own["threshold"] == 0.3 and own["best"] is None and own["lowest"] is None


def test_later_components_see_what_the_threshold_lets_pass():
    nlp = make_pipeline("piqn_ner", threshold=0.9)

    @Language.component("keep_the_longest")
    def keep_the_longest(doc):
        doc.spans["sc"] = filter_spans(doc.spans["sc"])
        return doc

    nlp.add_pipe("keep_the_longest")
    found = evaluate_pipeline(nlp, [eg.reference for eg in make_examples(nlp)]).to_dict()
    (own,) = found["thresholds"]
    assert own["threshold"] == 0.9 and own["best"] is None and own["highest_score"] is None
    assert found["strict"]["micro"]["predicted"] == sum(
        len(nlp(text).spans["sc"]) for text, _ in SENTENCES
    )


def test_spancat_has_a_threshold_too():
    nlp = spacy.blank("en")
    nlp.add_pipe("spancat", config={"threshold": 0.999})
    examples = make_examples(nlp)
    nlp.initialize(lambda: examples)
    found = evaluate_pipeline(nlp, [eg.reference for eg in examples]).to_dict()
    (own,) = found["thresholds"]
    assert own["component"] == "spancat" and own["highest_score"] < 0.999
    (remark,) = remarks(found, "sc")
    assert "no score reaches the threshold of 0.999 of component 'spancat'" in remark


def test_a_pipeline_that_has_learned_nothing():
    nlp = make_pipeline("piqn_ner")
    references = [eg.reference for eg in make_examples(nlp) if len(eg.reference) > 1]
    nlp.get_pipe("ner").cfg["boundary_threshold"] = 1.0
    (remark,) = remarks(evaluate_pipeline(nlp, references).to_dict(), "sc")
    assert (
        "not even at a threshold of 0.05: component 'ner'" in remark and "Train it longer" in remark
    )


def test_a_pipeline_that_has_learned_other_labels():
    nlp = make_pipeline("piqn_ner")
    references = [eg.reference for eg in make_examples(nlp) if len(eg.reference) > 1]
    for doc in references:
        doc.spans["sc"] = [Span(doc, span.start, span.end, "species") for span in doc.spans["sc"]]
    nlp.get_pipe("ner").cfg["boundary_threshold"] = 1.0
    found = evaluate_pipeline(nlp, references).to_dict()
    (remark,) = remarks(found, "sc", known_labels(nlp, "sc"))
    assert remark.startswith("None of the labels of the pipeline (") and "(species)" in remark
    assert not known_labels(nlp, "other")


def annotated(*entities: Tuple[int, int, str], words: str = "The IL-2 gene is active .") -> Doc:
    doc = Doc(spacy.blank("xx").vocab, words=words.split())
    doc.spans["sc"] = [Span(doc, *entity) for entity in entities]
    return doc


def test_given_predictions_are_paired_by_text():
    """Those of one text in their order; tokens may differ, and so may the vocabularies."""
    golds = [
        annotated((1, 3, "DNA"), (1, 2, "PROT")),
        annotated((0, 1, "X"), words="One ."),
        annotated((1, 3, "DNA")),
        annotated(words="Not predicted ."),
    ]
    golds.append(Doc(golds[0].vocab, words=["unannotated"]))
    found = [
        annotated((0, 1, "X"), words="Not asked ."),
        annotated((1, 3, "DNA")),
        annotated((0, 1, "X"), words="One."),
        annotated((1, 2, "PROT")),
    ]
    found[1].spans["sc"].attrs["scores"] = [0.25]
    result = evaluate_predictions(found, golds)
    table = result.run.table
    # right: DNA of the first. X is another span: without a blank the token has the full stop.
    assert (int(table.right.sum()), int(table.predicted.sum()), int(table.gold.sum())) == (1, 3, 4)
    assert (result.missing, result.unasked, result.run.skipped) == (1, 1, 1)
    assert table.score[table.right].tolist() == [0.25]
    facts = result.to_dict()
    assert facts["scored_on"] == "predictions" and facts["speed"]["words_per_second"] is None
    assert facts["gold_tokens"] is None and facts["raw_text"] is None
    assert [each.split(":")[0] for each in remarks(facts, "sc")] == [
        "1 annotated docs are left out",
        "1 predicted docs are left out",
    ]


def test_a_doc_without_predictions_has_found_nothing():
    """It need not have the key, if another has it."""
    golds = [annotated((1, 3, "DNA")), annotated((0, 1, "X"), words="One .")]
    found = [annotated((1, 3, "DNA")), Doc(golds[0].vocab, words=["One", "."])]
    result = evaluate_predictions(found, golds)
    assert (result.missing, result.unasked) == (0, 0)
    assert (int(result.run.table.right.sum()), int(result.run.table.gold.sum())) == (1, 2)


def test_predictions_of_equal_texts_are_paired_by_their_ids():
    golds = [annotated((1, 3, "DNA")), annotated((1, 2, "PROT")), annotated((0, 1, "X"))]
    found = [annotated((0, 1, "X")), annotated((1, 2, "PROT")), annotated((1, 3, "DNA"))]
    for doc, name in zip((*golds, *found), ("a", 2, None, None, 2, "a")):
        doc.user_data["doc_id"] = name
    assert evaluate_predictions(found, golds).run.table.right.sum() == 3


def test_of_taught_spans_those_at_the_threshold_are_predictions():
    doc = annotated((1, 3, "DNA"), (0, 1, "X"))
    doc.spans["sc"].attrs["weights"] = [1.0, 0.2]
    table = evaluate_predictions([doc], [annotated((1, 3, "DNA"))]).run.table
    assert table.right.sum() == table.predicted.sum() == 1


def test_entities_that_convert_left_out_of_predictions_are_told_of():
    golds, found = [annotated((1, 3, "DNA"))], [annotated((1, 3, "DNA"))]
    found[0].user_data["misaligned"] = ["PROT"]
    result = evaluate_predictions(found, golds)
    assert result.misaligned == {"PROT": 1}
    (remark,) = remarks(result.to_dict(), "sc")
    assert "1 predicted entities begin or end inside a token" in remark and "PROT" in remark
    golds[0].user_data["misaligned"] = ["PROT"]  # the predictions were put into gold docs
    assert not evaluate_predictions(found, golds).misaligned


def test_predictions_with_labels_that_the_data_lack():
    golds = [annotated((1, 3, "DNA")) for _ in range(20)]
    found = [annotated((1, 3, "DNA" if i else "dna"), (1, 2, "prot")) for i in range(20)]
    (remark,) = remarks(evaluate_predictions(found, golds).to_dict(), "sc")
    assert "21 of 40 predictions have labels that the gold data lack (dna, prot)" in remark


def test_given_predictions_that_cannot_be_scored():
    golds, other = [annotated((1, 3, "DNA"))], annotated((1, 2, "A"), words="Another text .")
    with pytest.raises(ValueError, match="No text of the predictions is in the data"):
        evaluate_predictions([other], golds)
    other.spans["mine"] = other.spans.pop("sc")
    with pytest.raises(ValueError, match="under spans key 'sc'; the docs use: 'mine'") as error:
        evaluate_predictions([other], golds)
    assert "--ents" not in str(error.value)
    other.ents = [Span(other, 1, 2, "A")]
    with pytest.raises(ValueError, match=r"Those in doc\.ents are scored with --ents"):
        evaluate_predictions([other], golds)
    with pytest.raises(ValueError, match="No gold entities under spans key 'sc'"):
        evaluate_predictions(golds, [annotated()])
    facts = evaluate_predictions([annotated((1, 3, "RNA"))], golds).to_dict()
    (remark,) = remarks(facts, "sc")
    labels = "Labels of the predictions: RNA; of the gold data: DNA."
    assert remark == f"No prediction is right. {labels}"
    (remark,) = remarks(evaluate_predictions([annotated()], golds).to_dict(), "sc")
    assert "Labels of the predictions: none" in remark


def test_where_the_text_is_not_known_joined_words_are_no_raw_text():
    nlp = spacy.blank("en")
    ruler = nlp.add_pipe("span_ruler", config={"spans_key": "sc"})
    ruler.add_patterns([{"label": "A", "pattern": "rose."}])  # two tokens of the pipeline
    doc = Doc(nlp.vocab, words=["rose.", "fell"])
    doc.spans["sc"] = [Span(doc, 0, 1, "A")]
    found = evaluate_pipeline(nlp, [doc]).to_dict()
    *_, differs = remarks(found, "sc")
    assert "F is 100.00 on words joined by spaces and 0.00 with gold tokens" in differs
    assert "what users get" not in differs


def test_examples_of_other_tokens_are_few():
    found = compare_tokens(spacy.blank("en"), [published() for _ in range(4)])
    assert (found["sentences"], found["differing"], len(found["examples"])) == (8, 4, 3)
