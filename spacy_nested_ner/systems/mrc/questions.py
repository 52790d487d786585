"""The questions that stand for labels: given, read from a file or a ready-made set, or made from
the label's name (BERT-MRC section 3.1; the three kinds of section 5.2)."""

import re
from collections import defaultdict
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

import numpy as np
import srsly
from thinc.api import Model

from spacy_nested_ner.warn import warn

ARCHITECTURE = "spacy_nested_ner.MRC.v1"
READY_MADE = Path(__file__).parent / "question_sets"

# What the usual abbreviations of label sets stand for.
ABBREVIATIONS = {
    "FAC": "facility",
    "GPE": "geopolitical entity",
    "LOC": "location",
    "MISC": "miscellaneous name",
    "NORP": "national or religious group",
    "ORG": "organization",
    "PER": "person",
    "PROT": "protein",
    "VEH": "vehicle",
    "WEA": "weapon",
}
SMALL_NUMBERS = (
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
)
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]


def ready_made() -> List[str]:
    """Names of the sets that the package brings."""
    return sorted(path.stem for path in READY_MADE.glob("*.json"))


def read_questions(source: Optional[str]) -> Dict[str, str]:
    """Questions by label from a ready-made set or a JSON file; none for None.

    Raises ValueError where there is no such set or file, or it holds something else.
    """
    if source is None:
        return {}
    path = READY_MADE / f"{source}.json" if source in ready_made() else Path(source)
    if not path.is_file():
        raise ValueError(
            f"{ARCHITECTURE}: question_source '{source}' is neither a ready-made set "
            f"({', '.join(ready_made())}) nor a file."
        )
    try:
        questions = srsly.json_loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as err:
        raise ValueError(f"{ARCHITECTURE}: '{path}' is not a JSON file: {err}") from err
    if not isinstance(questions, dict) or not all(
        isinstance(text, str) and text.strip() for text in questions.values()
    ):
        raise ValueError(
            f'{ARCHITECTURE}: \'{path}\' must hold one question per label: {{"label": "question"}}.'
        )
    return questions


def label_name(label: str) -> str:
    """The words of a label: "cell_line" to "cell line", "CellType" to "cell type", "WORK_OF_ART" to
    "work of art", "ORG" to "organization"; "DNA" stays."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", label)
    parts = [part for part in re.split(r"[\s_\-/.:]+", spaced) if part]
    shouted = label.isupper() and any(len(part) > 3 for part in parts)
    words = [
        ABBREVIATIONS.get(part, part.lower() if shouted or not part.isupper() else part)
        for part in parts
    ]
    return " ".join(words) or label


def from_template(label: str) -> str:
    """The paper's template (table 1) with the words of the label."""
    return f"Which {label_name(label)} is mentioned in the text?"


def number_word(number: int) -> str:
    """1 to "one", 21 to "twenty one"; digits from 100 on."""
    if number < 20:
        return SMALL_NUMBERS[number - 1]
    if number >= 100:
        return str(number)
    tens, ones = divmod(number, 10)
    return TENS[tens - 2] + (f" {SMALL_NUMBERS[ones - 1]}" if ones else "")


# The questions of a model, in its attributes: "labels", "questions" (given), "questions_read" (from
# "question_source", at the last `initialize`) and "query_kind".


def questions_of(model: Model) -> List[str]:
    """What is asked for each label, in the order of the labels."""
    labels, kind = model.attrs["labels"], model.attrs["query_kind"]
    if kind == "index":
        return [number_word(i + 1) for i in range(len(labels))]
    if kind == "pseudo":
        return [label_name(label) for label in labels]
    known = known_questions(model)
    return [known.get(label) or from_template(label) for label in labels]


def known_questions(model: Model) -> Dict[str, str]:
    """All questions by label: those given come before those read."""
    return {**model.attrs["questions_read"], **model.attrs["questions"]}


NOT_IN_A_CONFIG = (
    " In a config, a name cannot contain ':', '=' or a line break, or begin with '@', '#', ';' or "
    "'[': put the questions for such labels into the file."
)


def collect_questions(model: Model) -> None:
    """Read the source; the model's own questions win over it. Warns of labels without a question
    and of labels that share one."""
    model.attrs["questions_read"] = read_questions(model.attrs["question_source"])
    report_templates(model, model.attrs["labels"])
    report_alike(model, model.attrs["labels"])


def report_alike(model: Model, asked: List[str]) -> None:
    """Warn where one of these labels shares its question, and so its answers, with others."""
    labels_of = defaultdict(list)
    for label, question in zip(model.attrs["labels"], questions_of(model)):
        labels_of[question].append(label)
    for question, labels in labels_of.items():
        if len(labels) > 1 and set(labels) & set(asked):
            warn(
                f"{ARCHITECTURE}: '{question}' is asked for each of {', '.join(labels)}, which "
                "therefore get the same answers. Give each a question of its own."
            )


def report_templates(model: Model, labels: List[str]) -> None:
    """Warn once of all these labels that have no question."""
    known = known_questions(model)
    missing = [label for label in labels if label not in known]
    if missing and model.attrs["query_kind"] == "natural":
        hint = NOT_IN_A_CONFIG if any(map(is_not_in_a_config, missing)) else ""
        warn(
            f"{ARCHITECTURE}: no question for the label(s) {', '.join(missing)}. A template "
            f"is used: '{from_template(missing[0])}'. Give a question for each in 'questions', "
            f"in the file of 'question_source', or with add_label(label, question=...).{hint}"
        )


def is_not_in_a_config(label: str) -> bool:
    """Whether a label cannot be the name of a setting in a file."""
    return any(sign in label for sign in ":=\n\r") or label.startswith(("@", "#", ";", "["))


def set_question(model: Model, label: str, question: str) -> None:
    """Ask for a label with this question from now on; nothing needs to be trained again.

    Raises ValueError for an empty question, or one that is no text.
    """
    if model.attrs["query_kind"] != "natural":
        raise ValueError(
            f"query_kind is '{model.attrs['query_kind']}': only 'natural' uses given questions"
        )
    if not isinstance(question, str):
        raise ValueError(f"the question for '{label}' must be a text, got {question!r}")
    if not question.strip():
        raise ValueError(f"the question for '{label}' is empty")
    model.attrs["questions"] = {**model.attrs["questions"], label: question}


def answered_and_share(
    pairs: np.ndarray, gold: Sequence[Sequence[Tuple[int, int, int]]], share: float
) -> np.ndarray:
    """Which `(pairs, 2)` pairs a training step reads, `(pairs,)` bool: those with an answer and a
    random share of the others, at least one pair.

    gold: `(first word, last word, label index)` of the entities of each segment.
    """
    import torch

    answered = {(i, label) for i, group in enumerate(gold) for _, _, label in group}
    has_answer = np.array([(i, label) in answered for i, label in pairs.tolist()], dtype=bool)
    chosen = has_answer | (torch.rand(len(pairs)).numpy() < share)
    if not chosen.any():
        chosen[int(torch.randint(len(pairs), ()))] = True
    return chosen
