__title__ = "spacy_nested_ner"
__version__ = "0.1.0"
