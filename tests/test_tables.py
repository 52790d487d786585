from __future__ import annotations

import json

import numpy as np
import pytest
import spacy
from spacy.tokens import Span

from spacy_nested_ner import to_dicts


@pytest.fixture
def doc():
    doc = spacy.blank("en").make_doc("The IL-2 gene.")
    doc.spans["sc"] = [Span(doc, 1, 3, "DNA"), Span(doc, 1, 2, "protein")]
    return doc


@pytest.mark.parametrize("shape", [(2,), (2, 1)])
def test_spans_with_scores(doc, shape):
    doc.spans["sc"].attrs["scores"] = np.array([0.75, 0.5], dtype="float32").reshape(shape)
    first, second = json.loads(json.dumps(to_dicts(doc)))
    assert first == {
        "text": "IL-2 gene",
        "label": "DNA",
        "start": 4,
        "end": 13,
        "token_start": 1,
        "token_end": 3,
        "score": 0.75,
    }
    assert (second["text"], second["score"]) == ("IL-2", 0.5)


def test_spans_without_scores(doc):
    assert [each["score"] for each in to_dicts(doc)] == [None, None]
    doc.spans["empty"] = []
    assert to_dicts(doc, "empty") == []


def test_unknown_key(doc):
    with pytest.raises(ValueError, match=r"no spans under 'nest'\. Its spans keys: 'sc'"):
        to_dicts(doc, "nest")
