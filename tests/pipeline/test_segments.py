import numpy as np
import spacy
from hypothesis import given, settings
from hypothesis import strategies as st
from spacy.tokens import Doc

from spacy_nested_ner.model.types import ScoredSpans
from spacy_nested_ner.pipeline.segments import cut_segments, own_spans
from spacy_nested_ner.pipeline.settings import PipeSettings

VOCAB = spacy.blank("en").vocab


def make_doc(n_words: int, starts=None) -> Doc:
    sent_starts = None if starts is None else [i in starts for i in range(n_words)]
    return Doc(VOCAB, words=["w"] * n_words, sent_starts=sent_starts)


def test_sentences_where_set_else_the_whole_doc() -> None:
    docs = [make_doc(0), make_doc(5), make_doc(7, {0, 3})]
    rows = cut_segments(docs, window=10, stride=5).rows
    assert rows.tolist() == [[1, 0, 5], [2, 0, 3], [2, 3, 7]]


def test_long_sentence_is_cut_into_windows() -> None:
    segments = cut_segments([make_doc(10)], window=4, stride=3)
    assert segments.rows.tolist() == [[0, 0, 4], [0, 3, 7], [0, 6, 10]]
    assert segments.core.tolist() == [[-np.inf, 3.5], [3.5, 6.5], [6.5, np.inf]]


def test_windows_hold_every_entity_of_up_to_64_words() -> None:
    usual = PipeSettings()
    segments = cut_segments([make_doc(1000)], usual.window, usual.stride)
    for start in range(1000 - 64 + 1):
        middle = start + 63 / 2
        (whole,) = (
            first <= start and start + 64 <= end
            for (_, first, end), (low, high) in zip(segments.rows, segments.core)
            if low <= middle < high
        )
        assert whole, start


def test_no_docs() -> None:
    segments = cut_segments([make_doc(0)], window=4, stride=3)
    assert segments.rows.shape == (0, 3) and segments.core.shape == (0, 2)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 90), st.integers(2, 20), st.data())
def test_every_short_span_belongs_to_one_window_that_holds_it(n_words, window, data) -> None:
    stride = data.draw(st.integers(1, window))
    rows, core = cut_segments([make_doc(n_words)], window, stride)
    assert {t for _, start, end in rows for t in range(start, end)} == set(range(n_words))
    overlap = window - stride
    for start in range(n_words):
        for end in range(start + 1, min(n_words, start + overlap) + 1):
            middle = (start + end) / 2
            owners = [i for i, (low, high) in enumerate(core) if low <= middle < high]
            assert len(owners) == 1
            assert rows[owners[0], 1] <= start and end <= rows[owners[0], 2]


def test_a_span_in_the_middle_of_an_overlap_is_of_one_window() -> None:
    cut = cut_segments([make_doc(12)], window=8, stride=4)  # they meet at 6
    for start, end in ((5, 7), (4, 8)):
        places = ([0, 1], [0, 0], [start] * 2, [end] * 2, [0, 0])
        both = ScoredSpans(*map(np.array, places), np.ones(2, dtype="f"))
        assert own_spans(both, cut.core).segment.tolist() == [1]


def test_a_text_without_sentences_is_cut_from_twice_the_usual_length_on() -> None:
    doc = Doc(VOCAB, words=["w"] * 20)

    def cut(doc: Doc, usual: int) -> list:
        return cut_segments([doc], 40, 20, usual_length=usual).rows[:, 1:].tolist()

    assert cut(doc, 10) == [[0, 20]]
    assert cut(doc, 8) == [[0, 8], [4, 12], [8, 16], [12, 20]]
    sentences = Doc(VOCAB, words=["a", ".", "b", "c"])
    assert cut(sentences, 4) == [[0, 4]] and cut(sentences, 3) == [[0, 2], [2, 4]]


def test_windows_as_long_as_usual_texts_fit_the_settings() -> None:
    def cut(n_words: int, window: int, stride: int, usual: int) -> list:
        doc = make_doc(n_words)
        return cut_segments([doc], window, stride, usual_length=usual).rows[:, 1:].tolist()

    assert cut(5, 192, 128, 1) == [[i, i + 1] for i in range(5)]  # texts of single words
    # Usual texts may be longer than the window: they were read in windows, too.
    assert cut(30, 8, 4, 12) == cut(30, 8, 4, 40) == [[i, i + 8] for i in [*range(0, 22, 4), 22]]
