"""Pairs of question and sentence for an encoder of both."""

from typing import List, Tuple

import numpy as np
import spacy
from encoders import TEXTS
from spacy.tokens import Doc

from spacy_nested_ner.encoders.protocol import PairInput
from spacy_nested_ner.model.pairs import all_pairs

QUESTIONS = ["Which genes ?", "cell", "Which human cells , if any , are in the text today ?"]


def make_input(texts: List[str] = TEXTS) -> PairInput:
    vocab = spacy.blank("en").vocab
    docs = [Doc(vocab, words=text.split(" ")) for text in texts]
    segments = np.array([(i, 0, len(doc)) for i, doc in enumerate(docs)])
    return PairInput(docs, segments, QUESTIONS, all_pairs(len(docs), len(QUESTIONS)))


def read(model, X: PairInput, batch: List[int]) -> Tuple[np.ndarray, np.ndarray]:
    words, mask = model.predict(X).read(np.array(batch))
    return words.detach().cpu().numpy(), mask.cpu().numpy()
