"""Factories. spaCy imports this module whenever a pipeline is made: keep it light."""

import inspect
from typing import Any, Callable, Dict, Optional

from spacy.language import Language
from thinc.api import Config, Model

from spacy_nested_ner.pipeline.settings import ComponentSettings
from spacy_nested_ner.systems import all_systems
from spacy_nested_ner.systems.base import System
from spacy_nested_ner.systems.settings import defaults, described, parameters

SCORER = {"@scorers": "spacy_nested_ner.nested_scorer.v1"}
SCORE_WEIGHTS: Dict[str, Optional[float]] = {"nested_f": 1.0, "nested_p": 0.0, "nested_r": 0.0}

MODEL = """
[model]
@architectures = "{architecture}"

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


def make_factory(system: System) -> Callable[..., Any]:
    """The factory of a system, registered with spaCy."""

    def factory(
        nlp: Language, name: str, model: Model, scorer: Optional[Callable], **given: Any
    ) -> Any:
        from spacy_nested_ner.pipeline.component import NestedNER

        shared = {key: given.pop(key) for key in defaults(ComponentSettings)}
        return NestedNER(nlp.vocab, model, name, scorer=scorer, options=given, **shared)

    own = [p for p in inspect.signature(factory).parameters.values() if p.name != "given"]
    settings = [*parameters(ComponentSettings), *parameters(system.options)]
    factory.__signature__ = inspect.Signature([*own, *settings])  # type: ignore[attr-defined]
    factory.__name__ = factory.__qualname__ = f"make_{system.factory}"
    factory.__doc__ = described(
        system.factory, [f"{system.title}."], system.options, ComponentSettings
    )
    model = Config().from_str(MODEL.format(architecture=system.registered))["model"]
    return Language.factory(
        system.factory,
        assigns=["doc.spans"],
        default_config={
            "model": model,
            "scorer": SCORER,
            **defaults(ComponentSettings),
            **defaults(system.options),
        },
        default_score_weights=SCORE_WEIGHTS,
        func=factory,
    )


# Entry points name `make_piqn_ner` and so on.
globals().update({f"make_{system.factory}": make_factory(system) for system in all_systems()})
