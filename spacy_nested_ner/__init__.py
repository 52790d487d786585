"""Nested named entity recognition for spaCy."""

from spacy_nested_ner.about import __version__
from spacy_nested_ner.displacy import render
from spacy_nested_ner.tables import to_dicts, to_frame

__all__ = ["__version__", "render", "to_dicts", "to_frame"]
