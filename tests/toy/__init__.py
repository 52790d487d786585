"""A sixth system, as a user of the package would write one: single words with labels."""

from dataclasses import dataclass
from typing import Any, List, Mapping

from spacy_nested_ner.settings import setting
from spacy_nested_ner.systems.base import Limit, ModelSettings, Options, System


@dataclass(frozen=True)
class ToySettings(ModelSettings):
    """Of the model.

    hidden_width: of the hidden layer.
    """

    hidden_width: int = setting(16, least=1)


class ToySystem(System):
    """Entities are single words."""

    def limits(self, settings: Mapping[str, Any], options: Mapping[str, Any]) -> List[Limit]:
        single = {1}.__contains__
        return [Limit("words of an entity", {}, "use another system", lengths=single, reach=1)]


SYSTEM = ToySystem("toy", "Toy", "A toy", ToySettings, Options, package="tests")
