"""Tokens of whitespace: doubled blanks, line ends and empty lines of raw text."""

import numpy as np
import pytest
import spacy
import torch
from spacy.language import Language
from spacy.tokens import Doc, Span, Token
from spacy.training import Example
from spacy.util import registry
from thinc.api import ArgsKwargs, Model, PyTorchWrapper

from spacy_nested_ner.pipeline.segments import cut_segments, read_as
from spacy_nested_ner.pipeline.sentences import (
    NOTHING_SEEN,
    after_empty_lines,
    knows_words_alone,
    remember,
)
from spacy_nested_ner.pipeline.tokens import is_space
from tests.conftest import SENTENCES, SMALL_CNN, make_examples, make_pipeline, scores_of, train

VOCAB = spacy.blank("en").vocab
FACTORIES = ["locate_and_label_ner", "piqn_ner", "mrc_ner"]
TEXTS = [text for text, _ in SENTENCES]


@pytest.fixture(scope="module", params=FACTORIES)
def nlp(request):
    """Has learned from single sentences without whitespace. Not to be changed by a test."""
    return train(make_pipeline(request.param, threshold=0.05), 20)


INVISIBLE = dict.fromkeys(map(ord, "\u200b\u2060\u200e\ufeff"))


def texts_of(doc):
    """Entities without the whitespace in them, and their labels."""
    spans = doc.spans["sc"]
    texts = [" ".join(span.text.translate(INVISIBLE).split()) for span in spans]
    return texts, [span.label_ for span in spans]


@pytest.mark.parametrize("blank", ["  ", "\n", " \n\t ", " \u200b ", " \ufeff \u200e\u2060 "])
def test_whitespace_changes_nothing(nlp, blank):
    spaced = [text.replace(" ", blank) for text in TEXTS]
    pairs = list(zip(nlp.pipe(TEXTS), nlp.pipe([f"\n{text}{blank}" for text in spaced])))
    assert sum(len(doc.spans["sc"]) for doc, _ in pairs) > 10
    for doc, other in pairs:
        assert len(other) > len(doc) and other.text != doc.text
        assert texts_of(other) == texts_of(doc)
        assert scores_of(other) == pytest.approx(scores_of(doc), abs=1e-5)


@pytest.fixture(scope="module")
def lookup():
    """A layer from elsewhere: vectors that another component has left on the doc."""
    Doc.set_extension("own_vectors", default=None)

    @registry.architectures("tests.Lookup.v1")
    def make_lookup(short: bool = False):
        def forward(model, docs, is_train):
            vectors = [doc._.own_vectors for doc in docs]
            zeros = np.zeros((1000, 8), dtype="float32")  # before that component has read a doc
            pairs = zip(docs, vectors)
            found = [zeros[: len(doc)] if own is None else own[short:] for doc, own in pairs]
            return found, lambda gradients: []

        return Model("lookup", forward)

    @Language.component("looks_up")
    def looks_up(doc):
        doc._.own_vectors = np.arange(8 * len(doc), dtype="float32").reshape(-1, 8)
        return doc

    @registry.architectures("tests.TorchLookup.v1")
    def make_torch_lookup():
        def convert(model, docs, is_train):
            words = torch.zeros(sum(map(len, docs)), 8)
            lengths = [len(doc) for doc in docs]
            return ArgsKwargs((words, lengths), {}), lambda gradients: []

        def convert_back(model, pair, is_train):
            _, outputs = pair

            def back(gradients):
                tensors = [torch.from_numpy(gradient) for gradient in gradients]
                return ArgsKwargs((list(outputs),), {"grad_tensors": tensors})

            return [array.detach().numpy() for array in outputs], back

        class Split(torch.nn.Linear):
            def forward(self, words, lengths):
                return super().forward(words).split(lengths)

        return PyTorchWrapper(Split(8, 8), convert_inputs=convert, convert_outputs=convert_back)

    yield {"@architectures": "tests.Lookup.v1"}
    Doc.remove_extension("own_vectors")


def test_layers_from_elsewhere_are_given_the_docs_as_they_are(lookup):
    in_torch = {"@architectures": "tests.TorchLookup.v1"}
    for tok2vec, as_given in ((lookup, True), (in_torch, True), (SMALL_CNN, False)):
        nlp = spacy.blank("en")
        nlp.add_pipe("looks_up")
        pipe = nlp.add_pipe("piqn_ner", config={"model": {"tok2vec": tok2vec}})
        examples = make_examples(nlp)
        nlp.update(examples, sgd=nlp.initialize(lambda found=examples: found))
        doc = nlp(TEXTS[0].replace(" ", "  "))
        rows = pipe.segments([doc]).rows
        assert (pipe.as_read([doc], rows).docs[0] is doc) == as_given


def test_an_encoder_gives_a_vector_for_each_token(lookup):
    nlp = spacy.blank("en")
    nlp.add_pipe("looks_up")
    nlp.add_pipe("piqn_ner", config={"model": {"tok2vec": {**lookup, "short": True}}})
    nlp.initialize(lambda: make_examples(nlp))
    with pytest.raises(ValueError, match="gives 3 vectors for the 4 tokens of a doc"):
        nlp("The US Bank now")


def test_docs_of_whitespace_have_no_entities(nlp):
    docs = list(nlp.pipe(["\n\n", "", " ", TEXTS[0], "\t \n"]))
    assert [bool(doc.spans["sc"]) for doc in docs] == [False, False, False, True, False]


def test_an_empty_line_ends_a_sentence(nlp):
    pipe, doc = nlp.get_pipe("ner"), nlp.make_doc(f"{TEXTS[0]}\n\n{TEXTS[1]}")
    (line,) = [token.i for token in doc if token.is_space]
    assert pipe.segments([doc]).rows.tolist() == [[0, 0, line], [0, line + 1, len(doc)]]
    pipe(doc)
    assert {span.start > line for span in doc.spans["sc"]} == {True, False}
    assert not any(span.start <= line < span.end for span in doc.spans["sc"])


def test_a_pipe_that_learned_from_whitespace_reads_it():
    nlp = make_pipeline()
    learned_from = [nlp.make_doc(eg.x.text.replace(" ", "\n", 1)) for eg in make_examples(nlp)]
    for doc in learned_from:
        doc.spans["sc"] = []
    nlp.update([Example(doc.copy(), doc) for doc in learned_from], sgd=nlp.create_optimizer())
    doc = nlp.make_doc(TEXTS[0].replace(" ", "\n"))
    pipe = nlp.get_pipe("ner")
    rows = pipe.segments([doc, nlp.make_doc("\n")]).rows
    assert rows.tolist() == [[0, 0, len(doc)], [1, 0, 1]]
    read = pipe.as_read([doc], rows[:1])
    assert read.docs == [doc] and read.places is None


def test_what_is_known_of_whitespace_by_hand():
    words, spaced = Doc(VOCAB, words=["a", "b"]), Doc(VOCAB, words=["a", "\n", "b"])
    assert knows_words_alone(remember(NOTHING_SEEN, [words] * 20 + [spaced], 192))
    assert not knows_words_alone(remember(NOTHING_SEEN, [words] * 19 + [spaced], 192))
    assert not knows_words_alone(NOTHING_SEEN)


def test_empty_lines_by_hand():
    doc = Doc(VOCAB, words=["a", "\n", "b", "\n\n", "c", ".", "\n \n", "d", "\n\n"])
    assert after_empty_lines(doc) == [4, 7, 9]


def test_segments_of_words_alone_by_hand():
    words = ["\n\n", "a", " ", "b", "\n\n", "c"]
    docs = [Doc(VOCAB, words=words), Doc(VOCAB, words=["\n"])]
    rows = cut_segments(docs, 192, 128, usual_length=9, words_alone=True).rows
    assert rows.tolist() == [[0, 1, 4], [0, 5, 6]]
    assert cut_segments(docs, 192, 128, words_alone=True).rows.tolist() == [[0, 1, 6]]
    starts = [i in (1, 4) for i in range(6)]  # the second one begins with whitespace
    doc = Doc(VOCAB, words=words, sent_starts=starts)
    assert cut_segments([doc], 192, 128, words_alone=True).rows.tolist() == [[0, 1, 4], [0, 5, 6]]


@pytest.mark.parametrize(
    "text",
    [
        "one two three four five six seven eight nine ten eleven twelve",
        'He saw "it here." "Then (as said. Fig. 2) it went (back).',
        "no sign here at all and none there",
    ],
)
def test_segments_hold_the_words_that_they_hold_without_whitespace(text):
    docs = [spacy.blank("en").make_doc(t) for t in (text, text.replace(" ", "\n"))]
    words = [[token for token in doc if not token.is_space] for doc in docs]
    for usual in (None, 5, 9, 20):
        plain, spaced = (cut_segments([doc], 4, 2, usual, words_alone=True) for doc in docs)
        first, second = (
            [[t.text for t in own if start <= t.i < end] for _, start, end in each.rows.tolist()]
            for own, each in zip(words, (plain, spaced))
        )
        assert first == second and len(first)


@pytest.fixture
def extended():
    Token.set_extension("font", default=0)
    Doc.set_extension("page", default=0)
    yield
    Token.remove_extension("font")
    Doc.remove_extension("page")


@pytest.mark.parametrize("apart", [False, True])
def test_sentences_entities_and_extensions_are_read_without_whitespace(extended, apart):
    words = ["a", "b", "\n", "c", "d", "\n", "e", "f"]
    doc = Doc(VOCAB, words=words, sent_starts=[True, *[False] * 4, True, False, False])
    doc.set_ents([Span(doc, 1, 5, "X", kb_id="Q1")])
    doc[3]._.font, doc._.page, doc.user_data["name"] = 7, 3, "letter"
    rows = np.array([[0, 0, 5], [0, 5, 8]])
    read = read_as([doc], rows, apart=apart, words_alone=True).docs
    assert [ent.text.split() for part in read for ent in part.ents] == [["b", "c", "d"]]
    tokens = [token for part in read for token in part]
    assert [t.ent_iob_ for t in tokens] == ["O", "B", "I", "I", "O", "O"]
    assert [t.ent_kb_id_ for t in tokens] == ["", "Q1", "Q1", "Q1", "", ""]
    assert [t._.font for t in tokens] == [0, 0, 7, 0, 0, 0]
    assert [t.text for t in tokens if t.is_sent_start] == ["a", "e"]
    assert all(part._.page == 3 and part.user_data["name"] == "letter" for part in read)
    assert sum(len(list(part.sents)) for part in read) == 2


@pytest.mark.parametrize("blocked", [False, True])
def test_an_entity_that_begins_with_whitespace_begins_behind_it(blocked):
    doc = Doc(VOCAB, words=["a", "b", "\n", "c", "d"])
    before = doc[0:2] if blocked else Span(doc, 0, 2, "X")
    own = Span(doc, 2, 4, "Y")
    doc.set_ents([own] if blocked else [before, own], blocked=[before] if blocked else None)
    [part] = read_as([doc], np.array([[0, 0, 5]]), words_alone=True).docs
    expected = [("c", "Y")] if blocked else [("a b", "X"), ("c", "Y")]
    assert [(ent.text.split(), ent.label_) for ent in part.ents] == [
        (text.split(), label) for text, label in expected
    ]


def test_segments_are_read_in_a_time_that_grows_with_them():
    """No segment looks at those before it."""

    class Counted(dict):
        asked = 0

        def items(self):
            Counted.asked += 1
            return super().items()

    doc = Doc(VOCAB, words=["w"] * 60)
    doc.user_data = Counted(name="letter")
    rows = np.array([[0, i, i + 2] for i in range(0, 60, 2)])
    parts = read_as([doc], rows, apart=True).docs
    assert Counted.asked == 1 and len(parts) == 30
    parts[0].user_data["name"] = "other"
    assert parts[1].user_data["name"] == "letter" == doc.user_data["name"]


def test_an_entity_that_is_cut_begins_anew():
    doc = Doc(VOCAB, words=["a", "b", "c"])
    doc.set_ents([Span(doc, 0, 3, "X")])
    read = read_as([doc], np.array([[0, 0, 1], [0, 1, 3]]), apart=True).docs
    assert [[ent.text for ent in part.ents] for part in read] == [["a"], ["b c"]]


@pytest.mark.parametrize("apart", [False, True])
def test_what_is_read_by_hand(apart):
    words = ["\n", "the", "  ", "US", "Court", "\n", "sat", "."]
    doc = Doc(VOCAB, words=words, spaces=[False, True, False, True, False, False, False, False])
    doc[3].norm_, doc[4].tag_, doc[1].ent_type_ = "u.s.", "NN", "X"
    doc.tensor = np.arange(8.0).reshape(8, 1)
    other = Doc(VOCAB, words=["a", "b"])
    rows = np.array([[0, 0, 5], [0, 5, 8], [1, 0, 2]])
    read = read_as([doc, other], rows, apart=apart, words_alone=True)
    texts = [[t.text for t in read.docs[i]][start:end] for i, start, end in read.rows.tolist()]
    assert texts == [["the", "US", "Court"], ["sat", "."], ["a", "b"]]
    assert [places.tolist() for places in read.places] == (
        [[1, 3, 4], [6, 7], [0, 1]] if apart else [[1, 3, 4, 6, 7], [0, 1]]
    )
    first = read.docs[0]
    assert first.text.startswith("the US Court") and read.docs[-1] is other
    assert (first[1].norm_, first[2].tag_, first[0].ent_type_) == ("u.s.", "NN", "X")
    assert first.tensor[:3, 0].tolist() == [1, 3, 4]
    assert not doc.has_annotation("SENT_START") and len(doc) == len(words)


def test_what_is_whitespace_by_hand():
    """A word that holds what is not shown is a word, and so are signs in front of numbers. What
    Windows writes for a quotation mark is a control character in other encodings."""
    words = ["p53", "co\u00adoperation", "\u200bp53\u200b", "\u06dd", "\u0600", "\x07"]
    blanks = ["\x93", "\u2028", "\u2060\ufeff", "\u3000", "\n"]
    doc = Doc(VOCAB, words=[*words, *blanks])
    assert is_space(doc).tolist() == [False] * len(words) + [True] * len(blanks)


@pytest.mark.parametrize("apart", [False, True])
def test_all_that_an_embedding_may_ask_for_is_read(apart):
    doc = Doc(
        VOCAB,
        words=["a", "\n", "b", "c"],
        lemmas=["la", "", "lb", "lc"],
        pos=["NOUN", "SPACE", "VERB", "ADJ"],
        tags=["NN", "_SP", "VB", "JJ"],
        morphs=["Number=Sing", "", "Tense=Past", "Degree=Pos"],
        deps=["nsubj", "dep", "ROOT", "acomp"],
        heads=[2, 2, 2, 2],
    )
    doc.set_ents([Span(doc, 2, 4, "X", kb_id="Q1", span_id="own")])
    rows = np.array([[0, 0, 1], [0, 2, 4]])
    read = read_as([doc], rows, apart=apart, words_alone=True).docs
    found, expected = [t for part in read for t in part], [doc[0], doc[2], doc[3]]
    names = ("lemma_", "pos_", "tag_", "dep_", "morph", "ent_type_", "ent_kb_id_", "ent_id_")
    for name in names:
        values = [str(getattr(token, name)) for token in expected]
        assert [str(getattr(token, name)) for token in found] == values and any(values), name
