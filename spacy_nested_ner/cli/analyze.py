"""`nested-ner analyze`: the papers' pictures from trained pipelines."""

# No `from __future__ import annotations`: typer reads the annotations at run time.

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Dict, List, Optional, Sequence

import typer
from wasabi import msg

from spacy_nested_ner.cli.evaluate import short_names
from spacy_nested_ner.cli.pipelines import check_data, load_pipeline, read_examples

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc
    from spacy.training import Example

    from spacy_nested_ner.pipeline.component import NestedNER


class Format(str, Enum):
    """Of the pictures."""

    svg = "svg"
    png = "png"


ModelsArg = Annotated[
    Optional[List[str]],
    typer.Argument(
        metavar="MODEL", help="Folders or package names of pipelines", show_default=False
    ),
]
DataArg = Annotated[
    Optional[Path],
    typer.Argument(metavar="DATA", help="Gold data, a .spacy file", show_default=False),
]
OutputArg = Annotated[
    Optional[Path],
    typer.Argument(metavar="OUT_DIR", help="Folder for the pictures", show_default=False),
]
FormatOpt = Annotated[Format, typer.Option("--format", help="SVG or PNG")]
SpansKeyOpt = Annotated[str, typer.Option(help="Key of the entities in doc.spans")]
DocOpt = Annotated[
    Optional[int], typer.Option("--doc", min=1, help="Doc whose spans are followed, from 1")
]
StepsOpt = Annotated[str, typer.Option(help="Denoising steps to try, with commas")]
SpansOpt = Annotated[str, typer.Option(help="Numbers of noisy spans to try, with commas")]
GpuOpt = Annotated[int, typer.Option("--gpu-id", "-g", help="GPU ID or -1 for CPU")]

LONGEST_DOC = 30


def analyze_cli(
    models: ModelsArg = None,
    data_path: DataArg = None,
    output_dir: OutputArg = None,
    picture_format: FormatOpt = Format.svg,
    spans_key: SpansKeyOpt = "sc",
    doc: DocOpt = None,
    steps: StepsOpt = "1,2,5,10",
    spans: SpansOpt = "15,30,60",
    gpu_id: GpuOpt = -1,
) -> None:
    """Draw F1 by length for all pipelines, and for each of the five systems the pictures of its
    paper: queries, boundary offsets, denoising steps, refinement of proposals, answers."""
    from spacy.cli._util import setup_gpu

    from spacy_nested_ner.corpora.files import written_together

    try:
        if not models or data_path is None or output_dir is None:
            given = [str(each) for each in (data_path, output_dir) if each is not None]
            raise ValueError(
                "Pipelines, gold data and a folder for the pictures are needed, in this order: "
                f"MODEL... DATA OUT_DIR. There is only: {' '.join(given) or 'nothing'}"
            )
        check_data(data_path)
        setup_gpu(gpu_id, silent=gpu_id < 0)
        grid = {"steps": _numbers("--steps", steps), "spans": _numbers("--spans", spans)}
        figures = draw(models, data_path, spans_key, doc, **grid)
        paths = {output_dir / f"{name}.{picture_format.value}": name for name in figures}
        with written_together(paths) as drafts:
            for path, name in paths.items():
                figures[name].savefig(drafts[path], format=picture_format.value, dpi=150)
    except (ValueError, ImportError, OSError) as err:
        msg.fail("Cannot draw the pictures.", str(err), exits=1)
    msg.good("Pictures:")
    for path in paths:
        typer.echo(str(path.resolve()))


def _numbers(option: str, text: str) -> List[int]:
    parts = text.split(",")
    if not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise ValueError(f"{option} is {text!r}; expected numbers from 1 with commas, like 1,5,10.")
    return [int(part) for part in parts]


def draw(
    models: Sequence[str],
    data_path: Path,
    spans_key: str = "sc",
    doc: Optional[int] = None,
    steps: Sequence[int] = (1, 2, 5, 10),
    spans: Sequence[int] = (15, 30, 60),
) -> Dict[str, Any]:
    """Figures by file name.

    doc: from 1, whose spans are followed; None chooses the one with most entities among those of at
        most `LONGEST_DOC` words.
    RAISES (ValueError): That names the pipeline or the file, if one of them cannot be used.
    RAISES (ImportError): Without matplotlib.
    """
    from spacy_nested_ner.evaluation.figures.plots import new_figure, plot_lengths
    from spacy_nested_ner.evaluation.figures.probes import nested_pipes, system_of
    from spacy_nested_ner.evaluation.page.page import remark
    from spacy_nested_ner.evaluation.scores.metrics import by_label, by_length, strict
    from spacy_nested_ner.evaluation.scores.report import run_pipeline

    new_figure(1, 1)  # without matplotlib better now than after an hour
    figures: Dict[str, Any] = {}
    lengths = {}
    for model, name in zip(models, short_names(models)):
        nlp = load_pipeline(model)
        examples = read_examples(nlp, data_path)
        chosen = _chosen(examples, spans_key, doc)
        try:
            table = run_pipeline(nlp, examples, spans_key).table
        except ValueError as err:
            raise ValueError(f"{model} on {data_path}: {err}") from err
        lengths[name] = by_length(table)
        labels = by_label(table).items()
        gold = {label for label, score in labels if score.gold}
        what = remark(strict(table), gold, {label for label, score in labels if score.predicted})
        if what is not None:
            msg.warn(f"{name}: {what}")
        pipes = nested_pipes(nlp)
        if not any(system_of(pipe) for pipe in pipes.values()):
            msg.info(f"{name} is none of the five systems: its F1 by length is all there is.")
        for pipe_name, pipe in pipes.items():
            made = _of_system(nlp, pipe, read_examples(nlp, data_path), chosen, steps, spans)
            prefix = f"{name}-{pipe_name}".replace("/", "-")
            figures.update({f"{prefix}-{what}": figure for what, figure in made.items()})
    return {"f1_by_length": plot_lengths(lengths), **figures}


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


def _of_system(
    nlp: "Language",
    pipe: "NestedNER",
    examples: "Sequence[Example]",
    chosen: int,
    steps: Sequence[int],
    spans: Sequence[int],
) -> Dict[str, Any]:
    """The pictures of the paper that a pipe comes from; none for one without pictures."""
    from spacy_nested_ner.evaluation.figures import plots, probes

    docs: List[Doc] = list(nlp.pipe(eg.predicted for eg in examples))
    doc, system = docs[chosen], probes.system_of(pipe)
    if system == "piqn":
        use = probes.query_use(pipe, docs)
        return {
            "query_locations": plots.plot_query_locations(use, pipe.labels),
            "query_types": plots.plot_query_types(use, pipe.labels),
        }
    if system == "locate_and_label":
        return {"offsets": plots.plot_offsets(probes.offset_counts(pipe, docs))}
    if system == "proposer_regressor":
        paths = probes.refinement_paths(pipe, doc)
        count = len(paths[0].stages) if paths else 2
        names = ["proposer", *(f"layer {i}" for i in range(1, count - 1)), "entity"]
        words = probes.followed_words(pipe, doc)
        title = "From proposals to entities"
        return {"refinement": plots.plot_paths(paths, words, names, title)}
    if system == "diffusion":
        paths = probes.denoising_paths(pipe, doc)
        names = ["noise", *(f"step {i}" for i in range(1, pipe.cfg["steps"] + 1))]
        rows = probes.step_trade_off(nlp, pipe, examples, steps, spans)
        words = probes.followed_words(pipe, doc)
        return {
            "trajectory": plots.plot_paths(paths, words, names, "From noise to entities"),
            "trade_off": plots.plot_trade_off(rows),
        }
    if system == "mrc":
        scores = probes.answer_scores(pipe, doc)
        words = probes.followed_words(pipe, doc)
        return {"answers": plots.plot_answers(scores, words, pipe.labels)}
    return {}
