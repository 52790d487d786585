"""What the components before a pipe give to the docs that its encoder reads."""

from itertools import takewhile
from typing import Any, List

from spacy.language import Language
from spacy.tokens import Doc


def annotated_docs(docs: List[Doc], pipe: Any, nlp: Language) -> List[Doc]:
    """Copies of the docs with the annotation of the components that stand before `pipe`."""
    annotating = nlp.config.get("training", {}).get("annotating_components", [])
    docs = [doc.copy() for doc in docs]
    for name, other in takewhile(lambda item: item[1] is not pipe, nlp.components):
        # Frozen components are disabled while the others are initialised.
        if name in nlp.pipe_names or name in annotating:
            docs = [other(doc) for doc in docs]
    return docs
