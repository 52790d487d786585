"""Registered model of `diffusion_ner`."""

from typing import TYPE_CHECKING, List, Optional

import numpy as np
from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import Floats2d

from spacy_nested_ner.architectures.head_model import (
    build_head_model,
    encode,
    head_shim,
)
from spacy_nested_ner.architectures.types import HeadInput, HeadModel, HeadOutput

if TYPE_CHECKING:
    from spacy_nested_ner.heads.diffusion import Denoised


def build_diffusion(
    tok2vec: Model[List[Doc], List[Floats2d]],
    hidden_width: int = 128,
    word_width: Optional[int] = None,
    lstm_layers: int = 1,
    lstm_dropout: float = 0.0,
    depth: int = 2,
    attention_heads: int = 4,
    feedforward: int = 2,
    span_pooling: str = "both",
    span_kinds: int = 4,
    pointer: str = "bilinear",
    boundary: str = "softmax",
    offset_reach: int = 8,
    answer_pooling: bool = True,
    schedule: str = "cosine",
    timesteps: int = 1000,
    scale: float = 2.0,
    state: str = "boundaries",
    n_spans: Optional[int] = None,
    spans_per_word: float = 1.0,
    repetition: float = 0.5,
    assignment: str = "nearest",
    none: str = "missed",
    rollout: int = 1,
    match_boundary: float = 1.0,
    match_label: float = 1.0,
    match_distance: float = 3.0,
    boundary_weight: float = 1.0,
    label_weight: float = 1.0,
    none_weight: Optional[float] = 1.0,
    auxiliary: bool = True,
    candidate_weight: float = 0.0,
    word_weight: float = 0.0,
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


def trajectories(model: HeadModel, X: HeadInput) -> "List[List[Denoised]]":
    """How noise becomes entities: for each segment, its spans before and after every step.

    X: as for a prediction. The last step of a segment holds the spans that `predict` chooses from.
    Segments go through the head one by one; words are counted from the segment's first.
    """
    rows, _ = encode(model, X, is_train=False)
    head = head_shim(model).module.eval()
    alone = (rows.read(np.array([i])) for i in range(len(X.segments)))
    return [head.trajectory(words, mask, X.options) for words, mask, _ in alone]
