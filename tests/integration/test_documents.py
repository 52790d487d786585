"""Whole documents and memory zones in a trained pipeline."""

from typing import List

import pytest
import spacy
from spacy.language import Language
from spacy.tokens import Doc
from spacy.vocab import Vocab

from tests.conftest import SENTENCES, scores_of, spans_of
from tests.integration.conftest import docs_of

SEPARATE = [text for text, _ in SENTENCES if "." not in text]


@pytest.fixture
def nlp(model_path) -> Language:
    return spacy.load(model_path)


def test_a_sentencizer_makes_each_sentence_a_segment(nlp) -> None:
    """The head sees one sentence at a time, so that its neighbours change little: the encoder
    alone looks across the boundary."""
    nlp.replace_listeners("tok2vec", "piqn_ner", ["model.tok2vec"])
    words: List[str] = []
    expected = []
    for text, entities in SENTENCES:
        if "." not in text:
            expected += [(len(words) + s, len(words) + e, label) for s, e, label in entities]
            words += [*text.split(" "), "."]
    by_itself = spans_of(nlp(Doc(nlp.vocab, words=words)))
    nlp.get_pipe("piqn_ner").cfg["split_sentences"] = False
    with pytest.warns(UserWarning, match="split_sentences"):
        as_one = set(spans_of(nlp(Doc(nlp.vocab, words=words))))
    nlp.add_pipe("sentencizer", first=True)
    doc = nlp(Doc(nlp.vocab, words=words))
    assert len(list(doc.sents)) == len(SEPARATE)
    bounds = [(sent.start, sent.end) for sent in doc.sents]
    for start, end, _ in spans_of(doc):
        assert any(first <= start and end <= last for first, last in bounds)
    found = set(spans_of(doc)) & set(expected)
    assert len(found) > 0.5 * len(set(expected))
    assert len(found) > len(as_one & set(expected))
    assert spans_of(doc) == by_itself  # a pipe that learned from sentences needs no sentencizer


def test_sentence_boundaries_make_the_spans_of_each_sentence(nlp) -> None:
    """With an encoder that sees nothing but the word, a doc of sentences has exactly the spans and
    scores of its sentences alone."""
    _blind_encoder(nlp)
    alone = list(nlp.pipe(docs_of(nlp)))
    words = [token.text for doc in alone for token in doc]
    starts = [i == 0 for doc in alone for i in range(len(doc))]
    whole = nlp(Doc(nlp.vocab, words=words, sent_starts=starts))
    expected, scores, first = [], [], 0
    for doc in alone:
        expected += [(first + s, first + e, label) for s, e, label in spans_of(doc)]
        scores += scores_of(doc)
        first += len(doc)
    assert spans_of(whole) == expected and len(expected) > 0
    assert scores_of(whole) == pytest.approx(scores, abs=1e-5)


def _blind_encoder(nlp: Language) -> None:
    """Let the convolutions add nothing, so that a vector depends on its word alone; any span will
    do then."""
    nlp.get_pipe("piqn_ner").cfg["threshold"] = 0.05
    for node in nlp.get_pipe("tok2vec").model.walk():
        if node.name == "residual(expand_window>>maxout>>layernorm>>dropout)":
            for inner in node.walk():
                for name in inner.param_names:
                    inner.set_param(name, inner.get_param(name) * 0)


def test_1500_tokens_without_sentence_boundaries(nlp) -> None:
    """Spans are found in all of it, and where windows overlap each only once. The windows are as
    short as the sentences of the training data."""
    nlp.get_pipe("piqn_ner").cfg.update(window=16, stride=10)
    words = [token.text for doc in docs_of(nlp) for token in doc]
    words = (words * (1500 // len(words) + 1))[:1500]
    doc = nlp(Doc(nlp.vocab, words=words))
    assert len(doc) == 1500 and not doc.has_annotation("SENT_START")
    spans = spans_of(doc)
    assert len(spans) == len(set(spans)) == len(scores_of(doc))
    for begin in range(0, 1500, 100):
        assert any(begin <= start < begin + 100 for start, _, _ in spans)


def test_predictions_inside_and_after_a_memory_zone(nlp) -> None:
    before = [spans_of(doc) for doc in nlp.pipe(docs_of(nlp))]
    for _ in range(2):
        with nlp.memory_zone():
            docs = list(nlp.pipe(docs_of(nlp)))
            inside = [spans_of(doc) for doc in docs]
            strange = nlp("qwx" + "zyx" * 9)  # a word that the vocab has never seen
            assert strange.spans["sc"].attrs["scores"].shape == (len(strange.spans["sc"]),)
            del docs, strange
        after = [spans_of(doc) for doc in nlp.pipe(docs_of(nlp))]
        assert inside == after == before
    assert all(label in nlp.vocab.strings for label in nlp.get_pipe("piqn_ner").labels)


def test_labels_of_a_pipe_that_is_loaded_without_its_vocab_outlive_a_zone(nlp, tmp_path) -> None:
    nlp.to_disk(tmp_path)
    loaded = spacy.load(tmp_path, exclude=["vocab"], vocab=Vocab(nlp.vocab.lex_attr_getters))
    labels = loaded.get_pipe("piqn_ner").labels
    with loaded.memory_zone():
        loaded("p53")
    assert all(label in loaded.vocab.strings for label in labels)
    found = list(loaded.pipe(docs_of(loaded)))
    assert {label for doc in found for _, _, label in spans_of(doc)} <= set(labels)
    assert sum(len(spans_of(doc)) for doc in found) > 0


def test_a_label_added_inside_a_memory_zone_outlives_it(nlp) -> None:
    with nlp.memory_zone():
        assert nlp.get_pipe("piqn_ner").add_label("SEEN_FIRST_IN_A_ZONE") == 1
    nlp.get_pipe("piqn_ner").cfg["threshold"] = 0.0
    docs = list(nlp.pipe(docs_of(nlp)))
    assert nlp.get_pipe("piqn_ner").labels[-1] == "SEEN_FIRST_IN_A_ZONE"
    assert all(span.label_ for doc in docs for span in doc.spans["sc"])
