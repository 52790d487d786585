"""Settings of `piqn_ner`. Tables, equations and sections are those of Shen et al. 2022."""

from dataclasses import dataclass
from typing import Optional

from spacy_nested_ner.settings import setting
from spacy_nested_ner.systems.base import ModelSettings, Options


@dataclass(frozen=True)
class PIQNSettings(ModelSettings):
    """Of the model."""

    hidden_width: int = setting(128, "width of the word-level layers", least=1)
    lstm_layers: int = setting(1, "of the word-level BiLSTM", least=1)
    lstm_dropout: float = setting(
        0.0, "between the layers of the BiLSTM", least=0, most=0.99, source="authors' code: 0.5"
    )
    depth: int = setting(2, "word-level blocks", least=1, source="appendix B: 5")
    attention_heads: int = setting(4, "of each block", least=1)
    feedforward: int = setting(2, "inner width of each block, times hidden_width", least=1)
    query_source: str = setting(
        "words",
        '"words": queries made from the words themselves; "learned": a table of `n_queries` '
        '(section 3.1); "encoder": queries that went through the encoder (section 3.2)',
        choices=("words", "learned", "encoder"),
    )
    n_queries: int = setting(60, "of the learned table", least=1, source="figure 2")
    queries_per_word: int = setting(1, "with queries from words: rounds of them", least=1)
    min_queries: int = setting(
        4, "with queries from words: a shorter sentence gets more rounds", least=0
    )
    query_interaction: bool = setting(True, "queries attend to each other", source="table 3")
    query_attention: bool = setting(
        False, "another self-attention among the queries after each block", source="authors' code"
    )
    pointer: str = setting(
        "bilinear", "of the boundaries; additive is eq. 4", choices=("additive", "bilinear")
    )
    boundary: str = setting(
        "softmax",
        '"softmax": one choice among the words; "sigmoid": each word by itself (eq. 5)',
        choices=("sigmoid", "softmax"),
    )
    offset_reach: int = setting(
        8,
        "with queries from words: the pointer learns a bias for each distance from the query's "
        "word, up to this; 0 for none",
        least=0,
    )
    label_attention: bool = setting(
        False, "the classifier attends to the words with the query", source="authors' code"
    )
    span_pooling: bool = setting(
        True, "the classifier sees the mean of the words between the boundaries"
    )
    assignment: str = setting(
        "dynamic",
        "of gold entities to queries",
        choices=("dynamic", "one_to_one", "static"),
        source="eq. 9, table 3",
    )
    quantity: float = setting(
        0.2, "share of the queries that get an entity, Q / M", least=0, most=1, source="eq. 9"
    )
    match_boundary: float = setting(1.0, "weight of the boundaries in the matching cost (eq. 8)")
    match_label: float = setting(1.0, "weight of the label in the matching cost (eq. 8)")
    match_anchor: float = setting(
        1.0,
        "with queries from words: added to the matching cost for each word between the query's "
        "word and the entity",
    )
    boundary_weight: float = setting(1.0, "of the boundary loss")
    label_weight: float = setting(1.0, "of the class loss")
    none_weight: Optional[float] = setting(
        0.5,
        "class weight of None; null gives entities and None the same total",
        above=0,
        source="authors' code: null",
    )
    auxiliary: bool = setting(True, "losses after every block (eq. 13), else after the last only")

    def conflict(self) -> Optional[str]:
        if self.hidden_width % (2 * self.attention_heads):
            return (
                f"hidden_width ({self.hidden_width}) must be a multiple of twice the "
                f"attention_heads ({self.attention_heads})"
            )
        return None


@dataclass(frozen=True)
class PIQNOptions(Options):
    """At run time. A score is P(label) * P(left) * P(right)."""

    label_threshold: float = setting(
        0.0, "smallest probability of the label", least=0, most=1, source="appendix B"
    )
    boundary_threshold: float = setting(
        0.0, "smallest probability of each boundary", least=0, most=1, source="appendix B"
    )
