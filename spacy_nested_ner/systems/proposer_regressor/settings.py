"""Settings of `proposer_regressor_ner`. Tables and equations are those of Wen et al. 2023."""

from dataclasses import dataclass
from typing import List, Optional

from spacy_nested_ner.settings import setting
from spacy_nested_ner.systems.base import ModelSettings, Options


@dataclass(frozen=True)
class ProposerRegressorSettings(ModelSettings):
    """Of the model."""

    hidden_width: int = setting(128, "width of queries, regressor and pointer", least=1)
    pyramid_width: Optional[int] = setting(None, "of the pyramid; null is hidden_width", least=2)
    kernel_sizes: List[int] = setting(
        [2, 2],
        "of the pyramid's convolutions, bottom up; an empty list leaves words",
        least=2,
        source="table 7",
    )
    regressor_layers: int = setting(3, "layers of the regressor", least=0, source="figure 5")
    attention_heads: int = setting(8, "of each layer", least=1, source="figure 6")
    min_proposals: int = setting(
        4,
        "a shorter sentence gets more rounds of proposals, so that one word can carry several "
        "labels; 0: one proposal per word (the paper)",
        least=0,
    )
    backward_block: bool = setting(True, "false: forward features only", source="table 6")
    spatial_modulation: bool = setting(True, "false: plain attention", source="table 6")
    gated_update: bool = setting(
        True, "false: the attention's output is the query", source="table 6"
    )
    category_embedding: bool = setting(True, "of the labels in the query", source="table 6")
    location_iteration: bool = setting(True, "layers refine the location", source="table 6")
    logits_iteration: bool = setting(True, "layers refine the label", source="table 6")
    none_weight: float = setting(
        1.0, "weight of proposals without entity in the loss; the paper has 1", above=0
    )
    batch_words: int = setting(
        384,
        "padded words that the head reads at once, for memory and speed; it changes no span. Less "
        "padding is worth more than fewer steps of the recurrent layers on a CPU; a GPU wants more",
        least=1,
    )

    def conflict(self) -> Optional[str]:
        pyramid_width = self.pyramid_width or self.hidden_width
        if self.hidden_width % self.attention_heads:
            return (
                f"hidden_width ({self.hidden_width}) must be a multiple of the "
                f"attention_heads ({self.attention_heads})"
            )
        if pyramid_width % 2:
            return (
                f"the width of the pyramid ({pyramid_width}) must be even: each direction of its "
                "recurrent layers has half of it"
            )
        return None


@dataclass(frozen=True)
class ProposerRegressorOptions(Options):
    """At run time. A score is p / (p + P(None)), p the probability of label and span together; 0.5
    is the paper's rule."""
