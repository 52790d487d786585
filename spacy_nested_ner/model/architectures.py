"""The registered models of all systems. Their signatures are made from the systems' settings."""

import inspect
from typing import Any, Callable, List

from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import Floats2d

from spacy_nested_ner.model.types import HeadInput, HeadOutput
from spacy_nested_ner.settings import described, parameters
from spacy_nested_ner.systems import all_systems
from spacy_nested_ner.systems.base import System

ABOUT_TOK2VEC = "tok2vec: token-to-vector model, such as a HashEmbedCNN or a listener."


def make_architecture(system: System) -> Callable[..., Model[HeadInput, HeadOutput]]:
    """The function that builds the model of a system from its settings, for `@architectures`."""

    def build(tok2vec: Any, **given: Any) -> Model[HeadInput, HeadOutput]:
        from spacy_nested_ner.model.head_model import build_head_model

        if not isinstance(tok2vec, Model):
            raise ValueError(f"{system.registered}: tok2vec must be a model, got {tok2vec!r}.")
        submodels = {name: given.pop(name, None) for name, _ in system.submodels}
        try:
            settings = system.settings(**given)
            encoder, settings = system.encoder(tok2vec, submodels, settings)
        except ValueError as err:
            problem = str(err).removesuffix(".")
            raise ValueError(f"{system.registered}: {problem}.") from err
        return build_head_model(system, encoder, settings)

    keyword = inspect.Parameter.KEYWORD_ONLY
    others = [
        inspect.Parameter(name, keyword, default=None, annotation=hint)
        for name, hint in system.submodels
    ]
    tok2vec = inspect.Parameter(
        "tok2vec",
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        annotation=Model[List[Doc], List[Floats2d]],
    )
    build.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [tok2vec, *others, *parameters(system.settings)],
        return_annotation=Model[HeadInput, HeadOutput],
    )
    build.__name__ = build.__qualname__ = f"build_{system.name}"
    build.__doc__ = described(
        f"`{system.registered}`: {system.title}.\n\n{ABOUT_TOK2VEC}", system.settings
    )
    return build


# Entry points name `build_piqn` and so on.
globals().update({f"build_{system.name}": make_architecture(system) for system in all_systems()})
