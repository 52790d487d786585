"""Settings of `mrc_ner`. Tables and sections are those of Li et al. 2020."""

from dataclasses import dataclass
from typing import Dict, Optional

from spacy_nested_ner.settings import setting
from spacy_nested_ner.systems.base import ModelSettings, Options


@dataclass(frozen=True)
class MRCSettings(ModelSettings):
    """Of the model."""

    questions: Dict[str, str] = setting({}, "one question for each label")
    question_source: Optional[str] = setting(
        None,
        'a ready-made set ("ace", "conll", "few_nerd", "genia", "ontonotes") or a JSON file of '
        "questions by label, read at `initialize`; `questions` win over it",
    )
    query_kind: str = setting(
        "natural",
        'what is asked: the question ("natural"), the name of the label ("pseudo") or its number '
        'in words ("index")',
        choices=("natural", "pseudo", "index"),
        source="table 6",
    )
    unanswered_share: float = setting(
        1.0,
        "share of the questions without an answer that a training step asks, drawn anew",
        least=0,
        most=1,
    )
    hidden_width: int = setting(
        128, "of the transformer over a tok2vec; without effect on a PairEncoder", least=1
    )
    depth: int = setting(2, "layers of that transformer", least=1)
    attention_heads: int = setting(4, "of each of these layers", least=1)
    feedforward: int = setting(2, "inner width of these layers, times hidden_width", least=1)
    two_sided: bool = setting(
        False,
        "starts are read from the first half of a word's vector, ends from the second",
        derived=True,
    )
    pairing: str = setting(
        "match",
        '"match" scores each start with each end (section 3.3.2); "nearest": a start goes with the '
        "nearest end (the early version)",
        choices=("match", "nearest"),
    )
    match_width: int = setting(256, "hidden layer of the match score", least=1)
    candidates: str = setting(
        "gold_and_predicted",
        "pairs of start and end that the match score learns from",
        choices=("gold_and_predicted", "gold", "all"),
    )
    boundary_loss: str = setting(
        "cross_entropy",
        'of starts and ends, or "dice" (the early version)',
        choices=("cross_entropy", "dice"),
    )
    smooth: float = setting(1.0, "of the dice loss", above=0)
    start_weight: float = setting(1.0, "of the loss of starts", least=0)
    end_weight: float = setting(1.0, "of the loss of ends", least=0)
    match_weight: float = setting(0.1, "of the loss of the match", least=0)
    batch_words: int = setting(
        2048,
        "padded words (pieces with a PairEncoder) of questions and sentences that are read at "
        "once, for memory and speed; it changes no span",
        least=1,
    )

    def conflict(self) -> Optional[str]:
        if self.hidden_width % self.attention_heads:
            return (
                f"hidden_width ({self.hidden_width}) must be a multiple of the "
                f"attention_heads ({self.attention_heads})"
            )
        match = self.match_weight if self.pairing == "match" else 0.0
        if not self.start_weight + self.end_weight + match:
            return "the weights of the losses are all 0"
        empty = [label for label, question in self.questions.items() if not question.strip()]
        return f"the question for '{empty[0]}' is empty" if empty else None


@dataclass(frozen=True)
class MRCOptions(Options):
    """At run time. A score is the smallest of the probabilities of start, end and match."""

    decoding: str = setting(
        "nested",
        '"nested" pairs each start with each end that it matches, "flat" with the nearest end',
        choices=("nested", "flat"),
    )
