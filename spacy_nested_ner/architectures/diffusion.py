"""Registered model of `diffusion_ner`."""

from typing import List, Optional

from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import Floats2d

from spacy_nested_ner.architectures.head_model import build_head_model
from spacy_nested_ner.architectures.types import HeadInput, HeadOutput


def build_diffusion(
    tok2vec: Model[List[Doc], List[Floats2d]],
    hidden_width: int = 128,
    lstm_layers: int = 1,
    lstm_dropout: float = 0.0,
    depth: int = 2,
    attention_heads: int = 4,
    feedforward: int = 2,
    span_pooling: str = "both",
    pointer: str = "bilinear",
    boundary: str = "softmax",
    offset_reach: int = 8,
    answer_pooling: bool = True,
    schedule: str = "cosine",
    timesteps: int = 1000,
    scale: float = 2.0,
    state: str = "boundaries",
    n_spans: int = 30,
    spans_per_word: float = 1.0,
    repetition: float = 0.5,
    quantity: float = 1.0,
    none: str = "missed",
    rollout: int = 1,
    match_boundary: float = 1.0,
    match_label: float = 1.0,
    match_distance: float = 1.0,
    boundary_weight: float = 1.0,
    label_weight: float = 1.0,
    none_weight: Optional[float] = 0.5,
    auxiliary: bool = True,
    dropout: Optional[float] = None,
    batch_words: int = 512,
) -> Model[HeadInput, HeadOutput]:
    """`spacy_nested_ner.Diffusion.v1`: boundary-denoising diffusion on any tok2vec.

    tok2vec: token-to-vector model, e.g. HashEmbedCNN or a listener.
    batch_words: padded words that the head sees at once.
    All other settings: see `spacy_nested_ner.heads.diffusion.Diffusion`, which raises ValueError
    for a setting that it does not know.
    """
    settings = {k: v for k, v in locals().items() if k not in ("tok2vec", "batch_words")}
    from spacy_nested_ner.heads.diffusion import Diffusion

    return build_head_model("diffusion", tok2vec, Diffusion, settings, batch_words)
