"""Settings of `piqn_ner`. Tables, figures, equations and sections are those of Shen et al. 2022."""

from dataclasses import dataclass
from typing import Dict, Optional

from spacy_nested_ner.settings import setting
from spacy_nested_ner.systems.base import ModelSettings, Options

# Of queries made from words: a shorter sentence gets more rounds of them, so that one word can have
# several labels.
MIN_QUERIES = 4


@dataclass(frozen=True)
class Variant:
    """What a `variant` decides.

    feedforward: inner width of each block, times hidden_width. lstm_dropout: between the layers of
    the BiLSTM. query_attention: a further self-attention among the queries after each block
    (authors' code). pointer: "additive" (eq. 4) or "bilinear". boundary: "sigmoid", each word by
    itself (eq. 5), or "softmax", one choice among the words. offset_reach: of queries made from
    words, the pointer learns a bias for each distance from the query's word, up to this; 0 for
    none. label_attention: the classifier attends to the words with the query (authors' code).
    span_pooling: the classifier sees the mean of the words between the boundaries. none_weight:
    class weight of None; None gives entities and None the same total (authors' code).
    match_reach: of queries made from words, one whose word lies further than this from its entity,
    in words, gets none unless it is the nearest; None for no limit. candidates: the classifier also
    learns from spans with certain boundaries, entities among them. early_words: the classifier
    reads the words that enter the blocks, not those that leave them.
    """

    feedforward: int = 2
    lstm_dropout: float = 0.0
    query_attention: bool = False
    pointer: str = "bilinear"
    boundary: str = "softmax"
    offset_reach: int = 8
    label_attention: bool = False
    span_pooling: bool = True
    none_weight: Optional[float] = 0.5
    match_reach: Optional[int] = 1
    candidates: bool = True
    early_words: bool = True


# The ablation adds its own.
VARIANTS: Dict[str, Variant] = {
    "default": Variant(),
    "paper": Variant(
        feedforward=4,
        lstm_dropout=0.5,
        query_attention=True,
        pointer="additive",
        boundary="sigmoid",
        offset_reach=0,
        label_attention=True,
        span_pooling=False,
        none_weight=None,
        match_reach=None,
        candidates=False,
        early_words=False,
    ),
}


@dataclass(frozen=True)
class PIQNSettings(ModelSettings):
    """Settings of the model.

    variant: form of the head: "default", which learns quickly from little data; "paper", with the
        pointers of the paper and the attentions of the authors' code.
    hidden_width: width of the word-level layers.
    lstm_layers: layers of the word-level BiLSTM; 0: a linear layer and a LayerNorm instead.
    depth: layers of word-level attention.
    attention_heads: heads of each layer of word-level attention.
    query_source: where queries come from: "words", made from the words themselves; "learned", a
        table of `n_queries` (section 3.1); "encoder", read by the encoder with the words (section
        3.2).
    n_queries: number of queries with `query_source = "learned"`.
    queries_per_word: queries for each word with `query_source = "words"`. At most as many entities
        can be found in a sentence as it has queries.
    query_interaction: queries attend to each other; a query encoder must have the same setting.
    assignment: how gold entities are assigned to queries.
    quantity: share of the queries that are assigned a gold entity in training (Q / M); in the
        default variant, queries whose word is too far from their entity lose it again.
    match_anchor: matching cost for each word between an entity and the word that a query is made
        from.
    """

    variant: str = setting("default", choices=VARIANTS, source="eq. 4-7; configs/piqn_paper.cfg")
    hidden_width: int = setting(128, least=1, source="configs/piqn_paper.cfg")
    lstm_layers: int = setting(0, least=0, source="configs/piqn_paper.cfg; benchmarks/ablations")
    depth: int = setting(1, least=1, source="appendix B; configs/piqn_paper.cfg")
    attention_heads: int = setting(4, least=1, source="configs/piqn_paper.cfg")
    query_source: str = setting(
        "words",
        choices=("words", "learned", "encoder"),
        source="configs/piqn_paper.cfg; benchmarks/ablations",
    )
    n_queries: int = setting(60, least=1, source="table 9")
    queries_per_word: int = setting(1, least=1, source="a limit that `nested-ner inspect` checks")
    query_interaction: bool = setting(True, source="table 3")
    assignment: str = setting(
        "dynamic", choices=("dynamic", "one_to_one", "static"), source="eq. 9, table 3"
    )
    quantity: float = setting(
        0.75, least=0, most=1, source="eq. 9; configs/piqn_paper.cfg; benchmarks/ablations"
    )
    match_anchor: float = setting(1.0, least=0, source="benchmarks/ablations")

    @property
    def form(self) -> Variant:
        """What the variant decides."""
        return VARIANTS[self.variant]

    def conflict(self) -> Optional[str]:
        if self.form.candidates and (self.form.label_attention or not self.form.span_pooling):
            return (
                f"variant {self.variant!r}: candidates need a classifier with span_pooling and "
                "without label_attention"
            )
        if self.hidden_width % (2 * self.attention_heads):
            return (
                f"hidden_width ({self.hidden_width}) must be a multiple of twice the "
                f"attention_heads ({self.attention_heads})"
            )
        return None


@dataclass(frozen=True)
class PIQNOptions(Options):
    """Settings at run time. A score is P(label) * P(left) * P(right).

    label_threshold: smallest probability of the label.
    boundary_threshold: smallest probability of each boundary.
    """

    label_threshold: float = setting(0.0, least=0, most=1, source="appendix B")
    boundary_threshold: float = setting(0.0, least=0, most=1, source="appendix B")
