"""`nested-ner predict`: the entities of a text or of a file of texts, as JSON lines or CSV."""

# No `from __future__ import annotations`: typer reads the annotations at run time.

import codecs
import csv
import json
import os
import sys
from contextlib import contextmanager, redirect_stdout
from enum import Enum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Dict, Iterator, List, Optional, Tuple

import typer
from wasabi import msg

from spacy_nested_ner.cli.options import TEXT_FILES, CodeOpt, GpuOpt, ModelArg, SpansKeyOpt, TextOpt
from spacy_nested_ner.cli.output import failing
from spacy_nested_ner.cli.pipelines import load_pipeline, use_gpu
from spacy_nested_ner.cli.texts import counted, file_texts

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc

    from spacy_nested_ner.scale.inputs import Text


class Format(str, Enum):
    """jsonl: a line for each text. csv: a row for each entity."""

    jsonl = "jsonl"
    csv = "csv"


SourceArg = Annotated[
    Optional[str],
    typer.Argument(
        metavar="TEXT | INPUT",
        help=f"A text, or a {TEXT_FILES} (default, or -: the lines of standard input)",
        show_default=False,
    ),
]
OutputOpt = Annotated[
    Optional[Path], typer.Option("--output", "-o", help="File to write instead of standard output")
]
FormatOpt = Annotated[
    Optional[Format],
    typer.Option(
        "--format", help="JSON lines or CSV (default: by the suffix of the output file, else jsonl)"
    ),
]
ThresholdOpt = Annotated[
    Optional[float],
    typer.Option(
        min=0, max=1, help="Lowest score of an entity (default: threshold of the component)"
    ),
]


def predict_cli(
    model: ModelArg,
    source: SourceArg = None,
    output_path: OutputOpt = None,
    format: FormatOpt = None,
    spans_key: SpansKeyOpt = "sc",
    threshold: ThresholdOpt = None,
    text: TextOpt = "text",
    gpu_id: GpuOpt = -1,
    code: CodeOpt = None,
) -> None:
    """Find the entities of a text, or of each text of a file: offsets, label, score, nesting.

    JSON lines are what `spacy_nested_ner.to_dicts` gives, CSV is the table of `to_frame` without
    `kb_id`; texts from a file also get their id. The command stops at a text that cannot be read.
    For very many texts use `annotate`.
    """
    standard = getattr(sys.stdout, "buffer", None)
    with _aside(output_path is None), failing("Cannot predict."):
        kind = _format(format, output_path)
        texts, with_ids = _texts(source, text, output_path)
        use_gpu(gpu_id)
        nlp = load_pipeline(model)
        if threshold is not None:
            _set_threshold(nlp, spans_key, threshold)
        found = _Found(nlp, model, spans_key)
        with _opened(output_path, standard) as file:
            _write(found.dicts(texts, with_ids), with_ids, kind, file)
        if not found.entities:
            remedy = "A lower --threshold may find some; if not, train the pipeline longer."
            msg.warn(f"The pipeline finds no entity. {remedy}")
        if output_path is not None:
            msg.good(f"{found.entities} entities in {counted(found.texts)}:")
            typer.echo(str(output_path.resolve()))


@contextmanager
def _aside(is_wanted: bool) -> Iterator[None]:
    """Messages on standard error, where standard output is for the entities."""
    with redirect_stdout(sys.stderr if is_wanted else sys.stdout):
        yield


def _format(format: Optional[Format], path: Optional[Path]) -> Format:
    if format is not None:
        return format
    if path is None:
        return Format.jsonl
    try:
        return Format(path.suffix[1:])
    except ValueError:
        raise ValueError(f"{path} is neither .jsonl nor .csv. Choose one with --format.") from None


def _texts(
    source: Optional[str], column: str, output: Optional[Path]
) -> "Tuple[Iterator[Tuple[str, Text]], bool]":
    """Each text with its id, and whether ids are of the texts, or only for errors. What is called
    like a file has to be one. output: see `file_texts`.

    Raises ValueError if there are none, or if they cannot be read.
    """
    from tqdm import tqdm

    from spacy_nested_ner.scale.inputs import KINDS, checked, kind_of

    if source is None or source == "-":
        return _lines_of_input(), False
    path = Path(source)
    if not source or not (os.path.exists(source) or kind_of(path) in KINDS):
        return iter([("1", checked(source))]), False
    # No bar between the lines of what is found.
    hidden = True if output is None else None
    texts = file_texts(path, column, output)
    return iter(tqdm(texts, unit=" texts", mininterval=0.5, disable=hidden)), True


def _lines_of_input() -> "Iterator[Tuple[str, Text]]":
    from spacy_nested_ner.scale.inputs import text_lines

    stream = getattr(sys.stdin, "buffer", None)
    if stream is None:
        raise ValueError("There is no standard input. Give a text or a file after MODEL.")
    if stream.isatty():
        typer.echo(
            "Type texts, one per line; end with Ctrl-D (on Windows Ctrl-Z, Enter).", err=True
        )
    number = 0
    for number, text in enumerate(text_lines(stream), start=1):
        yield f"line {number}", text
    if not number:
        raise ValueError("The standard input holds no texts. Give a text or a file after MODEL.")


def _set_threshold(nlp: "Language", spans_key: str, threshold: float) -> None:
    from spacy_nested_ner.evaluation.scores.own_thresholds import scored_components

    component = scored_components(nlp).get(spans_key)
    if component is None or component.threshold is None:
        raise ValueError(
            f"No component of the pipeline ({', '.join(nlp.pipe_names) or 'none'}) has a threshold "
            f"and writes the spans key {spans_key!r}. Leave out --threshold, or choose the key "
            "with --spans-key."
        )
    component.pipe.cfg["threshold"] = threshold


def _fail(component: str, pipe: Any, docs: "List[Doc]", error: Exception) -> None:
    """For `set_error_handler`. docs: with their ids, as `Language.pipe` has them."""
    if isinstance(error, (MemoryError, OSError)):
        raise error
    if len(docs) > 1:
        for doc in docs:
            pipe(doc)  # the one at which it fails comes here
    first, last = (repr(doc._context) for doc in (docs[0], docs[-1]))
    where = f"the text with the id {first}" if len(docs) == 1 else f"a text from {first} to {last}"
    raise ValueError(
        f"Component {component!r} fails on {where}: {type(error).__name__}: {error}"
    ) from error


class _Found:
    """Runs the pipeline, and counts."""

    def __init__(self, nlp: "Language", model: str, spans_key: str) -> None:
        self.nlp = nlp
        self.model = model
        self.spans_key = spans_key
        self.texts = self.entities = 0

    def dicts(
        self, texts: "Iterator[Tuple[str, Text]]", with_ids: bool
    ) -> Iterator[Dict[str, Any]]:
        """What `to_dicts` gives, doc by doc, with the ids of the texts if wanted.

        Raises ValueError for what is no text, for docs without spans of the key, and where a
        component fails.
        """
        from spacy_nested_ner.pipeline.tokens import make_doc
        from spacy_nested_ner.scale.pipelines import check_key, set_error_handler
        from spacy_nested_ner.tables import as_dict, scored_spans

        set_error_handler(self.nlp, _fail)
        made = ((make_doc(self.nlp, self._usable(name, text)), name) for name, text in texts)
        for doc, name in self.nlp.pipe(made, as_tuples=True):
            check_key(self.model, self.spans_key, doc.spans)
            self.texts += 1
            self.entities += len(doc.spans[self.spans_key])
            try:
                found = as_dict(doc, scored_spans(doc, self.spans_key))
            except ValueError as err:
                raise ValueError(f"The text with the id {name!r}: {err}") from err
            yield {"id": name, **found} if with_ids else found

    def _usable(self, name: str, text: "Text") -> str:
        from spacy_nested_ner.scale.inputs import problem_of

        if problem := problem_of(text, self.nlp.max_length):
            raise ValueError(f"The text with the id {name!r}: {problem}.")
        return str(text)


@contextmanager
def _opened(path: Optional[Path], standard: Optional[IO[bytes]]) -> Iterator[IO[bytes]]:
    """The file to write, whole or not at all, or standard output."""
    from spacy_nested_ner.files import written_together

    if path is None:
        if standard is None:
            raise ValueError("There is no standard output. Give --output.")
        yield standard
        standard.flush()
        return
    with written_together([path]) as drafts, drafts[path].open("wb") as file:
        yield file


def _write(found: Iterator[Dict[str, Any]], with_ids: bool, kind: Format, file: IO[bytes]) -> None:
    from spacy_nested_ner.tables import COLUMNS, rows_of

    text = codecs.getwriter("utf8")(file)  # changes no end of line, whatever the system
    if kind == Format.jsonl:
        for each in found:
            text.write(json.dumps(each, ensure_ascii=False) + "\n")
    else:
        writer = csv.DictWriter(text, [*COLUMNS, "id"] if with_ids else [*COLUMNS])
        writer.writeheader()
        for row in rows_of(found):
            row.pop("kb_id", None)  # the header is written before it is known whether there is one
            writer.writerow(row)
