"""Registered model of `proposer_regressor_ner`."""

from typing import List, Optional

from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import Floats2d

from spacy_nested_ner.model.head_model import build_head_model
from spacy_nested_ner.model.types import HeadInput, HeadOutput

KERNEL_SIZES = [2, 2]


def build_proposer_regressor(
    tok2vec: Model[List[Doc], List[Floats2d]],
    hidden_width: int = 128,
    pyramid_width: Optional[int] = None,
    kernel_sizes: List[int] = KERNEL_SIZES,
    regressor_layers: int = 3,
    attention_heads: int = 8,
    min_proposals: int = 4,
    backward_block: bool = True,
    spatial_modulation: bool = True,
    gated_update: bool = True,
    category_embedding: bool = True,
    location_iteration: bool = True,
    logits_iteration: bool = True,
    none_weight: float = 1.0,
    dropout: Optional[float] = None,
    batch_words: int = 384,
) -> Model[HeadInput, HeadOutput]:
    """`spacy_nested_ner.ProposerRegressor.v1`: entity detection with proposer and regressor.

    tok2vec: token-to-vector model, e.g. HashEmbedCNN or a listener.
    batch_words: padded words that the head sees at once: memory and speed only. Less padding was
        worth more than fewer steps of its recurrent layers on a CPU; a GPU wants more.
    All other settings: see `spacy_nested_ner.systems.proposer_regressor.head.ProposerRegressor`.
    """
    settings = {k: v for k, v in locals().items() if k not in ("tok2vec", "batch_words")}
    from spacy_nested_ner.systems.proposer_regressor.head import ProposerRegressor

    settings["kernel_sizes"] = list(kernel_sizes)
    return build_head_model("proposer_regressor", tok2vec, ProposerRegressor, settings, batch_words)
