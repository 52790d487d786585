"""Texts that the commands are given, and what a pipeline finds in them."""

from __future__ import annotations

import hashlib
from itertools import islice, pairwise
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    FrozenSet,
    Iterable,
    Iterator,
    List,
    Optional,
    Sequence,
    Tuple,
    TypeVar,
)

from wasabi import msg

from spacy_nested_ner.cli.output import keep_inputs, warn_of
from spacy_nested_ner.cli.pipelines import read_as_one

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc, Span

    from spacy_nested_ner.evaluation.scores.own_thresholds import ScoredComponent
    from spacy_nested_ner.scale.inputs import Text

Found = TypeVar("Found")
BATCH = 250
SHOWN = 10
# Lines of a text file that are looked at; how many may break a sentence before that is told.
FIRST_LINES, FEW_BREAKS = 100, 1


def file_texts(
    path: Path, column: str, output: Optional[Path], of_documents: bool = False
) -> Iterator[Tuple[str, Text]]:
    """Each text of a file or folder with its id, read as they are asked for. output: see
    `input_files`. of_documents: see `Columns`.

    Raises ValueError if there are none, or if they cannot be read.
    """
    from spacy_nested_ner.scale.inputs import Columns, checked, cut, read

    columns = Columns(column, of_documents=of_documents)
    fragments = list(cut(files_to_read(path, output), columns))
    if not fragments:
        raise ValueError(f"{path} holds no texts.")
    batches = (batch for each in fragments for batch in read(each, columns, size=1000))
    return (pair for ids, texts in batches for pair in zip(ids, map(checked, texts)))


def files_to_read(path: Path, output: Optional[Path]) -> List[Tuple[str, Path]]:
    """The files of `input_files`. Says what it leaves out, and what a text is in files of lines."""
    from spacy_nested_ner.scale.inputs import input_files, kind_of

    files, others = input_files(path, output)
    if path.is_dir():
        warn_of(read_as_one(path))
    else:
        keep_inputs(output, path)
    if others:
        why = "unknown file type, name starts with _, unreadable, or a link to what is read anyway"
        msg.warn(f"Left out ({why}): {some(others)}")
    of_lines = [each for _, each in files if kind_of(each) == ".txt"]
    if len(of_lines) > 1 or (of_lines and _breaks_sentences(of_lines[0])):
        msg.info(
            "Each line of a .txt file is read as one text. If each file is one text, see "
            "docs/guide/many_documents.md."
        )
    return files


def _breaks_sentences(path: Path) -> bool:
    """Whether a fifth of the first lines of a text file, and not just one, stop within a sentence:
    a line ends in a letter or comma, the next one begins in lower case. Where hardly any line
    begins with a capital, this says nothing."""
    from spacy_nested_ner.corpora.parsing.archives import unpacked
    from spacy_nested_ner.scale.inputs import text_lines

    try:
        with unpacked(path) as file:
            texts = list(islice(text_lines(file), FIRST_LINES))
    except ValueError:  # what reads the whole file says what is wrong with it
        return False
    lines = [text.strip() for text in texts if isinstance(text, str) and text.strip()]
    pairs = [(line[-1], then[0]) for line, then in pairwise(lines)]
    breaks = sum((end.isalpha() or end == ",") and start.islower() for end, start in pairs)
    capitals = sum(line[0].isupper() for line in lines)
    return breaks > max(FEW_BREAKS, len(lines) / 5) and capitals > len(lines) / 10


def some(lines: List[str], separator: str = ", ") -> str:
    """The first ones, and how many there are beside them."""
    more = [f"and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    return separator.join([*lines[:SHOWN], *more])


def counted(texts: int) -> str:
    """So many texts, in words."""
    return "1 text" if texts == 1 else f"{texts} texts"


def known_texts(paths: Iterable[Path], output: Path) -> FrozenSet[bytes]:
    """Digests of the texts of docs in `.spacy` files or folders of them. output: is to be written,
    and is passed over."""
    from spacy.vocab import Vocab

    from spacy_nested_ner.corpora.docbin import check_data, read_docs

    files = [file for path in paths for file in check_data(path)]
    others = (file for file in files if file.resolve() != output.resolve())
    return frozenset(_digest(doc.text) for file in others for doc in read_docs(file, Vocab()))


def _digest(text: str) -> bytes:
    """Of a text but for its whitespace, which may have been lost between the words of a doc."""
    squeezed = "".join(text.split()).encode("utf8", "surrogatepass")
    return hashlib.blake2b(squeezed, digest_size=16).digest()


class UsableTexts:
    """Texts, of which those that cannot be used are counted and left out.

    longest: characters of one; None for any number. known: see `known_texts`; these are left out,
    too. texts: how many were read. unusable: how many of them cannot be used. first: what is wrong
    with the first of these. repeated: how many are known.
    """

    def __init__(
        self, longest: Optional[int] = None, known: FrozenSet[bytes] = frozenset()
    ) -> None:
        self.longest, self.known = longest, known
        self.texts = self.unusable = self.repeated = 0
        self.first = ""

    def usable(self, texts: Iterable[Tuple[str, Text]]) -> Iterator[Tuple[str, str]]:
        """Each text behind its id, blank ones left out, too."""
        from spacy_nested_ner.scale.inputs import problem_of

        for name, text in texts:
            self.texts += 1
            if problem := problem_of(text, self.longest):
                self.problem(name, problem)
            elif isinstance(text, str) and text.strip():
                if self.known and _digest(text) in self.known:
                    self.repeated += 1
                else:
                    yield name, text

    def problem(self, name: str, what: str) -> None:
        """Count a text. what: is wrong with it."""
        self.unusable += 1
        self.first = self.first or f"The text with the id {name!r}: {what}."

    def left_out(self) -> str:
        """Of those that cannot be used, in words; empty if there are none."""
        if not self.unusable:
            return ""
        return f"Left out: {counted(self.unusable)} that cannot be used. {self.first}"

    def left_out_as_known(self) -> str:
        """Of those that are known, in words; empty if none is."""
        if self.repeated:
            return f"Left out: {counted(self.repeated)} that --without has."
        if not self.known:
            return ""
        return (
            "No text is left out by --without, which compares whole texts: sentences with "
            "sentences, documents with documents."
        )


class TextReading(UsableTexts):
    """Texts, each read once by a pipeline, down to the lowest thresholds of some components.

    components: that write the spans of the keys.

    Raises ValueError if no component writes spans of a key that gives scores, or if it was never
    trained.
    """

    def __init__(
        self, nlp: Language, spans_keys: Iterable[str], known: FrozenSet[bytes] = frozenset()
    ) -> None:
        super().__init__(nlp.max_length, known)
        self.nlp = nlp
        self.components = [scored_component(nlp, key) for key in dict.fromkeys(spans_keys)]
        self._again: List[Tuple[str, str]] = []

    def map(
        self, texts: Iterator[Tuple[str, Text]], use: Callable[[Doc, str], Found]
    ) -> Iterator[Found]:
        """What `use` makes of each text that can be used and is neither blank nor known, in their
        order, but for those beside which another one fails. It is given a doc that must not be
        kept, and its id."""
        from tqdm import tqdm

        from spacy_nested_ner.evaluation.scores.own_thresholds import lowered
        from spacy_nested_ner.scale.inputs import batched
        from spacy_nested_ner.scale.pipelines import LoadedPipeline, set_error_handler

        usable = self.usable(tqdm(texts, unit=" texts", mininterval=0.5, disable=None))
        pipeline = LoadedPipeline(self.nlp)
        before = self.nlp.default_error_handler
        set_error_handler(self.nlp, self._failed)
        try:
            with lowered({each.spans_key: each for each in self.components}):
                for batch in batched(usable, BATCH):
                    with pipeline.zone([text for _, text in batch]) as nlp:
                        found = [use(doc, name) for doc, name in _pipe(nlp, batch)]
                        alone, self._again = self._again, []
                        for each in alone:
                            found += [use(doc, name) for doc, name in _pipe(nlp, [each])]
                    yield from found
        finally:
            set_error_handler(self.nlp, before)

    def nothing_left(self) -> str:
        """Why there may be none to read."""
        known = self.left_out_as_known() if self.repeated else ""
        return f"{known} {self.left_out()}".strip()

    def report(self) -> None:
        """Say what was left out, and the labels of each component."""
        if known := self.left_out_as_known():
            msg.info(known)
        if left_out := self.left_out():
            msg.warn(left_out)
        for each in self.components:
            of = f" of {each.spans_key!r}" if len(self.components) > 1 else ""
            msg.info(f"Labels{of}: {','.join(sorted(each.pipe.labels))}")

    def _failed(self, component: str, pipe: Any, docs: List[Doc], error: Exception) -> None:
        if len(docs) > 1:  # components of spaCy give up a whole batch
            self._again += [(doc._context, doc.text) for doc in docs]
            return
        self.problem(docs[0]._context, f"{component!r} fails on it: {error}")


def _pipe(nlp: Language, texts: Sequence[Tuple[str, str]]) -> Iterator[Tuple[Doc, str]]:
    """Docs with their ids. texts: behind their ids."""
    from spacy_nested_ner.pipeline.tokens import make_doc

    made = ((make_doc(nlp, text), name) for name, text in texts)
    return nlp.pipe(made, as_tuples=True, batch_size=BATCH)


def scored_component(nlp: Language, spans_key: str) -> ScoredComponent:
    """The component that writes the spans under the key.

    Raises ValueError if none does that gives scores, or if it was never trained.
    """
    from spacy_nested_ner.evaluation.scores.own_thresholds import scored_components, untrained

    component = scored_components(nlp).get(spans_key)
    if component is None:
        raise ValueError(
            f"No component of the pipeline ({', '.join(nlp.pipe_names) or 'none'}) scores spans "
            f"under the spans key {spans_key!r}. Choose the key with --spans-key, or a pipeline "
            "with such a component."
        )
    if untrained({spans_key: component}) is not None:
        raise ValueError(f"Component {component.name!r} was never trained. Use `spacy train`.")
    return component


def spans_with_scores(doc: Doc, component: ScoredComponent) -> List[Tuple[Span, float]]:
    """The spans that the component found, outer ones first.

    Raises ValueError if they have no scores.
    """
    from spacy_nested_ner.tables import scored_spans

    found = []
    for span, score in scored_spans(doc, component.spans_key):
        if score is None:
            raise ValueError(
                f"The spans under {component.spans_key!r} have no scores at the end of the "
                f"pipeline: a component after {component.name!r} changes them. Remove that "
                "component."
            )
        found.append((span, score))
    return found
