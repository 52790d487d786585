"""Settings of one format, given as text."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Callable, Dict, Mapping, Tuple, TypeVar

T = TypeVar("T")


def with_settings(defaults: T, given: Mapping[str, str]) -> T:
    """A dataclass with some fields set from text, by the type of what they hold: a string, number,
    flag (true, false) or tuple of numbers (1,2).

    Raises ValueError with the known settings if there is none of a name, or if the text does not
    fit.
    """
    known = {field.name: getattr(defaults, field.name) for field in fields(defaults)}  # type: ignore[arg-type]
    values: Dict[str, Any] = {}
    for name, text in given.items():
        if name not in known:
            names = ", ".join(known) or "none"
            raise ValueError(f"No setting {name!r} for this format. It has: {names}.")
        try:
            values[name] = _PARSERS[type(known[name])](text)
        except ValueError as err:
            kind = _KINDS[type(known[name])]
            raise ValueError(f"Setting {name} must be {kind}, not {text!r}.") from err
    return replace(defaults, **values)  # type: ignore[type-var]


def no_settings(given: Mapping[str, str]) -> None:
    """Raise ValueError if a format that has no settings is given some."""
    if given:
        raise ValueError(f"This format has no settings, got {', '.join(given)}.")


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _numbers(text: str) -> Tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


_PARSERS: Dict[type, Callable[[str], Any]] = {str: str, int: int, bool: _flag, tuple: _numbers}
_KINDS = {
    str: "text",
    int: "a whole number",
    bool: "true or false",
    tuple: "whole numbers such as 1,2",
}
