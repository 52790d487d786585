"""End-to-end Entity Detection with Proposer and Regressor (Wen et al. 2023)."""

from typing import Any, List, Mapping

from spacy_nested_ner.systems.base import Limit, System
from spacy_nested_ner.systems.proposer_regressor.settings import (
    ProposerRegressorOptions,
    ProposerRegressorSettings,
)


class ProposerRegressorSystem(System):
    """Limited by its proposals, one per word."""

    def limits(self, settings: Mapping[str, Any], options: Mapping[str, Any]) -> List[Limit]:
        least = settings["min_proposals"]
        return [
            Limit(
                "proposals",
                {"min_proposals": least},
                "raise min_proposals",
                entities=lambda words: max(words, least),
            )
        ]


TITLE = "End-to-end Entity Detection with Proposer and Regressor"
SYSTEM = ProposerRegressorSystem(
    "proposer_regressor",
    "ProposerRegressor",
    TITLE,
    ProposerRegressorSettings,
    ProposerRegressorOptions,
)
