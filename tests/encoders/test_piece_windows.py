from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spacy_nested_ner.encoders.piece_windows import (
    cut_windows,
    fit_context,
    overlapping_windows,
)


@given(
    counts=st.lists(st.integers(0, 4), min_size=1, max_size=30),
    data=st.data(),
    context=st.integers(0, 12),
    room=st.integers(0, 30),
)
def test_context_fits_and_is_as_wide_as_it_can_be(counts, data, context, room):
    start = data.draw(st.integers(0, len(counts) - 1))
    end = data.draw(st.integers(start + 1, len(counts)))
    offsets = np.concatenate([[0], np.cumsum(counts)])
    left, right = fit_context(offsets, start, end, context, room)
    lowest, highest = max(0, start - context), min(len(counts), end + context)
    assert lowest <= left <= start and end <= right <= highest
    assert sum(counts[left:start]) + sum(counts[end:right]) <= room
    # Neither side could take one more word within its share.
    if left > lowest:
        share = max(room // 2, room - sum(counts[end:highest]))
        assert sum(counts[left - 1 : start]) > share
    if right < highest:
        share = room // 2
        assert sum(counts[end : right + 1]) > share


def test_context_does_not_grow_by_words_without_pieces():
    assert fit_context(np.array([0, 0, 0, 0, 1, 1, 1]), 2, 3, 1, 0) == (1, 3)
    assert fit_context(np.array([0, 1, 2, 2, 2]), 1, 2, 1, 0) == (1, 3)


@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=40), room=st.integers(9, 20))
def test_windows_cover_all_words_and_overlap(lengths, room):
    cuts = np.concatenate([[0], np.cumsum(lengths)])
    windows = overlapping_windows(cuts, room)
    assert windows[0][0] == 0 and windows[-1][1] == cuts[-1]
    assert {place for window in windows for place in window} <= set(cuts.tolist())
    assert all(0 < end - begin <= room for begin, end in windows)
    for (begin, end), (next_begin, next_end) in pairwise(windows):
        assert begin < next_begin <= end < next_end
        # With words of at most 9 pieces, half a window less what two cut words leave open.
        assert end - next_begin >= room // 2 - 9


@given(
    counts=st.lists(st.sampled_from([0, 1, 2, 5, 9, 30]), min_size=1, max_size=30),
    room=st.integers(1, 12),
)
def test_every_piece_of_a_long_segment_is_chosen_once_and_words_are_whole(counts, room):
    """Ids count the pieces of the doc, so that what is chosen can be told."""
    counts = np.array(counts)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    total = int(offsets[-1])
    segment = np.array([(0, 0, len(counts))])
    windows, joints = cut_windows({0: (np.arange(total), offsets)}, segment, 3, room)
    assert all(len(window.ids) <= room for window in windows)
    if total <= room:
        assert len(windows) == 1 and not joints
        return
    joint = joints[0]
    read = np.concatenate([window.ids for window in windows])
    assert joint.n_read == len(read) and joint.counts.tolist() == counts.tolist()
    assert read[joint.chosen].tolist() == list(range(total))
    window_of = np.repeat(np.arange(len(windows)), [len(window.ids) for window in windows])
    chosen_window = window_of[joint.chosen]
    for begin, end in pairwise(offsets):
        if 0 < end - begin <= room:
            [window] = set(chosen_window[begin:end].tolist())
            margins = [
                min(begin - w.ids[0], w.ids[-1] + 1 - end)
                for w in windows
                if w.ids[0] <= begin and end <= w.ids[-1] + 1
            ]
            ids = windows[window].ids
            assert min(begin - ids[0], ids[-1] + 1 - end) == max(margins)
    expected = np.bincount(chosen_window, minlength=len(windows)) / total
    np.testing.assert_allclose(joint.shares, expected)


def test_context_that_is_too_long_on_both_sides_is_cut_on_both() -> None:
    assert fit_context(np.arange(41), 20, 21, 12, 10) == (15, 26)


def test_the_last_window_is_as_full_as_the_others() -> None:
    assert overlapping_windows(np.arange(26), 10) == [(0, 10), (5, 15), (10, 20), (15, 25)]
    assert overlapping_windows(np.arange(24), 10) == [(0, 10), (5, 15), (10, 20), (13, 23)]
