"""DiffusionNER (Shen et al. 2023)."""

from typing import Any, List, Mapping

from spacy_nested_ner.systems.base import Limit, System
from spacy_nested_ner.systems.diffusion.settings import (
    DiffusionOptions,
    DiffusionSettings,
    span_count,
)


class DiffusionSystem(System):
    """Limited by its noisy spans."""

    def limits(self, settings: Mapping[str, Any], options: Mapping[str, Any]) -> List[Limit]:
        return [
            _noisy_spans("training", settings, "model"),
            _noisy_spans("prediction", options, "component"),
        ]


def _noisy_spans(when: str, values: Mapping[str, Any], owner: str) -> Limit:
    n_spans, per_word = values["n_spans"], values["spans_per_word"]
    name = "spans_per_word" if n_spans is None else "n_spans"
    return Limit(
        f"noisy spans in {when}",
        {"n_spans": n_spans, "spans_per_word": per_word},
        f"raise {name} of the {owner}",
        entities=lambda words: span_count(words, n_spans, per_word),
    )


TITLE = "DiffusionNER: Boundary Diffusion for Named Entity Recognition"
SYSTEM = DiffusionSystem("diffusion", "Diffusion", TITLE, DiffusionSettings, DiffusionOptions)
