"""Pretrained encoders of a trained pipeline with int8 weights."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List

from spacy.language import Language
from thinc.api import Model

from spacy_nested_ner.encoders.protocol import listens
from spacy_nested_ner.warn import warn

# The encoders of this package that hold a pretrained one; each has a setting `int8`.
ENCODERS = (
    "spacy_nested_ner.LayerMeanTransformer.v1",
    "spacy_nested_ner.PairEncoder.v1",
    "spacy_nested_ner.QueryEncoder.v1",
    "spacy_nested_ner.SortedTransformer.v1",
    "spacy_nested_ner.Tok2VecLayerMeanTransformer.v1",
)


def compress(nlp: Language) -> List[str]:
    """Round the weights of the pretrained encoders to int8, in place, and say so in the config.

    A component whose encoder cannot be compressed stays as it is, with a warning that says why.

    RETURNS: Names of the components whose encoders are int8 now.

    Raises ValueError if there is nothing to compress, with the reason for each component.
    """
    found: List[str] = []
    reasons: Dict[str, str] = {}
    refused: List[str] = []
    for name, pipe in nlp.components:
        model = getattr(pipe, "model", None)
        shims = list(_compressible_shims(model)) if isinstance(model, Model) else []
        fresh = [shim for shim in shims if not shim.int8]
        if not fresh:
            reasons[name] = _reason(model, shims)
            continue
        try:
            for shim in fresh:
                shim.to_int8()
        except ValueError as err:
            reasons[name] = f"cannot be compressed: {str(err).removesuffix('.')}"
            refused.append(name)
            continue
        _set_int8(nlp.get_pipe_config(name))
        found.append(name)
    if not found:
        why = "; ".join(f"'{name}' {reason}" for name, reason in reasons.items())
        raise ValueError(
            "there is nothing to compress: "
            + (why or "the pipeline has no components")
            + ". Only a pretrained transformer in one of these encoders can be compressed: "
            + ", ".join(ENCODERS)
        )
    for name in refused:
        warn(f"Component '{name}' stays as it is: it {reasons[name]}.")
    return found


def _compressible_shims(model: Model[Any, Any]) -> Iterator[Any]:
    return (shim for node in model.walk() for shim in node.shims if hasattr(shim, "to_int8"))


def _reason(model: Any, shims: List[Any]) -> str:
    """Why nothing of a component is compressed, as the end of a sentence."""
    if shims:
        return "is compressed already"
    if isinstance(model, Model):
        if any(node.name == "hf-pytorch" for node in model.walk()):
            return (
                "has a model of spacy-transformers; "
                "spacy_nested_ner.LayerMeanTransformer.v1 with n_layers = 1 gives the same vectors "
                "and can be compressed"
            )
        if listens(model):
            return "takes its vectors from another component"
    return "has no pretrained encoder"


def _set_int8(config: Any) -> None:
    """`int8 = true` wherever the config has one of the encoders."""
    if isinstance(config, dict):
        if config.get("@architectures") in ENCODERS:
            config["int8"] = True
        for value in config.values():
            _set_int8(value)
