"""UIMA CAS XMI as INCEpTION and WebAnno export it: `.xmi` beside `TypeSystem.xml`, or both zipped.

The library dkpro-cassis reads it. Before that, every file is read once by a parser that refuses
entity declarations.
"""

from __future__ import annotations

import io
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import (
    IO,
    Any,
    Callable,
    ContextManager,
    Dict,
    Iterable,
    Iterator,
    List,
    Optional,
    Set,
    Tuple,
)

from spacy_nested_ner.corpora.errors import CorpusError
from spacy_nested_ner.corpora.parsing.archives import unpacked, unzipped
from spacy_nested_ner.corpora.parsing.settings import with_settings
from spacy_nested_ner.corpora.parsing.xml import XmlHandler, stream_xml_file
from spacy_nested_ner.corpora.records import (
    DocumentIds,
    ReadOptions,
    Record,
    text_record,
    with_omissions,
)
from spacy_nested_ner.corpora.registry import readers
from spacy_nested_ner.corpora.sentences import outside_words, word_places
from spacy_nested_ner.corpora.spans import CharSpan, Dropped, check_span
from spacy_nested_ner.corpora.splits import files_below

TYPE_SYSTEM = "TypeSystem.xml"
# Files of a document in an exported project: before annotation, and after curation.
INITIAL, CURATED = "INITIAL_CAS", "CURATION_USER"
DKPRO = "de.tudarmstadt.ukp.dkpro.core.api"
EXPECTED = "UIMA CAS XMI, as INCEpTION exports it"

TOKENS = f"{DKPRO}.segmentation.type.Token"
SENTENCES = f"{DKPRO}.segmentation.type.Sentence"

Opener = Callable[[], ContextManager[IO[bytes]]]

Annotation = Tuple[Any, Any, Any]
"""First character, character after the last, and label, as they stand in the file."""


@dataclass(frozen=True)
class XmiSettings:
    """layer: type of the spans, such as `webanno.custom.Span`. feature: holds the label."""

    layer: str = f"{DKPRO}.ner.type.NamedEntity"
    feature: str = "value"


@readers.register("xmi")
def read_xmi(path: Path, options: ReadOptions) -> Iterator[Record]:
    """INCEpTION and WebAnno, UIMA CAS XMI: .xmi with TypeSystem.xml, .zip, or a folder of them"""
    settings = with_settings(XmiSettings(), options.settings)
    _import_cassis()
    kept, left_out = _one_of_each(files_below(Path(path), ".xmi", ".zip"))
    ids = DocumentIds()
    calls = ((file, split, settings, options, ids) for file, split in kept)
    yield from with_omissions(chain([left_out], options.problems.attempt_each(_document, calls)))


def _one_of_each(
    files: Iterable[Tuple[Path, str]],
) -> Tuple[List[Tuple[Path, str]], Dropped]:
    """Files to read, one of each document of a project, and what is left out.

    The curated annotation counts, else that of the first annotator. Every document of a project
    also has a file of what was there before anybody annotated it.
    """
    kept: Dict[Tuple[Path, str], Tuple[Path, str]] = {}
    left_out: Dropped = Dropped()
    for file, split in sorted(files, key=lambda each: each[0].stem != CURATED):
        folder = file.absolute().parent
        document = folder.parent.parent, folder.name
        if not _is_in_project(file):
            kept[file, ""] = file, split
        elif file.stem == INITIAL:
            left_out["before annotation", ""] += 1
        elif document in kept:
            left_out["further annotation of a document", ""] += 1
        else:
            kept[document] = file, split
    return sorted(kept.values()), left_out


def _is_in_project(file: Path) -> bool:
    """Whether a file is `annotation/DOCUMENT/USER.zip`, or the curated one, of an exported project.
    Folders of other files may have such names, too."""
    folder = file.absolute().parent
    if folder.parent.name == "annotation":
        return any(folder.glob(f"{INITIAL}.*"))
    return folder.parent.name == "curation" and file.stem == CURATED


def _import_cassis() -> Any:
    try:
        import cassis
    except ImportError as err:
        raise ImportError(
            "Reading XMI needs the library dkpro-cassis: python -m pip install "
            f"'spacy_nested_ner[xmi]'. ({err})"
        ) from err
    return cassis


def _document(
    file: Path, split: str, settings: XmiSettings, options: ReadOptions, ids: DocumentIds
) -> Record:
    inside, xmi, types = _zipped(file) if file.suffix == ".zip" else _plain(file)
    name = file.absolute().parent.name if _is_in_project(file) else inside
    with _library_errors(file):
        text, layers, written = _load(file, xmi, types, settings)
    if settings.layer not in layers:
        custom = sorted(layer for layer in layers if not layer.startswith(("uima.", DKPRO)))
        raise CorpusError(
            f"no layer {settings.layer!r}. Choose it with --set layer=NAME; the file has: "
            f"{', '.join(custom) or 'no layer of its own'}.",
            file,
        )
    found = layers[settings.layer]
    labelled = [annotation for annotation in found if annotation[2]] or found
    calls = ((*annotation, len(text), settings, file) for annotation in labelled)
    spans = options.problems.attempt_each(_span, calls)
    record = text_record(ids(name, text), split, text, spans, options)
    if (outside := written - len(found)) > 0:
        record.dropped["in no view of the text", ""] += outside
    if unlabelled := len(found) - len(labelled):
        record.dropped["annotation without a label", ""] += unlabelled
    record.words = _words(text, layers.get(TOKENS, []))
    starts = [start for start, _, _ in layers.get(SENTENCES, [])]
    starts = [start for start in starts if isinstance(start, int) and start >= 0]
    record.sentence_starts = outside_words(starts, text, record.words or [])
    return record


def _span(
    start: Any, end: Any, label: Any, length: int, settings: XmiSettings, file: Path
) -> CharSpan:
    if not label:
        raise CorpusError(
            f"a span at {start} has no {settings.feature!r}. Name the feature that holds the "
            "label with --set feature=NAME.",
            file,
        )
    try:
        check_span(start, end, str(label), length)
    except ValueError as err:
        raise CorpusError(str(err), file) from err
    return start, end, str(label)


def _words(text: str, tokens: List[Annotation]) -> Optional[List[str]]:
    """The tokens, unless there are none or they leave out text."""
    try:
        words = [text[start:end] for start, end, _ in tokens if start != end]
        word_places(text, words)
    except (TypeError, ValueError):  # a token without a beginning, or a text left out
        return None
    return words or None


def _plain(file: Path) -> Tuple[str, Opener, Opener]:
    types = file.with_name(TYPE_SYSTEM)
    if not types.is_file():
        raise CorpusError(f"no {TYPE_SYSTEM} beside it: it is part of the export.", file)
    return file.stem, lambda: unpacked(file), lambda: unpacked(types)


def _zipped(file: Path) -> Tuple[str, Opener, Opener]:
    with unzipped(file) as archive:
        names = archive.namelist()
        xmi = [name for name in names if name.endswith(".xmi")]
        types = [name for name in names if name.rpartition("/")[2] == TYPE_SYSTEM]
        if len(xmi) != 1 or len(types) != 1:
            held = ", ".join(names) or "nothing"
            problem = f"expected one .xmi file and {TYPE_SYSTEM} in the archive. It holds: "
            raise CorpusError(f"{problem}{held}.", file)
        contents = [archive.read(name) for name in (xmi[0], types[0])]
    name = xmi[0].rpartition("/")[2].removesuffix(".xmi")
    return name, lambda: io.BytesIO(contents[0]), lambda: io.BytesIO(contents[1])


def _load(
    file: Path, xmi: Opener, types: Opener, settings: XmiSettings
) -> Tuple[str, Dict[str, List[Annotation]], int]:
    """The text, the annotations of each layer (all names, but only what is asked for is filled),
    and how many elements of the chosen layer stand in the file."""
    cassis = _import_cassis()
    elements = _LayerHandler(settings.layer)
    for opener in (types, xmi):
        with opener() as stream:
            deque(stream_xml_file(stream, str(file), elements, EXPECTED), maxlen=0)
    with types() as stream:
        type_system = cassis.load_typesystem(stream)
    with xmi() as stream:
        cas = cassis.load_cas_from_xmi(stream, typesystem=type_system)
    layers: Dict[str, List[Annotation]] = {found.name: [] for found in type_system.get_types()}
    for layer in {settings.layer, TOKENS, SENTENCES} & set(layers):
        layers[layer] = [
            (found.begin, found.end, getattr(found, settings.feature, None))
            for found in cas.select(layer)
        ]
    return cas.sofa_string or "", layers, elements.count


class _LayerHandler(XmlHandler):
    """Counts the elements of a layer. The library passes over those whose id is not unique or not
    among the members of the view."""

    def __init__(self, layer: str) -> None:
        super().__init__()
        package, _, self._name = layer.rpartition(".")
        self._space = f"http:///{package.replace('.', '/') or 'uima/noNamespace'}.ecore"
        self._tags: Set[str] = set()
        self.count = 0

    def start(self, tag: str, attrs: Dict[str, str]) -> None:
        for name, value in attrs.items():
            if name.startswith("xmlns:") and value == self._space:
                self._tags.add(f"{name.removeprefix('xmlns:')}:{self._name}")
        self.count += tag in self._tags


@contextmanager
def _library_errors(file: Path) -> Iterator[None]:
    """The library has no error of its own for files that do not fit."""
    try:
        yield
    except CorpusError:
        raise
    except Exception as err:
        problem = f"not {EXPECTED} ({type(err).__name__}: {err}). Export it again."
        raise CorpusError(problem, file) from err
