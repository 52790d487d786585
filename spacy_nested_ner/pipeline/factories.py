"""Factories. spaCy imports this module whenever a pipeline is made: keep it light."""

from typing import Any, Callable, Dict, Optional

from spacy.language import Language
from thinc.api import Config, Model

SCORER = {"@scorers": "spacy_nested_ner.nested_scorer.v1"}
SCORE_WEIGHTS: Dict[str, Optional[float]] = {"nested_f": 1.0, "nested_p": 0.0, "nested_r": 0.0}

MODEL = """
[model]
@architectures = "spacy_nested_ner.{architecture}.v1"

[model.tok2vec]
@architectures = "spacy.HashEmbedCNN.v2"
pretrained_vectors = null
width = 96
depth = 4
embed_size = 2000
window_size = 1
maxout_pieces = 3
subword_features = true
"""


def _shared_defaults(architecture: str) -> Dict[str, Any]:
    """Settings that all factories have."""
    return {
        "model": Config().from_str(MODEL.format(architecture=architecture))["model"],
        "spans_key": "sc",
        "overlap": "any",
        "labels_per_span": None,
        "set_ents": None,
        "window": 128,
        "stride": 96,
        "adversarial": 0.0,
        "scorer": SCORER,
    }


def _component(
    *,
    nlp: Language,
    name: str,
    model: Model,
    spans_key: str,
    overlap: str,
    labels_per_span: Optional[int],
    set_ents: Optional[str],
    window: int,
    stride: int,
    adversarial: float,
    scorer: Optional[Callable],
    **options: Any,
) -> Any:
    """The component with what all factories ask for; the system's own settings are its options."""
    from spacy_nested_ner.pipeline.component import NestedNER

    return NestedNER(
        nlp.vocab,
        model,
        name,
        spans_key=spans_key,
        overlap=overlap,
        labels_per_span=labels_per_span,
        set_ents=set_ents,
        window=window,
        stride=stride,
        adversarial=adversarial,
        scorer=scorer,
        options=options,
    )


@Language.factory(
    "piqn_ner",
    assigns=["doc.spans"],
    default_config={
        **_shared_defaults("PIQN"),
        "threshold": 0.5,
        "label_threshold": 0.0,
        "boundary_threshold": 0.0,
    },
    default_score_weights=SCORE_WEIGHTS,
)
def make_piqn_ner(
    nlp: Language,
    name: str,
    model: Model,
    spans_key: str,
    overlap: str,
    labels_per_span: Optional[int],
    set_ents: Optional[str],
    window: int,
    stride: int,
    adversarial: float,
    scorer: Optional[Callable],
    threshold: float,
    label_threshold: float,
    boundary_threshold: float,
) -> Any:
    """`piqn_ner`: Parallel Instance Query Network.

    threshold: smallest score of a span, the product of the probabilities of its label and of its
        two boundaries. label_threshold, boundary_threshold: smallest of each factor.
    The other settings: see `NestedNER`.
    """
    return _component(**locals())


@Language.factory(
    "locate_and_label_ner",
    assigns=["doc.spans"],
    default_config={
        **_shared_defaults("LocateAndLabel"),
        "threshold": 0.5,
        "filter_threshold": 0.15,
        "nms_iou": 0.3,
        "nms_decay": 0.8,
    },
    default_score_weights=SCORE_WEIGHTS,
)
def make_locate_and_label_ner(
    nlp: Language,
    name: str,
    model: Model,
    spans_key: str,
    overlap: str,
    labels_per_span: Optional[int],
    set_ents: Optional[str],
    window: int,
    stride: int,
    adversarial: float,
    scorer: Optional[Callable],
    threshold: float,
    filter_threshold: float,
    nms_iou: float,
    nms_decay: float,
) -> Any:
    """`locate_and_label_ner`: the two-stage identifier.

    threshold: smallest score of a span. filter_threshold: smallest probability of a seed span to
        be taken as a proposal. nms_iou, nms_decay: soft-NMS; a span that overlaps one of a higher
        score by an IoU of at least `nms_iou` has its own multiplied by `nms_decay` (1: off).
    The other settings: see `NestedNER`.
    """
    return _component(**locals())


@Language.factory(
    "mrc_ner",
    assigns=["doc.spans"],
    default_config={**_shared_defaults("MRC"), "threshold": 0.5, "decoding": "nested"},
    default_score_weights=SCORE_WEIGHTS,
)
def make_mrc_ner(
    nlp: Language,
    name: str,
    model: Model,
    spans_key: str,
    overlap: str,
    labels_per_span: Optional[int],
    set_ents: Optional[str],
    window: int,
    stride: int,
    adversarial: float,
    scorer: Optional[Callable],
    threshold: float,
    decoding: str,
) -> Any:
    """`mrc_ner`: entities as answers to one question per label.

    threshold: smallest score of a span, which is the smallest of the probabilities of its start,
        its end and their match. decoding: "nested" pairs every start with every end that it
        matches, "flat" with the nearest end; set `overlap` to "flat" beside it.
    The other settings: see `NestedNER`.
    """
    return _component(**locals())


@Language.factory(
    "proposer_regressor_ner",
    assigns=["doc.spans"],
    default_config={
        **_shared_defaults("ProposerRegressor"),
        "threshold": 0.5,
    },
    default_score_weights=SCORE_WEIGHTS,
)
def make_proposer_regressor_ner(
    nlp: Language,
    name: str,
    model: Model,
    spans_key: str,
    overlap: str,
    labels_per_span: Optional[int],
    set_ents: Optional[str],
    window: int,
    stride: int,
    adversarial: float,
    scorer: Optional[Callable],
    threshold: float,
) -> Any:
    """`proposer_regressor_ner`: entity detection with proposer and regressor.

    threshold: smallest score of a span, `p / (p + P(None))`, where p is the product of the
        probabilities of its label and of its boundaries; 0.5 is the paper's rule.
    The other settings: see `NestedNER`.
    """
    return _component(**locals())


@Language.factory(
    "diffusion_ner",
    assigns=["doc.spans"],
    default_config={
        **_shared_defaults("Diffusion"),
        "threshold": 0.8,
        "steps": 3,
        "n_spans": None,
        "spans_per_word": 2.0,
        "eta": 0.0,
        "score": "sum",
        "found_in": "every_step",
        "seed": 0,
    },
    default_score_weights=SCORE_WEIGHTS,
)
def make_diffusion_ner(
    nlp: Language,
    name: str,
    model: Model,
    spans_key: str,
    overlap: str,
    labels_per_span: Optional[int],
    set_ents: Optional[str],
    window: int,
    stride: int,
    adversarial: float,
    scorer: Optional[Callable],
    threshold: float,
    steps: int,
    n_spans: Optional[int],
    spans_per_word: float,
    eta: float,
    score: str,
    found_in: str,
    seed: int,
) -> Any:
    """`diffusion_ner`: boundary-denoising diffusion.

    threshold: smallest score of a span.
    score: "sum" is the mean of the probabilities of its label and of its two boundaries (a third of
        the paper's sum), the highest of them; "label", for a model with a `candidate_weight`, the
        probability of its label, the mean over the noisy spans of one kind that show its words.
    steps: denoising steps. n_spans: noisy spans of a sentence; None makes them `spans_per_word`,
        counting a shorter sentence as 30 words. None of the three depends on what was trained with.
    eta: 0 for deterministic steps (the paper), up to 1 for noise in each step (the authors' code).
    found_in: what counts, the spans of "every_step" or those of the "last_step" (the paper).
    seed: of the noise; the spans depend on the text and on it alone.
    The other settings: see `NestedNER`.
    """
    return _component(**locals())
