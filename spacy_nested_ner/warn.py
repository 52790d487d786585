"""Warnings that point to the line that calls spaCy or this package."""

import sys
import warnings

# Packages between that line and what it warns of, and the command line around them.
BETWEEN = (
    "spacy_nested_ner",
    "spacy",
    "thinc",
    "confection",
    "catalogue",
    "torch",
    "contextlib",
    "click",
    "typer",
)


def warn(message: str) -> None:
    """A `UserWarning` at the nearest line outside of these packages. Python shows a warning once
    for each line: here those of a user count."""
    level, frame = 2, sys._getframe(1)
    while _package(frame.f_globals) in BETWEEN and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)


def _package(names: dict) -> str:
    return str(names.get("__name__")).partition(".")[0]
