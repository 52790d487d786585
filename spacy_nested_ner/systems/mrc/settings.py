"""Settings of `mrc_ner`. Tables and sections are those of Li et al. 2020."""

from dataclasses import dataclass
from typing import Dict, Optional

from spacy_nested_ner.settings import setting
from spacy_nested_ner.systems.base import ModelSettings, Options

# Of each layer of the transformer over a tok2vec.
ATTENTION_HEADS = 4
# Probability from which a start or an end is paired, in training and in prediction.
LIKELY = 0.1


@dataclass(frozen=True)
class MRCSettings(ModelSettings):
    """Settings of the model.

    questions: the question for each label; for a label without one, a template is used.
    question_source: more questions: a ready-made set ("ace", "conll", "few_nerd", "genia",
        "ontonotes") or a JSON file of questions by label, read at `initialize`; those in
        `questions` take precedence.
    query_kind: what is asked: the question ("natural"), the name of the label ("pseudo") or its
        number in words ("index").
    unanswered_share: share of the questions without an answer that a training step reads, drawn at
        random each time.
    joint_layers: layers of a transformer on top of a tok2vec, which read question and sentence
        together; 0: one layer in which words attend to a question, which is faster. No effect with
        a PairEncoder, which has its own.
    hidden_width: width of these layers.
    two_sided: starts are read from the first half of a word's vector, ends from the second.
    pairing: how starts and ends are paired: "match" scores each start with each end (section
        3.3.2); "span" scores them by the words between them, too; "nearest" takes the nearest end
        (the authors' code for flat entities).
    candidates: starts and ends whose pairs the match score learns from: gold ones and those with a
        probability of at least 0.1 ("gold_and_likely") or 0.5 ("gold_and_predicted"); only gold
        ones ("gold"); or "all".
    boundary_loss: loss of starts and ends; "dice" is that of an early version of the paper,
        over a batch.
    batch_words: padded words (pieces with a PairEncoder) of questions and sentences that are read
        at once, on a GPU 16 times as many. It affects memory and speed, not the spans.
    """

    questions: Dict[str, str] = setting({}, source="section 3.1")
    question_source: Optional[str] = setting(None, source="configs/mrc_transformer.cfg")
    query_kind: str = setting(
        "natural", choices=("natural", "pseudo", "index"), source="section 5.2"
    )
    unanswered_share: float = setting(1.0, least=0, most=1, source="benchmarks/ablations")
    joint_layers: int = setting(0, least=0, source="configs/mrc_once_transformer.cfg")
    hidden_width: int = setting(128, least=1, source="configs/mrc_once_transformer.cfg")
    two_sided: bool = setting(False, derived=True)
    pairing: str = setting(
        "span",
        choices=("match", "span", "nearest"),
        source='the paper has "match", the authors\' code for flat entities "nearest"; '
        "benchmarks/ablations",
    )
    candidates: str = setting(
        "gold_and_likely",
        choices=("gold_and_likely", "gold_and_predicted", "gold", "all"),
        source='the paper has "all"; benchmarks/ablations',
    )
    boundary_loss: str = setting(
        "cross_entropy",
        choices=("cross_entropy", "dice"),
        source="early version of the paper; benchmarks/ablations",
    )
    batch_words: int = setting(2048, least=1)

    def conflict(self) -> Optional[str]:
        if self.hidden_width % ATTENTION_HEADS:
            return f"hidden_width must be a multiple of {ATTENTION_HEADS}, got {self.hidden_width}"
        empty = [label for label, question in self.questions.items() if not question.strip()]
        return f"the question for '{empty[0]}' is empty" if empty else None


@dataclass(frozen=True)
class MRCOptions(Options):
    """Settings at run time. With the nearest end, which is not matched, a score is the smaller one
    of the probabilities of start and end.

    score: what a score is: "mean", the geometric mean of the probabilities of the match (counted
        twice), the start and the end; "match", the probability of the match alone.
    boundary_threshold: smallest probability of a start and of an end to be matched. The paper uses
        0.5, as for the match. With the nearest end, `threshold` is used instead.
    decoding: what a start is paired with: "nested", each end that it matches; "flat", the nearest
        end.
    """

    score: str = setting(
        "mean", choices=("mean", "match"), source='the paper has "match"; docs/tried'
    )
    boundary_threshold: float = setting(LIKELY, least=0, most=1, source="section 3.3.2")
    decoding: str = setting("nested", choices=("nested", "flat"))
