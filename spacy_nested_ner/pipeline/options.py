"""Settings of the components, each with its default, range, meaning and source in one place.

The factories' `default_config` and all checks come from here. Free of torch.
"""

import math
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any, Collection, List, Mapping, Optional, Type, TypeVar

from spacy_nested_ner.pipeline.decode import ENTS, OVERLAPS


class Range:
    """Which values a setting may have; `str` says it in words."""

    def holds(self, value: Any) -> bool:
        """Whether the value is one of them."""
        raise NotImplementedError


@dataclass(frozen=True)
class Number(Range):
    """A finite number from `least` to `most`, whole or not."""

    least: float
    most: Optional[float] = None

    def holds(self, value: Any) -> bool:
        """See `Range`. True and False are no numbers."""
        if not isinstance(value, Real) or isinstance(value, bool) or not math.isfinite(value):
            return False
        return self.least <= float(value) <= (math.inf if self.most is None else self.most)

    def __str__(self) -> str:
        return _bounds("a number", self.least, self.most)


@dataclass(frozen=True)
class Whole(Range):
    """A whole number from `least` to `most`."""

    least: int
    most: Optional[int] = None

    def holds(self, value: Any) -> bool:
        """See `Range`."""
        return isinstance(value, Integral) and Number(self.least, self.most).holds(value)

    def __str__(self) -> str:
        return _bounds("a whole number", self.least, self.most)


def _bounds(what: str, least: float, most: Optional[float]) -> str:
    return f"{what} of at least {least}" if most is None else f"{what} from {least} to {most}"


class OneOf(Range):
    """One of some words."""

    def __init__(self, *choices: str) -> None:
        self.choices = choices

    def holds(self, value: Any) -> bool:
        """See `Range`."""
        return isinstance(value, str) and value in self.choices

    def __str__(self) -> str:
        return "one of " + ", ".join(f'"{choice}"' for choice in self.choices)


class Text(Range):
    """Text that is not empty."""

    def holds(self, value: Any) -> bool:
        """See `Range`."""
        return isinstance(value, str) and bool(value)

    def __str__(self) -> str:
        return "text that is not empty"


class Switch(Range):
    """True or false."""

    def holds(self, value: Any) -> bool:
        """See `Range`."""
        return isinstance(value, bool)

    def __str__(self) -> str:
        return "true or false"


@dataclass(frozen=True)
class OrNull(Range):
    """Null (None) or what another range holds."""

    other: Range

    def holds(self, value: Any) -> bool:
        """See `Range`."""
        return value is None or self.other.holds(value)

    def __str__(self) -> str:
        return f"null or {self.other}"


def setting(default: Any, within: Range, meaning: str, source: str = "") -> Any:
    """A field of a dataclass of settings.

    source: where it comes from (paper, section, equation), empty if it is this package's own.
    """
    return field(default=default, metadata={"within": within, "meaning": meaning, "source": source})


@dataclass(frozen=True)
class Settings:
    """Base of the dataclasses of settings. Raises ValueError for a value out of its range."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value, within = getattr(self, each.name), each.metadata["within"]
            if not within.holds(value):
                raise ValueError(f"{each.name} must be {within}, got {value!r}")


S = TypeVar("S", bound=Settings)


def names_of(kind: Type[Settings]) -> List[str]:
    """The names of the settings."""
    return [each.name for each in fields(kind)]


def defaults_of(kind: Type[Settings]) -> Mapping[str, Any]:
    """The defaults by name, for a factory's `default_config`."""
    return {each.name: each.default for each in fields(kind)}


def take(kind: Type[S], values: Mapping[str, Any]) -> S:
    """The settings of this kind among the values; defaults for those that are not there.

    Raises ValueError for a value out of its range.
    """
    return kind(**{name: values[name] for name in names_of(kind) if name in values})


def unknown_name(names: Collection[str], known: Collection[str]) -> Optional[str]:
    """What is wrong with the first name that is not known, None if all are."""
    for name in sorted(set(names) - set(known)):
        close = get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
        return f"there is no setting '{name}' ({hint})"
    return None


@dataclass(frozen=True)
class PipeSettings(Settings):
    """What all components share."""

    spans_key: str = setting("sc", Text(), "key of `doc.spans` to read gold from and to write to")
    overlap: str = setting(
        "any",
        OneOf(*OVERLAPS),
        '"no_crossing" allows nesting only, "flat" no overlap at all; lower scores give way',
    )
    labels_per_span: Optional[int] = setting(
        None, OrNull(Whole(1)), "how many labels one span may carry; null for any number"
    )
    set_ents: Optional[str] = setting(
        None,
        OrNull(OneOf(*ENTS)),
        "replace `doc.ents`, which cannot overlap, by the outermost, innermost or highest scored "
        "spans; null leaves it alone",
    )
    split_sentences: bool = setting(
        True,
        Switch(),
        "a component that learned from single sentences splits longer docs that have no sentence "
        "boundaries, for itself alone",
    )
    window: int = setting(
        128, Whole(1), "longest segment in tokens; what is longer is read in windows that overlap"
    )
    stride: int = setting(96, Whole(1), "tokens from the start of one window to that of the next")
    adversarial: float = setting(
        0.0,
        Number(0),
        "training: length of the step along the gradient of the embeddings, from where each update "
        "learns a second time, which takes as long again; 0 for none",
        "Miyato et al. 2017, section 3",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stride > self.window:
            raise ValueError(
                f"stride ({self.stride}) must not be larger than window ({self.window}): the "
                "tokens between two windows would never be read"
            )


THRESHOLD = Number(0, 1)


@dataclass(frozen=True)
class PIQNOptions(Settings):
    """Run-time options of `piqn_ner`."""

    threshold: float = setting(
        0.5,
        THRESHOLD,
        "smallest score of a span, the product of the probabilities of its label and of its two "
        "boundaries",
    )
    label_threshold: float = setting(0.0, THRESHOLD, "smallest probability of the label")
    boundary_threshold: float = setting(0.0, THRESHOLD, "smallest probability of each boundary")


@dataclass(frozen=True)
class LocateAndLabelOptions(Settings):
    """Run-time options of `locate_and_label_ner`."""

    threshold: float = setting(0.5, THRESHOLD, "smallest score of a span")
    filter_threshold: float = setting(
        0.15, THRESHOLD, "smallest probability of a seed span to be taken as a proposal"
    )
    nms_iou: float = setting(
        0.3,
        Number(0, 1),
        "soft-NMS: a span that overlaps one of a higher score by at least this IoU decays",
        "Shen et al. 2021, algorithm 1",
    )
    nms_decay: float = setting(
        0.8,
        Number(0, 1),
        "soft-NMS: what the score of such a span is multiplied by; 1 for off",
        "Shen et al. 2021, algorithm 1",
    )


@dataclass(frozen=True)
class MRCOptions(Settings):
    """Run-time options of `mrc_ner`."""

    threshold: float = setting(
        0.5,
        THRESHOLD,
        "smallest score of a span, the smallest of the probabilities of its start, its end and "
        "their match",
    )
    decoding: str = setting(
        "nested",
        OneOf("nested", "flat"),
        '"nested" pairs every start with every end that it matches, "flat" with the nearest end; '
        'set `overlap` to "flat" beside it',
        "Li et al. 2020, section 3.4",
    )


@dataclass(frozen=True)
class ProposerRegressorOptions(Settings):
    """Run-time options of `proposer_regressor_ner`."""

    threshold: float = setting(
        0.5,
        THRESHOLD,
        "smallest score of a span, `p / (p + P(None))`, where p is the product of the "
        "probabilities of its label and of its boundaries; 0.5 is the paper's rule",
    )


@dataclass(frozen=True)
class DiffusionOptions(Settings):
    """Run-time options of `diffusion_ner`. None depends on what was trained with."""

    threshold: float = setting(0.8, THRESHOLD, "smallest score of a span")
    steps: int = setting(
        3, Whole(1, 1000), "denoising steps (the paper has 5)", "Shen et al. 2023, algorithm 2"
    )
    n_spans: int = setting(
        60, Whole(1), "noisy spans of a sentence, unless `spans_per_word` makes more"
    )
    spans_per_word: float = setting(2.0, Number(0), "noisy spans for each word of a sentence")
    eta: float = setting(
        0.0, Number(0, 1), "0 for deterministic steps (the paper), up to 1 for noise in each step"
    )
    score: str = setting(
        "sum",
        OneOf("sum", "label"),
        '"sum": the mean of the probabilities of the label and of the two boundaries (a third of '
        'the paper\'s sum), the highest of them; "label", for a model with a `candidate_weight`: '
        "the probability of the label, the mean over the noisy spans of one kind that show its "
        "words",
    )
    found_in: str = setting(
        "every_step",
        OneOf("every_step", "last_step"),
        'what counts, the spans of "every_step" or those of the "last_step" (the paper)',
    )
    seed: int = setting(
        0,
        Whole(0, 2**32 - 1),
        "of the noise; the spans depend on the text and on it alone",
    )
