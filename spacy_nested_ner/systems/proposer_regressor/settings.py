"""Settings of `proposer_regressor_ner`. Tables and figures are those of Wen et al. 2023."""

from dataclasses import dataclass
from typing import List, Optional

from spacy_nested_ner.settings import setting
from spacy_nested_ner.systems.base import ModelSettings, Options

# The rows of table 6: what can be left out.
PARTS = (
    "backward_block",
    "spatial_modulation",
    "gated_update",
    "category_embedding",
    "location_iteration",
    "logits_iteration",
)


@dataclass(frozen=True)
class ProposerRegressorSettings(ModelSettings):
    """Settings of the model.

    hidden_width: width of all layers.
    kernel_sizes: kernel sizes of the pyramid's convolutions, from the bottom up; an empty list:
        the words as they are, without recurrent layers. The paper has 2, 2.
    regressor_layers: layers of the regressor.
    attention_heads: attention heads of each layer of the regressor.
    classifier: what a label is read from: the words of the "span" that is found, or the "proposal"
        alone (the paper).
    min_proposals: minimum number of proposals for a sentence. A shorter sentence gets more than one
        per word, so that one word can have several labels; 0: one proposal per word (the paper).
    without: parts to leave out: the backward block of the pyramid; the spatial modulation of the
        attention; the gated update of the query; the label in the query; the refinement of the
        location, or of the label, from layer to layer.
    """

    hidden_width: int = setting(
        128, least=1, source="configs/proposer_regressor_transformer.cfg; the paper has 768"
    )
    kernel_sizes: List[int] = setting(
        [], least=2, source="table 7; configs/proposer_regressor_paper.cfg"
    )
    regressor_layers: int = setting(1, least=0, source="figure 5 has 3")
    attention_heads: int = setting(8, least=1, source="figure 6")
    classifier: str = setting(
        "span", choices=("span", "proposal"), source="configs/proposer_regressor_paper.cfg"
    )
    min_proposals: int = setting(4, least=0, source="configs/proposer_regressor_paper.cfg")
    without: List[str] = setting([], choices=PARTS, source="table 6")
    batch_words: int = setting(384, least=1, source="configs/proposer_regressor_paper.cfg")

    def conflict(self) -> Optional[str]:
        if self.hidden_width % self.attention_heads:
            return (
                f"hidden_width ({self.hidden_width}) must be a multiple of the "
                f"attention_heads ({self.attention_heads})"
            )
        if self.kernel_sizes and self.hidden_width % 2:
            return (
                f"hidden_width ({self.hidden_width}) must be even: each direction of the recurrent "
                "layers has half of it"
            )
        return None


@dataclass(frozen=True)
class ProposerRegressorOptions(Options):
    """Settings at run time. A score is the geometric mean of P(span) and P(label), given the words
    of the span; with `classifier = "proposal"` it is p / (p + P(None)), p the probability of label
    and span together, of which 0.5 is the paper's rule."""
