"""DiffusionNER (Shen et al. 2023)."""

from math import ceil
from typing import Any, List, Mapping

from spacy_nested_ner.systems.base import Limit, System
from spacy_nested_ner.systems.diffusion.settings import DiffusionOptions, DiffusionSettings


class DiffusionSystem(System):
    """Limited by its noisy spans."""

    def limits(self, settings: Mapping[str, Any], options: Mapping[str, Any]) -> List[Limit]:
        return [
            _noisy_spans("training", settings, "model"),
            _noisy_spans("prediction", options, "component"),
        ]


def _noisy_spans(when: str, values: Mapping[str, Any], owner: str) -> Limit:
    shown = {name: values[name] for name in ("n_spans", "spans_per_word")}
    return Limit(
        f"noisy spans in {when}",
        shown,
        f"raise n_spans or spans_per_word of the {owner}",
        entities=lambda words: max(ceil(words * shown["spans_per_word"]), shown["n_spans"]),
    )


SYSTEM = DiffusionSystem(
    "diffusion",
    "Diffusion",
    "DiffusionNER: Boundary Diffusion for Named Entity Recognition",
    DiffusionSettings,
    DiffusionOptions,
)
