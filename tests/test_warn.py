"""Warnings point to the line that led to them."""

import warnings

import pytest
from spacy.tokens import Span

from spacy_nested_ner import to_dicts
from tests.conftest import SENTENCES, make_pipeline


def of_another_writer(nlp):
    """A doc whose spans the component replaces."""
    doc = nlp.make_doc(SENTENCES[0][0])
    doc.spans["sc"] = [Span(doc, 0, 1, label="ORG")]
    return doc


def test_they_point_to_the_line_of_the_user():
    nlp = make_pipeline()
    doc = of_another_writer(nlp)
    with pytest.warns(UserWarning, match="it replaces spans") as caught:
        doc = nlp(doc)
    doc.spans["sc"].attrs["scores"] = doc.spans["sc"].attrs["scores"][:0]
    doc.spans["sc"].append(Span(doc, 0, 1, label="ORG"))
    with pytest.warns(UserWarning, match="more or fewer spans") as caught_too:
        to_dicts(nlp.pipe([]))
        to_dicts(doc)
    assert [each.filename for each in (*caught, *caught_too)] == [__file__] * 2


def test_as_an_error_a_warning_reaches_the_user_in_a_batch_too():
    nlp = make_pipeline()
    docs = [of_another_writer(nlp) for _ in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with pytest.raises(UserWarning, match="it replaces spans"):
                list(nlp.pipe(docs))
