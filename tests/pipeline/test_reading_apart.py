"""An encoder that learned from single sentences and is given whole documents."""

import numpy as np
import pytest
import spacy
from spacy.tokens import Doc
from spacy.training import Example

from tests.conftest import SENTENCES, make_pipeline, scores_of, spans_of, train

pytest.importorskip("transformers")

ENCODERS = {
    "SortedTransformer": ("locate_and_label_ner", {}, {"filter_threshold": 0.0}),
    "QueryEncoder": ("piqn_ner", {"query_source": "encoder", "quantity": 0.75}, {}),
    "HybridEncoder": ("proposer_regressor_ner", {}, {}),
    "a CNN from scratch": ("diffusion_ner", {}, {}),
}
WORDS = [text.split(" ") for text, _ in SENTENCES[:6]]


def tok2vec(name, directory):
    own = {"@architectures": f"spacy_nested_ner.{name}.v1"}
    if name == "HybridEncoder":
        return {**own, "char_width": 8, "tok2vec": tok2vec("SortedTransformer", directory)}
    queries = {"n_queries": 16} if name == "QueryEncoder" else {}
    return {**own, "name": str(directory), **queries}


def untrained(name, directory):
    factory, model, options = ENCODERS[name]
    if name != "a CNN from scratch":
        model = {**model, "tok2vec": tok2vec(name, directory)}
    return make_pipeline(factory, model, threshold=0.01, **options)


@pytest.fixture(scope="module", params=ENCODERS)
def nlp(request, tiny_bert):
    """Has learned from single sentences. Not to be changed by a test."""
    return train(untrained(request.param, tiny_bert), 20)


def document(nlp):
    """All sentences, with their boundaries."""
    words = [word for sentence in WORDS for word in sentence]
    starts = {0, *np.cumsum([len(sentence) for sentence in WORDS]).tolist()}
    return Doc(nlp.vocab, words=words, sent_starts=[i in starts for i in range(len(words))])


def reads_whole(pipe, doc, rows):
    read = pipe.as_read([doc], rows)
    return read.docs == [doc] and read.rows is rows and read.places is None


def found_in_sentences(nlp):
    """Spans in words of the document, and scores, of sentences that are docs of their own."""
    pipe, spans, scores, first = nlp.get_pipe("ner"), [], [], 0
    for words in WORDS:
        doc = pipe(Doc(nlp.vocab, words=words))
        spans += [(start + first, end + first, label) for start, end, label in spans_of(doc)]
        scores += scores_of(doc)
        first += len(words)
    return spans, scores


def test_a_sentence_gives_the_same_alone_and_in_a_document(nlp):
    pipe = nlp.get_pipe("ner")
    spans, scores = found_in_sentences(nlp)
    assert len(spans) > 10
    doc, other = pipe.pipe([document(nlp), Doc(nlp.vocab, words=WORDS[0])])
    assert spans_of(doc) == spans
    assert scores_of(doc) == pytest.approx(scores, abs=1e-5)
    assert spans_of(other) == [span for span in spans if span[1] <= len(WORDS[0])]


def test_the_encoder_reads_the_whole_doc_where_split_sentences_is_off(nlp, monkeypatch):
    pipe = nlp.get_pipe("ner")
    monkeypatch.setattr(pipe, "cfg", {**pipe.cfg, "split_sentences": False})
    doc = document(nlp)
    rows = pipe.segments([doc]).rows
    assert len(rows) == len(WORDS) and reads_whole(pipe, doc, rows)
    _, scores = found_in_sentences(nlp)
    found = scores_of(pipe(doc))
    assert len(found) != len(scores) or found != pytest.approx(scores, abs=1e-5)


def test_so_it_does_where_it_learned_from_documents(tiny_bert, tmp_path):
    nlp = untrained("SortedTransformer", tiny_bert)
    examples = [Example(document(nlp), document(nlp)) for _ in range(2)]
    nlp.update(examples, sgd=nlp.create_optimizer())
    nlp.to_disk(tmp_path)
    pipe, doc = spacy.load(tmp_path).get_pipe("ner"), document(nlp)
    rows = pipe.segments([doc]).rows
    assert len(rows) == len(WORDS) and reads_whole(pipe, doc, rows)


def test_a_pipe_of_an_older_version_reads_whole_docs(nlp):
    data = spacy.blank("en", config=nlp.config).from_bytes(nlp.to_bytes())
    pipe = data.get_pipe("ner")
    pipe.cfg["learned_from"] = {
        key: value for key, value in pipe.cfg["learned_from"].items() if key != "alone"
    }
    again = spacy.blank("en", config=nlp.config).from_bytes(data.to_bytes()).get_pipe("ner")
    assert again.cfg["learned_from"]["alone"] == 0
    doc = document(nlp)
    assert reads_whole(again, doc, again.segments([doc]).rows)
