"""Registered model of `mrc_ner`."""

from typing import Any, Dict, List, Literal, Optional

from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import Floats2d

from spacy_nested_ner.architectures import head_model
from spacy_nested_ner.architectures.cross_encoder import build_cross_encoder
from spacy_nested_ner.architectures.questions import ARCHITECTURE, collect_questions
from spacy_nested_ner.architectures.types import HeadInput, HeadModel, HeadOutput
from spacy_nested_ner.heads.base import check_least


def build_mrc(
    tok2vec: Model[List[Doc], List[Floats2d]],
    question_tok2vec: Optional[Model[List[Doc], List[Floats2d]]] = None,
    questions: Dict[str, str] = {},  # noqa: B006 (read only)
    question_source: Optional[str] = None,
    query_kind: Literal["natural", "pseudo", "index"] = "natural",
    unanswered_share: float = 1.0,
    hidden_width: int = 128,
    depth: int = 2,
    attention_heads: int = 4,
    feedforward: int = 2,
    pairing: str = "match",
    match_width: int = 256,
    candidates: str = "gold_and_predicted",
    boundary_loss: str = "cross_entropy",
    smooth: float = 1.0,
    start_weight: float = 1.0,
    end_weight: float = 1.0,
    match_weight: float = 0.1,
    dropout: Optional[float] = None,
    batch_words: int = 2048,
) -> Model[HeadInput, HeadOutput]:
    """`spacy_nested_ner.MRC.v1`: BERT-MRC, on a pretrained encoder of pairs or on any tok2vec.

    tok2vec: `spacy_nested_ner.PairEncoder.v1`, or any token-to-vector model, on which a small
        transformer joins question and sentence.
    question_tok2vec: reads the questions if given, else the tok2vec itself does. A listener needs
        one: it reads the docs of the pipeline only.
    questions: `{label: question}`. question_source: a ready-made set ("ace", "conll", "few_nerd",
        "genia", "ontonotes") or a JSON file of the same form, read at `initialize`; `questions`
        win over it. A label with neither is asked for by a template with its name.
    query_kind: what is asked: the question ("natural"), the label's name ("pseudo") or its number
        in words ("index"; section 5.2).
    unanswered_share: share of the questions without an answer that a training step asks, drawn
        anew for every step.
    hidden_width, depth, attention_heads, feedforward: of the transformer over a tok2vec, see
        `spacy_nested_ner.layers.cross_encoder.CrossEncoder`; without effect on a PairEncoder.
    batch_words: padded words (pieces with a PairEncoder) of questions and sentences that are read
        at once, a dial for memory and speed that changes no span. A trained pipe keeps its own:
        set `pipe.model.attrs["batch_words"]`.
    All other settings: see `spacy_nested_ner.heads.mrc.MRC`.

    Raises ValueError for a setting out of range, and when initialised for a `question_source` that
    is not there.
    """
    settings: Dict[str, Any] = {
        "pairing": pairing,
        "match_width": match_width,
        "candidates": candidates,
        "boundary_loss": boundary_loss,
        "smooth": smooth,
        "start_weight": start_weight,
        "end_weight": end_weight,
        "match_weight": match_weight,
        "dropout": dropout,
    }
    from spacy_nested_ner.heads.mrc import MRC

    _check(unanswered_share, hidden_width, depth, attention_heads, feedforward, questions)
    if "two_sided" in tok2vec.attrs:
        settings["two_sided"] = tok2vec.attrs["two_sided"]
        if question_tok2vec is not None:
            raise ValueError(
                f"{ARCHITECTURE}: a PairEncoder reads the questions itself, question_tok2vec must "
                "be null."
            )
        encoder: Any = tok2vec
    else:
        if question_tok2vec is None and head_model.listens(tok2vec):
            raise ValueError(
                f"{ARCHITECTURE}: the tok2vec is a listener, which reads the docs of the pipeline "
                "and no questions. Give question_tok2vec, e.g. a spacy.HashEmbedCNN.v2."
            )
        if question_tok2vec is not None and head_model.listens(question_tok2vec):
            raise ValueError(
                f"{ARCHITECTURE}: question_tok2vec is a listener, which reads the docs of the "
                "pipeline and no questions. Give it an encoder of its own, e.g. a "
                "spacy.HashEmbedCNN.v2."
            )
        encoder = build_cross_encoder(
            tok2vec, question_tok2vec, hidden_width, depth, attention_heads, feedforward
        )
    model = head_model.build_head_model("mrc", encoder, MRC, settings, batch_words)
    model.attrs.update(
        questions=dict(questions),
        question_source=question_source,
        query_kind=query_kind,
        unanswered_share=unanswered_share,
    )
    model.init = init
    return model


def init(model: HeadModel, X: Optional[HeadInput] = None, Y: Any = None) -> None:
    """Collect the questions, then initialise encoder and head."""
    collect_questions(model)
    head_model.init(model, X, Y)


def _check(
    unanswered_share: float,
    hidden_width: int,
    depth: int,
    attention_heads: int,
    feedforward: int,
    questions: Dict[str, str],
) -> None:
    if not 0 <= unanswered_share <= 1:
        raise ValueError(
            f"{ARCHITECTURE}: unanswered_share is a share, 0 to 1, got {unanswered_share}."
        )
    check_least(
        ARCHITECTURE, 1, depth=depth, attention_heads=attention_heads, feedforward=feedforward
    )
    if hidden_width < 1 or hidden_width % attention_heads:
        raise ValueError(
            f"{ARCHITECTURE}: hidden_width ({hidden_width}) must be a multiple of the "
            f"attention_heads ({attention_heads})."
        )
    empty = [label for label, question in questions.items() if not question.strip()]
    if empty:
        raise ValueError(f"{ARCHITECTURE}: the question for '{empty[0]}' is empty.")
