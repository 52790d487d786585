"""A pipe that learned from single sentences and is given whole documents."""

import warnings
from typing import Any, List

import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st
from spacy.language import Language
from spacy.pipeline import Sentencizer
from spacy.tokens import Doc
from spacy.training import Example

from spacy_nested_ner.pipeline.sentences import (
    EARLIER,
    NOTHING_SEEN,
    faded,
    has_sentences,
    knows_one_at_a_time,
    knows_whole_docs,
    remember,
    rule_sentences,
    set_sentences,
    usual_length,
)
from tests.conftest import CUPY_WARNS, but_cupys, make_example, make_pipeline, train

VOCAB = spacy.blank("en").vocab
CITIES = ["Oslo", "Paris", "Rome", "Lima", "Bern", "Cairo"]
PATTERNS = [
    ("the president of the University of {} left .", [(0, 7, "PER"), (3, 7, "ORG"), (6, 7, "GPE")]),
    ("{} and the mayor of {} met him .", [(0, 1, "GPE"), (2, 6, "PER"), (5, 6, "GPE")]),
    (
        "he joined Bank of {} in New {} City .",
        [(2, 5, "ORG"), (4, 5, "GPE"), (6, 9, "GPE"), (6, 8, "GPE")],
    ),
    ("The {} Supreme Court in {} was silent .", [(0, 4, "ORG"), (1, 2, "GPE"), (5, 6, "GPE")]),
    ("students of {} read a book there .", [(0, 3, "PER"), (2, 3, "GPE")]),
]
THIRTY = [(text.format(city, city), spans) for city in CITIES for text, spans in PATTERNS]


SIGNS = ["a", ".", "!", "。", "...", ",", '"', ")", "\n", " "]


@given(st.lists(st.sampled_from(SIGNS), max_size=12))
def test_the_rule_is_that_of_the_sentencizer(words) -> None:
    doc = Doc(VOCAB, words=words)
    found = rule_sentences(doc)
    (expected,) = Sentencizer().predict([doc])
    assert [start for start, _ in found] == [i for i, start in enumerate(expected) if start]
    assert [end for _, end in found[:-1]] == [start for start, _ in found[1:]]
    assert not words or found[-1][1] == len(words)


def single(nlp: Language) -> List[Example]:
    return [make_example(nlp, text, entities) for text, entities in THIRTY]


def documents(nlp: Language, size: int = 20, full_stop: bool = True) -> List[Example]:
    """Docs of so many sentences, without sentence boundaries."""
    examples = []
    for begin in range(0, len(THIRTY) - size + 1, 10):
        words: List[str] = []
        entities: List[tuple] = []
        for text, found in THIRTY[begin : begin + size]:
            entities += [(len(words) + s, len(words) + e, label) for s, e, label in found]
            words += text.split(" ") if full_stop else text.split(" ")[:-1]
        examples.append(make_example(nlp, " ".join(words), entities))
    return examples


@pytest.fixture(scope="module")
def learned() -> Language:
    """From thirty single sentences. Not to be changed by a test."""
    nlp = train(make_pipeline(examples=single), 60, single)
    assert nlp.evaluate(single(nlp))["nested_f"] > 0.99
    return nlp


@pytest.fixture
def cfg(learned, monkeypatch) -> Any:
    """Settings that a test may change."""
    pipe = learned.get_pipe("ner")
    monkeypatch.setattr(pipe, "cfg", dict(pipe.cfg))
    return pipe.cfg


@pytest.mark.filterwarnings("ignore:.*it learned from single")
def test_documents_without_boundaries_are_read_as_with_a_sentencizer(learned, cfg) -> None:
    cfg["split_sentences"] = False
    assert learned.evaluate(documents(learned))["nested_f"] < 0.3
    cfg["split_sentences"] = True
    examples = documents(learned)
    found = learned.evaluate(examples)["nested_f"]
    assert not any(eg.predicted.has_annotation("SENT_START") for eg in examples)
    learned.add_pipe("sentencizer", first=True)
    expected = learned.evaluate(documents(learned))["nested_f"]
    learned.remove_pipe("sentencizer")
    assert found == expected > 0.9


@pytest.mark.filterwarnings("ignore:.*it learned from single")
def test_a_boundary_that_is_forbidden_sets_none(learned, cfg) -> None:
    """As after an abbreviation."""
    cfg["split_sentences"] = True
    examples = documents(learned)
    expected = learned.evaluate(examples)["nested_f"]
    marked = documents(learned)
    for example in marked:
        example.predicted[1].is_sent_start = False
    assert learned.evaluate(marked)["nested_f"] == expected > 0.9


@pytest.mark.parametrize(
    ("starts", "expected", "sentences"),
    [
        ([1, 0, 0], False, [(0, 3)]),
        ([1, -1, 0], False, [(0, 3)]),
        ([1, -1, -1], True, [(0, 3)]),
        ([1, 0, 1], True, [(0, 2), (2, 3)]),
        ([1], True, [(0, 1)]),
        ([], True, []),
    ],
)
def test_whether_boundaries_are_set(starts, expected, sentences) -> None:
    doc = Doc(VOCAB, ["a"] * len(starts), sent_starts=starts)
    assert (has_sentences(doc), set_sentences(doc)) == (expected, sentences)


def test_documents_without_punctuation_are_read_in_short_windows(learned, cfg) -> None:
    found = learned.evaluate(documents(learned, full_stop=False))["nested_f"]
    cfg["split_sentences"] = False
    assert found > 0.7 > 0.3 > learned.evaluate(documents(learned, full_stop=False))["nested_f"]


def test_whole_documents_are_warned_about_once_where_they_are_not_split(learned, cfg) -> None:
    cfg["split_sentences"] = False
    pipe = learned.get_pipe("ner")
    fresh = spacy.blank("en", config=learned.config).from_bytes(learned.to_bytes()).get_pipe("ner")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=CUPY_WARNS)
        fresh.predict([eg.x for eg in single(learned)])
    with pytest.warns(UserWarning, match=r"'ner': .*single sentences.*split_sentences") as caught:
        for eg in documents(learned):
            fresh.predict([eg.x])
    assert len(but_cupys(caught)) == 1
    assert pipe.cfg["learned_from"] == fresh.cfg["learned_from"]


def test_entities_across_sentences_are_warned_of_where_docs_will_be_split() -> None:
    def joined(nlp: Language) -> List[Example]:
        """Two of the thirty docs are two sentences that an entity spans."""
        texts = [(f"{text} {text}", [(0, 17, "CLAIM")]) for text, _ in THIRTY[:2]]
        return [make_example(nlp, *each) for each in (*texts, *THIRTY[2:])]

    problem = r"2 of \d+ entities .* \(CLAIM 2\) cross the end of a sentence.* train on whole docs"
    with pytest.warns(UserWarning, match=problem) as caught:
        make_pipeline(examples=joined)
    assert len(but_cupys(caught)) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=CUPY_WARNS)
        make_pipeline(examples=joined, split_sentences=False)
        make_pipeline(examples=single)
        make_pipeline(examples=lambda nlp: joined(nlp)[:2])  # whole docs


def test_boundaries_that_are_set_are_kept(learned) -> None:
    text, _ = THIRTY[0]
    words = text.split(" ") * 4
    doc = Doc(learned.vocab, words=words, sent_starts=[i in (0, 18) for i in range(len(words))])
    segments = learned.get_pipe("ner").segments([doc])
    assert segments.rows.tolist() == [[0, 0, 18], [0, 18, 36]]


def test_a_pipe_that_learned_from_documents_reads_documents() -> None:
    nlp = make_pipeline(examples=documents)
    nlp.update(documents(nlp), sgd=nlp.create_optimizer())
    pipe = nlp.get_pipe("ner")
    words = THIRTY[0][0].split(" ") * 40
    rows = pipe.segments([Doc(nlp.vocab, words=words)]).rows
    assert (rows[:, 2] - rows[:, 1] == pipe.cfg["window"]).all()


def test_whole_documents_that_are_cut_after_all_are_warned_about_once() -> None:
    nlp = make_pipeline(examples=documents)
    nlp.update(documents(nlp), sgd=nlp.create_optimizer())
    pipe = nlp.get_pipe("ner")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=CUPY_WARNS)
        pipe.predict([documents(nlp)[0].x, single(nlp)[0].x])
    nlp.add_pipe("sentencizer", first=True)
    cut = r"'ner': it learned from whole docs .*annotating_components"
    with pytest.warns(UserWarning, match=cut) as caught:
        for eg in documents(nlp):
            nlp(eg.x.text)
    assert len(but_cupys(caught)) == 1


def test_documents_with_sentence_boundaries_are_single_sentences() -> None:
    """As a sentencizer among the annotating components sets them."""
    nlp = make_pipeline(examples=documents)
    examples = documents(nlp)
    sentencizer = nlp.create_pipe("sentencizer")
    nlp.update([Example(sentencizer(eg.x), eg.y) for eg in examples], sgd=nlp.create_optimizer())
    without = documents(nlp)[0].x
    rows = nlp.get_pipe("ner").segments([without]).rows
    assert [(s, e) for _, s, e in rows.tolist()] == rule_sentences(without)


def test_what_was_learned_from_is_saved_and_forgotten_by_initialize(learned, tmp_path) -> None:
    learned.to_disk(tmp_path)
    loaded = spacy.load(tmp_path)
    seen = loaded.get_pipe("ner").cfg["learned_from"]
    assert seen == learned.get_pipe("ner").cfg["learned_from"] and seen["single"] == 30 * 60
    assert loaded.evaluate(documents(loaded))["nested_f"] > 0.9
    loaded.initialize(lambda: single(loaded))
    assert loaded.get_pipe("ner").cfg["learned_from"] == NOTHING_SEEN


def test_what_a_loaded_pipe_learns_from_decides(learned, tmp_path) -> None:
    learned.to_disk(tmp_path)
    loaded = spacy.load(tmp_path)
    pipe, optimizer = loaded.get_pipe("ner"), loaded.resume_training()
    words = THIRTY[0][0].split(" ") * 40

    def reads_whole_docs() -> bool:
        rows = pipe.segments([Doc(loaded.vocab, words=words)]).rows
        return bool((rows[:, 2] - rows[:, 1] == pipe.cfg["window"]).all())

    assert not reads_whole_docs()
    n_docs = 0
    while not reads_whole_docs():
        loaded.update(documents(loaded), sgd=optimizer)
        n_docs += len(documents(loaded))
        assert n_docs < 150
    assert n_docs > 50
    # What it learned since counts in full, also in a training that goes on from there.
    assert pipe.cfg["learned_from"]["texts"] == EARLIER + n_docs


def test_few_texts_of_an_earlier_training_count_as_they_are() -> None:
    nlp = spacy.blank("en")
    docs = [nlp.make_doc("One sentence ."), nlp.make_doc("One . And two .")]
    seen = remember(NOTHING_SEEN, docs, 192)
    assert faded(seen) == seen and faded(NOTHING_SEEN) == NOTHING_SEEN
    many = {name: 1000 * count for name, count in seen.items()}
    assert faded(many)["texts"] == EARLIER and faded(many)["single"] == EARLIER // 2
    assert usual_length(faded(many)) == usual_length(many)


def test_usual_length_by_hand() -> None:
    vocab = spacy.blank("en").vocab
    docs = [Doc(vocab, words=["w"] * n) for n in (8, 10, 12, 0)]
    seen = remember(NOTHING_SEEN, docs, 192)
    kinds = {"texts": 3, "single": 3, "alone": 3, "spaced": 0}
    assert seen == {**kinds, "words": 30, "squared_words": 308}
    assert usual_length(seen) == 14  # 10 + 2 * sqrt(8 / 3)
    assert usual_length(NOTHING_SEEN) is None
    many = Doc(vocab, words=["a", ".", "b", "."])
    assert usual_length(remember(NOTHING_SEEN, [many, docs[0]], 192)) is None
    assert usual_length(remember(seen, [many], 192)) is not None
    # A transcript has no signs, but is not read as one sentence.
    transcript = Doc(vocab, words=["w"] * 193)
    assert remember(NOTHING_SEEN, [transcript], 192)["single"] == 0
    assert remember(NOTHING_SEEN, [transcript], 193)["single"] == 1


@pytest.mark.parametrize(
    ("lang", "words", "expected"),
    [
        ("de", ["Es", "regnet", ".", "Er", "geht", "?", '"', "Ja"], [(0, 3), (3, 7), (7, 8)]),
        ("hi", ["वह", "गया", "।", "मैं", "आया", "।"], [(0, 3), (3, 6)]),
        ("zh", ["他", "走", "了", "。", "我", "来", "了", "！"], [(0, 4), (4, 8)]),  # noqa: RUF001
        ("hy", ["նա", "գնաց", "։", "ես", "եկա"], [(0, 3), (3, 5)]),  # noqa: RUF001
        ("xx", ["no", "sign", "at", "all"], [(0, 4)]),
    ],
)
def test_sentences_by_rule_in_any_language(lang, words, expected) -> None:
    doc = Doc(spacy.blank(lang).vocab, words=words)
    assert rule_sentences(doc) == expected and not doc.has_annotation("SENT_START")


def test_one_at_a_time_by_hand() -> None:
    words = ["w"] * 6
    (one, empty) = (Doc(VOCAB, words=words[:n]) for n in (6, 0))
    two = Doc(VOCAB, words=words, sent_starts=[i in (0, 3) for i in range(6)])
    several = Doc(VOCAB, words=["w", ".", "w", ".", "w"])  # by rule, without boundaries
    assert knows_one_at_a_time(remember(NOTHING_SEEN, [one, one, one, empty, two], 192))
    assert not knows_one_at_a_time(remember(NOTHING_SEEN, [one, one, two], 192))
    assert not knows_one_at_a_time(remember(NOTHING_SEEN, [several, several, one], 192))
    assert not knows_one_at_a_time(NOTHING_SEEN)
    assert knows_whole_docs(remember(NOTHING_SEEN, [several, several, one], 192))
    assert not knows_whole_docs(remember(NOTHING_SEEN, [several, one], 192))
    assert not knows_whole_docs(remember(NOTHING_SEEN, [two, two, several], 192))
    assert not knows_whole_docs(NOTHING_SEEN)


def test_transcripts_are_no_sentences_to_a_pipe() -> None:
    """They hold no signs, but are longer than its window."""

    def transcripts(nlp: Language) -> List[Example]:
        return [make_example(nlp, "word " * 29 + "end", [(0, 1, "X")])]

    nlp = make_pipeline(examples=transcripts, window=20, stride=10)
    nlp.update(transcripts(nlp))
    seen = nlp.get_pipe("ner").cfg["learned_from"]
    assert (seen["texts"], seen["single"]) == (1, 0)


def test_sentences_begin_where_it_is_said() -> None:
    """A component may say so of some tokens and leave all others unknown."""
    doc = Doc(VOCAB, words=["w"] * 6)
    doc[2].is_sent_start, doc[3].is_sent_start = True, False
    assert set_sentences(doc) == [(0, 2), (2, 6)]
