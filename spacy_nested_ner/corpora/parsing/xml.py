"""Streaming XML that trusts nothing: no DTD is fetched, no entity declared, no tree built."""

from __future__ import annotations

import gzip
import tarfile
from collections import deque
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Deque, Dict, Iterator, cast
from xml.parsers import expat

from spacy_nested_ner.corpora.errors import CorpusError
from spacy_nested_ner.corpora.parsing.archives import DAMAGE, is_gzip, is_tar, members

CHUNK = 1 << 16


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
    if not path.is_file():
        what = "a folder" if path.is_dir() else "no such file"
        raise CorpusError(f"{what}. Expected a file with {expected}.", path)
    try:
        with _open_xml(path) as (stream, name):
            yield from stream_xml_file(stream, name, handler, expected)
    except DAMAGE as err:
        problem = f"the archive is damaged or cut off ({err}). Expected {expected}; get it again."
        raise CorpusError(problem, path) from err


def stream_xml_file(
    stream: IO[bytes], name: str, handler: XmlHandler, expected: str
) -> Iterator[Any]:
    """As `stream_xml`, from an open file that errors call `name`."""
    parser = _safe_parser(handler)
    try:
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
    except DAMAGE as err:
        problem = f"the archive is damaged or cut off ({err}). Expected {expected}; get it again."
        raise CorpusError(problem, name, parser.CurrentLineNumber) from err
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
    parser.EntityDeclHandler = _refuse_declaration
    parser.SkippedEntityHandler = _refuse_unknown
    return parser


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
    return "mend this line or get the file again."


@contextmanager
def _open_xml(path: Path) -> Iterator[tuple[IO[bytes], str]]:
    """The decompressed XML and a name for it."""
    if is_tar(path):
        with tarfile.open(path, "r|*") as archive:
            for member, stream in members(archive, ".xml"):
                yield stream, f"{path} ({member})"
                return
            held = ", ".join(archive.getnames()) or "nothing"
            raise CorpusError(f"no .xml file in the archive. It holds: {held}.", path)
    elif is_gzip(path):
        with gzip.open(path) as unzipped:
            yield cast("IO[bytes]", unzipped), str(path)
    else:
        with path.open("rb") as file:
            yield file, str(path)
