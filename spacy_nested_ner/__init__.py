"""Nested named entity recognition for spaCy."""

from spacy_nested_ner.about import __version__

__all__ = ["__version__"]
