"""What a head reads: one row per segment, from encoders that read docs or segments."""

from typing import Any, Callable, List, NamedTuple, Optional, Tuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from spacy_nested_ner.device import on_device
from spacy_nested_ner.encoders.batching import begins_of, spread
from spacy_nested_ner.encoders.protocol import QueryEncoderModel, Tok2VecModel
from spacy_nested_ner.encoders.words import encode_words, gradient_of, to_torch
from spacy_nested_ner.model.types import HeadInput


class Rows(NamedTuple):
    """What a head reads of its input, encoded batch by batch on demand.

    segment: `(rows,)` int, row of `HeadInput.segments`. label: `(rows,)` int, the label that a row
    was encoded for, None where a row stands for all of them. lengths: `(rows,)` int, what a row
    counts in a batch. read: from indices of rows to `(batch, words, width)` vectors, their
    `(batch, words)` bool mask and `(batch, queries, width)` queries if any.
    """

    segment: np.ndarray
    label: Optional[np.ndarray]
    lengths: np.ndarray
    read: Callable[[np.ndarray], Tuple[Tensor, Tensor, Optional[Tensor]]]


# Rows, and the way back for the gradients of what was read.
Reading = Tuple[Rows, Callable[[], List[Any]]]


def read_words(encoder: Tok2VecModel, X: HeadInput, width: int, is_train: bool) -> Reading:
    """Rows of a token-to-vector model, which reads whole docs.

    width: of the vectors, 0 if it is not known yet.
    """
    encoded = encode_words(encoder, X.docs, width, is_train)
    starts = begins_of(encoded.lengths)
    rows = _segment_rows(X, encoded.words, None, starts[X.segments[:, 0]] + X.segments[:, 1])
    return rows, lambda: encoded.backprop(encoded.words.grad)


def read_with_queries(encoder: QueryEncoderModel, X: HeadInput, is_train: bool) -> Reading:
    """Rows of an encoder that reads queries along with the words of each segment."""
    (flat_words, flat_queries), backprop = encoder((X.docs, X.segments), is_train)
    words, queries = to_torch(flat_words, is_train), to_torch(flat_queries, is_train)
    lengths = X.segments[:, 2] - X.segments[:, 1]
    rows = _segment_rows(X, words, queries, begins_of(lengths))

    def back() -> List[Any]:
        return backprop((gradient_of(words.grad, words), gradient_of(queries.grad, queries)))

    return rows, back


def _segment_rows(
    X: HeadInput, words: Tensor, queries: Optional[Tensor], offsets: np.ndarray
) -> Rows:
    """One row per segment.

    words: flat, `(all words, width)`. queries: `(segments, M, width)`. offsets: `(segments,)` int,
    where the words of each segment begin.
    """

    def read(batch: np.ndarray) -> Tuple[Tensor, Tensor, Optional[Tensor]]:
        padded, mask = pad(words, X.segments, offsets, batch)
        own = None if queries is None else queries[on_device(batch, words.device)]
        return padded, mask, own

    n_segments, lengths = len(X.segments), X.segments[:, 2] - X.segments[:, 1]
    return Rows(np.arange(n_segments), None, lengths, read)


def pad(
    words: Tensor, segments: np.ndarray, offsets: np.ndarray, batch: np.ndarray
) -> Tuple[Tensor, Tensor]:
    """Gather a batch of segments: `(batch, words, width)` vectors and `(batch, words)` bool mask.

    Padding repeats the segment's first word; the mask keeps it out of everything.
    """
    if len(batch) == 1:  # nothing to gather
        ((_, first, end),) = segments[batch]
        begin = int(offsets[batch[0]])
        alone = words[begin : begin + int(end - first)].unsqueeze(0)
        return alone, alone.new_ones(alone.shape[:2], dtype=torch.bool)
    places = spread(offsets[batch], segments[batch, 2] - segments[batch, 1])
    there, mask = (on_device(t, words.device) for t in places)
    return F.embedding(there, words), mask  # takes less time than an index
