"""What the systems can hold at most, read from their settings.

Settings come from a config, or from the registered factory and the signature of its architecture:
no number stands here.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

import torch
from spacy.language import Language
from spacy.util import registry

from spacy_nested_ner.heads.diffusion import span_counts

FACTORIES = (
    "piqn_ner",
    "diffusion_ner",
    "proposer_regressor_ner",
    "locate_and_label_ner",
    "mrc_ner",
)


@dataclass(frozen=True)
class Component:
    """A component with all its settings.

    settings: of the factory. model: of its architecture, sub-models as they stand in the config.
    """

    name: str
    factory: str
    settings: Mapping[str, Any]
    model: Mapping[str, Any]


@dataclass(frozen=True)
class Limit:
    """How many entities a sentence, or which lengths an entity may have.

    what: the field's name of what is limited. settings: that decide it. remedy: what to change.
    entities: most entities of a sentence of so many words; None where there is no such limit.
    lengths: whether the system is shown entities of so many words, None where all are. reach: most
    words that it can correct a shorter span to, None without limit.
    """

    what: str
    settings: Dict[str, Any]
    remedy: str
    entities: Optional[Callable[[int], int]] = None
    lengths: Optional[Callable[[int], bool]] = None
    reach: Optional[float] = None


def default_components() -> List[Component]:
    """The five factories as they are without a config."""
    return [_component(name, name, {}) for name in FACTORIES]


def config_components(config: Mapping[str, Any]) -> List[Component]:
    """The components of a config that find spans: the five systems and `spancat`.

    RAISES (ValueError): If there is none.
    """
    blocks = config.get("components", {})
    known = (*FACTORIES, "spancat", "spancat_singlelabel")
    found = [
        _component(name, block["factory"], block)
        for name, block in blocks.items()
        if block.get("factory") in known
    ]
    if not found:
        raise ValueError(
            f"The config has none of the components {', '.join(known)}. Give the config of a "
            "pipeline with one of these, or none for the defaults of all systems."
        )
    return found


def _component(name: str, factory: str, block: Mapping[str, Any]) -> Component:
    # An instance, not the class: making one is what fills the registry of factories.
    defaults = dict(Language().get_factory_meta(factory).default_config or {})
    settings = {**defaults, **block}
    return Component(name, factory, settings, _filled(settings["model"]))


def _filled(model: Mapping[str, Any]) -> Dict[str, Any]:
    """The block of a model with the defaults of its architecture."""
    architecture = registry.architectures.get(model["@architectures"])
    signature = inspect.signature(architecture).parameters.values()
    return {**{p.name: p.default for p in signature if p.default is not p.empty}, **model}


def limits(component: Component) -> List[Limit]:
    """What limits a component; empty for one that holds any number of entities of any length."""
    make = _LIMITS.get(component.factory)
    return make(component) if make else []


def _piqn(component: Component) -> List[Limit]:
    model = component.model
    if model["query_source"] == "words":
        names: Tuple[str, ...] = ("queries_per_word", "min_queries")
        per_word, least = (model[name] for name in names)
        remedy = "raise queries_per_word or min_queries"

        def most(words: int) -> int:
            return max(per_word * words, least)
    else:
        encoder = model["query_source"] == "encoder"
        owner = _filled(model["tok2vec"]) if encoder else model
        names, count = ("n_queries",), owner["n_queries"]
        model = owner
        remedy = "raise n_queries" + (" of the tok2vec" if encoder else "")

        def most(words: int) -> int:
            return count

    return [Limit("queries", {name: model[name] for name in names}, remedy, entities=most)]


def _diffusion(component: Component) -> List[Limit]:
    def most(settings: Mapping[str, Any]) -> Callable[[int], int]:
        n_spans, per_word = settings["n_spans"], settings["spans_per_word"]
        return lambda words: int(span_counts(torch.tensor(words), n_spans, per_word))

    def each(what: str, settings: Mapping[str, Any], remedy: str) -> Limit:
        names = ("n_spans", "spans_per_word")
        shown = {name: settings[name] for name in names}
        return Limit(what, shown, remedy, entities=most(settings))

    def remedy(settings: Mapping[str, Any], of: str) -> str:
        name = "spans_per_word" if settings["n_spans"] is None else "n_spans"
        return f"raise {name} of the {of}"

    model, settings = component.model, component.settings
    return [
        each("noisy spans in training", model, remedy(model, "model")),
        each("noisy spans in prediction", settings, remedy(settings, "component")),
    ]


def _proposer_regressor(component: Component) -> List[Limit]:
    least = component.model["min_proposals"]
    settings = {"min_proposals": least}
    remedy = "raise min_proposals"
    return [Limit("proposals", settings, remedy, entities=lambda words: max(words, least))]


def _locate_and_label(component: Component) -> List[Limit]:
    lengths, iou = list(component.model["lengths"]), component.model["seed_iou"]
    moves = component.model["regressor"] is not None
    settings = {"lengths": lengths, "seed_iou": iou, "regressor": component.model["regressor"]}
    remedy = "add the lengths to the seed lengths of the model"
    reach = max(lengths) / iou if moves else max(lengths)
    return [Limit("seed lengths", settings, remedy, lengths=set(lengths).__contains__, reach=reach)]


def _spancat(component: Component) -> List[Limit]:
    suggester = dict(component.settings["suggester"])
    name = suggester.pop("@misc", None)
    if name == "spacy.ngram_suggester.v1":
        lengths = set(suggester["sizes"])
    elif name == "spacy.ngram_range_suggester.v1":
        lengths = set(range(suggester["min_size"], suggester["max_size"] + 1))
    else:
        return []
    remedy = "add the lengths to the suggester"
    return [
        Limit(
            "suggested lengths",
            suggester,
            remedy,
            lengths=lengths.__contains__,
            reach=max(lengths, default=0),
        )
    ]


_LIMITS: Dict[str, Callable[[Component], List[Limit]]] = {
    "piqn_ner": _piqn,
    "diffusion_ner": _diffusion,
    "proposer_regressor_ner": _proposer_regressor,
    "locate_and_label_ner": _locate_and_label,
    "spancat": _spancat,
    "spancat_singlelabel": _spancat,
}
