"""`nested-ner pick`: the texts that are worth annotating, for an annotation tool."""

# No `from __future__ import annotations`: typer reads the annotations at run time.

from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, List, Optional

import typer
from wasabi import msg

from spacy_nested_ner.cli.options import (
    CodeOpt,
    GpuOpt,
    ModelArg,
    SpansKeyOpt,
    TextOpt,
    TextsArg,
    WithoutOpt,
)
from spacy_nested_ner.cli.output import failing
from spacy_nested_ner.cli.pipelines import load_pipeline, use_gpu
from spacy_nested_ner.cli.texts import (
    TextReading,
    counted,
    file_texts,
    known_texts,
    spans_with_scores,
)

if TYPE_CHECKING:
    from spacy.tokens import Doc

    from spacy_nested_ner.evaluation.data.picking import Candidate
    from spacy_nested_ner.evaluation.scores.own_thresholds import ScoredComponent


class Tool(str, Enum):
    """The annotation tool that the file is for."""

    prodigy = "prodigy"
    label_studio = "label-studio"
    doccano = "doccano"

    @property
    def suffix(self) -> str:
        """How its import files are called."""
        return ".json" if self is Tool.label_studio else ".jsonl"


OutputArg = Annotated[
    Path,
    typer.Argument(metavar="OUTPUT", help="The file to write: .json for Label Studio, else .jsonl"),
]
NumberOpt = Annotated[int, typer.Option("--n", "-n", min=1, help="Number of texts to pick")]
FormatOpt = Annotated[
    Optional[Tool],
    typer.Option("--format", help="Annotation tool (default: label-studio if OUTPUT is .json)"),
]


def pick_cli(
    model: ModelArg,
    texts_path: TextsArg,
    output_path: OutputArg,
    n: NumberOpt = 100,
    format: FormatOpt = None,
    text: TextOpt = "text",
    spans_key: SpansKeyOpt = "sc",
    gpu_id: GpuOpt = -1,
    without: WithoutOpt = None,
    code: CodeOpt = None,
) -> None:
    """Pick the texts to annotate next, those the pipeline is least sure about, for Prodigy, Label
    Studio or doccano.

    The tool shows the entities that the pipeline finds. `convert` reads what the tool exports.
    """
    from spacy_nested_ner.corpora.export import export_tasks
    from spacy_nested_ner.evaluation.data.picking import pick
    from spacy_nested_ner.scale.pipelines import keep_few_shapes

    with failing("Cannot pick texts. Nothing was written."):
        tool = _tool(format, output_path)
        # A split of what is annotated keeps a document together by this id.
        texts = file_texts(texts_path, text, output_path, of_documents=True)
        known = known_texts(without or (), output_path)
        use_gpu(gpu_id)
        keep_few_shapes()
        nlp = load_pipeline(model)
        reading = TextReading(nlp, [spans_key], known)
        (component,) = reading.components
        picked = pick(reading.map(texts, partial(_candidate, component)), n)
        if not picked:
            raise ValueError(
                f"{texts_path} has no text that can be picked. {reading.nothing_left()}"
            )
        export_tasks((each.item for each in picked), tool.value, output_path)
    reading.report()
    _report(picked, n)
    entities = sum(len(each.item.spans) for each in picked)
    msg.good(
        f"Picked {len(picked)} of {counted(reading.texts)}, with {entities} entities to check:"
    )
    typer.echo(str(output_path.resolve()))


def _report(picked: "List[Candidate]", n: int) -> None:
    """Say where there was nothing to choose by."""
    empty = sum(not each.uncertain for each in picked)
    if len(picked) < n:
        msg.warn(
            "There is only 1 text. It is picked."
            if len(picked) == 1
            else f"There are only {len(picked)} different texts. All of them are picked."
        )
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


def _candidate(component: "ScoredComponent", doc: "Doc", name: str) -> "Candidate":
    from spacy_nested_ner.corpora.export import task_of
    from spacy_nested_ner.corpora.records import ScoredSpan
    from spacy_nested_ner.evaluation.data.picking import candidate

    spans = spans_with_scores(doc, component)
    found = {(span.start_char, span.end_char, span.label_): score for span, score in spans}
    kept = [ScoredSpan(*span, score) for span, score in component.kept(found).items()]
    forms = ((span.label_, span.text, score) for span, score in spans)
    return candidate(doc.text, forms, component.middle, task_of(name, doc, kept))
