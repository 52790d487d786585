"""Factories. spaCy imports this module whenever a pipeline is made: keep it light."""

import functools
import inspect
from typing import Any, Callable, Dict, Optional

from spacy.language import Language
from spacy.util import get_minor_version_range, registry
from thinc.api import Config, Model

from spacy_nested_ner.about import __title__, __version__
from spacy_nested_ner.pipeline.settings import PipeSettings
from spacy_nested_ner.settings import defaults_of, described, parameters
from spacy_nested_ner.systems import TABLE, all_systems, get_system
from spacy_nested_ner.systems.base import System

# What a package of a pipeline needs that has a pretrained encoder: `spacy package` cannot know, and
# adds no versions to what is named already.
WITH_TRANSFORMERS = f"{__title__}[transformers]{get_minor_version_range(__version__)}"
SCORER = {"@scorers": "spacy_nested_ner.nested_scorer.v1"}
SCORE_WEIGHTS: Dict[str, Optional[float]] = {"nested_f": 1.0, "nested_p": 0.0, "nested_r": 0.0}
# `doc.ents` where `set_ents` asks for it: spaCy knows one list for all components of a factory.
ASSIGNS = ["doc.spans", "doc.ents", "token.ent_iob", "token.ent_type"]

MODEL = """
[model]
@architectures = "{architecture}"

[model.tok2vec]
@architectures = "spacy_nested_ner.EnglishCNN.v1"
width = 96
depth = 4
embed_size = 2000
window_size = 1
maxout_pieces = 3
subword_features = true
pretrained = true
"""


def require_transformers(nlp: Language) -> None:
    """Name what a package of a pipeline needs that has a pretrained encoder of this package."""
    required = nlp.meta.setdefault("requirements", [])
    if WITH_TRANSFORMERS not in required:
        required.append(WITH_TRANSFORMERS)


def make_factory(system: System) -> Callable[..., Any]:
    """The factory of a system, registered with spaCy."""

    def make(
        nlp: Language, name: str, model: Model, scorer: Optional[Callable], **settings: Any
    ) -> Any:
        from spacy_nested_ner.encoders.listeners import upstream_models
        from spacy_nested_ner.encoders.pretrained import needs_transformers
        from spacy_nested_ner.pipeline.component import NestedNER

        check_model(name, system, model)
        if any(map(needs_transformers, [model, *upstream_models(model, nlp)])):
            require_transformers(nlp)
        return NestedNER(nlp.vocab, model, name, scorer=scorer, **settings)

    own = [p for p in inspect.signature(make).parameters.values() if p.name != "settings"]
    settings = [
        *parameters(PipeSettings, required=True),
        *parameters(system.options, required=True),
    ]
    make.__signature__ = inspect.Signature([*own, *settings])  # type: ignore[attr-defined]
    make.__name__ = make.__qualname__ = f"make_{system.factory}"
    make.__doc__ = described(f"`{system.factory}`: {system.title}.", system.options, PipeSettings)
    model = Config().from_str(MODEL.format(architecture=system.registered))["model"]
    return Language.factory(
        system.factory,
        assigns=ASSIGNS,
        default_config={
            "model": model,
            "scorer": SCORER,
            **defaults_of(PipeSettings),
            **defaults_of(system.options),
        },
        default_score_weights=SCORE_WEIGHTS,
        func=make,
    )


def check_model(name: str, system: System, model: Model) -> None:
    """Raise ValueError if a model is not that of the system of the factory."""
    found = model.attrs.get("system")
    if found == system.name:
        return
    problem = f"factory '{system.factory}' takes the model {system.registered}"
    if found not in TABLE:
        raise ValueError(
            f"Component '{name}': {problem}, got the model '{model.name}'. If "
            f"[components.{name}.model] comes from another factory, keep only its tok2vec and "
            "remove its scorer."
        )
    other = get_system(found)
    raise ValueError(
        f"Component '{name}': {problem}, got {other.registered}. Use factory '{other.factory}' or "
        f"the model {system.registered}."
    )


def known_systems() -> Dict[str, System]:
    """All systems by the name of the factory, those of installed packages included."""
    _load_installed()
    return {system.factory: system for system in all_systems()}


@functools.cache
def _load_installed() -> None:
    """Load the factories of installed packages, which register their systems: spaCy does so for an
    instance, not for the class."""
    Language()


def register_system(system: System) -> None:
    """Make a system of one's own known: its factory, its architecture, and to `inspect` and
    `analyze`.

    Raises ValueError if there is another system of that name.
    """
    from spacy_nested_ner.model.architectures import make_architecture

    if system.name in TABLE:
        other = get_system(system.name)
        if (other.package, other.architecture) != (system.package, system.architecture):
            raise ValueError(
                f"There is already a system '{system.name}', {other.registered} of "
                f"{other.package}. Give yours another name."
            )
    TABLE[system.name] = system
    registry.architectures(system.registered, func=make_architecture(system))
    make_factory(system)


# Entry points name `make_piqn_ner` and so on.
globals().update({f"make_{system.factory}": make_factory(system) for system in all_systems()})
