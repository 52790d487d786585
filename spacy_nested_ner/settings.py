"""Settings as frozen dataclasses: each stands once, with its default, range, meaning and source.
The meaning is in the docstring of the class. Signatures, defaults of configs, checks and the tables
of the docs are made from them.

Plain Python, so that factories and the command line read them without torch.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import re
import sys
import types
import typing
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any, Callable, Collection, Dict, List, Mapping, Optional, Tuple, Type, TypeVar


@dataclass(frozen=True)
class Setting:
    """What is known of a setting beside its default and its type.

    meaning: for the docs, from the docstring. source: paper, table or figure that varies it, or
    what it gains. least, most: of a number, inclusive. above, below: a number must be larger, or
    smaller. choices: of a text, or of each text of a list.
    derived: set by the encoder, not by the user; it stands in no config.
    """

    meaning: str = ""
    source: str = ""
    least: Optional[float] = None
    above: Optional[float] = None
    most: Optional[float] = None
    below: Optional[float] = None
    choices: Collection[str] = ()
    derived: bool = False

    def holds(self, value: Any, hint: Any) -> bool:
        """Whether the value has the type of the hint and is in range."""
        parts = value if isinstance(value, (list, tuple)) else [value]
        return _fits(value, hint) and all(self._in_range(part) for part in parts)

    def _in_range(self, value: Any) -> bool:
        if self.choices:
            return value is None or value in self.choices
        if isinstance(value, str):
            return bool(value)
        if isinstance(value, bool) or not isinstance(value, Real):
            return True
        number = float(value)
        return (
            math.isfinite(number)
            and (self.least is None or number >= self.least)
            and (self.above is None or number > self.above)
            and (self.most is None or number <= self.most)
            and (self.below is None or number < self.below)
        )

    def expected(self, hint: Any) -> str:
        """The range in words: "a number from 0 to 1", 'one of "additive", "bilinear"'."""
        kind, optional = _kind(hint)
        if self.choices:
            whole = "a list with any of" if kind == List[str] else "one of"
            text = f"{whole} " + ", ".join(f'"{choice}"' for choice in self.choices)
        else:
            text = _NAMES.get(kind, "a mapping of texts") + self._bounds()
        return f"null or {text}" if optional else text

    def _bounds(self) -> str:
        if self.least is not None and self.most is not None:
            return f" from {self.least:.12g} to {self.most:.12g}"
        if self.least is not None and self.below is not None:
            return f" from {self.least:.12g} to below {self.below:.12g}"
        low = f" of at least {self.least:.12g}" if self.least is not None else ""
        low = f" above {self.above:.12g}" if self.above is not None else low
        return low + (f", at most {self.most:.12g}" if self.most is not None else "")


_NAMES = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a non-empty text",
    List[int]: "a list of whole numbers",
    List[str]: "a list of texts",
}


def setting(default: Any, **more: Any) -> Any:
    """A field of a `Settings` class; `more`: see `Setting`. A list or dict is copied each time."""
    metadata = {"setting": Setting(**more)}
    if isinstance(default, (list, dict)):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Settings:
    """Base of all groups of settings. The type hints are bool, int, float, str, `List[int]`,
    `List[str]` or `Dict[str, str]`, each of them alone or `Optional`. The docstring says what each
    setting means, in lines of the form `name: meaning.`; further lines of one are indented.

    RAISES (ValueError): For the first value of a wrong type or out of range, by name.
    """

    def __post_init__(self) -> None:
        hints = type_hints(type(self))
        for name, known in describe(type(self)).items():
            value = getattr(self, name)
            if not known.holds(value, hints[name]):
                raise ValueError(f"{name} must be {known.expected(hints[name])}, got {value!r}")
        problem = self.conflict()
        if problem:
            raise ValueError(problem)

    def conflict(self) -> Optional[str]:
        """What is wrong with values that are fine one by one; None if nothing is."""
        return None

    def to_dict(self) -> Dict[str, Any]:
        """All values by name, JSON-serialisable."""
        return dataclasses.asdict(self)


S = TypeVar("S", bound=Settings)


def describe(kind: Type[Settings]) -> Dict[str, Setting]:
    """What is known of each setting: those of the class itself in order, then its bases'.

    RAISES (ValueError): For a setting that no docstring speaks of.
    """
    # Settings are checked for every doc: the docstring is read once.
    if kind not in _DESCRIBED:
        _DESCRIBED[kind] = _described(kind)
    return _DESCRIBED[kind]


def _described(kind: Type[Settings]) -> Dict[str, Setting]:
    own, meanings = kind.__annotations__, _meanings(kind)
    ordered = sorted(fields(kind), key=lambda each: each.name not in own)
    missing = [each.name for each in ordered if each.name not in meanings]
    if missing and sys.flags.optimize < 2:  # with -OO there are no docstrings
        raise ValueError(f"the docstring of {kind.__name__} must say what {missing[0]} means")
    return {
        each.name: replace(each.metadata["setting"], meaning=meanings.get(each.name, ""))
        for each in ordered
    }


def _meanings(kind: type) -> Dict[str, str]:
    """What the docstrings of a class and its bases say of each name."""
    found: Dict[str, str] = {}
    for each in reversed(kind.__mro__):
        for name, text in _MEANING.findall(inspect.cleandoc(each.__doc__ or "")):
            found[name] = " ".join(text.split()).removesuffix(".")
    return found


_MEANING = re.compile(r"^(\w+): (.*(?:\n +.*)*)", re.MULTILINE)


def type_hints(kind: Type[Settings]) -> Dict[str, Any]:
    """The type of each setting."""
    if kind not in _HINTS:
        hints = typing.get_type_hints(kind)
        _HINTS[kind] = {name: hints[name] for name in describe(kind)}
    return _HINTS[kind]


_DESCRIBED: Dict[type, Dict[str, Setting]] = {}
_HINTS: Dict[type, Dict[str, Any]] = {}


def names_of(kind: Type[Settings]) -> List[str]:
    """The names of the settings, those that the encoder sets left out."""
    return [name for name, known in describe(kind).items() if not known.derived]


def defaults_of(kind: Type[Settings]) -> Dict[str, Any]:
    """The defaults by name, for the config."""
    values = kind().to_dict()
    return {name: values[name] for name in names_of(kind)}


def take(kind: Type[S], values: Mapping[str, Any]) -> S:
    """The settings of this kind among the values; defaults for those that are not there.

    Raises ValueError for a value out of its range.
    """
    return kind(**{name: values[name] for name in describe(kind) if name in values})


def unknown_name(names: Collection[str], known: Collection[str]) -> Optional[str]:
    """What is wrong with the first name that is not known, None if all are."""
    for name in sorted(set(names) - set(known)):
        close = get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
        return f"there is no setting '{name}' ({hint})"
    return None


def parameters(kind: Type[Settings], required: bool = False) -> List[inspect.Parameter]:
    """The settings as keyword parameters of a function that a config calls.

    required: without defaults. They have no types: the settings themselves say what is wrong.
    """
    empty = inspect.Parameter.empty
    return [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=empty if required else default,
            annotation=Any,
        )
        for name, default in defaults_of(kind).items()
    ]


def described(text: str, *kinds: Type[Settings]) -> str:
    """A docstring: a text, then the meaning of each setting."""
    lines = [
        f"{name}: {describe(kind)[name].meaning}." for kind in kinds for name in names_of(kind)
    ]
    return "\n".join([text, "", *lines])


def configured(
    registered: str, kind: Type[Settings]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator for a function that builds what a config names, and whose last parameter is
    `settings`: the config gives each of them by its name.

    registered: the name in the config, for errors. Appends the settings to the docstring.
    """

    def decorate(build: Callable[..., Any]) -> Callable[..., Any]:
        own = list(inspect.signature(build).parameters.values())[:-1]

        @functools.wraps(build)
        def from_config(*args: Any, **given: Any) -> Any:
            chosen = {name: given.pop(name) for name in names_of(kind) if name in given}
            try:
                settings = kind(**chosen)
            except ValueError as err:
                raise ValueError(f"{registered}: {err}.") from err
            return build(*args, **given, settings=settings)

        from_config.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [*own, *parameters(kind)]
        )
        from_config.__doc__ = described(inspect.cleandoc(build.__doc__ or ""), kind)
        return from_config

    return decorate


def _kind(hint: Any) -> Tuple[Any, bool]:
    """A type hint without `Optional`, and whether that was there."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
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
