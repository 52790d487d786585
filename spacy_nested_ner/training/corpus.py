"""The corpus reader of the shipped configs."""

from pathlib import Path
from typing import Callable, Iterable, Iterator, List, Optional, Tuple

from spacy.errors import Errors
from spacy.tokens import Doc
from spacy.training import Corpus
from spacy.vocab import Vocab


def make_corpus(
    path: Optional[Path],
    gold_preproc: bool = False,
    max_length: int = 0,
    limit: int = 0,
    augmenter: Optional[Callable] = None,
) -> Corpus:
    """As `spacy.Corpus.v1`, with the same settings; the docs stay in memory, see `KeptCorpus`.

    RAISES (ValueError): Without a path.
    """
    if path is None:
        raise ValueError(Errors.E913)
    return KeptCorpus(
        path, gold_preproc=gold_preproc, max_length=max_length, limit=limit, augmenter=augmenter
    )


class KeptCorpus(Corpus):
    """spaCy's corpus, which reads its files once and keeps the docs.

    spaCy reads them anew for every pass over the data, which `benchmarks.reading` measures. All of
    them are read before the first one is given: to stream a corpus (`max_epochs = -1`), take
    spaCy's.
    """

    kept: Optional[Tuple[Vocab, List[Doc]]] = None

    def read_docbin(self, vocab: Vocab, locs: Iterable) -> Iterator[Doc]:
        """The docs of the files."""
        if self.kept is None or self.kept[0] is not vocab:
            self.kept = vocab, list(super().read_docbin(vocab, locs))
        return iter(self.kept[1])
