"""Guard against systems that become slow: ratios of CPU time within one run, never times.

The limits are about twice what was measured. Whoever makes a system faster lowers its limit; a
limit is not raised without a reason in CHANGELOG.md.
"""

import random
import time
from typing import Any, Callable, Dict, List

import pytest
import spacy
import torch
from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.training import Example
from spacy.util import fix_random_seed
from thinc.api import Adam

WORDS = "the human IL-2 gene promoter binds NF-kappa B in T cells and US courts"
SPANCAT = {
    "suggester": {"@misc": "spacy.ngram_range_suggester.v1", "min_size": 1, "max_size": 8},
    "threshold": 1.0,
}
# Factory: settings, then how many times as long as spancat with 1- to 8-grams it may take to
# predict and to learn, both on the default CNN from scratch.
LIMITS: Dict[str, Any] = {
    "piqn_ner": ({"threshold": 1.0}, 1.3, 1.6),
    "locate_and_label_ner": ({"threshold": 1.0}, 1.0, 1.7),
    "proposer_regressor_ner": ({"threshold": 1.0}, 2.5, 3.2),
    "diffusion_ner": ({"threshold": 1.0}, 5.4, 2.4),
}


def references(nlp: Language, number: int) -> List[Doc]:
    """Docs of 5 to 45 words with two nested entities each."""
    chance, docs = random.Random(0), []
    for _ in range(number):
        doc = Doc(nlp.vocab, words=chance.choices(WORDS.split(), k=chance.randint(5, 45)))
        start = chance.randint(0, len(doc) - 4)
        doc.spans["sc"] = [
            Span(doc, start, start + 4, label="DNA"),
            Span(doc, start + 1, start + 2, label="protein"),
        ]
        docs.append(doc)
    return docs


def pipeline(factory: str, settings: Dict[str, Any]) -> Language:
    fix_random_seed(0)
    nlp = spacy.blank("en")
    nlp.add_pipe(factory, config=settings)
    examples = [Example(Doc(nlp.vocab, words=[t.text for t in d]), d) for d in references(nlp, 8)]
    nlp.initialize(lambda: examples)
    return nlp


def predicts(nlp: Language) -> Callable[[], None]:
    def run() -> None:
        docs = (Doc(nlp.vocab, words=[t.text for t in doc]) for doc in references(nlp, 64))
        list(nlp.pipe(docs, batch_size=64))

    return run


def learns(nlp: Language) -> Callable[[], None]:
    optimizer, docs = Adam(0.001), references(nlp, 32)

    def run() -> None:
        nlp.update(
            [Example(Doc(nlp.vocab, words=[t.text for t in doc]), doc) for doc in docs],
            sgd=optimizer,
        )

    return run


def ratio(ours: Callable[[], None], theirs: Callable[[], None]) -> float:
    """Least CPU time of ours by least of theirs, in turn."""
    least = [float("inf"), float("inf")]
    for _ in range(4):
        for i, run in enumerate((ours, theirs)):
            begin = time.process_time()
            run()
            least[i] = min(least[i], time.process_time() - begin)
    return least[0] / least[1]


@pytest.fixture(scope="module")
def spancat() -> Language:
    return pipeline("spancat", SPANCAT)


@pytest.mark.parametrize("factory", LIMITS)
def test_no_slower_than_it_was(factory, spancat) -> None:
    settings, predicting, learning = LIMITS[factory]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        nlp = pipeline(factory, settings)
        found = ratio(predicts(nlp), predicts(spancat)), ratio(learns(nlp), learns(spancat))
    finally:
        torch.set_num_threads(threads)
    assert found[0] < predicting and found[1] < learning
