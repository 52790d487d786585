"""Locate and Label (Shen et al. 2021)."""

from dataclasses import replace
from typing import Any, List, Mapping, Optional

from spacy_nested_ner.systems.base import Limit, ModelSettings, System
from spacy_nested_ner.systems.locate_and_label.settings import (
    USUAL_LENGTH,
    LocateAndLabelOptions,
    LocateAndLabelSettings,
    longer_lengths,
    seed_lengths,
)


class LocateAndLabelSystem(System):
    """Limited by the lengths of its seed spans and the reach of its regressor, where the lengths
    are given."""

    def fitted(
        self, settings: ModelSettings, longest: int, known: Optional[ModelSettings] = None
    ) -> ModelSettings:
        assert isinstance(settings, LocateAndLabelSettings)
        if known is None:
            if settings.lengths is not None:
                return settings
            return replace(settings, lengths=seed_lengths(max(longest, USUAL_LENGTH)))
        assert isinstance(known, LocateAndLabelSettings)
        lengths = known.lengths or seed_lengths()
        if settings.lengths is not None or longest <= lengths[-1]:
            return known  # as in nearly every step of a training
        return replace(known, lengths=longer_lengths(lengths, longest))

    def limits(self, settings: Mapping[str, Any], options: Mapping[str, Any]) -> List[Limit]:
        if settings["lengths"] is None:
            return []
        lengths = list(settings["lengths"])
        names = ("seed_iou", "regressor")
        moves = settings["regressor"] is not None
        return [
            Limit(
                "seed lengths",
                {"lengths": lengths, **{name: settings[name] for name in names}},
                "add the lengths to the seed lengths of the model",
                lengths=set(lengths).__contains__,
                reach=max(lengths) / settings["seed_iou"] if moves else max(lengths),
            )
        ]


TITLE = "Locate and Label: A Two-stage Identifier for Nested Named Entity Recognition"
SYSTEM = LocateAndLabelSystem(
    "locate_and_label", "LocateAndLabel", TITLE, LocateAndLabelSettings, LocateAndLabelOptions
)
