"""Listeners: where their vectors come from, and whether any came."""

from typing import Any, Iterable, Iterator, List, Optional, Tuple

from spacy.language import Language
from spacy.tokens import Doc
from thinc.api import Model

from spacy_nested_ner.encoders.curated import is_curated_listener

TOK2VEC, TRANSFORMER = "tok2vec-listener", "transformer-listener"


def listeners_in(model: Model[Any, Any]) -> Iterator[Tuple[Any, str]]:
    """The listeners in a model, with the component that each asks: its name or that of its factory,
    "*" for any."""
    nodes: Iterable[Any] = model.walk()
    for node in nodes:
        if node.name in (TOK2VEC, TRANSFORMER):
            yield node, node.upstream_name
        elif is_curated_listener(node):
            from spacy_curated_transformers.models.listeners import ListenerStateUtils

            yield node, ListenerStateUtils.get_upstream_name(node)


def upstream_models(model: Model[Any, Any], nlp: Language) -> List[Model[Any, Any]]:
    """The models of the components that the listeners within a model may have vectors from."""
    asked = {name for _, name in listeners_in(model)}
    pipes: List[Tuple[str, Any]] = nlp.pipeline
    return [
        pipe.model
        for name, pipe in pipes
        if hasattr(pipe, "listeners") and asked & {"*", name, nlp.get_pipe_meta(name).factory}
    ]


def unheard(listeners: Iterable[Tuple[Any, str]], docs: List[Doc]) -> Optional[str]:
    """What is wrong, if one of `listeners_in` a model has no vectors for any of these docs: spaCy
    gives it zeros then, in silence."""
    for node, upstream in listeners:
        if not any(_has_vectors(node, doc) for doc in docs):
            return (
                f"its listener (upstream = '{upstream}') gets no vectors, so what it finds is "
                "worthless. Put the component that it listens to before it and leave it enabled, "
                "name it in training.annotating_components if this one is there, or copy its "
                "encoder with nlp.replace_listeners"
            )
    return None


def _has_vectors(listener: Model[Any, Any], doc: Doc) -> bool:
    if listener.name == TOK2VEC:
        return bool(doc.tensor.size)
    return doc.has_extension("trf_data") and doc._.trf_data is not None
