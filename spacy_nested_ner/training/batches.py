"""Batches that fit the size of a corpus."""

from typing import Any, Callable, Iterable, List, Sized

from spacy.training.batchers import minibatch_by_words

from spacy_nested_ner.settings import Setting

NUMBER, SHARE = Setting(above=0), Setting(least=0)


def batch_by_words(
    size: int, smallest: int, batches_per_pass: int, tolerance: float = 0.2
) -> Callable[[Iterable[Any]], Iterable[List[Any]]]:
    """`spacy_nested_ner.batch_by_words.v1`: spaCy's `batch_by_words.v1`, with smaller batches where
    a pass over the data has few words. A small corpus has more, shorter steps in the same time.

    size: words of a batch. smallest: words of a batch where the corpus is small, unless `size` is
    less.
    batches_per_pass: below so many of `size` words they become smaller, down to `smallest`.
    tolerance: share of its words that a batch may have beyond.

    Docs that are read as a stream (`max_epochs = -1`) have no known number of words: `size` holds.
    Docs longer than a batch are batches of their own.

    Raises ValueError for numbers that are not above 0 or, the tolerance, below, and for a schedule
    as `size`.
    """
    numbers = (size, smallest, batches_per_pass)
    if not (all(NUMBER.holds(each, float) for each in numbers) and SHARE.holds(tolerance, float)):
        raise ValueError(
            "[training.batcher] of spacy_nested_ner.batch_by_words.v1 needs numbers above 0 as "
            "size, smallest and batches_per_pass, and 0 or more as tolerance, not "
            f"size = {size!r}, smallest = {smallest!r}, batches_per_pass = {batches_per_pass!r}, "
            f"tolerance = {tolerance!r}. A size that follows a schedule needs spaCy's own "
            "batch_by_words.v1."
        )

    def batches(examples: Iterable[Any]) -> Iterable[List[Any]]:
        words = size
        if isinstance(examples, Sized):
            words = sum(map(len, examples)) // batches_per_pass
        words = int(min(size, max(smallest, words)))  # what is no int is a schedule for spaCy
        return minibatch_by_words(examples, words, tolerance)

    return batches
