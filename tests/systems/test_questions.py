"""Where the questions of a model come from."""

import json
import warnings
from typing import Any

import pytest
import srsly
from thinc.api import Model

from spacy_nested_ner.systems.mrc.questions import (
    collect_questions,
    from_template,
    label_name,
    number_word,
    questions_of,
    read_questions,
    ready_made,
    report_alike,
    set_question,
)

LABELS = {
    "genia": "DNA RNA cell_line cell_type protein",
    "ace": "FAC GPE LOC ORG PER VEH WEA",
    "conll": "LOC MISC ORG PER",
    "ontonotes": "CARDINAL DATE EVENT FAC GPE LANGUAGE LAW LOC MONEY NORP ORDINAL ORG PERCENT "
    "PERSON PRODUCT QUANTITY TIME WORK_OF_ART",
}

# The fine labels of the authors' data by their coarse ones.
FEW_NERD = {
    "art": "broadcastprogram film music other painting writtenart",
    "building": "airport hospital hotel library other restaurant sportsfacility theater",
    "event": "attack/battle/war/militaryconflict disaster election other protest sportsevent",
    "location": "bodiesofwater GPE island mountain other park road/railway/highway/transit",
    "organization": "company education government/governmentagency media/newspaper other "
    "politicalparty religion showorganization sportsleague sportsteam",
    "other": "astronomything award biologything chemicalthing currency disease educationaldegree "
    "god language law livingthing medical",
    "person": "actor artist/author athlete director other politician scholar soldier",
    "product": "airplane car food game other ship software train weapon",
}


def make_model(labels: str = "DNA cell_line X", **attrs: Any) -> Model:
    known = {
        "questions": {},
        "questions_read": {},
        "question_source": None,
        "query_kind": "natural",
    }
    return Model("asks", _call, attrs={**known, **attrs, "labels": labels.split()})


def _call(model: Model, X: Any, is_train: bool) -> Any:
    return X, lambda d: d


@pytest.mark.parametrize("name", LABELS)
def test_ready_made_sets_have_all_labels(name) -> None:
    questions = read_questions(name)
    assert sorted(questions) == sorted(LABELS[name].split())
    assert len(set(questions.values())) == len(questions)


def test_few_nerd_has_both_levels() -> None:
    questions = read_questions("few_nerd")
    fine = {f"{coarse}-{name}" for coarse, names in FEW_NERD.items() for name in names.split()}
    assert len(fine) == 66 and set(questions) == fine | set(FEW_NERD)
    assert len(set(questions.values())) == 74
    assert "few_nerd" in ready_made()


def test_label_names() -> None:
    names = {
        "cell_line": "cell line",
        "CellType": "cell type",
        "DNA": "DNA",
        "WORK_OF_ART": "work of art",
        "ORG": "organization",
        "person-artist/author": "person artist author",
        "__": "__",
    }
    assert {label: label_name(label) for label in names} == names
    assert from_template("cell_line") == "Which cell line is mentioned in the text?"


def test_number_words() -> None:
    words = {1: "one", 19: "nineteen", 20: "twenty", 42: "forty two", 99: "ninety nine", 114: "114"}
    assert {number: number_word(number) for number in words} == words


def test_kinds() -> None:
    model = make_model(questions={"DNA": "Which genes?"})
    assert questions_of(model)[:2] == ["Which genes?", from_template("cell_line")]
    model.attrs["query_kind"] = "pseudo"
    assert questions_of(model) == ["DNA", "cell line", "X"]
    model.attrs["query_kind"] = "index"
    assert questions_of(model) == ["one", "two", "three"]


def test_given_questions_win_over_the_source_and_missing_ones_are_told_once() -> None:
    model = make_model("DNA cell_line X Y", questions={"DNA": "Mine?"}, question_source="genia")
    with pytest.warns(UserWarning, match=r"label\(s\) X, Y\. A template") as caught:
        collect_questions(model)
    assert len(caught) == 1
    asked = questions_of(model)
    assert asked[0] == "Mine?" and asked[1] == read_questions("genia")["cell_line"]
    model.attrs["query_kind"] = "index"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        collect_questions(model)


def test_a_second_initialize_reads_the_file_again(tmp_path) -> None:
    path = tmp_path / "questions.json"
    model = make_model("ORG PER", questions={"PER": "Mine?"}, question_source=str(path))
    for asked in ("Which companies?", "Which banks?"):
        srsly.write_json(path, {"ORG": asked, "PER": "Whom?"})
        collect_questions(model)
        assert questions_of(model) == [asked, "Mine?"]


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path) -> None:
    path = tmp_path / "questions.json"
    path.write_text('{"ORG": "Who?"}', encoding="utf-8-sig")
    assert read_questions(str(path)) == {"ORG": "Who?"}


@pytest.mark.parametrize("label", ["bio:DNA", "a=b", "#gene", "@user"])
def test_labels_that_a_config_cannot_hold(label, tmp_path) -> None:
    """configparser reads other names, or none."""
    with pytest.warns(UserWarning, match="such labels into the file"):
        collect_questions(make_model(f"DNA {label}"))
    with pytest.warns(UserWarning, match="no question for") as told:
        collect_questions(make_model("DNA X-Y"))
    assert "config" not in str(told[0].message)
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({label: "Which ones?"}))
    model = make_model(label, question_source=str(path))
    collect_questions(model)
    assert questions_of(model) == ["Which ones?"]


def test_labels_that_are_asked_for_alike_are_told() -> None:
    model = make_model("PER CELL PERSON", query_kind="pseudo")
    with pytest.warns(
        UserWarning, match=r"'person' is asked .* PER, PERSON, .*same answers"
    ) as told:
        collect_questions(model)
    assert len(told) == 1
    model = make_model("PER PERSON", questions={"PER": "Who?", "PERSON": "Which people?"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        collect_questions(model)


def test_a_new_label_that_is_asked_for_as_another_is_told() -> None:
    model = make_model("PER CELL GENE", questions={"PER": "Who?", "CELL": "What?", "GENE": "What?"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report_alike(model, ["PER"])
    with pytest.warns(UserWarning, match=r"'What\?' is asked for each of CELL, GENE"):
        report_alike(model, ["GENE"])


def test_questions_from_a_file(tmp_path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"X": "Which X?"}))
    assert read_questions(str(path)) == {"X": "Which X?"}
    for wrong in ('["X"]', '{"X": " "}', '{"X": 3}'):
        path.write_text(wrong)
        with pytest.raises(ValueError, match="one question per label"):
            read_questions(str(path))
    path.write_text("{")
    with pytest.raises(ValueError, match="not a JSON file"):
        read_questions(str(path))
    with pytest.raises(ValueError, match=r"'nowhere' is neither.*genia.*nor a file"):
        read_questions("nowhere")


def test_set_question() -> None:
    model = make_model()
    set_question(model, "X", "Which X?")
    assert questions_of(model)[2] == "Which X?"
    with pytest.raises(ValueError, match="empty"):
        set_question(model, "X", " ")
    with pytest.raises(ValueError, match="'index'"):
        set_question(make_model(query_kind="index"), "X", "Which X?")
