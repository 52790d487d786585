"""UIMA CAS XMI as INCEpTION and WebAnno export it: `.xmi` beside `TypeSystem.xml`, or both zipped.

The library dkpro-cassis reads it. Before that, every file is read once by a parser that refuses
entity declarations.
"""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Callable, Iterator, List, Optional, Tuple

from spacy_nested_ner.corpora.errors import CorpusError
from spacy_nested_ner.corpora.parsing.settings import with_settings
from spacy_nested_ner.corpora.parsing.xml import XmlHandler, stream_xml_file
from spacy_nested_ner.corpora.records import ReadOptions, Record, text_record
from spacy_nested_ner.corpora.registry import readers
from spacy_nested_ner.corpora.sentences import word_places
from spacy_nested_ner.corpora.spans import CharSpan
from spacy_nested_ner.corpora.splits import files_below

TYPE_SYSTEM = "TypeSystem.xml"
DKPRO = "de.tudarmstadt.ukp.dkpro.core.api"
EXPECTED = "UIMA CAS XMI, as INCEpTION exports it"

Opener = Callable[[], IO[bytes]]


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
    files = files_below(Path(path), ".xmi", ".zip")
    calls = ((file, split, settings, options) for file, split in files)
    yield from options.problems.attempt_each(_document, calls)


def _import_cassis() -> Any:
    try:
        import cassis
    except ImportError as err:
        raise ImportError(
            "Reading XMI needs the library dkpro-cassis: python -m pip install "
            "'spacy_nested_ner[xmi]'."
        ) from err
    return cassis


def _document(file: Path, split: str, settings: XmiSettings, options: ReadOptions) -> Record:
    name, xmi, types = _zipped(file) if file.suffix == ".zip" else _plain(file)
    cas = _load(file, xmi, types)
    text = cas.sofa_string or ""
    known = {found.name for found in cas.typesystem.get_types()}
    if settings.layer not in known:
        custom = sorted(type_ for type_ in known if not type_.startswith(("uima.", DKPRO)))
        raise CorpusError(
            f"no layer {settings.layer!r}. Choose it with --set layer=NAME; the file has: "
            f"{', '.join(custom) or 'no layer of its own'}.",
            file,
        )
    record = text_record(name, split, text, _spans(cas, settings, file, options), options)
    record.words = _words(cas, text, known)
    sentences = f"{DKPRO}.segmentation.type.Sentence"
    if sentences in known:
        record.sentence_starts = [sentence.begin for sentence in cas.select(sentences)]
    return record


def _spans(cas: Any, settings: XmiSettings, file: Path, options: ReadOptions) -> Iterator[CharSpan]:
    for annotation in cas.select(settings.layer):
        label = getattr(annotation, settings.feature, None)
        if label:
            yield annotation.begin, annotation.end, str(label)
        else:
            problem = (
                f"a span at {annotation.begin} has no {settings.feature!r}. Choose the feature "
                "with the label with --set feature=NAME."
            )
            options.problems.report(CorpusError(problem, file))


def _words(cas: Any, text: str, known: Any) -> Optional[List[str]]:
    """The tokens, unless there are none or they leave out text."""
    tokens = f"{DKPRO}.segmentation.type.Token"
    words = [token.get_covered_text() for token in cas.select(tokens)] if tokens in known else []
    try:
        word_places(text, words)
    except ValueError:
        return None
    return words or None


def _plain(file: Path) -> Tuple[str, Opener, Opener]:
    types = file.with_name(TYPE_SYSTEM)
    if not types.is_file():
        raise CorpusError(f"no {TYPE_SYSTEM} beside it, which the export holds as well.", file)
    return file.stem, lambda: file.open("rb"), lambda: types.open("rb")


def _zipped(file: Path) -> Tuple[str, Opener, Opener]:
    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            xmi = [name for name in names if name.endswith(".xmi")]
            types = [name for name in names if name.rpartition("/")[2] == TYPE_SYSTEM]
            if len(xmi) != 1 or len(types) != 1:
                held = ", ".join(names) or "nothing"
                problem = f"expected one .xmi file and {TYPE_SYSTEM} in the archive. It holds: "
                raise CorpusError(f"{problem}{held}.", file)
            contents = [archive.read(name) for name in (xmi[0], types[0])]
    except zipfile.BadZipFile as err:
        raise CorpusError(f"the archive is damaged ({err}). Export it again.", file) from err
    name = xmi[0].rpartition("/")[2].removesuffix(".xmi")
    return name, lambda: io.BytesIO(contents[0]), lambda: io.BytesIO(contents[1])


def _load(file: Path, xmi: Opener, types: Opener) -> Any:
    cassis = _import_cassis()
    for opener in (types, xmi):
        with opener() as stream:
            list(stream_xml_file(stream, str(file), XmlHandler(), EXPECTED))
    try:
        with types() as stream:
            type_system = cassis.load_typesystem(stream)
        with xmi() as stream:
            return cassis.load_cas_from_xmi(stream, typesystem=type_system)
    except Exception as err:  # the library has no error of its own for files that do not fit
        problem = f"not {EXPECTED} ({type(err).__name__}: {err}). Export it again."
        raise CorpusError(problem, file) from err
