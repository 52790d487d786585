"""Settings of `diffusion_ner`. Tables, figures and sections are those of Shen et al. 2023."""

from dataclasses import dataclass, replace
from math import ceil
from typing import Dict, Optional

from spacy_nested_ner.settings import setting
from spacy_nested_ner.systems.base import ModelSettings, Options

# A shorter sentence gets as many noisy spans as one of so many words.
FEWEST_WORDS = 30


@dataclass(frozen=True)
class Variant:
    """A form of the head: choices that belong together. The defaults are ours.

    lstm_dropout: between the layers of the BiLSTM.
    feedforward: inner width of each span layer, times `hidden_width`.
    span_pooling: a noisy span is the "mean" of its words (section 4.2), its two "boundaries" side
        by side, or the sum of "both".
    span_kinds: kinds of noisy spans, each with a learned vector, so that two spans on the same
        words can have different labels.
    pointer: of the boundaries, "additive" or "bilinear".
    boundary: "sigmoid", each word by itself, or "softmax", one choice among the words.
    offset_reach: the pointers learn a bias for each distance from the noisy boundary, up to this;
        0: none. Before training it falls by half for each word.
    answer_pooling: the classifier also reads the words at and between the predicted boundaries.
    with_width: diffuse the first word and the width of a span instead of its two boundaries.
    truncation: share of the timesteps that are used. Below 1 the reverse process starts from short
        spans at the words, as if so much noise were on them (Zheng et al. 2023, "Truncated
        Diffusion Probabilistic Models"); at 1 from noise.
    assignment: which noisy spans are matched with an entity: "one_to_one" (appendix A); "balanced",
        the same number for each entity; "nearest", one for each entity and each other one with the
        cheapest.
    match_distance: added to the matching cost for each word between a noisy span's boundaries and
        the entity's. From 3 on no probability outweighs a word.
    match_reach: a span whose boundaries are together more words than this away from those of its
        entity gets none unless it is the nearest; a kind that does not fit counts as one word; None
        for no limit.
    none: which spans learn None, those that are "unmatched", or those whose pointers have "missed"
        every entity.
    none_weight: class weight of None; None gives entities and None the same total.
    auxiliary: losses after every span layer, else after the last only.
    """

    lstm_dropout: float = 0.0
    feedforward: int = 2
    span_pooling: str = "both"
    span_kinds: int = 4
    pointer: str = "bilinear"
    boundary: str = "softmax"
    offset_reach: int = 8
    answer_pooling: bool = True
    with_width: bool = False
    truncation: float = 0.25
    assignment: str = "nearest"
    match_distance: float = 3.0
    match_reach: Optional[int] = 4
    none: str = "missed"
    none_weight: Optional[float] = 1.0
    auxiliary: bool = True


PAPER = Variant(
    lstm_dropout=0.1,
    feedforward=1,
    span_pooling="mean",
    span_kinds=1,
    pointer="additive",
    boundary="sigmoid",
    offset_reach=0,
    answer_pooling=False,
    truncation=1.0,
    assignment="one_to_one",
    match_distance=0.0,
    match_reach=None,
    none="unmatched",
    auxiliary=False,
)
AUTHORS = replace(
    PAPER, span_pooling="boundaries", with_width=True, assignment="balanced", none_weight=None
)
# The ablation adds its own.
VARIANTS: Dict[str, Variant] = {"default": Variant(), "paper": PAPER, "authors": AUTHORS}


@dataclass(frozen=True)
class DiffusionSettings(ModelSettings):
    """Settings of the model.

    variant: form of the head: "default"; "paper", as printed; "authors", as in their code.
    hidden_width: width of the span vectors.
    word_width: width of the word vectors; null for `hidden_width`. Wider words cost little: most of
        the time goes into the spans.
    lstm_layers: layers of the BiLSTM over the words; 0: a linear layer and a LayerNorm instead.
    depth: layers of the span encoder.
    attention_heads: attention heads of each layer of the span encoder.
    schedule: schedule of the noise.
    timesteps: timesteps of the noise schedule (T).
    scale: half the width of the interval that positions are mapped to (lambda).
    n_spans: noisy spans per sentence in training, but at least as many as it has entities; null:
        the number follows from `spans_per_word`.
    spans_per_word: noisy spans per word in training; a shorter sentence counts as 30 words.
    repetition: share of the noisy spans that start as copies of gold entities: 1 is the paper's
        repetition strategy, 0 its random strategy.
    candidate_weight: weight of a loss that trains the classifier, for labels and None, on entities,
        spans near them and noisy spans, whatever the pointers find; needed by `score = "label"`. It
        has no effect in the variants "paper" and "authors".
    word_weight: weight of a loss that predicts for each word whether an entity starts or ends
        there; these scores are added to those of the pointers. 0: no such scores.
    """

    variant: str = setting("default", choices=VARIANTS, source="configs/diffusion_paper.cfg")
    hidden_width: int = setting(128, least=1, source="configs/diffusion_transformer.cfg")
    word_width: Optional[int] = setting(None, least=1, source="configs/diffusion_transformer.cfg")
    lstm_layers: int = setting(
        0, least=0, source="configs/diffusion_paper.cfg; benchmarks/ablations"
    )
    depth: int = setting(1, least=1, source="section 4.2; the authors' code has 2")
    attention_heads: int = setting(4, least=1, source="appendix C has 8")
    schedule: str = setting("cosine", choices=("cosine", "linear"), source="table 5")
    timesteps: int = setting(1000, least=1, source="table 5")
    scale: float = setting(2.0, above=0, source="section 5.3 has 1")
    n_spans: Optional[int] = setting(None, least=1, source="table 6")
    spans_per_word: float = setting(0.5, least=0, source="a limit that `nested-ner inspect` checks")
    repetition: float = setting(0.5, least=0, most=1, source="table 6")
    candidate_weight: float = setting(1.0, least=0, source="benchmarks/ablations")
    word_weight: float = setting(0.0, least=0, source="configs/diffusion_transformer.cfg")

    @property
    def form(self) -> Variant:
        """What the name of the variant stands for."""
        return VARIANTS[self.variant]

    @property
    def with_candidates(self) -> bool:
        """Whether the classifier learns from candidates. One that reads no words of a span has
        nothing to tell them apart by."""
        return self.candidate_weight > 0 and self.form.answer_pooling

    def conflict(self) -> Optional[str]:
        if self.hidden_width % (2 * self.attention_heads):
            return (
                f"hidden_width ({self.hidden_width}) must be a multiple of twice the "
                f"attention_heads ({self.attention_heads})"
            )
        return spans_conflict(self.n_spans, self.spans_per_word)


@dataclass(frozen=True)
class DiffusionOptions(Options):
    """Settings at run time. None of them depends on what was trained with.

    steps: denoising steps.
    n_spans: noisy spans per sentence; null: the number follows from `spans_per_word`.
    spans_per_word: noisy spans per word; a shorter sentence counts as 30 words.
    eta: noise added in the steps: 0, none (the paper); 1, as much as in the forward process
        (authors' code).
    score: what a score is: "sum", the mean of the probabilities of label and boundaries (a third of
        the paper's sum); "label", the probability of the label, for a model with a
        `candidate_weight`.
    carried: which spans are passed to the next step: "distinct", of those of one kind that find the
        same words only the first; or "all" (the paper).
    found_in: which spans count: those of "every_step" or of the "last_step" (the paper).
    seed: seed of the noise, which is the same for every text. It has no effect in a truncated
        process with `eta = 0`.
    """

    threshold: float = setting(0.7, least=0, most=1)
    steps: int = setting(2, least=1, most=1000, source="figure 3; the paper has 5")
    n_spans: Optional[int] = setting(None, least=1, source="figure 4; the paper has 60")
    spans_per_word: float = setting(1.0, least=0)
    eta: float = setting(0.0, least=0, most=1, source="equations 6 and 7")
    score: str = setting("label", choices=("sum", "label"), source="configs/diffusion_paper.cfg")
    carried: str = setting(
        "distinct", choices=("distinct", "all"), source="configs/diffusion_paper.cfg"
    )
    found_in: str = setting("every_step", choices=("every_step", "last_step"), source="algorithm 2")
    seed: int = setting(0, least=0, most=2**32 - 1)

    def conflict(self) -> Optional[str]:
        return spans_conflict(self.n_spans, self.spans_per_word)


def spans_conflict(n_spans: Optional[int], per_word: float) -> Optional[str]:
    """Without a number of spans there must be some for each word."""
    if n_spans is None and not per_word:
        return f"spans_per_word must be positive without n_spans, got {per_word}"
    return None


def span_count(words: int, n_spans: Optional[int], per_word: float) -> int:
    """Noisy spans of a sentence of so many words."""
    return ceil(max(words, FEWEST_WORDS) * per_word) if n_spans is None else n_spans
