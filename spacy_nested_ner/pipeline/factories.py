"""Factories. spaCy imports this module whenever a pipeline is made: keep it light."""

from inspect import Parameter, Signature
from typing import Any, Callable, Dict, Optional, Type

from spacy.language import Language
from thinc.api import Config, Model

from spacy_nested_ner.pipeline.options import (
    DiffusionOptions,
    LocateAndLabelOptions,
    MRCOptions,
    PipeSettings,
    PIQNOptions,
    ProposerRegressorOptions,
    Settings,
    defaults_of,
)

SCORER = {"@scorers": "spacy_nested_ner.nested_scorer.v1"}
SCORE_WEIGHTS: Dict[str, Optional[float]] = {"nested_f": 1.0, "nested_p": 0.0, "nested_r": 0.0}
# `doc.ents` where `set_ents` asks for it: spaCy knows one list for all components of a factory.
ASSIGNS = ["doc.spans", "doc.ents", "token.ent_iob", "token.ent_type"]

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


def _factory(name: str, architecture: str, options: Type[Settings]) -> Callable[..., Any]:
    """Register a component; its settings are those of `PipeSettings` and the options."""

    def make(
        nlp: Language, name: str, model: Model, scorer: Optional[Callable], **settings: Any
    ) -> Any:
        from spacy_nested_ner.pipeline.component import NestedNER

        return NestedNER(nlp.vocab, model, name, scorer=scorer, options=options, **settings)

    defaults = {**defaults_of(PipeSettings), **defaults_of(options)}
    make.__doc__ = f"`{name}`: see `PipeSettings` and `{options.__name__}`."
    make.__name__ = make.__qualname__ = f"make_{name}"
    make.__signature__ = Signature(  # type: ignore[attr-defined]
        [
            *(p for p in Signature.from_callable(make).parameters.values() if p.name != "settings"),
            # Any: the settings themselves say what is wrong with a value.
            *(Parameter(key, Parameter.KEYWORD_ONLY, annotation=Any) for key in defaults),
        ]
    )
    model = Config().from_str(MODEL.format(architecture=architecture))["model"]
    registered: Callable[..., Any] = Language.factory(
        name,
        assigns=ASSIGNS,
        default_config={"model": model, "scorer": SCORER, **defaults},
        default_score_weights=SCORE_WEIGHTS,
    )(make)
    return registered


make_piqn_ner = _factory("piqn_ner", "PIQN", PIQNOptions)
make_locate_and_label_ner = _factory(
    "locate_and_label_ner", "LocateAndLabel", LocateAndLabelOptions
)
make_mrc_ner = _factory("mrc_ner", "MRC", MRCOptions)
make_proposer_regressor_ner = _factory(
    "proposer_regressor_ner", "ProposerRegressor", ProposerRegressorOptions
)
make_diffusion_ner = _factory("diffusion_ner", "Diffusion", DiffusionOptions)
