"""Settings of `diffusion_ner`. Tables, equations and sections are those of Shen et al. 2023."""

from dataclasses import dataclass
from math import ceil
from typing import Optional

from spacy_nested_ner.settings import setting
from spacy_nested_ner.systems.base import ModelSettings, Options

# A shorter sentence gets as many noisy spans as one of so many words.
FEWEST_WORDS = 30


@dataclass(frozen=True)
class DiffusionSettings(ModelSettings):
    """Of the model."""

    hidden_width: int = setting(128, "width of the spans", least=1)
    word_width: Optional[int] = setting(
        None,
        "width of the words; null is hidden_width. Wider words cost little: spans pay most",
        least=1,
    )
    lstm_layers: int = setting(1, "of the BiLSTM over the words", least=1)
    lstm_dropout: float = setting(0.0, "between the layers of the BiLSTM", least=0, most=0.99)
    depth: int = setting(2, "layers of the span encoder", least=1)
    attention_heads: int = setting(4, "of each layer", least=1)
    feedforward: int = setting(2, "inner width of each layer, times hidden_width", least=1)
    span_pooling: str = setting(
        "both",
        'a noisy span is the "mean" of its words (section 4.2), its two "boundaries" side by side '
        '(authors\' code), or "both"',
        choices=("mean", "boundaries", "both"),
    )
    span_kinds: int = setting(
        4,
        "kinds of noisy spans, each with a learned vector, so that two spans on the same words can "
        "have different labels; 1 is the paper's form",
        least=1,
    )
    pointer: str = setting(
        "bilinear", "of the boundaries; additive is the paper's", choices=("additive", "bilinear")
    )
    boundary: str = setting(
        "softmax",
        '"softmax": one choice among the words; "sigmoid": each word by itself',
        choices=("sigmoid", "softmax"),
    )
    offset_reach: int = setting(
        8,
        "the pointers learn a bias for each distance from the noisy boundary, up to this; 0: none",
        least=0,
    )
    answer_pooling: bool = setting(
        True, "the classifier sees the words between the predicted boundaries"
    )
    schedule: str = setting("cosine", "of the noise", choices=("cosine", "linear"))
    timesteps: int = setting(1000, "T", least=1)
    scale: float = setting(
        2.0, "half width lambda of the interval that positions are mapped to", above=0
    )
    state: str = setting(
        "boundaries",
        'diffuse the two "boundaries" (the paper) or "left_width" (authors\' code)',
        choices=("boundaries", "left_width"),
    )
    n_spans: Optional[int] = setting(
        None,
        "noisy spans of a sentence in training, never fewer than it has entities; null makes them "
        "`spans_per_word`",
        least=1,
    )
    spans_per_word: float = setting(
        1.0, "noisy spans per word in training; a short sentence counts as 30 words", least=0
    )
    repetition: float = setting(
        0.5,
        "share of the noisy spans that start as copies of gold entities; 1 is the paper's "
        "repetition strategy, 0 its random strategy",
        least=0,
        most=1,
    )
    assignment: str = setting(
        "nearest",
        'which noisy spans are matched with an entity: "one_to_one" (appendix A); "balanced": the '
        'same number for each entity (authors\' code); "nearest": one for each entity, all others '
        "with the cheapest",
        choices=("nearest", "balanced", "one_to_one"),
    )
    none: str = setting(
        "missed",
        'who learns None: "unmatched" spans (the paper), or also those whose pointers "missed" '
        "every entity",
        choices=("missed", "unmatched"),
    )
    rollout: int = setting(
        1, "further steps of the reverse process that are trained on the model's own spans", least=0
    )
    match_boundary: float = setting(1.0, "weight of the boundaries in the matching cost")
    match_label: float = setting(1.0, "weight of the label in the matching cost")
    match_distance: float = setting(
        3.0,
        "added to the matching cost for each word between a noisy span's boundaries and the "
        "entity's. From 3 on no probability outweighs a word",
    )
    boundary_weight: float = setting(1.0, "of the boundary loss")
    label_weight: float = setting(1.0, "of the class loss")
    none_weight: Optional[float] = setting(
        1.0,
        "class weight of None; null gives entities and None the same total (authors' code)",
        above=0,
    )
    auxiliary: bool = setting(
        True, "losses after every layer of the span encoder, else after the last only"
    )
    candidate_weight: float = setting(
        0.0,
        "of a loss that teaches the classifier None on spans beside those that the pointers show; "
        'for a pretrained encoder, together with `score = "label"`',
        least=0,
    )
    word_weight: float = setting(
        0.0,
        "of a loss that teaches each word whether an entity starts or ends there; the pointers add "
        "these scores. 0: no such scores",
        least=0,
    )

    def conflict(self) -> Optional[str]:
        if self.hidden_width % (2 * self.attention_heads):
            return (
                f"hidden_width ({self.hidden_width}) must be a multiple of twice the "
                f"attention_heads ({self.attention_heads})"
            )
        return spans_conflict(self.n_spans, self.spans_per_word)


@dataclass(frozen=True)
class DiffusionOptions(Options):
    """At run time. None of them depends on what was trained with."""

    threshold: float = setting(0.8, "smallest score of a span", least=0, most=1)
    steps: int = setting(
        3, "denoising steps", least=1, most=1000, source="algorithm 2; the paper has 5"
    )
    n_spans: Optional[int] = setting(
        None, "noisy spans of a sentence; null makes them `spans_per_word`", least=1
    )
    spans_per_word: float = setting(
        2.0, "noisy spans per word; a short sentence counts as 30 words", least=0
    )
    eta: float = setting(
        0.0,
        "0: deterministic steps (the paper); 1: as noisy as the forward process (authors' code)",
        least=0,
        most=1,
    )
    score: str = setting(
        "sum",
        '"sum": mean of the probabilities of label and boundaries, a third of the paper\'s sum; '
        '"label": the probability of the label, for a model with a `candidate_weight`',
        choices=("sum", "label"),
    )
    found_in: str = setting(
        "every_step",
        'what counts: spans of "every_step" or of the "last_step" (the paper)',
        choices=("every_step", "last_step"),
    )
    seed: int = setting(
        0, "of the noise, which is the same for every text", least=0, most=2**32 - 1
    )

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
