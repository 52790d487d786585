"""One pipeline in several threads, and several components in one pipeline."""

import warnings
from typing import Any, List, Tuple

import pytest
import spacy
from spacy.language import Language
from spacy.util import fix_random_seed

from tests.conftest import (
    SENTENCES,
    SMALL_CNN,
    SMALL_MODELS,
    assert_same_found,
    found_in,
    make_examples,
    scores_of,
    spans_of,
    train,
)
from tests.integration.conftest import LISTENER, assert_threads_agree, docs_of

WORDS = [word for text, _ in SENTENCES for word in text.split(" ")]
TEXTS = [text for text, _ in SENTENCES] + [" ".join(WORDS[i : i + 7]) for i in range(30)]


def test_four_threads_get_what_one_gets(trained, tmp_path) -> None:
    """All systems, and the encoders that read queries or questions along with the words. The first
    call, which fills the caches, is one of four."""
    trained.to_disk(tmp_path)
    assert_threads_agree(spacy.load(tmp_path), TEXTS)


FACTORIES = ["locate_and_label_ner", "piqn_ner"]


def make_two(keys: List[str], shared: bool) -> Language:
    """Two components, trained together; they listen to one tok2vec or each has its own."""
    fix_random_seed(0)
    nlp = spacy.blank("en")
    if shared:
        nlp.add_pipe("tok2vec", config={"model": SMALL_CNN})
    for factory, key in zip(FACTORIES, keys):
        model = {**SMALL_MODELS[factory], "tok2vec": LISTENER if shared else SMALL_CNN}
        nlp.add_pipe(factory, config={"model": model, "spans_key": key})

    def examples(nlp: Language) -> List[Any]:
        data = [make_examples(nlp, key) for key in keys]
        for first, second in zip(*data):
            first.reference.spans[keys[1]] = [
                spacy.tokens.Span(first.reference, span.start, span.end, span.label)
                for span in second.reference.spans[keys[1]]
            ]
        return data[0]

    data = examples(nlp)
    nlp.initialize(lambda: data)
    return train(nlp, 60, examples)


def alone(nlp: Language, factory: str, key: str) -> List[Tuple[List[tuple], List[float]]]:
    """What one of the components finds while the other is off."""
    other = next(name for name in FACTORIES if name != factory)
    with nlp.select_pipes(disable=[other]):
        docs = list(nlp.pipe(docs_of(nlp)))
    return [(spans_of(doc, key), scores_of(doc, key)) for doc in docs]


@pytest.mark.parametrize("shared", [True, False])
def test_two_components_predict_what_each_predicts_alone(tmp_path, shared: bool) -> None:
    keys = ["first", "second"]
    make_two(keys, shared).to_disk(tmp_path)
    nlp = spacy.load(tmp_path)
    docs = list(nlp.pipe(docs_of(nlp)))
    for factory, key in zip(FACTORIES, keys):
        together = [(spans_of(doc, key), scores_of(doc, key)) for doc in docs]
        assert_same_found(together, alone(nlp, factory, key))


def test_of_two_components_with_one_key_the_last_one_stands(tmp_path) -> None:
    make_two(["sc", "sc"], shared=True).to_disk(tmp_path)
    nlp = spacy.load(tmp_path)
    with pytest.warns(UserWarning, match=f"replaces spans .*'{FACTORIES[0]}'") as caught:
        together = found_in(nlp, docs_of(nlp))
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same_found(together, alone(nlp, FACTORIES[1], "sc"))
