"""Registered model of `locate_and_label_ner`."""

from typing import List, Optional

from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import Floats2d

from spacy_nested_ner.model.head_model import build_head_model
from spacy_nested_ner.model.types import HeadInput, HeadOutput


def build_locate_and_label(
    tok2vec: Model[List[Doc], List[Floats2d]],
    hidden_width: int = 128,
    lstm_layers: int = 1,
    lengths: List[int] = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14],  # noqa: B006 (read only)
    regressor: Optional[str] = "linear",
    span_filter: bool = True,
    classifier: str = "sigmoid",
    label_loss: str = "cross_entropy",
    seed_iou: float = 0.7,
    label_iou: float = 1.0,
    soft_examples: float = 1.0,
    negatives: Optional[float] = None,
    focal: float = 2.0,
    filter_weight: float = 1.0,
    regressor_weight: float = 0.1,
    label_weight: float = 1.0,
    dropout: Optional[float] = None,
    batch_words: int = 512,
) -> Model[HeadInput, HeadOutput]:
    """`spacy_nested_ner.LocateAndLabel.v1`: the two-stage identifier on any tok2vec.

    tok2vec: token-to-vector model, e.g. HashEmbedCNN or a listener.
    batch_words: padded words that the head sees at once.
    All other settings: see `spacy_nested_ner.systems.locate_and_label.head.LocateAndLabel`.
    """
    settings = {k: v for k, v in locals().items() if k not in ("tok2vec", "batch_words")}
    from spacy_nested_ner.systems.locate_and_label.head import LocateAndLabel

    return build_head_model("locate_and_label", tok2vec, LocateAndLabel, settings, batch_words)
