"""Pipelines, and a server that shows them."""

import threading
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List

import pytest
from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.training import Example

from spacy_nested_ner import to_dicts
from spacy_nested_ner.demo.panes import Pane, panes_of
from spacy_nested_ner.demo.server import address, listen, make_app, make_server
from tests.conftest import SENTENCES, make_examples, make_pipeline, train

TEXT = " ".join(f"{text}." for text, _ in SENTENCES)
EVIL = "</script><script>alert(\" Berkeley \")</script> & 'Oslo'\u2028<b>cells</b>"
EVIL_LABEL = "<img src=x onerror=alert('label')>\"&"


def with_evil(nlp: Language) -> List[Example]:
    """The ten sentences, and one that is markup, with a label that is."""
    doc = nlp.make_doc(EVIL)
    span = doc.char_span(0, len(doc.text), EVIL_LABEL)
    inner = doc.char_span(doc.text.index("Berkeley"), doc.text.index("Berkeley") + 8, "GPE")
    reference = doc.copy()
    reference.spans["sc"] = [Span(reference, s.start, s.end, s.label) for s in (span, inner)]
    return [*make_examples(nlp), Example(doc, reference)]


def entities_of(doc: Doc, spans_key: str = "sc") -> List[Dict[str, Any]]:
    """What `to_dicts` gives, but for what depends on the other spans."""
    (found,) = to_dicts(doc, spans_key)
    of_others = ("depth", "parent")
    return [{k: v for k, v in span.items() if k not in of_others} for span in found["spans"]]


@contextmanager
def served(panes: List[Pane]) -> Iterator[str]:
    """The address of a server that runs in a thread."""
    with listen("127.0.0.1", 0) as listening:
        server = make_server(make_app(panes, "127.0.0.1"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield address(listening)
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="session")
def unsure() -> Language:
    """A pipeline that has seen little: scores of all kinds, spans that cross. It splits sentences.
    Not to be changed by a test."""
    nlp = train(make_pipeline("locate_and_label_ner"), 25)
    nlp.add_pipe("sentencizer", first=True)
    return nlp


@pytest.fixture(scope="session")
def evil() -> Language:
    """A pipeline that finds entities in markup, of a label that is markup. Not to be changed."""
    return train(make_pipeline("piqn_ner", examples=with_evil), 80, with_evil)


@pytest.fixture(scope="session")
def url(unsure, evil) -> Iterator[str]:
    """The address of a server that shows both."""
    with served([*panes_of("unsure", unsure), *panes_of("evil", evil)]) as url:
        yield url
