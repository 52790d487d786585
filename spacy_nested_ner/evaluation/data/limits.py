"""What the systems can hold at most, read from their settings.

Settings come from a config, or from the registered factory and the signature of its architecture:
no number stands here.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from spacy.language import Language
from spacy.util import get_package_path, is_package, load_config, registry

from spacy_nested_ner.files import read_object
from spacy_nested_ner.pipeline.factories import known_systems
from spacy_nested_ner.pipeline.settings import PipeSettings
from spacy_nested_ner.settings import take, unknown_name
from spacy_nested_ner.systems.base import Limit
from spacy_nested_ner.warn import warn

SPANCAT = ("spancat", "spancat_singlelabel")


@dataclass(frozen=True)
class Component:
    """A component with all its settings.

    settings: of the factory. model: of its architecture, sub-models as they stand in the config.
    labels: those of a component that is sourced from a trained pipeline, else None.
    """

    name: str
    factory: str
    settings: Mapping[str, Any]
    model: Mapping[str, Any]
    labels: Optional[Sequence[str]] = None


def default_components() -> List[Component]:
    """The components of all systems as they are without a config."""
    return [_component(name, name, {}) for name in known_systems()]


def config_components(config: Mapping[str, Any]) -> List[Component]:
    """The components of a config that find spans: those of all systems and `spancat`.

    RAISES (ValueError): If there is none, or if a setting has a wrong type or is out of its range.
    """
    blocks = config.get("components", {})
    known = (*known_systems(), *SPANCAT)
    found, problems = [], []
    for name, block in (blocks if isinstance(blocks, Mapping) else {}).items():
        if not isinstance(block, Mapping):
            continue
        try:
            block = _with_source(name, block, known)
        except ValueError as err:
            problems.append(str(err))
        if block.get("factory") in known:
            found.append(_checked(_component(name, block["factory"], block)))
    if problems and not found:
        raise ValueError(" ".join(problems))
    for problem in problems:
        warn(f"{problem} It is left out.")
    if not found:
        raise ValueError(
            f"The config has none of the components {', '.join(known)}. Give the config of a "
            "pipeline with one of these, or no config for the defaults of all systems."
        )
    return found


def _with_source(name: str, block: Mapping[str, Any], known: Sequence[str]) -> Mapping[str, Any]:
    """The block of a component, from its pipeline if it is sourced from one, with the settings and
    labels that are saved there. known: factories whose settings are of interest.

    RAISES (ValueError): If there is no such pipeline or component.
    """
    if "source" not in block or "factory" in block:
        return block
    source, theirs = str(block["source"]), str(block.get("component", name))
    if is_package(source):
        found = get_package_path(source).glob("*/config.cfg")
    else:
        found = Path(source).glob("config.cfg")
    path = next(found, None)
    if path is None:
        raise ValueError(f"Component '{name}' has the source '{source}': no pipeline there.")
    config = load_config(path, interpolate=True).get("components", {}).get(theirs)
    if config is None:
        raise ValueError(f"Component '{name}' has the source '{source}', without a '{theirs}'.")
    saved = path.parent / theirs / "cfg"
    if config.get("factory") not in known or not saved.is_file():
        return dict(config)
    cfg = read_object(saved)
    return {**config, **{key: cfg[key] for key in cfg if key in (*config, "labels")}}


def _component(name: str, factory: str, block: Mapping[str, Any]) -> Component:
    given = {key: value for key, value in block.items() if key != "factory"}
    settings = {**_defaults(factory), **given}
    labels = settings.pop("labels", None)
    if not _is_model(settings["model"]):
        raise ValueError(f"Component '{name}': its model must be a block with @architectures.")
    return Component(name, factory, settings, _filled(settings["model"]), labels)


def _defaults(factory: str) -> Mapping[str, Any]:
    return Language.get_factory_meta(factory).default_config or {}


def _checked(component: Component) -> Component:
    """The component, if its limits can be read from its settings."""
    system = known_systems().get(component.factory)
    try:
        if system is not None:
            take(system.settings, component.model)
            take(system.options, component.settings)
            take(PipeSettings, component.settings)
            unknown = unknown_name(component.settings, _defaults(component.factory))
            if unknown:
                raise ValueError(unknown)
        limits(component)
    except (ValueError, TypeError, KeyError) as err:
        problem = f"{err} is missing" if isinstance(err, KeyError) else err
        raise ValueError(f"Component '{component.name}': {problem}.") from err
    return component


def _filled(model: Mapping[str, Any]) -> Dict[str, Any]:
    """The block of a model with the defaults of its architecture."""
    architecture = registry.architectures.get(model["@architectures"])
    signature = inspect.signature(architecture).parameters.values()
    return {**{p.name: p.default for p in signature if p.default is not p.empty}, **model}


def limits(component: Component) -> List[Limit]:
    """What limits a component; empty for one that holds any number of entities of any length."""
    if component.factory in SPANCAT:
        return _spancat(component)
    model = {k: _filled(v) if _is_model(v) else v for k, v in component.model.items()}
    return known_systems()[component.factory].limits(model, component.settings)


def _is_model(value: Any) -> bool:
    return isinstance(value, Mapping) and "@architectures" in value


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
