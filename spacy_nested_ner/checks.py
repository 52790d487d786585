"""Checks of arguments."""

from typing import Any, Sequence


def check_choice(system: str, name: str, value: Any, choices: Sequence[Any]) -> None:
    """ValueError for a setting that is none of the choices; None is null in a config."""
    if value not in choices:
        known = ", ".join("null" if choice is None else str(choice) for choice in choices)
        raise ValueError(f"{system}: {name} is {value!r}, must be one of {known}.")


def check_least(system: str, least: float, **settings: float) -> None:
    """ValueError for the first setting that is smaller than `least`."""
    for name, number in settings.items():
        if number < least:
            raise ValueError(f"{system}: {name} must be at least {least}, got {number}.")
