"""Streaming XML that trusts nothing: no DTD is fetched, no entity declared, no tree built."""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Deque, Dict, Iterator, Optional
from xml.parsers import expat

from spacy_nested_ner.corpora.errors import CorpusError
from spacy_nested_ner.corpora.parsing.archives import damage_named, is_tar, members, unpacked
from spacy_nested_ner.corpora.parsing.paths import check_is_file

CHUNK = 1 << 16

_BUILT_IN = ("UTF-8", "UTF-16", "UTF-16LE", "UTF-16BE", "ISO-8859-1", "US-ASCII")
"""Encodings that expat reads by itself."""


class XmlHandler:
    """Receives elements and text, and puts finished items on `done`.

    Raise `ValueError` from a method to refuse the file at the current line.
    """

    def __init__(self) -> None:
        self.done: Deque[Any] = deque()

    def start(self, tag: str, attrs: Dict[str, str]) -> None:
        """An element opens."""

    def end(self, tag: str) -> None:
        """An element closes."""

    def text(self, data: str) -> None:
        """Character data, in pieces of any size."""

    def close(self) -> None:
        """The file is complete."""


def stream_xml(path: Path, handler: XmlHandler, expected: str) -> Iterator[Any]:
    """Yield the items that `handler` finishes, while the file is being read.

    path: an .xml file, the same gzipped, or a .tar/.tgz archive with one .xml file in it.
    expected: what the file should be, for error messages ("GENIA XML, ...").

    Raises CorpusError, with file and line, if the file is missing, damaged, malformed, cut off,
    declares entities, or is refused by the handler.
    """
    check_is_file(path, f"a file with {expected}")
    with _open_xml(path) as (stream, name):
        yield from stream_xml_file(stream, name, handler, expected)


def stream_xml_file(
    stream: IO[bytes], name: str, handler: XmlHandler, expected: str
) -> Iterator[Any]:
    """As `stream_xml`, from an open file that errors call `name`."""
    parser = _safe_parser(handler)
    try:
        with damage_named(name):
            while chunk := stream.read(CHUNK):
                parser.Parse(chunk, False)
                while handler.done:
                    yield handler.done.popleft()
        parser.Parse(b"", True)
        handler.close()
    except CorpusError:
        raise
    except expat.ExpatError as err:
        problem = f"{expat.ErrorString(err.code)}. Expected {expected}; {_remedy(err.code)}"
        raise CorpusError(problem, name, err.lineno) from err
    except ValueError as err:
        raise CorpusError(f"{err} Expected {expected}.", name, parser.CurrentLineNumber) from err
    yield from handler.done


def _safe_parser(handler: XmlHandler) -> expat.XMLParserType:
    """An expat parser that leaves external DTDs unread and stops at any entity of one's own:
    nested entity declarations can make a few hundred bytes expand to gigabytes."""
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = handler.start
    parser.EndElementHandler = handler.end
    parser.CharacterDataHandler = handler.text
    parser.XmlDeclHandler = _check_encoding
    parser.EntityDeclHandler = _refuse_declaration
    parser.SkippedEntityHandler = _refuse_unknown
    return parser


def _check_encoding(version: str, encoding: Optional[str], standalone: int) -> None:
    """Beside those of its own, expat reads the encodings of Python that give each byte a
    character."""
    if encoding is None or encoding.upper() in _BUILT_IN:
        return
    try:
        known = len(bytes(range(256)).decode(encoding, "replace")) == 256
    except (LookupError, ValueError):
        known = False
    if not known:
        raise ValueError(
            f"the file declares the encoding {encoding!r}, which is not known: save it in UTF-8."
        )


def _refuse_declaration(name: str, *_: Any) -> None:
    raise ValueError(f"the file declares the XML entity {name!r}, which is refused for safety.")


def _refuse_unknown(name: str, *_: Any) -> None:
    raise ValueError(f"the XML entity {name!r} is not defined, its text would be lost.")


def _remedy(code: int) -> str:
    cut_off = {
        expat.errors.codes[expat.errors.XML_ERROR_NO_ELEMENTS],
        expat.errors.codes[expat.errors.XML_ERROR_UNCLOSED_TOKEN],
    }
    if code in cut_off:
        return "the file ends too early: get it again."
    return "fix this line or get the file again."


@contextmanager
def _open_xml(path: Path) -> Iterator[tuple[IO[bytes], str]]:
    """The decompressed XML and a name for it."""
    archived = is_tar(path)
    with unpacked(path) as stream:
        if not archived:
            yield stream, str(path)
            return
        for member, content in members(stream, ".xml", path):
            yield content, f"{path} ({member})"
            return
