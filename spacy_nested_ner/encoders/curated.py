"""Listeners on a `curated_transformer`, the component of spacy-curated-transformers."""

from typing import Any, List, Tuple

import numpy as np
from spacy.tokens import Doc
from thinc.api import Model


def is_curated_listener(node: Model[Any, Any]) -> bool:
    """Whether a node has its vectors from a `curated_transformer`. Such listeners have no class of
    their own, but this mark, which they lose when they are replaced by a copy of the transformer.
    """
    return "_TRANSFORMER_LISTENER" in node.attrs


def is_curated_transformer(node: Model[Any, Any]) -> bool:
    """Whether a node is the model of a `curated_transformer`, as in the copy that replaces a
    listener."""
    return node.name == "transformer_model"


def check_listeners(model: Model[Any, Any]) -> None:
    """Raises ValueError for a listener within the model that gives no vectors of words."""
    if any(node.name == "transformer_layers_listener" for node in model.walk()):
        raise ValueError(
            "its TransformerLayersListener gives each word one vector per layer, where one vector "
            "is needed. Use spacy-curated-transformers.LastTransformerLayerListener.v1, or "
            "spacy-curated-transformers.ScalarWeightingListener.v1 for a mean of all layers"
        )


def feed_listeners(model: Model[Any, Any], docs: List[Doc]) -> None:
    """See to it that the curated listeners within a model can learn from docs.

    A transformer that learns gives them its output before. One in `training.frozen_components`
    annotates the docs: its listeners get that, as spaCy's own listeners do by themselves.

    Raises ValueError for a listener that has neither, and for one of another width.
    """
    listeners = [node for node in model.walk() if is_curated_listener(node)]
    if not listeners:
        return
    from spacy_curated_transformers.models.listeners import ListenerStateUtils

    _let_transformer_count_its_loss()
    batch = ListenerStateUtils.calculate_batch_id(docs)
    for listener in listeners:
        # What it has may be of an earlier batch that nothing was learned from.
        if ListenerStateUtils.get_batch_id(listener) != batch:
            _hand_over_annotation(listener, docs, batch)
        output, width = ListenerStateUtils.get_output(listener), listener.get_dim("nO")
        found = output.last_hidden_layer_states[0].dataXd.shape[1]
        if found != width:
            raise ValueError(
                f"its listener has width = {width}, but the transformer gives vectors of width "
                f"{found}. Set width = {found}"
            )


def _hand_over_annotation(listener: Model[Any, Any], docs: List[Doc], batch: int) -> None:
    """Give a listener what the transformer has set on the docs, as its `update` would."""
    from spacy_curated_transformers.models.listeners import ListenerStateUtils
    from spacy_curated_transformers.models.output import (
        DocTransformerOutput,
        TransformerModelOutput,
    )

    annotation: List[Any] = [
        doc._.trf_data if doc.has_extension("trf_data") else None for doc in docs
    ]
    if not all(isinstance(of_doc, DocTransformerOutput) for of_doc in annotation):
        upstream = ListenerStateUtils.get_upstream_name(listener)
        raise ValueError(
            f"its listener gets nothing from the curated_transformer (upstream = '{upstream}'). "
            "Put that component before this one; if it is in training.frozen_components, name it "
            "in training.annotating_components, too"
        )
    output = TransformerModelOutput(
        outputs=[of_doc.all_outputs for of_doc in annotation],
        last_layer_only=annotation[0].last_layer_only,
    )
    ListenerStateUtils.receive(listener, batch, output, _learn_nothing)


def _learn_nothing(d_outputs: Any, outputs_to_backprop: Tuple[int, ...]) -> List[Any]:
    return []


def _let_transformer_count_its_loss() -> None:
    """Mend spacy-curated-transformers 0.3.1, with which no pipeline learns under NumPy 2.4.

    A `curated_transformer` counts its loss in an array of one element and calls `float` on it,
    which is an error since then. It finds another `float` in its module.
    """
    from spacy_curated_transformers.pipeline import transformer

    if np.lib.NumpyVersion(np.__version__) >= "2.4.0":
        vars(transformer).setdefault("float", _number)


def _number(array: Any) -> float:
    return array.item()
