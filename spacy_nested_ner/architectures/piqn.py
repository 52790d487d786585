"""Registered model of `piqn_ner`."""

from typing import List, Optional

from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import Floats2d

from spacy_nested_ner.architectures.head_model import build_head_model
from spacy_nested_ner.architectures.query_encoder import encoder_shim
from spacy_nested_ner.architectures.types import HeadInput, HeadOutput


def build_piqn(
    tok2vec: Model[List[Doc], List[Floats2d]],
    hidden_width: int = 128,
    lstm_layers: int = 1,
    lstm_dropout: float = 0.0,
    depth: int = 2,
    attention_heads: int = 4,
    feedforward: int = 2,
    query_source: str = "words",
    n_queries: int = 60,
    queries_per_word: int = 1,
    min_queries: int = 4,
    query_interaction: bool = True,
    query_attention: bool = False,
    pointer: str = "bilinear",
    boundary: str = "softmax",
    offset_reach: int = 8,
    label_attention: bool = False,
    span_pooling: bool = True,
    assignment: str = "dynamic",
    quantity: float = 0.2,
    match_boundary: float = 1.0,
    match_label: float = 1.0,
    match_anchor: float = 1.0,
    boundary_weight: float = 1.0,
    label_weight: float = 1.0,
    none_weight: Optional[float] = 0.5,
    auxiliary: bool = True,
    dropout: Optional[float] = None,
    batch_words: int = 512,
) -> Model[HeadInput, HeadOutput]:
    """`spacy_nested_ner.PIQN.v1`: Parallel Instance Query Network on any tok2vec.

    tok2vec: token-to-vector model, e.g. HashEmbedCNN or a listener; with query_source "encoder" it
        must be `spacy_nested_ner.QueryEncoder.v1`, which also says how many queries there are and
        must have the same `query_interaction`.
    batch_words: padded words that the head sees at once, a dial for memory and speed that changes
        no span. A trained pipe keeps its own: set `pipe.model.attrs["batch_words"]`.
    All other settings: see `spacy_nested_ner.heads.piqn.PIQN`, which raises ValueError for a
    setting that it does not know.
    """
    settings = {k: v for k, v in locals().items() if k not in ("tok2vec", "batch_words")}
    from spacy_nested_ner.heads.piqn import PIQN

    encoder_queries = tok2vec.attrs.get("n_queries")
    if (encoder_queries is not None) != (query_source == "encoder"):
        raise ValueError(
            "spacy_nested_ner.PIQN.v1: query_source 'encoder' and the tok2vec "
            "'spacy_nested_ner.QueryEncoder.v1' need each other; got query_source "
            f"'{query_source}' with tok2vec '{tok2vec.name}'."
        )
    if encoder_queries is not None:
        settings["n_queries"] = encoder_queries
        in_encoder = encoder_shim(tok2vec).settings["query_interaction"]  # type: ignore[arg-type]
        if in_encoder != query_interaction:
            raise ValueError(
                f"spacy_nested_ner.PIQN.v1: query_interaction is {query_interaction} here and "
                f"{in_encoder} in the tok2vec, so that queries would see each other in one half of "
                "the model only. Set both to the same."
            )
    return build_head_model("piqn", tok2vec, PIQN, settings, batch_words)
