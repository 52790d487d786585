"""Transformers of spacy-transformers whose output is the mean of their last layers."""

from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from spacy.tokens import Doc
from thinc.api import ArgsKwargs, Model, chain
from thinc.types import Floats2d, Ragged

from spacy_nested_ner.encoders.pretrained import INT8_INITIALIZED

TRANSFORMER = "spacy_nested_ner.LayerMeanTransformer.v1"
TOK2VEC = "spacy_nested_ner.Tok2VecLayerMeanTransformer.v1"


def build_layer_mean_transformer(
    name: str,
    get_spans: Callable,
    n_layers: int = 4,
    tokenizer_config: Optional[Dict[str, Any]] = None,
    transformer_config: Optional[Dict[str, Any]] = None,
    mixed_precision: bool = False,
    grad_scaler_config: Optional[Dict[str, Any]] = None,
    int8: bool = False,
) -> Model[List[Doc], Any]:
    """`spacy_nested_ner.LayerMeanTransformer.v1`: the model of a `transformer` component, as
    `spacy-transformers.TransformerModel.v3`, whose output is the mean of its last layers.

    Every listener then gets that mean in place of the last layer, with exact gradients. This is
    done here and not in a listener because spacy-transformers takes back the gradient of one
    output only. The layers themselves are not kept on the docs.

    n_layers: how many, 1 for the last alone. int8: the weights are int8, set by
    `nested-ner compress`. The other settings: see spacy-transformers.

    Raises ValueError if the transformer has fewer layers, does not hand them out or is to be int8,
    when it is initialised.
    """
    if n_layers < 1:
        raise ValueError(f"{TRANSFORMER}: n_layers must be positive, got {n_layers}.")
    given = transformer_config or {}
    if given.get("output_hidden_states") is False:
        raise ValueError(
            f"{TRANSFORMER}: transformer_config.output_hidden_states is false, but the mean of "
            "the last layers needs them: remove the setting, true is the default here."
        )
    model = _spacy_transformers().layers.TransformerModel(
        name,
        get_spans,
        dict(tokenizer_config or {}),
        {**given, "output_hidden_states": True},
        mixed_precision,
        dict(grad_scaler_config or {}),
    )
    wrapper = model.layers[0]
    wrapper.attrs["convert_outputs"] = mean_of_last_layers
    wrapper.attrs["n_layers"] = n_layers
    wrapper.shims[0] = _compressible(wrapper.shims[0], mixed_precision, grad_scaler_config)
    if int8:
        model.init = _is_not_initialized
    model.attrs["replace_listener_cfg"] = replace_listener_config
    return model


def build_layer_mean_tok2vec(
    name: str,
    get_spans: Callable,
    pooling: Model[Ragged, Floats2d],
    n_layers: int = 4,
    grad_factor: float = 1.0,
    tokenizer_config: Optional[Dict[str, Any]] = None,
    transformer_config: Optional[Dict[str, Any]] = None,
    mixed_precision: bool = False,
    grad_scaler_config: Optional[Dict[str, Any]] = None,
    int8: bool = False,
) -> Model[List[Doc], List[Floats2d]]:
    """`spacy_nested_ner.Tok2VecLayerMeanTransformer.v1`: the same transformer inside one
    component, as `spacy-transformers.Tok2VecTransformer.v3`.

    pooling: of the pieces of a word, "spacy_nested_ner.reduce_max.v1" as in the papers or
    "reduce_mean.v1" as spaCy does. grad_factor: of the gradient that reaches the transformer.
    """
    transformer = build_layer_mean_transformer(
        name,
        get_spans,
        n_layers,
        tokenizer_config,
        transformer_config,
        mixed_precision,
        grad_scaler_config,
        int8,
    )
    layers = _spacy_transformers().layers
    # A chain of a chain, the structure that a replaced listener has.
    return chain(
        chain(transformer, layers.split_trf_batch()), layers.trfs2arrays(pooling, grad_factor)
    )


def _compressible(shim: Any, mixed_precision: bool, grad_scaler_config: Any) -> Any:
    from spacy_nested_ner.encoders.hf_shim import CompressibleShim

    return CompressibleShim(
        shim._hfmodel,
        mixed_precision=mixed_precision,
        grad_scaler_config=dict(grad_scaler_config or {}),
    )


def _is_not_initialized(model: Model, X: Any = None, Y: Any = None) -> None:
    raise ValueError(f"{TRANSFORMER}: {INT8_INITIALIZED}")


def mean_of_last_layers(
    model: Model, inputs_outputs: Tuple[Any, Any], is_train: bool
) -> Tuple[Any, Callable[[Any], ArgsKwargs]]:
    """Put the mean of the last `attrs["n_layers"]` layers in the place of the last one."""
    _, output = inputs_outputs
    states = output.get("hidden_states") or ()
    n_layers = model.attrs["n_layers"]
    # The first one is what the embeddings give to the first layer.
    if len(states) - 1 < n_layers:
        raise ValueError(
            f"{TRANSFORMER}: n_layers asks for the last {n_layers} layers, but the transformer "
            f"gives {max(0, len(states) - 1)}. Set n_layers to at most that, or use "
            "'spacy-transformers.TransformerModel.v3'."
        )
    mean = torch.stack(states[-n_layers:]).mean(dim=0)
    kept = {key: value for key, value in output.items() if key != "hidden_states"}

    def backprop(d_output: Any) -> ArgsKwargs:
        return ArgsKwargs(args=(mean,), kwargs={"grad_tensors": d_output.values()})

    return type(output)(**{**kept, "last_hidden_state": mean}), backprop


def replace_listener_config(transformer: Dict[str, Any], tok2vec: Dict[str, Any]) -> Dict[str, Any]:
    """Config of the tok2vec that takes the place of a listener (see `Language.replace_listeners`).

    transformer: of the shared model. tok2vec: of the component's, a listener or an architecture
    around one.
    """
    listener = _find_listener(tok2vec)
    if listener is None:
        return dict(transformer)
    replaced = {**transformer, "@architectures": TOK2VEC}
    replaced.update({key: listener[key] for key in ("pooling", "grad_factor") if key in listener})
    return replaced


def _find_listener(config: Any) -> Optional[Dict[str, Any]]:
    if not isinstance(config, dict):
        return None
    if "TransformerListener" in config.get("@architectures", ""):
        return config
    found = (_find_listener(value) for value in config.values())
    return next((listener for listener in found if listener is not None), None)


def _spacy_transformers() -> Any:
    try:
        import spacy_transformers.layers
    except ImportError as err:
        raise ImportError(
            f"{TRANSFORMER} needs spacy-transformers: "
            f"pip install 'spacy_nested_ner[transformers]'. ({err})"
        ) from err
    return spacy_transformers
