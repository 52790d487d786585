"""From one machine to many: texts of tables in, entities of tables out.

Needs pyarrow: `pip install "spacy_nested_ner[scale]"`. It is imported when the first table comes.
"""

from spacy_nested_ner.scale.annotator import Annotator

__all__ = ["Annotator"]
