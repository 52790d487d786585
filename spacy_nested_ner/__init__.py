"""Nested named entity recognition for spaCy."""

from spacy_nested_ner.about import __version__
from spacy_nested_ner.tables import to_dicts

__all__ = ["__version__", "to_dicts"]
