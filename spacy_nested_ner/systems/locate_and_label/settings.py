"""Settings of `locate_and_label_ner`. Tables and equations are those of Shen et al. 2021."""

from dataclasses import dataclass
from typing import List, Optional, Sequence

from spacy_nested_ner.settings import setting
from spacy_nested_ner.systems.base import ModelSettings, Options

USUAL_LENGTH = 14  # seeds reach that far, however short the entities of the training data are


def seed_lengths(longest: int = USUAL_LENGTH) -> List[int]:
    """Every length up to 8 words, then each a fifth longer: the regressor moves the boundaries."""
    return [min(length, longest) for length in longer_lengths([1], longest)]


def longer_lengths(lengths: Sequence[int], longest: int) -> List[int]:
    """These lengths, rising, and behind them as many as it takes to reach so many words."""
    found = list(lengths)
    while found[-1] < longest:
        found.append(max(found[-1] + 1, round(found[-1] * 1.2)))
    return found


@dataclass(frozen=True)
class LocateAndLabelSettings(ModelSettings):
    """Settings of the model.

    hidden_width: width of the word vectors.
    lstm_layers: layers of the word-level BiLSTM (section 2.1); 0: none, only a linear layer where
        the widths differ. The paper's config has its BiLSTM in the encoder.
    grid_width: width of two convolutions over the grid of seeds, by first word and length, which
        show filter and classifier the neighbours of a span; 0 for none, as in the paper.
    lengths: lengths of the seed spans, in words (section 2.2); null takes those that
        `seed_lengths` gives for the longest entity of the training data.
    regressor: how seeds are moved: "linear" (eq. 5); "sigmoid", by a sigmoid times the length of
        the sentence (authors' code), which can only move a boundary to the right; null, not at all.
    span_filter: a filter chooses proposals among the seeds (eq. 1-3); false: all are proposals.
    classifier: how a span gets its label: "sigmoid", each label by itself, so that a span may carry
        several; "softmax", one choice among the labels and None (eq. 10).
    seed_iou: smallest IoU of a positive seed with an entity (alpha_1). The regressor learns to
        reach entities of up to the longest seed's length / `seed_iou` words.
    soft_examples: examples that match an entity only partly count less (eq. 11 with an eta of 1).
    negatives: seeds without an entity per seed with one, in training; null for all.
    rejected_share: share of the seeds rejected by the filter on which regressor and classifier are
        still trained; 1: all, as in the paper.
    """

    hidden_width: int = setting(128, least=1, source="configs/locate_and_label_paper.cfg")
    lstm_layers: int = setting(0, least=0, source="section 2.1; benchmarks/ablations")
    grid_width: int = setting(0, least=0, source="benchmarks/ablations")
    lengths: Optional[List[int]] = setting(
        None, least=1, source="configs/locate_and_label_paper.cfg; benchmarks/ablations"
    )
    regressor: Optional[str] = setting(
        "linear", choices=("linear", "sigmoid"), source="table 3; benchmarks/ablations"
    )
    span_filter: bool = setting(True, source="table 3")
    classifier: str = setting(
        "sigmoid", choices=("sigmoid", "softmax"), source="configs/locate_and_label_paper.cfg"
    )
    seed_iou: float = setting(
        0.7, above=0, most=1, source="section 2.2; a limit that `nested-ner inspect` checks"
    )
    soft_examples: bool = setting(True, source="table 3")
    negatives: Optional[float] = setting(
        None, above=0, source="configs/locate_and_label_paper.cfg; the paper has 5"
    )
    rejected_share: float = setting(
        0.1, least=0, most=1, source="benchmarks/ablations; the paper has 1"
    )

    def conflict(self) -> Optional[str]:
        if self.lengths == []:
            return "lengths is empty, must be a list of whole numbers of at least 1"
        return None


@dataclass(frozen=True)
class LocateAndLabelOptions(Options):
    """Settings at run time. A score is the probability of the label after soft-NMS.

    filter_threshold: smallest probability with which a seed becomes a proposal; 0 lets all pass.
        Where entities are of very different lengths, the filter undervalues the short ones, which
        have fewer seeds.
    nms_iou: smallest IoU of spans that lower each other's scores.
    nms_decay: factor for the score of a span that overlaps a better one; 1 for no soft-NMS.
    """

    filter_threshold: float = setting(
        0.02, least=0, most=1, source="configs/locate_and_label_paper.cfg"
    )
    nms_iou: float = setting(0.3, least=0, most=1, source="eq. 18; the paper has 0.7")
    nms_decay: float = setting(0.8, least=0, most=1, source="eq. 18; the paper has 0.9")
