"""Which pieces a pretrained encoder reads together, and word vectors from their states.

A segment that fits is read at once, with some of the text around it. A longer one is read in
windows that overlap by half, whose states are joined.
"""

from typing import Dict, List, NamedTuple, Tuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from spacy_nested_ner.device import on_device
from spacy_nested_ner.encoders.batching import begins_of

# Pieces of a doc, `(pieces,)` long ids, and where those of each word begin, `(words + 1,)` long.
DocPieces = Tuple[np.ndarray, np.ndarray]


class Window(NamedTuple):
    """Pieces that are read together.

    ids: `(pieces,)` long. first: the first piece that a vector is wanted of; those around are
    context. counts: `(vectors,)` long, how many pieces each vector is made from: those of a word,
    or one where the segment has several windows.
    """

    ids: np.ndarray
    first: int
    counts: np.ndarray


def lengths_of(windows: List[Window]) -> np.ndarray:
    """Pieces of each window, [CLS] and [SEP] included, `(windows,)` int."""
    return np.array([len(window.ids) for window in windows], dtype=np.int64) + 2


class Joint(NamedTuple):
    """How the windows of one segment become one.

    n_read: pieces in all its windows. chosen: `(pieces,)` long, which of them stands for each piece
    of the segment. counts: `(words,)` long, the number of pieces of each word. shares:
    `(windows,)` float, which share of the pieces is chosen from each window.
    """

    n_read: int
    chosen: np.ndarray
    counts: np.ndarray
    shares: np.ndarray


def cut_windows(
    pieces: Dict[int, DocPieces], segments: np.ndarray, context: int, room: int
) -> Tuple[List[Window], Dict[int, Joint]]:
    """Windows of at most `room` pieces for all segments, one segment after the other, and a joint
    for each segment, by its index, that has several.

    pieces: of the docs by their index. segments: `(S, 3)` int, index of the doc, first word, end
    word (exclusive). context: words on either side of a segment that are read with it as far as
    they fit.
    """
    windows: List[Window] = []
    joints: Dict[int, Joint] = {}
    for index, (doc, start, end) in enumerate(segments.tolist()):
        ids, offsets = pieces[doc]
        counts = np.diff(offsets[start : end + 1])
        n_pieces = int(counts.sum())
        if n_pieces > room:
            bounds, joints[index] = cut_long(counts, room)
            own = ids[offsets[start] : offsets[end]]
            windows.extend(Window(own[a:b], 0, np.ones(b - a, dtype=np.int64)) for a, b in bounds)
            continue
        left, right = fit_context(offsets, start, end, context, room - n_pieces)
        first = int(offsets[start] - offsets[left])
        windows.append(Window(ids[offsets[left] : offsets[right]], first, counts))
    return windows, joints


def fit_context(
    offsets: np.ndarray, start: int, end: int, context: int, room: int
) -> Tuple[int, int]:
    """First and end word of a segment with its context, whole words only.

    Both sides get half of the room in pieces and what the other side leaves of its half.
    offsets: `(words + 1,)` int, where the pieces of each word begin.
    """
    left, right = max(0, start - context), min(len(offsets) - 1, end + context)
    before = int(offsets[start] - offsets[left])
    after = int(offsets[right] - offsets[end])
    if before + after > room:
        half = room // 2
        before, after = min(before, max(half, room - after)), min(after, max(half, room - before))
        first = int(np.searchsorted(offsets, offsets[start] - before, side="left"))
        last = int(np.searchsorted(offsets, offsets[end] + after, side="right")) - 1
        # Words without pieces fit anywhere, in the context or beyond it.
        left, right = max(left, first), min(right, last)
    return left, right


def cut_long(counts: np.ndarray, room: int) -> Tuple[List[Tuple[int, int]], Joint]:
    """First and end piece of each window of a long segment, and their joint.

    All pieces of a word come from the window in which the word is most central, those of a word
    that no window holds each from its own.
    """
    # Where a window may begin and end: between words, and between the pieces of a word that no
    # window holds.
    units = np.repeat(counts, np.where(counts > room, counts, 1))
    units[units > room] = 1
    cuts = np.unique(np.concatenate([[0], np.cumsum(units)]))
    bounds = overlapping_windows(cuts, room)
    begins, ends = np.array(bounds).T
    # More of the smaller side is seen by the later of two neighbours from here on: the middle of
    # a unit lies behind the middle of their overlap. Doubled, to stay with integers.
    middles = cuts[:-1] + cuts[1:]
    window_of_unit = np.searchsorted(begins[1:] + ends[:-1], middles, side="left")
    window = np.repeat(window_of_unit, np.diff(cuts))
    lengths = ends - begins
    places = begins_of(lengths) - begins
    joint = Joint(
        n_read=int(lengths.sum()),
        chosen=places[window] + np.arange(len(window)),
        counts=counts,
        shares=np.bincount(window, minlength=len(bounds)) / len(window),
    )
    return bounds, joint


def overlapping_windows(cuts: np.ndarray, room: int) -> List[Tuple[int, int]]:
    """Cover `0` to `cuts[-1]` by windows of at most `room` that begin and end at cuts.

    Neighbours overlap by half a window, less the part of a word; where words are longer than
    that, they may do no more than meet. Begins and ends rise. cuts: `(C,)` int, rising from 0, no
    two further apart than `room`.
    """

    def last_cut(at: int) -> int:
        return int(np.searchsorted(cuts, at, side="right")) - 1

    windows: List[Tuple[int, int]] = []
    here, total = 0, int(cuts[-1])
    while not windows or windows[-1][1] < total:
        begin = int(cuts[here])
        end = int(cuts[last_cut(begin + room)])
        if end == total:  # the last window is as full as the others
            begin = int(cuts[np.searchsorted(cuts, total - room)])
        if not windows or end > windows[-1][1]:
            windows.append((begin, end))
        here = max(here + 1, last_cut(begin + room // 2))
    return windows


def pool_pieces(pieces: Tensor, counts: np.ndarray, how: str) -> Tensor:
    """`(vectors, h)`, each the "max", "mean" or "first" of its pieces; zeros where it has none.

    pieces: `(pieces, h)`, one vector's after the other's. counts: `(vectors,)` int.
    """
    if how == "first":
        first = begins_of(counts)[counts > 0]
        pooled = F.embedding(on_device(first, pieces.device), pieces)
    else:
        lengths = on_device(counts[counts > 0], pieces.device)
        pooled = torch.segment_reduce(pieces, how, lengths=lengths, unsafe=True)
    if counts.all():
        return pooled
    out = pieces.new_zeros((len(counts), pieces.shape[1]))
    return out.masked_scatter(on_device(counts > 0, pieces.device)[:, None], pooled)


def vector_order(batches: List[np.ndarray], windows: List[Window]) -> np.ndarray:
    """Where each vector of each window stands among those that come batch by batch, `(vectors,)`
    int. batches: which windows are in each, at least one batch."""
    order = np.concatenate(batches)
    lengths = np.array([len(window.counts) for window in windows])
    begins = np.zeros_like(lengths)
    begins[order] = begins_of(lengths[order])
    return np.repeat(begins, lengths) + ranges(lengths)


def ranges(lengths: np.ndarray) -> np.ndarray:
    """`[2, 3]` to `[0, 1, 0, 1, 2]`."""
    return np.arange(lengths.sum()) - np.repeat(begins_of(lengths), lengths)


def pool_windows(states: Tensor, windows: List[Window], how: str) -> Tensor:
    """The vectors that the windows want, `(vectors, h)`, from `(batch, pieces, h)` states of their
    pieces and one further for [CLS] before them."""
    return pool_flat(states.flatten(0, 1), np.arange(len(windows)) * states.shape[1], windows, how)


def pool_flat(flat: Tensor, begins: np.ndarray, windows: List[Window], how: str) -> Tensor:
    """The same from `(pieces, h)` states of all. begins: `(windows,)` int, the place of each
    [CLS]."""
    firsts = begins + 1 + np.array([window.first for window in windows])
    totals = np.array([window.counts.sum() for window in windows])
    index = np.repeat(firsts, totals) + ranges(totals)
    counts = np.concatenate([window.counts for window in windows])
    return pool_pieces(F.embedding(on_device(index, flat.device), flat), counts, how)


def join_words(vectors: Tensor, n_words: np.ndarray, joints: Dict[int, Joint], how: str) -> Tensor:
    """Words of all segments, `(words, h)`, from what the windows gave.

    vectors: `(vectors, h)`, window after window: words, and pieces of the segments in `joints`.
    n_words: `(S,)` int, of each segment. how: see `pool_pieces`.
    """
    chosen, counts, begin = [], [], 0
    for index, length in enumerate(n_words.tolist()):
        joint = joints.get(index) or _single_window(length)
        chosen.append(begin + joint.chosen)
        counts.append(joint.counts)
        begin += joint.n_read
    pieces = F.embedding(on_device(np.concatenate(chosen), vectors.device), vectors)
    return pool_pieces(pieces, np.concatenate(counts), how)


def join_queries(queries: Tensor, n_segments: int, joints: Dict[int, Joint]) -> Tensor:
    """Queries of all segments, `(S, M, h)`, from those of their windows, `(windows, M, h)`.

    They are means over the windows of a segment, weighted by the pieces that are taken from each
    window: a window that mostly repeats its neighbour counts little.
    """
    one = np.ones(1, dtype=np.float64)
    shares = [joints[i].shares if i in joints else one for i in range(n_segments)]
    share = torch.from_numpy(np.concatenate(shares)).to(queries)
    n_windows = torch.tensor([len(each) for each in shares], device=queries.device)
    weighted = (queries * share[:, None, None]).flatten(1)
    means = torch.segment_reduce(weighted, "sum", lengths=n_windows, unsafe=True)
    return means.unflatten(1, queries.shape[1:])


def _single_window(n_words: int) -> Joint:
    """The joint that leaves the words of a segment as they are."""
    ones = np.ones(n_words, dtype=np.int64)
    return Joint(n_read=n_words, chosen=np.arange(n_words), counts=ones, shares=np.ones(1))
