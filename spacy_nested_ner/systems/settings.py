"""Settings as frozen dataclasses: each stands once, with its default, range, meaning and source.
Signatures, defaults of configs, checks and the tables of the docs are made from them.

Plain Python, so that factories and the command line read them without torch.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import typing
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any, ClassVar, Collection, Dict, List, Mapping, Optional, Sequence, Tuple, Type


@dataclass(frozen=True)
class Setting:
    """What is known of a setting beside its default and its type.

    meaning: for the docs. source: paper, table or figure that varies it, or what it gains.
    least, most: of a number, inclusive. above: a number must be larger. choices: of a string.
    derived: set by the encoder, not by the user; it stands in no config.
    """

    meaning: str
    source: str = ""
    least: Optional[float] = None
    above: Optional[float] = None
    most: Optional[float] = None
    choices: Tuple[str, ...] = ()
    derived: bool = False

    def problem(self, value: Any, hint: Any) -> Optional[str]:
        """What the value should be, if it is something else."""
        parts = value if isinstance(value, (list, tuple)) else [value]
        if _fits(value, hint) and all(self._in_range(part) for part in parts):
            return None
        return self.expected(hint)

    def _in_range(self, value: Any) -> bool:
        if self.choices:
            return value is None or value in self.choices
        if isinstance(value, bool) or not isinstance(value, Real):
            return True
        number = float(value)
        return (
            math.isfinite(number)
            and (self.least is None or number >= self.least)
            and (self.above is None or number > self.above)
            and (self.most is None or number <= self.most)
        )

    def expected(self, hint: Any) -> str:
        """In words: "a number from 0 to 1", "one of additive, bilinear"."""
        kind, optional = _kind(hint)
        if self.choices:
            return f"one of {', '.join([*self.choices, *(['null'] if optional else [])])}"
        text = {
            bool: "true or false",
            int: "a whole number",
            float: "a number",
            str: "a string",
            List[int]: "a list of whole numbers",
        }.get(kind, "a mapping of strings")
        if self.least is not None and self.most is not None:
            text += f" from {self.least:g} to {self.most:g}"
        elif self.above is not None and self.most is not None:
            text += f" above {self.above:g}, at most {self.most:g}"
        elif self.least is not None:
            text += f" of at least {self.least:g}"
        elif self.above is not None:
            text += f" above {self.above:g}"
        elif self.most is not None:
            text += f" of at most {self.most:g}"
        return f"{text}, or null" if optional else text


def setting(default: Any, meaning: str, **more: Any) -> Any:
    """A field of a `Settings` class; `more`: see `Setting`. A list or dict is copied each time."""
    metadata = {"setting": Setting(meaning, **more)}
    if isinstance(default, (list, dict)):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Settings:
    """Base of all groups of settings. The type hints are bool, int, float, str, `List[int]` or
    `Dict[str, str]`, each of them alone or `Optional`.

    RAISES (ValueError): For the first value of a wrong type or out of range, by name.
    """

    owner: ClassVar[str] = "settings"
    """What the settings belong to, named in errors."""

    def __post_init__(self) -> None:
        check_values(type(self), self.to_dict(), self.owner)
        problem = self.conflict()
        if problem:
            raise ValueError(f"{self.owner}: {problem}.")

    def conflict(self) -> Optional[str]:
        """What is wrong with values that are fine one by one; None if nothing is."""
        return None

    def to_dict(self) -> Dict[str, Any]:
        """All values by name, JSON-serialisable."""
        return dataclasses.asdict(self)


def check_values(settings: Type[Settings], values: Mapping[str, Any], where: str) -> None:
    """ValueError for the first value that has an unknown name, a wrong type or is out of range.

    values: some or all settings of the class by name. where: what they belong to.
    """
    known, hints = describe(settings), type_hints(settings)
    for name, value in values.items():
        if name not in known:
            raise ValueError(f"{where}: {unknown_name(name, known)}.")
        expected = known[name].problem(value, hints[name])
        if expected:
            raise ValueError(f"{where}: {name} must be {expected}, got {value!r}.")


def unknown_name(name: str, known: Collection[str]) -> str:
    """What is wrong with a name that is not known, and which was meant."""
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known) or 'none'}"
    return f"there is no setting '{name}' ({hint})"


def describe(settings: Type[Settings]) -> Dict[str, Setting]:
    """What is known of each setting of a class: its own in order, then those of its bases."""
    own = settings.__annotations__
    ordered = sorted(fields(settings), key=lambda each: each.name not in own)
    return {each.name: each.metadata["setting"] for each in ordered}


def type_hints(settings: Type[Settings]) -> Dict[str, Any]:
    """The type of each setting of a class."""
    hints = typing.get_type_hints(settings)
    return {name: hints[name] for name in describe(settings)}


def defaults(settings: Type[Settings]) -> Dict[str, Any]:
    """The default of each setting of a class, those of the encoder left out."""
    values = settings().to_dict()
    return {name: values[name] for name, known in describe(settings).items() if not known.derived}


def parameters(settings: Type[Settings]) -> List[inspect.Parameter]:
    """The settings as keyword parameters of a function that a config calls."""
    hints = type_hints(settings)
    return [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[name]
        )
        for name, default in defaults(settings).items()
    ]


def described(name: str, lines: Sequence[str], *groups: Type[Settings]) -> str:
    """A docstring: a first part, then the meaning of each setting."""
    told = [
        f"    {key}: {known.meaning}"
        for group in groups
        for key, known in describe(group).items()
        if not known.derived
    ]
    return "\n".join([f"`{name}`: {lines[0]}", "", *(f"    {line}" for line in lines[1:]), *told])


def _kind(hint: Any) -> Tuple[Any, bool]:
    """A type hint without `Optional`, and whether that was there."""
    if typing.get_origin(hint) is typing.Union:
        kinds = [part for part in typing.get_args(hint) if part is not type(None)]
        return kinds[0], True
    return hint, False


def _fits(value: Any, hint: Any) -> bool:
    kind, optional = _kind(hint)
    if value is None:
        return optional
    if kind is bool or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    if kind is int:
        return isinstance(value, Integral)
    if kind is float:
        return isinstance(value, Real)
    if kind is str:
        return isinstance(value, str)
    if typing.get_origin(kind) is list:
        inner = typing.get_args(kind)[0]
        return isinstance(value, (list, tuple)) and all(_fits(part, inner) for part in value)
    return isinstance(value, dict) and all(
        isinstance(part, str) for pair in value.items() for part in pair
    )
