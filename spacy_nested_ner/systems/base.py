"""What a system gives to the rest of the package. No torch: `systems/head.py` has the contract of
the head itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    Optional,
    Protocol,
    Sequence,
    Tuple,
    Type,
)

from spacy_nested_ner.settings import Settings, setting

if TYPE_CHECKING:
    import numpy as np

    from spacy_nested_ner.systems.head import Batch, Head


@dataclass(frozen=True)
class ModelSettings(Settings):
    """Settings of a system's model. Subclasses add their own.

    dropout: dropout of the head; null follows `training.dropout`.
    batch_words: padded words that the head reads at once, on a GPU 16 times as many. It affects
        memory and speed, not the spans. A trained pipe keeps its value in
        `pipe.model.attrs["batch_words"]`.
    """

    dropout: Optional[float] = setting(None, least=0, most=0.99)
    batch_words: int = setting(512, least=1)


@dataclass(frozen=True)
class Options(Settings):
    """Settings of a head at run time. Subclasses add their own.

    threshold: smallest score of a span.
    """

    threshold: float = setting(0.5, least=0, most=1)


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


class FigureInput(Protocol):
    """What a system draws its figures from: a trained component and docs with gold entities.

    Batches come with the labels of their rows, `(batch,)` int, where the system reads each segment
    once for each label, else with None.
    """

    @property
    def head(self) -> Any:
        """The head, in evaluation mode."""

    @property
    def labels(self) -> Tuple[str, ...]:
        """Names of the labels by their index."""

    @property
    def options(self) -> Any:
        """The run-time options of the component, of the type that the system has for them."""

    @property
    def varied(self) -> Mapping[str, Sequence[Any]]:
        """Values to try of the options in `System.varied`."""

    def batches(self) -> Iterator[Tuple[Batch, Optional[np.ndarray]]]:
        """All segments of all docs."""

    @property
    def followed_words(self) -> List[str]:
        """The words of the one segment that is looked at closely."""

    def followed(self) -> Iterator[Tuple[Batch, Optional[np.ndarray]]]:
        """That segment; one batch of one row where rows have no labels."""

    def score(self, **options: Any) -> Tuple[float, float]:
        """Strict micro F1 of the pipeline, and words per second, with other run-time options."""


@dataclass(frozen=True)
class System:
    """One paper: its settings, its head, and what `inspect` and `analyze` ask of it.

    name: of its folder; the factory is `{name}_ner`. architecture: of its model, registered as
    `spacy_nested_ner.{architecture}.v1`. title: of the paper. settings: of the model. options: of
    the head at run time. submodels: further encoders that the architecture takes, by name and with
    their type; all may be null. package: where its modules are: `head` with a class of the name of
    the architecture, which takes the width of the words, the number of labels and the settings.
    varied: run-time options that its figures compare values of, with the values tried by default.
    """

    name: str
    architecture: str
    title: str
    settings: Type[ModelSettings]
    options: Type[Options]
    submodels: Tuple[Tuple[str, Any], ...] = ()
    package: str = "spacy_nested_ner.systems"
    varied: Mapping[str, Sequence[Any]] = field(default_factory=dict, hash=False)

    @property
    def factory(self) -> str:
        """The name for `nlp.add_pipe`."""
        return f"{self.name}_ner"

    @property
    def registered(self) -> str:
        """The name for `@architectures`."""
        return f"spacy_nested_ner.{self.architecture}.v1"

    def head_class(self) -> Type[Head]:
        """The head's class; imports torch."""
        return locate(f"{self.package}.{self.name}.head:{self.architecture}")

    def figures(self) -> Optional[Callable[..., Dict[str, Any]]]:
        """The function `draw` of the module `figures`, which makes of a `FigureInput` matplotlib
        figures by name; None where there is no such module."""
        module = f"{self.package}.{self.name}.figures"
        return locate(f"{module}:draw") if find_spec(module) else None

    def encoder(
        self, tok2vec: Any, submodels: Mapping[str, Any], settings: ModelSettings
    ) -> Tuple[Any, ModelSettings]:
        """The encoder that the head reads, and the settings that fit it.

        RAISES (ValueError): For an encoder that the system cannot use.
        """
        from spacy_nested_ner.encoders.protocol import check_encoder

        check_encoder(tok2vec)
        return tok2vec, settings

    def fitted(
        self, settings: ModelSettings, longest: int, known: Optional[ModelSettings] = None
    ) -> ModelSettings:
        """The settings for training data whose longest entity has so many words.

        known: those of a trained head, which keeps what it has and can take more, see `Head.fit`.
        """
        return settings if known is None else known

    def limits(self, settings: Mapping[str, Any], options: Mapping[str, Any]) -> List[Limit]:
        """What limits a model of these settings; empty for any number of entities of any length.

        settings: of the model, its submodels as they stand in the config. options: of the pipe.
        """
        return []

    def keeps_spans(self, settings: ModelSettings, options: Options) -> bool:
        """Whether a lower threshold keeps the spans of a higher one and their scores, so that one
        prediction at a low threshold serves all."""
        return True

    def attributes(self, settings: ModelSettings) -> Dict[str, Any]:
        """Attributes of the model beside those that all models have: what may change later."""
        return {}

    def prepare(self, model: Any) -> None:
        """Called when the model, which knows its labels, is initialised, before its parts are."""

    def questions(self, model: Any) -> List[str]:
        """What an encoder of pairs is asked for each label, in the order of the labels."""
        raise NotImplementedError(f"{self.name} asks no questions.")

    def questions_from(
        self, source: Optional[str]
    ) -> Optional[Tuple[Mapping[str, str], Callable[[str], str]]]:
        """Questions by label, and what makes one of any label; None for a system that asks none.

        source: a file or a ready-made set; None for no questions but those that are made.
        RAISES (ValueError): If there is no such source.
        """
        return None

    def training_pairs(self, model: Any, pairs: Any, gold: Any) -> Any:
        """Index of those `(pairs, 2)` pairs of segment and label that a training step reads.

        gold: the entities of each segment.
        """
        raise NotImplementedError(f"{self.name} asks no questions.")

    def describe_label(self, model: Any, label: str, **details: Any) -> None:
        """Take what `add_label` was told of a label beside its name.

        RAISES (ValueError): For a system that knows no more of a label than its name.
        """
        if details:
            raise ValueError(f"this system takes no {', '.join(details)}: give the label alone")

    def labels_added(self, model: Any, labels: List[str]) -> None:
        """Called when a trained model has got new labels."""


def locate(place: str) -> Any:
    """What "module:name" names."""
    module, name = place.split(":")
    return getattr(import_module(module), name)
