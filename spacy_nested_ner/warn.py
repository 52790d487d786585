"""Warnings that point to the line of the user."""

import sys
import warnings

# Packages between a user's call and what it warns of.
BETWEEN = ("spacy_nested_ner", "spacy", "thinc", "confection", "catalogue", "torch", "contextlib")


def warn(message: str) -> None:
    """A `UserWarning` at the line whose call led here, the first that is not of these packages:
    where it is shown once for each line, lines of a user's own count."""
    level, frame = 2, sys._getframe(1)
    while _package(frame.f_globals) in BETWEEN and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)


def _package(names: dict) -> str:
    return str(names.get("__name__")).partition(".")[0]
