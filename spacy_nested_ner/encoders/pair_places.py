"""Where questions and sentences stand among the words of both."""

from typing import List, NamedTuple, Tuple

import numpy as np

from spacy_nested_ner.encoders.batching import begins_of, spread
from spacy_nested_ner.encoders.protocol import PairInput


class PairPlaces(NamedTuple):
    """Where the words of questions and segments stand in a pool: questions first, then docs.

    question_begins, question_lengths: `(questions,)` int. begins, lengths: `(segments,)` int.
    """

    question_begins: np.ndarray
    question_lengths: np.ndarray
    begins: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, X: PairInput, question_lengths: List[int]) -> "PairPlaces":
        """The places for an input whose questions have so many words."""
        questions = np.array(question_lengths, dtype=np.int64)
        docs = np.array([len(doc) for doc in X.docs], dtype=np.int64)
        doc_begins = questions.sum() + begins_of(docs)
        doc, start, end = X.segments.T
        return cls(begins_of(questions), questions, doc_begins[doc] + start, end - start)

    def apart(self, pairs: np.ndarray) -> Tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """`(P, words)` indices of the words of each pair's sentence and their bool mask, then those
        of its question. pairs: `(P, 2)` int, segment and question."""
        segment, question = pairs.T
        return (
            *spread(self.begins[segment], self.lengths[segment]),
            *spread(self.question_begins[question], self.question_lengths[question]),
        )

    def rows(self, pairs: np.ndarray) -> Tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """A row for each pair, question before sentence.

        pairs: `(P, 2)` int, segment and question. Returns `(P, length)` indices into the pool and
        their bool mask, and `(P, words)` positions of the sentence's words in the row and theirs.
        """
        segment, question = pairs.T
        n_asked, n_words = self.question_lengths[question][:, None], self.lengths[segment][:, None]
        position = np.arange(int((n_asked + n_words).max()))
        index = np.where(
            position < n_asked,
            self.question_begins[question][:, None] + position,
            self.begins[segment][:, None] + position - n_asked,
        )
        mask = position < n_asked + n_words
        word = np.arange(int(n_words.max()))
        word_mask = word < n_words
        return index * mask, mask, n_asked + word * word_mask, word_mask
