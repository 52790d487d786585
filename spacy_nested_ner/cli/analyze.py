"""`nested-ner analyze`: the papers' pictures from trained pipelines."""

# No `from __future__ import annotations`: typer reads the annotations at run time.

import re
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Dict, List, Mapping, Optional, Sequence

import typer
from wasabi import msg

from spacy_nested_ner.cli.options import CodeOpt, DataArg, GpuOpt, ModelsArg, SpansKeyOpt
from spacy_nested_ner.cli.output import failing, warn_of
from spacy_nested_ner.cli.pipelines import (
    as_examples,
    load_pipeline,
    not_gold,
    raw_examples,
    read_as_one,
    read_gold,
    short_names,
    use_gpu,
)

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.training import Example


class Format(str, Enum):
    """Of the pictures."""

    svg = "svg"
    png = "png"


OutputArg = Annotated[
    Optional[Path],
    typer.Argument(metavar="OUTPUT", help="Folder for the pictures", show_default=False),
]
FormatOpt = Annotated[Format, typer.Option("--format", help="SVG or PNG")]
DocOpt = Annotated[
    Optional[int], typer.Option("--doc", min=1, help="Doc to show in detail, counted from 1")
]
VaryOpt = Annotated[
    Optional[List[str]],
    typer.Option(
        metavar="NAME=NUMBERS",
        help="Values of a run-time option to compare, such as steps=1,2,5",
    ),
]

LONGEST_DOC = 30


def analyze_cli(
    models: ModelsArg = None,
    data_path: DataArg = None,
    output_dir: OutputArg = None,
    picture_format: FormatOpt = Format.svg,
    spans_key: SpansKeyOpt = "sc",
    doc: DocOpt = None,
    vary: VaryOpt = None,
    gpu_id: GpuOpt = -1,
    code: CodeOpt = None,
) -> None:
    """Draw F1 by length for all pipelines, and for each component the figures of its paper."""
    from spacy_nested_ner.corpora.docbin import check_data
    from spacy_nested_ner.files import written_together

    with failing("Cannot draw the pictures."):
        if not models or data_path is None or output_dir is None:
            given = [str(each) for each in (data_path, output_dir) if each is not None]
            raise ValueError(
                "Pipelines, gold data and a folder for the pictures are needed, in this order: "
                f"MODEL... DATA OUTPUT. Got only: {' '.join(given) or 'nothing'}"
            )
        check_data(data_path)
        warn_of(read_as_one(data_path))
        use_gpu(gpu_id)
        figures = draw(models, data_path, spans_key, doc, _values(vary or []))
        paths = {output_dir / f"{name}.{picture_format.value}": name for name in figures}
        with written_together(paths) as drafts:
            for path, name in paths.items():
                figures[name].savefig(drafts[path], format=picture_format.value, dpi=150)
    msg.good("Pictures:")
    for path in paths:
        typer.echo(str(path.resolve()))


def _values(given: Sequence[str]) -> Dict[str, List[float]]:
    """`steps=1,2` and others to values by name.

    Raises ValueError for another form.
    """
    found: Dict[str, List[float]] = {}
    for text in given:
        name, _, values = text.partition("=")
        try:
            numbers = [float(value) for value in values.split(",")]
        except ValueError as err:
            example = "expected a name and numbers separated by commas, like steps=1,5,10"
            raise ValueError(f"--vary is {text!r}; {example}.") from err
        whole = [int(number) if number.is_integer() else number for number in numbers]
        found.setdefault(name.strip(), []).extend(whole)
    return found


def draw(
    models: Sequence[str],
    data_path: Path,
    spans_key: str = "sc",
    doc: Optional[int] = None,
    vary: Optional[Mapping[str, Sequence[float]]] = None,
) -> Dict[str, Any]:
    """Figures by file name.

    doc: from 1, whose spans are followed; None chooses the one with most entities among those of at
        most `LONGEST_DOC` words.
    vary: values of the run-time options that figures compare; None for those of the systems.
    RAISES (ValueError): That names the pipeline or the file, if one of them cannot be used.
    RAISES (ImportError): Without matplotlib.
    """
    from spacy_nested_ner.evaluation.figures.lengths import plot_lengths
    from spacy_nested_ner.evaluation.figures.view import nested_pipes
    from spacy_nested_ner.evaluation.scores.evaluate import run_pipeline
    from spacy_nested_ner.evaluation.scores.metrics import by_label, by_length
    from spacy_nested_ner.evaluation.scores.remarks import known_labels, remark
    from spacy_nested_ner.systems.drawing import new_figure

    new_figure(1, 1)  # without matplotlib better now than after an hour
    _check_values(vary or {})
    figures: Dict[str, Any] = {}
    lengths = {}
    unused = set(vary or {})
    for model, name in zip(models, short_names(models)):
        nlp = load_pipeline(model)
        docs = read_gold(nlp, data_path)
        if not any(map(len, docs)):
            raise ValueError(f"{data_path}: no doc has a word.")
        if model == models[0]:
            warn_of(not_gold(docs, data_path, [spans_key]))
        examples, _ = raw_examples(nlp, docs, data_path)
        chosen = _chosen(examples, spans_key, doc)
        try:
            table = run_pipeline(nlp, examples, spans_key).table
        except ValueError as err:
            raise ValueError(f"{model} on {data_path}: {err}") from err
        lengths[name] = by_length(table)
        what = remark(by_label(table), known=known_labels(nlp, spans_key))
        if what is not None:
            msg.warn(f"{name}: {what}")
        made = _of_components(nlp, as_examples(nlp, docs, data_path), chosen, vary or {})
        if not made:
            msg.info(f"{name}: no component has figures of its own; only F1 by length is drawn.")
        figures.update({re.sub(r"[/\\:]", "-", f"{name}-{what}"): made[what] for what in made})
        unused -= {option for _, system in nested_pipes(nlp).values() for option in system.varied}
    for option in sorted(unused):
        msg.warn(f"--vary {option}: no component of these pipelines has a figure that varies it.")
    return {"f1_by_length": plot_lengths(lengths), **figures}


def _check_values(vary: Mapping[str, Sequence[float]]) -> None:
    """Raise ValueError for an option that no figure varies, or for a value out of its range."""
    from spacy_nested_ner.settings import take
    from spacy_nested_ner.systems import all_systems

    systems = all_systems()
    known = {name for system in systems for name in system.varied}
    for name, values in vary.items():
        if name not in known:
            raise ValueError(f"--vary {name}: figures can vary only {', '.join(sorted(known))}.")
        for system in systems:
            for value in values if name in system.varied else []:
                try:
                    take(system.options, {name: value})
                except ValueError as err:
                    raise ValueError(f"--vary {name}: {err}.") from err


def _chosen(examples: "Sequence[Example]", spans_key: str, doc: Optional[int]) -> int:
    if doc is not None:
        if doc > len(examples):
            raise ValueError(f"--doc is {doc}, but the data has only {len(examples)} docs.")
        return doc - 1
    short = [i for i, eg in enumerate(examples) if len(eg.reference) <= LONGEST_DOC]
    return max(
        short or range(len(examples)),
        key=lambda i: len(examples[i].reference.spans.get(spans_key, [])),
    )


def _of_components(
    nlp: "Language",
    examples: "Sequence[Example]",
    chosen: int,
    vary: Mapping[str, Sequence[float]],
) -> Dict[str, Any]:
    """The figures of the components of a pipeline that have some, by component and figure."""
    from spacy_nested_ner.evaluation.figures.view import ComponentView, nested_pipes

    figures: Dict[str, Any] = {}
    for name, (pipe, system) in nested_pipes(nlp).items():
        draw_own = system.figures()
        if draw_own is not None:
            made = draw_own(ComponentView(nlp, pipe, examples, chosen, vary))
            figures.update({f"{name}-{what}": figure for what, figure in made.items()})
    return figures
