"""What a pipe learned from, single sentences or longer texts, and sentences by rule."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from typing import Dict, Iterable, List, Optional, Tuple

import numpy as np
from spacy.attrs import IS_PUNCT, ORTH
from spacy.pipeline import Sentencizer
from spacy.strings import get_string_id
from spacy.tokens import Doc

from spacy_nested_ner.pipeline.tokens import is_space

# Signs that end a sentence in any script that has some, as spaCy numbers words.
ENDS = {get_string_id(sign) for sign in Sentencizer.default_punct_chars}
# JSON, saved with the pipe. Texts: what training docs are cut into by sentence boundaries, whole
# docs where none are set. `single` of them are one sentence by rule that fits a window, `alone` are
# docs of their own, `spaced` hold a token of whitespace.
NOTHING_SEEN = {"texts": 0, "single": 0, "alone": 0, "spaced": 0, "words": 0, "squared_words": 0}
# Texts of an earlier training that count beside those of one that continues it.
EARLIER = 100
# A pipe knows tokens of whitespace if one in so many of its texts held some.
SPACED = 20


def has_sentences(doc: Doc) -> bool:
    """Whether sentence boundaries are set. What only forbids some of them, behind an abbreviation,
    say, sets none; a doc of one token at most has nothing to set."""
    # That of the first token is always set.
    starts = doc.to_array("SENT_START").astype(np.int64)[1:]
    return bool((starts == 1).any()) or not (starts == 0).any()


def set_sentences(doc: Doc) -> List[Tuple[int, int]]:
    """First and end token of each sentence where boundaries are set, of the whole doc elsewhere;
    none for an empty doc."""
    starts = np.flatnonzero(doc.to_array("SENT_START").astype(np.int64) == 1)
    return between(starts.tolist(), len(doc))


def rule_sentences(doc: Doc) -> List[Tuple[int, int]]:
    """First and end token of each sentence by the rule of spaCy's `sentencizer`, which sees no
    boundaries where there is no punctuation. The doc is not changed."""
    return between(rule_starts(doc), len(doc))


def rule_starts(doc: Doc, places: Optional[np.ndarray] = None) -> List[int]:
    """First tokens of sentences by that rule, but for that of the doc: the next word after a sign
    that ends one. Not by `Sentencizer.predict`, which makes an object of each token.

    places: of the tokens that are read, `(tokens,)` int, among which those found are counted; None
        for all.
    """
    read = doc.to_array([ORTH, IS_PUNCT])
    if places is not None:
        read = read[places]
    starts, ended = [], False
    for place, (word, is_punctuation) in enumerate(read.tolist()):
        if word in ENDS:
            ended = True
        elif ended and not is_punctuation:
            starts.append(place)
            ended = False
    return starts


def after_empty_lines(doc: Doc) -> List[int]:
    """First tokens after empty lines: after whitespace that holds two line ends or more."""
    spaces = np.flatnonzero(is_space(doc)).tolist()
    return [place + 1 for place in spaces if doc[place].text.count("\n") > 1]


def between(starts: List[int], end: int) -> List[Tuple[int, int]]:
    """First and end token of each part of so many tokens, the first part included."""
    if not end:
        return []
    starts = sorted({0, *starts} - {end})
    return list(zip(starts, [*starts[1:], end]))


def is_cut(starts: List[int], start: int, end: int) -> bool:
    """Whether a sentence begins inside these tokens, behind the first one. starts: see
    `rule_starts`."""
    return bisect_right(starts, start) < bisect_left(starts, end)


def remember(seen: Dict[str, int], docs: Iterable[Doc], window: int) -> Dict[str, int]:
    """`seen`, which begins as `NOTHING_SEEN`, with the texts of these docs.

    window: most words that are read at once. A longer text is no single sentence, even where no
        sign ends one, as in a transcript.
    """
    seen = dict(seen)
    for doc in docs:
        by_rule, texts, spaces = rule_starts(doc), set_sentences(doc), is_space(doc)
        seen["alone"] += len(texts) == 1
        for start, end in texts:
            seen["texts"] += 1
            seen["single"] += not is_cut(by_rule, start, end) and end - start <= window
            seen["spaced"] += bool(spaces[start:end].any())
            seen["words"] += end - start
            seen["squared_words"] += (end - start) ** 2
    return seen


def faded(seen: Dict[str, int]) -> Dict[str, int]:
    """`seen` of an earlier training, whose pipe has been loaded, as if it were of `EARLIER` texts
    or fewer: what is learned from now decides how texts are read."""
    texts = max(seen["texts"], EARLIER)
    return {name: round(count * EARLIER / texts) for name, count in seen.items()}


def usual_length(seen: Dict[str, int]) -> Optional[int]:
    """Words of all but the longest of the sentences that a pipe learned from: the mean and two
    standard deviations. None if most of the texts were no single sentences."""
    n_texts = seen["texts"]
    if 2 * seen["single"] <= n_texts:
        return None
    mean = seen["words"] / n_texts
    variance = max(0.0, seen["squared_words"] / n_texts - mean**2)
    return math.ceil(mean + 2 * math.sqrt(variance))


def knows_one_at_a_time(seen: Dict[str, int]) -> bool:
    """Whether most of the texts that a pipe learned from were single sentences and docs of their
    own, so that its encoder has never seen what stands around one."""
    return usual_length(seen) is not None and 2 * seen["alone"] > seen["texts"]


def knows_whole_docs(seen: Dict[str, int]) -> bool:
    """Whether most of the texts that a pipe learned from were whole docs and no single sentences,
    so that entities may lie across sentences."""
    return 2 * seen["single"] < seen["texts"] < 2 * seen["alone"]


def knows_words_alone(seen: Dict[str, int]) -> bool:
    """Whether hardly any of the texts that a pipe learned from held a token of whitespace, so that
    it does not know what to make of one."""
    return SPACED * seen["spaced"] < seen["texts"]
