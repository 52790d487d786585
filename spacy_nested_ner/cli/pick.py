"""`nested-ner pick`: the texts that are worth annotating, for an annotation tool."""

# No `from __future__ import annotations`: typer reads the annotations at run time.

from enum import Enum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Dict, Iterator, List, Optional, Tuple

import typer
from wasabi import msg

from spacy_nested_ner.cli.options import GpuOpt, ModelArg, SpansKeyOpt, TextOpt
from spacy_nested_ner.cli.output import failing
from spacy_nested_ner.cli.pipelines import load_pipeline
from spacy_nested_ner.cli.texts import file_texts

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc

    from spacy_nested_ner.evaluation.data.picking import Candidate
    from spacy_nested_ner.evaluation.scores.own_thresholds import Threshold
    from spacy_nested_ner.scale.inputs import Text


class Tool(str, Enum):
    """The annotation tool that the file is for."""

    prodigy = "prodigy"
    label_studio = "label-studio"
    doccano = "doccano"

    @property
    def suffix(self) -> str:
        """How its import files are called."""
        return ".json" if self is Tool.label_studio else ".jsonl"


TextsArg = Annotated[
    Path,
    typer.Argument(
        metavar="TEXTS",
        help="A .parquet, .jsonl, .csv, .txt (a text a line) or .spacy file, or a folder",
    ),
]
OutputArg = Annotated[
    Path,
    typer.Argument(metavar="OUT", help="The file to write: .json for Label Studio, else .jsonl"),
]
NumberOpt = Annotated[int, typer.Option("--n", "-n", min=1, help="Texts to pick")]
FormatOpt = Annotated[
    Optional[Tool],
    typer.Option("--format", help="Annotation tool (default: label-studio where OUT is .json)"),
]
BATCH = 250


def pick_cli(
    model: ModelArg,
    texts_path: TextsArg,
    output_path: OutputArg,
    n: NumberOpt = 100,
    format: FormatOpt = None,
    text: TextOpt = "text",
    spans_key: SpansKeyOpt = "sc",
    gpu_id: GpuOpt = -1,
) -> None:
    """Pick the texts to annotate next, those of which the pipeline is least sure, for Prodigy,
    Label Studio or doccano.

    The tool shows the entities that the pipeline finds. `convert` reads what the tool exports.
    """
    from spacy.cli._util import setup_gpu

    from spacy_nested_ner.corpora.export import export_tasks
    from spacy_nested_ner.evaluation.data.picking import pick
    from spacy_nested_ner.scale.pipelines import keep_few_shapes

    with failing("Cannot pick texts. Nothing was written."):
        tool = _tool(format, output_path)
        texts = file_texts(texts_path, text)
        setup_gpu(gpu_id, silent=gpu_id < 0)
        keep_few_shapes()
        nlp = load_pipeline(model)
        pool = _Pool(nlp, _scored(nlp, spans_key))
        picked = pick(pool.candidates(texts), n)
        if not picked:
            raise ValueError(f"{texts_path} has no text that can be picked. {pool.left_out()}")
        export_tasks((each.item for each in picked), tool.value, output_path)
    if pool.unusable:
        msg.warn(pool.left_out())
    _report(picked, n)
    msg.info(f"Labels: {','.join(sorted(pool.own.pipe.labels))}")
    entities = sum(len(each.item.spans) for each in picked)
    msg.good(f"{len(picked)} of {pool.texts} texts, with {entities} entities to look at:")
    typer.echo(str(output_path.resolve()))


def _report(picked: "List[Candidate]", n: int) -> None:
    """Say where there was nothing to choose by."""
    empty = sum(not each.uncertain for each in picked)
    if len(picked) < n:
        msg.warn(f"There are only {len(picked)} different texts. All of them are picked.")
    elif empty:
        msg.warn(
            f"The pipeline finds nothing in {empty} of the picked texts: they come last, in the "
            "order of TEXTS. Give more texts, or train the pipeline longer."
        )


def _tool(format: Optional[Tool], path: Path) -> Tool:
    """Raises ValueError where nobody says which, or where the tool would not know the file."""
    if format is None and path.suffix == Tool.label_studio.suffix:
        return Tool.label_studio
    if format is None:
        tools = ", ".join(tool.value for tool in Tool)
        raise ValueError(f"Which annotation tool is {path} for? Give --format: {tools}.")
    if path.suffix != format.suffix:
        name = path.with_suffix(format.suffix).name
        raise ValueError(f"{path}: {format.value} reads {format.suffix} files. Call it {name}.")
    return format


def _scored(nlp: "Language", spans_key: str) -> "Threshold":
    """The component that writes the spans.

    Raises ValueError if none does that gives scores, or if it was never trained.
    """
    from spacy_nested_ner.evaluation.scores.own_thresholds import own_thresholds, untrained

    own = own_thresholds(nlp).get(spans_key)
    if own is None:
        raise ValueError(
            f"No component of the pipeline ({', '.join(nlp.pipe_names) or 'none'}) scores spans "
            f"under the spans key {spans_key!r}. Choose the key with --spans-key, or a pipeline "
            "with such a component."
        )
    if untrained({spans_key: own}) is not None:
        raise ValueError(f"Component {own.component!r} was never trained. Use `spacy train`.")
    return own


class _Pool:
    """The candidates among texts, and what became of the others.

    texts: how many were read. unusable: how many of them cannot be used. first: what is wrong with
    the first of these.
    """

    def __init__(self, nlp: "Language", own: "Threshold") -> None:
        self.nlp = nlp
        self.own = own
        self.texts = self.unusable = 0
        self.first = ""

    def candidates(self, texts: "Iterator[Tuple[str, Text]]") -> "Iterator[Candidate]":
        """Of each text that can be used and is not blank, in their order; predicted once, down to
        the lowest threshold."""
        from tqdm import tqdm

        from spacy_nested_ner.evaluation.scores.own_thresholds import lowered
        from spacy_nested_ner.scale.pipelines import LoadedPipeline

        usable = self._usable(tqdm(texts, unit=" texts", mininterval=0.5, disable=None))
        pipeline = LoadedPipeline(self.nlp)
        self.nlp.set_error_handler(self._failed)  # type: ignore[arg-type]
        with lowered({self.own.spans_key: self.own}):
            while batch := list(islice(usable, BATCH)):
                with pipeline.zone([text for text, _ in batch]) as nlp:
                    docs = nlp.pipe(batch, as_tuples=True, batch_size=BATCH)
                    found = [self._candidate(doc, name) for doc, name in docs]
                yield from found

    def left_out(self) -> str:
        """In words; empty if no text is."""
        if not self.unusable:
            return ""
        return f"Left out: {self.unusable} texts that cannot be used. {self.first}"

    def _usable(self, texts: "Iterator[Tuple[str, Text]]") -> Iterator[Tuple[str, str]]:
        for name, text in texts:
            self.texts += 1
            if not isinstance(text, str):
                self._problem(name, text.problem)
            elif len(text) > self.nlp.max_length:
                most = self.nlp.max_length
                self._problem(name, f"{len(text)} characters, the pipeline takes {most} at most")
            elif text.strip():
                yield text, name

    def _candidate(self, doc: "Doc", name: str) -> "Candidate":
        from spacy_nested_ner.corpora.export import task_of
        from spacy_nested_ner.corpora.records import ScoredSpan
        from spacy_nested_ner.evaluation.data.picking import candidate

        found = self._found(doc)
        kept = [ScoredSpan(*span, score) for span, score in self.own.kept(found).items()]
        spans = ((label, doc.text[start:end], p) for (start, end, label), p in found.items())
        middle = 0.5 if self.own.value is None else self.own.value
        return candidate(doc.text, spans, middle, task_of(name, doc, kept))

    def _found(self, doc: "Doc") -> "Dict[Tuple[int, int, str], float]":
        from spacy_nested_ner.tables import scored_spans

        found = {}
        for span, score in scored_spans(doc, self.own.spans_key):
            if score is None:
                raise ValueError(
                    f"The spans under {self.own.spans_key!r} have no scores in the end: a "
                    f"component behind {self.own.component!r} changes them. Take it out."
                )
            found[span.start_char, span.end_char, span.label_] = score
        return found

    def _failed(self, component: str, pipe: Any, docs: "List[Doc]", error: Exception) -> None:
        for doc in docs:
            self._problem(doc._context, f"{component!r} fails on it: {error}")

    def _problem(self, name: str, what: str) -> None:
        self.unusable += 1
        self.first = self.first or f"The text with the id {name!r}: {what}."
